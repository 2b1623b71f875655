"""What becomes of a leader's wish for other in-sync replicas, for every answer that the store can give."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from moldau.broker import isr_changes
from moldau.broker.isr_changes import IsrProposals
from moldau.cluster.changes import Change, StateChange, applied
from moldau.cluster.image import BrokerInfo, ClusterImage, PartitionImage, TopicImage
from moldau.cluster.metadata import Conflict
from moldau.cluster.store import SessionLost
from moldau.core.clock import ManualClock
from moldau.replication.partition import Partition
from moldau.replication.replicas import Replicas
from tests.log.helpers import PARTITION, memory_log

TOPIC, INDEX = PARTITION
TOPIC_ID = b"t" * 16
TURNS = 100
"""Of the loop, after which everything has happened: pauses are none here."""


class Store:
    """Metadata whose next answers the test has laid out; without any it does what it is asked."""

    def __init__(self) -> None:
        state = PartitionImage(1, 5, (1,), (1, 2, 3), 7)
        empty = PartitionImage(-1, 0, (1,), (1,), 0)
        topic = TopicImage(TOPIC, TOPIC_ID, (*[empty] * INDEX, state), {})
        brokers = {each: BrokerInfo(each, None, (), epoch=10) for each in (1, 2, 3)}
        self.image = ClusterImage(brokers=brokers, topics={TOPIC: topic})
        self.answers: list[str] = []
        self.writes: list[tuple[int, ...]] = []
        self.ids = {TOPIC: TOPIC_ID}
        self._listeners: list[Callable[[ClusterImage, ClusterImage], None]] = []

    def subscribe(self, listener: Callable[[ClusterImage, ClusterImage], None]) -> None:
        self._listeners.append(listener)

    def publish(self, image: ClusterImage) -> None:
        old, self.image = self.image, image
        for listener in self._listeners:
            listener(old, image)

    async def topic_id_now(self, names: Sequence[str]) -> dict[str, bytes]:
        return {name: self.ids[name] for name in names if name in self.ids}

    async def write(self, changes: Sequence[Change], *, starts: Mapping[int, int]) -> None:
        await asyncio.sleep(0)
        answer = self.answers.pop(0) if self.answers else "yes"
        if len(changes) > 1:
            raise Conflict("one by one, please")
        (change,) = changes
        assert isinstance(change, StateChange)
        assert change.state.partition_epoch == self.state.partition_epoch
        self.writes.append(change.state.isr)
        joiners = set(change.state.isr) - set(self.state.isr)
        assert starts == {each: self.image.brokers[each].epoch for each in joiners}, "joiners are checked"
        if answer == "lost":
            raise SessionLost("nobody knows")
        if answer == "no":
            raise Conflict("somebody was first")
        self.publish(applied(self.image, changes))

    @property
    def state(self) -> PartitionImage:
        return self.image.topics[TOPIC].partitions[INDEX]


class Bench:
    """Broker 1 leads alone; 2 and 3 may join."""

    def __init__(self) -> None:
        self.store = Store()
        self.parts = SimpleNamespace(metadata=self.store, replicas=Replicas(), clock=ManualClock(), config=None)
        self.changing = IsrProposals(asyncio.get_running_loop(), cast(Any, self.parts))
        self.partition = Partition(
            TOPIC_ID,
            memory_log(),
            5,
            (1,),
            broker_id=1,
            replicas=(1, 2, 3),
            partition_epoch=7,
            isr_changes=self.changing,
            clock=self.parts.clock,
        )
        self.parts.replicas.lead(self.partition)
        self.store.subscribe(self._follow)
        self.store.subscribe(self.changing.image_changed)

    def _follow(self, _: ClusterImage, new: ClusterImage) -> None:
        state = new.topics[TOPIC].partitions[INDEX]
        self.partition.update(state.isr, state.replicas, state.partition_epoch)

    def fetched(self, replica_id: int, broker_epoch: int = 10) -> None:
        self.partition.replica_fetched(replica_id, broker_epoch, 0, 0, self.parts.clock.monotonic_ms())

    def restart(self, broker_id: int) -> None:
        self.store.publish(self.store.image.with_broker(BrokerInfo(broker_id, None, (), epoch=11)))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isr_changes, "RETRY_S", 0)


def run(test: Callable[[Bench], Awaitable[None]]) -> None:
    async def main() -> None:
        bench = Bench()
        await test(bench)
        await bench.changing.close()

    asyncio.run(main())


async def turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


def test_a_follower_that_has_everything_joins_and_so_does_the_next() -> None:
    async def test(bench: Bench) -> None:
        bench.fetched(2)
        bench.fetched(3)
        await turns()
        assert bench.store.writes == [(1, 2), (1, 2, 3)]
        assert bench.partition.in_sync_replicas == (1, 2, 3)

    run(test)


def test_an_operator_finds_the_words_of_kafka_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def test(bench: Bench) -> None:
        bench.fetched(2)
        await turns()
        bench.changing.propose(bench.partition, (1,))
        assert [record.message.split(": ")[1] for record in caplog.records] == [
            "ISR expanded from 1 to 1,2 (proposed)",
            "ISR shrunk from 1,2 to 1 (proposed)",
        ]

    with caplog.at_level(logging.INFO, isr_changes.__name__):
        run(test)


def test_a_refused_wish_is_taken_back() -> None:
    async def test(bench: Bench) -> None:
        bench.store.answers = ["no", "no"]
        bench.fetched(2)
        await turns()
        assert bench.store.writes == [(1, 2), (1, 2)], "once with others, once alone"
        assert bench.partition.pending_isr is None
        assert bench.partition.maximal_isr == {1}

    run(test)


def test_a_wish_with_an_unknown_outcome_counts_and_is_tried_again() -> None:
    async def test(bench: Bench) -> None:
        bench.store.answers = ["lost"]
        bench.fetched(2)
        assert bench.partition.maximal_isr == {1, 2}
        await turns()
        assert bench.store.writes == [(1, 2), (1, 2)]
        assert bench.partition.in_sync_replicas == (1, 2)

    run(test)


def test_an_unknown_outcome_is_fenced_before_the_wish_is_taken_back() -> None:
    """The first attempt may still arrive: only a newer version keeps it out for ever."""

    async def test(bench: Bench) -> None:
        bench.store.answers = ["lost", "no", "no"]
        bench.fetched(2)
        await turns()
        assert bench.store.writes == [(1, 2), (1, 2), (1, 2), (1,), (1, 2)], "the fourth raises the version"
        assert bench.partition.partition_epoch == 9

    run(test)


def test_a_broker_that_was_restarted_meanwhile_is_not_let_in_for_what_it_had() -> None:
    async def test(bench: Bench) -> None:
        bench.fetched(2)
        bench.restart(2)
        await turns()
        assert bench.store.writes == []
        assert bench.partition.pending_isr is None
        bench.fetched(2, broker_epoch=11)
        await turns()
        assert bench.store.writes == [(1, 2)]

    run(test)


def test_a_follower_that_was_quicker_than_the_news_of_it_joins_when_they_come() -> None:
    async def test(bench: Bench) -> None:
        bench.fetched(2, broker_epoch=11)
        assert bench.partition.pending_isr is None
        bench.restart(2)
        await turns()
        assert bench.partition.in_sync_replicas == (1, 2)

    run(test)


def test_the_versions_of_another_topic_of_the_same_name_are_not_ours() -> None:
    async def test(bench: Bench) -> None:
        bench.store.ids = {TOPIC: b"another topic id"}
        bench.fetched(2)
        await turns()
        assert bench.store.writes == []

    run(test)


def test_nothing_is_written_without_a_session_and_all_of_it_with_the_next() -> None:
    async def test(bench: Bench) -> None:
        bench.fetched(2)
        bench.changing.session_changed(False)
        await turns()
        assert bench.store.writes == []
        bench.changing.session_changed(True)
        await turns()
        assert bench.partition.in_sync_replicas == (1, 2)

    run(test)


def test_who_is_shutting_down_or_has_no_disk_for_it_does_not_join() -> None:
    async def test(bench: Bench) -> None:
        two, three = (bench.store.image.brokers[each] for each in (2, 3))
        image = bench.store.image.with_broker(two._replace(shutting_down=True))
        bench.store.publish(image.with_broker(three._replace(offline={TOPIC: (INDEX,)})))
        bench.fetched(2)
        bench.fetched(3)
        assert bench.partition.pending_isr is None

    run(test)


def call_off_the_move_to(bench: Bench, broker_id: int) -> None:
    """A reassignment that is called off takes a replica out and leaves the partition's epoch as it is."""
    state = bench.store.state
    replicas = tuple(each for each in state.replicas if each != broker_id)
    topic = bench.store.image.topics[TOPIC].with_partitions({INDEX: state._replace(replicas=replicas)})
    bench.store.publish(bench.store.image.with_topic(topic))


def test_a_joiner_whose_reassignment_is_called_off_is_withdrawn() -> None:
    async def test(bench: Bench) -> None:
        bench.fetched(3)
        assert bench.partition.pending_isr == (1, 3)
        call_off_the_move_to(bench, 3)
        await turns()
        assert bench.store.writes == []
        assert bench.partition.maximal_isr == {1}
        assert set(bench.partition.followers) == {2}

    run(test)


def test_a_joiner_whose_proposal_may_have_been_taken_counts_until_it_is_fenced_off() -> None:
    async def test(bench: Bench) -> None:
        bench.store.answers = ["lost"]
        bench.fetched(3)
        while not bench.store.writes:
            await asyncio.sleep(0)
        call_off_the_move_to(bench, 3)
        assert bench.partition.maximal_isr == {1, 3}
        await turns()
        assert bench.store.writes == [(1, 3), (1,)], "the second raises the version"
        assert bench.partition.maximal_isr == {1}

    run(test)


def test_an_error_with_one_partition_does_not_keep_the_others_proposals_from_the_store() -> None:
    async def test(bench: Bench) -> None:
        broken = Partition(
            TOPIC_ID,
            memory_log(),
            5,
            (1,),
            broker_id=1,
            replicas=(1, 2),
            partition_epoch=7,
            isr_changes=bench.changing,
            clock=bench.parts.clock,
        )
        broken.replica_fetched(2, 10, 0, 0, 0)
        broken.topic_partition = broken.topic_partition._replace(partition=INDEX + 99)
        bench.fetched(2)
        await turns()
        assert bench.partition.in_sync_replicas == (1, 2)

    run(test)
