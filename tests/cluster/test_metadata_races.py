"""Several brokers change the same tree at the same time: nothing that was known is forgotten, nothing goes back."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from moldau.cluster.changes import CHANGES_PER_MULTI_MAX, StateChange, TopicChange
from moldau.cluster.embedded.store import EmbeddedStore
from moldau.cluster.image import BrokerInfo, ClusterImage, PartitionImage
from moldau.cluster.metadata import Conflict, Metadata
from moldau.cluster.store import Node, Operation, SessionLost, StoreUnavailable
from moldau.core.clock import ManualClock
from moldau.protocol.errors import ApiError, ErrorCode


class SlowStore(EmbeddedStore):
    """A store of which one read can be held back after it has read, and whose writes can fail, before or after."""

    def __init__(self, path: str) -> None:
        super().__init__(path, durable=False)
        self.gate = asyncio.Event()
        self.waiting = asyncio.Event()
        self.holds_next = False
        self.failure: Exception | None = None
        self.fails_after = False
        self.before_next_write: Callable[[], Awaitable[object]] | None = None

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        nodes = await super().get_many(paths)
        if self.holds_next:
            self.holds_next = False
            self.waiting.set()
            await self.gate.wait()
        return nodes

    async def multi(self, operations: Sequence[Operation]) -> list[str | int | None]:
        if self.before_next_write is not None:
            act, self.before_next_write = self.before_next_write, None
            await act()
        if self.failure is not None and not self.fails_after:
            raise self.failure
        results = await super().multi(operations)
        if self.failure is not None:
            raise self.failure
        return results


class Race:
    """Two brokers over one file; ours has the slow store."""

    def __init__(self, directory: Path) -> None:
        path = str(directory / "metadata.sqlite")
        self.store, self.other_store = SlowStore(path), EmbeddedStore(path, durable=False)
        self.told = 0
        self.ours = Metadata(self.store, ManualClock(), ids(b"o"), self._tell)
        self.theirs = Metadata(self.other_store, ManualClock(), ids(b"t"))
        self.images: list[ClusterImage] = []

    def _tell(self) -> None:
        self.told += 1

    async def start(self) -> None:
        for metadata, id_ in ((self.ours, 1), (self.theirs, 2)):
            await metadata.load()
            await metadata.register_broker(BrokerInfo(id_, None, ()))
        await self.ours.reload()
        self.ours.subscribe(lambda _old, new: self.images.append(new))

    async def during_a_refresh(self, stale: str, act: Callable[[], Awaitable[object]]) -> None:
        """`act` happens after the refresh has read and before it has published."""
        self.ours._note_change(stale)
        self.store.holds_next = True
        refresh = asyncio.create_task(self.ours.refresh())
        await self.store.waiting.wait()
        acting = asyncio.ensure_future(act())
        for _turn in range(10):  # as far as it comes: what has to read waits for the refresh
            await asyncio.sleep(0)
        self.store.gate.set()
        await refresh
        await acting

    async def close(self) -> None:
        await self.store.close()
        await self.other_store.close()


def ids(salt: bytes) -> Callable[[int], bytes]:
    made = 0

    def next_id(size: int) -> bytes:
        nonlocal made
        made += 1
        return (salt + made.to_bytes(2)).ljust(size, b"\1")

    return next_id


@pytest.fixture
def race(tmp_path: Path) -> Callable[[Callable[[Race], Awaitable[None]]], None]:
    def run(steps: Callable[[Race], Awaitable[None]]) -> None:
        async def whole() -> None:
            made = Race(tmp_path)
            try:
                await made.start()
                await asyncio.wait_for(steps(made), 20)
            finally:
                await made.close()

        asyncio.run(whole())

    return run


Run = Callable[[Callable[[Race], Awaitable[None]]], None]


def test_a_write_during_a_refresh_is_not_undone_by_it(race: Run) -> None:
    async def steps(race: Race) -> None:
        topic = await race.ours.create_topic("t", [[1, 2]])
        state = topic.partitions[0]._replace(isr=(1,))
        change = StateChange("t", topic.topic_id, 0, state)
        await race.during_a_refresh("/brokers/topics/t/partitions/0/state", lambda: race.ours.write([change]))
        assert race.ours.image.topics["t"].partitions[0] == state._replace(partition_epoch=1)
        assert len(race.images) == 2  # the topic, the write; nothing in between went back

    race(steps)


def test_a_topic_made_during_a_refresh_is_not_taken_for_deleted(race: Run) -> None:
    async def steps(race: Race) -> None:
        await race.during_a_refresh("/brokers/topics/t", lambda: race.ours.create_topic("t", [[1]]))
        assert "t" in race.ours.image.topics
        assert all("t" in image.topics for image in race.images)

    race(steps)


def test_a_topic_deleted_during_a_refresh_does_not_come_back(race: Run) -> None:
    async def steps(race: Race) -> None:
        await race.ours.create_topic("t", [[1]])
        await race.during_a_refresh("/brokers/topics/t", lambda: race.ours.delete_topic("t"))
        assert "t" not in race.ours.image.topics
        assert ["t" in image.topics for image in race.images] == [True, False]

    race(steps)


def test_what_another_wrote_meanwhile_is_seen_after_the_conflict(race: Run) -> None:
    async def steps(race: Race) -> None:
        topic = await race.ours.create_topic("t", [[1, 2]])
        await race.theirs.reload()
        theirs = topic.partitions[0]._replace(leader=2, leader_epoch=1)
        await race.theirs.update_partition("t", 0, theirs)
        ours = StateChange("t", topic.topic_id, 0, topic.partitions[0]._replace(isr=(1,)))
        with pytest.raises(Conflict):
            await race.ours.write([ours])
        assert race.ours.image.topics["t"].partitions[0] == theirs._replace(partition_epoch=1)

    race(steps)


def test_of_several_changes_all_happen_or_none(race: Run) -> None:
    async def steps(race: Race) -> None:
        topic = await race.ours.create_topic("t", [[1, 2]] * 2)
        await race.theirs.reload()
        await race.theirs.update_partition("t", 1, topic.partitions[1])
        shrunk = [
            StateChange("t", topic.topic_id, index, topic.partitions[index]._replace(isr=(1,))) for index in (0, 1)
        ]
        with pytest.raises(Conflict):
            await race.ours.write(shrunk)
        assert [state.isr for state in race.ours.image.topics["t"].partitions] == [(1, 2), (1, 2)]
        moved = topic.partitions[0]._replace(replicas=(2, 1))
        await race.ours.write([shrunk[0], TopicChange(topic.with_partition(0, moved))])
        await race.theirs.reload()
        assert race.theirs.image.topics == race.ours.image.topics
        assert race.ours.image.topics["t"].partitions[0] == PartitionImage(1, 0, (1,), (2, 1), 1)
        assert race.ours.image.topics["t"].version == 1

    race(steps)


def test_a_change_of_a_topic_that_was_made_anew_does_not_hit_the_new_one(race: Run) -> None:
    async def steps(race: Race) -> None:
        old = await race.ours.create_topic("t", [[1, 2]])
        await race.theirs.reload()
        await race.theirs.delete_topic("t")
        new = await race.theirs.create_topic("t", [[1, 2]])
        assert new.partitions == old.partitions  # the versions do not tell
        for change in (StateChange("t", old.topic_id, 0, old.partitions[0]._replace(isr=(2,))), TopicChange(old)):
            with pytest.raises(Conflict):
                await race.ours.write([change])
        assert race.ours.image.topics["t"] == new
        await race.theirs.reload()
        assert race.theirs.image.topics["t"] is new

    race(steps)


def test_a_write_is_refused_once_there_is_another_controller(race: Run) -> None:
    async def steps(race: Race) -> None:
        topic = await race.ours.create_topic("t", [[1, 2]])
        assert await race.ours.claim_controller(1)
        change = StateChange("t", topic.topic_id, 0, topic.partitions[0]._replace(isr=(1,)))
        await race.ours.write([change], [race.ours.controller_guard()])
        await race.other_store.delete("/controller")
        assert await race.theirs.claim_controller(2)
        again = StateChange("t", topic.topic_id, 0, race.ours.image.topics["t"].partitions[0])
        with pytest.raises(Conflict):
            await race.ours.write([again], [race.ours.controller_guard()])
        assert race.ours.image.controller_id == 2
        assert race.ours.image.controller_epoch == 2

    race(steps)


def test_a_claim_that_was_not_answered_is_made_again(race: Run) -> None:
    async def steps(race: Race) -> None:
        race.store.failure, race.store.fails_after = StoreUnavailable("/"), True
        with pytest.raises(StoreUnavailable):
            await race.ours.claim_controller(1)
        race.store.failure = None
        assert await race.ours.claim_controller(1)
        assert race.ours.image.controller_epoch == 2
        await race.ours.write([], [race.ours.controller_guard()])
        await race.ours.resign_controller()
        await race.ours.refresh()
        assert race.ours.image.controller_id == -1
        assert await race.theirs.claim_controller(2)
        assert not await race.ours.claim_controller(1)

    race(steps)


@pytest.mark.parametrize("failure", [SessionLost("/"), StoreUnavailable("/")])
def test_a_write_of_unknown_outcome_is_read_again(race: Run, failure: Exception) -> None:
    async def steps(race: Race) -> None:
        topic = await race.ours.create_topic("t", [[1, 2]])
        await race.ours.refresh()
        told = race.told
        race.store.failure, race.store.fails_after = failure, True
        with pytest.raises(type(failure)):
            await race.ours.write([StateChange("t", topic.topic_id, 0, topic.partitions[0]._replace(isr=(1,)))])
        assert race.ours.image.topics["t"] is topic
        assert race.told == told + 1
        race.store.failure = None
        await race.ours.refresh()
        assert race.ours.image.topics["t"].partitions[0].isr == (1,)

    race(steps)


def test_who_asks_for_a_change_while_the_store_is_away_may_ask_again(race: Run) -> None:
    async def steps(race: Race) -> None:
        await race.ours.create_topic("t", [[1, 2]])
        race.store.failure = StoreUnavailable("/")
        for operation in (
            race.ours.create_topic("new", [[1]]),
            race.ours.add_partitions("t", [[1]]),
            race.ours.set_topic_configs("t", {}),
            race.ours.set_broker_configs("", {}),
            race.ours.delete_topic("t"),
            race.ours.next_producer_id_block(1),
        ):
            with pytest.raises(ApiError) as error:
                await operation
            assert error.value.code is ErrorCode.REQUEST_TIMED_OUT

    race(steps)


def test_what_could_not_be_read_stays_to_be_read(race: Run) -> None:
    async def steps(race: Race) -> None:
        await race.theirs.create_topic("t", [[1, 2]])
        read = race.store.get_many

        async def fails(paths: Sequence[str]) -> list[Node | None]:
            raise StoreUnavailable(paths[0])

        race.ours._note_change("/brokers/topics/t")
        told = race.told
        race.store.get_many = fails  # type: ignore[method-assign]
        with pytest.raises(StoreUnavailable):
            await race.ours.refresh()
        assert race.told == told + 1
        race.store.get_many = read  # type: ignore[method-assign]
        await race.ours.refresh()
        assert "t" in race.ours.image.topics

    race(steps)


PARTITIONS = 2 * CHANGES_PER_MULTI_MAX + 10


def test_a_topic_too_large_for_one_step_is_complete_when_it_is_there(race: Run) -> None:
    async def steps(race: Race) -> None:
        topic = await race.ours.create_topic("t", [[1, 2]] * PARTITIONS)
        assert topic.partitions == (PartitionImage(1, 0, (1, 2), (1, 2), 0),) * PARTITIONS
        topic = await race.ours.add_partitions("t", [[2]] * PARTITIONS)
        assert topic.partitions[PARTITIONS:] == (PartitionImage(2, 0, (2,), (2,), 0),) * PARTITIONS
        await race.theirs.reload()
        assert race.theirs.image.topics["t"] == topic
        await race.theirs.delete_topic("t")
        assert await race.other_store.children("/brokers/topics") == []

    race(steps)


def test_a_topic_too_large_for_one_step_is_deleted(race: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moldau.cluster.metadata.PARTITIONS_DELETED_AT_ONCE_MAX", 100)

    async def steps(race: Race) -> None:
        await race.ours.create_topic("t", [[1, 2]] * PARTITIONS, {"retention.ms": "1"})
        await race.ours.delete_topic("t")
        assert race.ours.image.topics == {}
        assert await race.other_store.children("/brokers/topics") == []
        assert await race.other_store.children("/config/topics") == []

    race(steps)


def test_a_topic_that_was_made_anew_is_not_deleted_for_the_old_one(race: Run) -> None:
    async def steps(race: Race) -> None:
        await race.ours.create_topic("t", [[1, 2]])
        await race.theirs.reload()
        await race.theirs.delete_topic("t")
        new = await race.theirs.create_topic("t", [[1, 2]])
        with pytest.raises(ApiError) as error:
            await race.ours.delete_topic("t")
        assert error.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert race.ours.image.topics["t"] == new

    race(steps)


def test_a_topic_is_deleted_by_a_broker_that_does_not_know_all_of_it(race: Run) -> None:
    async def steps(race: Race) -> None:
        await race.theirs.create_topic("t", [[1]])
        await race.ours.reload()
        await race.theirs.add_partitions("t", [[2]])
        assert len(race.ours.image.topics["t"].partitions) == 1
        await race.ours.delete_topic("t")
        assert await race.other_store.children("/brokers/topics") == []

    race(steps)


def test_a_state_is_made_for_a_topic_of_which_a_tool_made_nothing_else(race: Run) -> None:
    async def steps(race: Race) -> None:
        await race.other_store.create("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1],"1":[2]}}')
        await race.ours.reload()
        topic = race.ours.image.topics["t"]
        states = [PartitionImage(index + 1, 0, (index + 1,), (index + 1,), -1) for index in (0, 1)]
        await race.ours.write([StateChange("t", topic.topic_id, index, states[index]) for index in (0, 1)])
        await race.theirs.reload()
        made = tuple(state._replace(partition_epoch=0) for state in states)
        assert race.ours.image.topics["t"].partitions == race.theirs.image.topics["t"].partitions == made

    race(steps)


def test_the_word_of_a_broker_reaches_the_others_and_goes_with_it(race: Run) -> None:
    async def steps(race: Race) -> None:
        told = BrokerInfo(2, None, (), shutting_down=True, offline={"t": (0, 3)})
        await race.theirs.update_registration(told)
        await race.ours.reload()
        seen = race.ours.image.brokers[2]
        assert seen._replace(epoch=-1) == told
        assert seen.epoch == race.theirs.image.brokers[2].epoch > 0
        await race.other_store.close()
        await race.ours.reload()
        assert list(race.ours.image.brokers) == [1]

    race(steps)


# Names that come to mean something else between the last look and the write


def test_a_write_does_not_hit_a_topic_that_was_made_anew_since_the_last_look(race: Run) -> None:
    async def steps(race: Race) -> None:
        topic = await race.ours.create_topic("t", [[1, 2]])
        await race.theirs.reload()

        async def make_anew() -> None:
            await race.theirs.delete_topic("t")
            await race.theirs.create_topic("t", [[1, 2]])

        race.store.before_next_write = make_anew
        with pytest.raises(Conflict):
            await race.ours.write([StateChange("t", topic.topic_id, 0, topic.partitions[0]._replace(isr=(1,)))])
        await race.theirs.reload()
        assert race.theirs.image.topics["t"].partitions[0].partition_epoch == 0
        assert race.theirs.image.topics["t"].topic_id != topic.topic_id

    race(steps)


def test_partitions_are_not_added_to_a_topic_that_was_made_anew_since_the_last_look(race: Run) -> None:
    async def steps(race: Race) -> None:
        await race.ours.create_topic("t", [[1, 2]])
        await race.theirs.reload()

        async def make_anew() -> None:
            await race.theirs.delete_topic("t")
            await race.theirs.create_topic("t", [[1, 2]])

        race.store.before_next_write = make_anew
        with pytest.raises(ApiError):
            await race.ours.add_partitions("t", [[1, 2]])
        await race.theirs.reload()
        assert len(race.theirs.image.topics["t"].partitions) == 1

    race(steps)


def test_who_is_let_in_must_not_have_been_started_anew_since_the_last_look(race: Run) -> None:
    async def steps(race: Race) -> None:
        topic = await race.ours.create_topic("t", [[1, 2]])
        epoch = race.ours.image.brokers[2].epoch
        state = topic.partitions[0]._replace(isr=(1,))
        await race.ours.write([StateChange("t", topic.topic_id, 0, state)])

        async def start_anew() -> None:
            await race.other_store.delete("/brokers/ids/2")
            await race.theirs.register_broker(BrokerInfo(2, None, ()))

        let_in = StateChange("t", topic.topic_id, 0, state._replace(isr=(1, 2), partition_epoch=1))
        race.store.before_next_write = start_anew
        with pytest.raises(Conflict):
            await race.ours.write([let_in], starts={2: epoch})
        assert 2 not in race.ours.image.topics["t"].partitions[0].isr
        await race.ours.write([let_in], starts={2: race.ours.image.brokers[2].epoch})
        assert 2 in race.ours.image.topics["t"].partitions[0].isr

    race(steps)


def test_the_end_of_another_topic_does_not_stand_in_the_way_of_a_write(race: Run) -> None:
    async def steps(race: Race) -> None:
        topic = await race.ours.create_topic("t", [[1, 2]])
        await race.ours.create_topic("other", [[1, 2]])
        await race.theirs.reload()
        race.store.before_next_write = lambda: race.theirs.delete_topic("other")
        await race.ours.write([StateChange("t", topic.topic_id, 0, topic.partitions[0]._replace(isr=(1,)))])
        assert race.ours.image.topics["t"].partitions[0].isr == (1,)

    race(steps)
