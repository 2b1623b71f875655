"""The controller at work: brokers without logs or sockets, each with its own session, over one store of each kind."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import pytest

from moldau.cluster.changes import Change, StateChange, TopicChange
from moldau.cluster.embedded.store import EmbeddedStore
from moldau.cluster.image import NO_LEADER, BrokerInfo, ClusterImage, PartitionImage
from moldau.cluster.metadata import NO_STARTS
from moldau.cluster.reassignment import begin
from moldau.cluster.store import MetadataStore, Operation
from moldau.cluster.zookeeper.store import ZooKeeperStore
from tests.broker.controller_members import Member, Members
from tests.cluster.store_contract import eventually

SESSION_TIMEOUT_MS = 18_000


Run = Callable[[Callable[[Members], Awaitable[None]]], None]


@pytest.fixture(params=["embedded", pytest.param("zookeeper", marks=pytest.mark.foreign)])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], MetadataStore]:
    if request.param == "embedded":
        return lambda: EmbeddedStore(str(tmp_path / "metadata.sqlite"), durable=False)
    address = f"{request.getfixturevalue('zookeeper').connect}/test-{uuid.uuid4().hex}"
    return lambda: ZooKeeperStore(address, SESSION_TIMEOUT_MS)


@pytest.fixture
def run(open_store: Callable[[], MetadataStore]) -> Run:
    def run(steps: Callable[[Members], Awaitable[None]]) -> None:
        async def whole() -> None:
            members = Members(open_store)
            try:
                await steps(members)
            finally:
                for member in members.all:
                    await member.kill()

        asyncio.run(whole())

    return run


def led_by(*leaders: int) -> Callable[[ClusterImage], bool]:
    return lambda image: (
        "t" in image.topics and tuple(state.leader for state in image.topics["t"].partitions) == leaders
    )


def test_the_partitions_of_a_broker_that_died_get_new_leaders(run: Run) -> None:
    async def steps(members: Members) -> None:
        one, two, three = await members.start(3)
        await two.metadata.create_topic("t", [[1, 2, 3], [3, 1, 2], [2, 3], [3]])
        await three.kill()
        image = await two.wait(led_by(1, 1, 2, NO_LEADER))
        assert [state.isr for state in image.topics["t"].partitions] == [(1, 2), (1, 2), (2,), (3,)]
        assert [state.leader_epoch for state in image.topics["t"].partitions] == [0, 1, 0, 1]
        assert one.controller.is_active

    run(steps)


def test_another_broker_takes_over_from_a_controller_that_died(run: Run) -> None:
    async def steps(members: Members) -> None:
        one, _two, three = await members.start(3)
        await one.metadata.create_topic("t", [[1, 2, 3]])
        await one.kill()
        image = await three.wait(lambda image: led_by(2)(image) and image.controller_epoch > 1)
        assert image.controller_id in (2, 3)
        assert image.controller_epoch == 2

    run(steps)


def test_a_controller_that_stops_makes_room_at_once(run: Run) -> None:
    async def steps(members: Members) -> None:
        one, two = await members.start(2)
        await one.controller.close()
        image = await two.wait(lambda image: image.controller_id == 2)
        assert list(image.brokers) == [1, 2]

    run(steps)


def test_a_broker_that_shuts_down_hands_over_and_does_not_become_controller(run: Run) -> None:
    async def steps(members: Members) -> None:
        one, two, _three = await members.start(3)
        await one.metadata.create_topic("t", [[2, 3]])
        await two.metadata.update_registration(BrokerInfo(2, None, (), shutting_down=True))
        image = await one.wait(led_by(3))
        assert image.topics["t"].partitions[0].isr == (3,)
        await one.kill()
        await two.wait(lambda image: image.controller_id == 3)

    run(steps)


def test_a_failed_log_directory_moves_the_lead_of_its_partitions(run: Run) -> None:
    async def steps(members: Members) -> None:
        one, two = await members.start(2)
        await one.metadata.create_topic("t", [[1, 2], [1, 2]])
        await one.metadata.update_registration(BrokerInfo(1, None, (), offline={"t": (1,)}))
        image = await two.wait(led_by(1, 2))
        assert [state.isr for state in image.topics["t"].partitions] == [(1, 2), (2,)]

    run(steps)


def test_a_partition_without_leader_gets_one_when_its_topic_allows_loss(run: Run) -> None:
    async def steps(members: Members) -> None:
        one, two, three = await members.start(3)
        topic = await one.metadata.create_topic("t", [[3, 2]])
        await one.metadata.update_partition("t", 0, topic.partitions[0]._replace(isr=(3,)))
        await three.kill()
        await one.wait(led_by(NO_LEADER))
        await two.wait(led_by(NO_LEADER))  # before, two may not know the topic yet
        await two.metadata.set_topic_configs("t", {"unclean.leader.election.enable": "true"})
        image = await one.wait(led_by(2))
        assert image.topics["t"].partitions[0].isr == (2,)

    run(steps)


def test_a_topic_that_a_tool_made_is_led(run: Run) -> None:
    async def steps(members: Members) -> None:
        _one, two = await members.start(2)
        await two.store.create("/brokers/topics/t", b'{"version":2,"partitions":{"0":[2,1],"1":[7]}}')
        image = await two.wait(lambda image: led_by(2, NO_LEADER)(image) and image.topics["t"].topic_id != bytes(16))
        assert image.topics["t"].partitions[0].isr == (2, 1)
        assert image.topic_names_by_id == {image.topics["t"].topic_id: "t"}

    run(steps)


def test_a_move_is_ended_when_the_new_replica_is_in_sync(run: Run) -> None:
    async def steps(members: Members) -> None:
        one, two, three = await members.start(3)
        topic = await two.metadata.create_topic("t", [[1, 2]])
        moving = begin(two.metadata.image, "t", 0, (3, 2))
        await two.metadata.write([TopicChange(topic.with_partition(0, moving))])
        await one.wait(lambda image: led_by(1)(image) and image.topics["t"].partitions[0].adding == (3,))
        state = moving._replace(isr=(1, 2, 3))
        await two.metadata.write([StateChange("t", topic.topic_id, 0, state)])
        image = await three.wait(lambda image: led_by(3)(image) and image.topics["t"].partitions[0].replicas == (3, 2))
        assert image.topics["t"].partitions[0].isr == (2, 3)
        assert await three.store.get("/brokers/topics/t") is not None

    run(steps)


def test_preferred_replicas_lead_again_after_a_rebalance(run: Run) -> None:
    async def steps(members: Members) -> None:
        one, two = await members.start(2)
        topic = await one.metadata.create_topic("t", [[2, 1], [2, 1]])
        for index in (0, 1):
            await one.metadata.update_partition("t", index, topic.partitions[index]._replace(leader=1, leader_epoch=1))
        await two.wait(led_by(1, 1))  # before, two may still see the leaders that the topic was made with
        two.controller.rebalance()
        one.controller.rebalance()
        image = await two.wait(led_by(2, 2))
        assert [state.leader_epoch for state in image.topics["t"].partitions] == [2, 2]

    run(steps)


def test_a_controller_that_wakes_up_after_another_took_over_changes_nothing(run: Run) -> None:
    async def steps(members: Members) -> None:
        one, two, _three = await members.start(3)
        await one.metadata.create_topic("t", [[3, 1, 2]])
        await one.refreshing.close()  # from now on it learns nothing
        await two.store.delete("/controller")
        await two.wait(lambda image: image.controller_id in (2, 3))
        stale = one.metadata.image.without_broker(3)
        assert one.controller.is_active
        one.metadata._publish(stale)  # it takes a broker for dead that is not
        await one.wait(lambda image: image.controller_id != 1)
        assert not one.controller.is_active
        await two.metadata.reload()
        assert two.states() == (PartitionImage(3, 0, (3, 1, 2), (3, 1, 2), 0),)

    run(steps)


def test_lost_answers_of_the_store_stop_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moldau.broker.controller.RETRY_SECONDS", 0.01)

    async def steps(members: Members) -> None:
        one, two, three = await members.start(3)
        await one.metadata.create_topic("t", [[2, 1]])
        one.lost_answers.left = 1
        await two.kill()
        await one.wait(led_by(1))
        assert one.lost_answers.left == 0
        three.controller.session_lost()  # so that it does not claim
        one.lost_answers.left = 1
        await three.store.delete("/controller")
        await eventually(lambda: one.controller.is_active and one.metadata.image.controller_epoch == 3, "active again")
        assert one.lost_answers.left == 0

    run(steps)


def test_a_lost_session_ends_the_part_of_the_controller(run: Run) -> None:
    async def steps(members: Members) -> None:
        one, two = await members.start(2)
        one.controller.session_lost()
        assert not one.controller.is_active
        written = await changes_of(one, lambda: two.kill())
        assert written == []
        one.controller.registered()
        await eventually(lambda: one.controller.is_active and one.metadata.image.controller_epoch == 2, "active")

    run(steps)


async def changes_of(member: Member, act: Callable[[], Awaitable[None]]) -> list[Change]:
    """What a member writes until it knows of what was done."""
    written: list[Change] = []
    write = member.metadata.write

    async def noted(
        changes: Sequence[Change], guards: Sequence[Operation] = (), starts: Mapping[int, int] = NO_STARTS
    ) -> None:
        written.extend(changes)
        await write(changes, guards, starts)

    member.metadata.write = noted  # type: ignore[method-assign]
    before = member.metadata.image
    await act()
    await member.wait(lambda image: image is not before)
    return written


def test_two_thousand_partitions_get_new_leaders_in_a_few_steps(run: Run) -> None:
    async def steps(members: Members) -> None:
        one, two, three = await members.start(3)
        for number in range(4):
            assignment = [[index % 3 + 1, (index + 1) % 3 + 1, (index + 2) % 3 + 1] for index in range(500)]
            await one.metadata.create_topic(f"t{number}", assignment)
        await three.kill()

        def is_well(image: ClusterImage) -> bool:
            return all(3 not in state.isr for topic in image.topics.values() for state in topic.partitions)

        image = await two.wait(lambda image: len(image.topics) == 4 and is_well(image))
        assert all(state.leader in (1, 2) for topic in image.topics.values() for state in topic.partitions)

    run(steps)
