"""What tools of the ZooKeeper era ask for below /admin is done by the controller, and taken away."""

import json
from collections.abc import Callable

import pytest

from moldau.cluster.image import ClusterImage, PartitionImage
from tests.broker.controller_members import Member, Members
from tests.broker.test_controller import Run, open_store, run  # noqa: F401  # fixtures
from tests.cluster.store_contract import eventually

ELECTION = "/admin/preferred_replica_election"
REASSIGNMENT = "/admin/reassign_partitions"


def partitions(*entries: dict[str, object]) -> bytes:
    return json.dumps({"version": 1, "partitions": entries}).encode()


async def gone(member: Member, path: str) -> None:
    async def is_gone() -> bool:
        return await member.store.get(path) is None

    await eventually(is_gone, f"{path} is gone")


def on_first(condition: Callable[[PartitionImage], bool]) -> Callable[[ClusterImage], bool]:
    """Whether `condition` holds of the first partition of "t"."""
    return lambda image: "t" in image.topics and condition(image.topics["t"].partitions[0])


def without(topic: str) -> Callable[[ClusterImage], bool]:
    return lambda image: topic not in image.topics


def test_a_topic_that_a_tool_marks_is_deleted_and_its_name_is_free_again(run: Run) -> None:  # noqa: F811
    async def steps(members: Members) -> None:
        one, two = await members.start(2)
        old = await one.metadata.create_topic("t", [[1, 2]])
        await two.wait(lambda image: "t" in image.topics)
        await two.store.create("/admin/delete_topics/t", b"")
        await two.wait(without("t"))
        await gone(two, "/admin/delete_topics/t")
        new = await two.metadata.create_topic("t", [[1, 2]])
        assert new.topic_id != old.topic_id

    run(steps)


def test_a_mark_for_a_topic_that_is_not_there_is_taken_away(run: Run) -> None:  # noqa: F811
    async def steps(members: Members) -> None:
        [one] = await members.start(1)
        await one.store.create("/admin/delete_topics/nothing", b"")
        await gone(one, "/admin/delete_topics/nothing")

    run(steps)


def test_what_a_controller_left_undone_is_done_by_the_next(run: Run) -> None:  # noqa: F811
    async def steps(members: Members) -> None:
        one, two = await members.start(2)
        await one.metadata.create_topic("t", [[1]])
        one.controller.session_lost()  # it is in office, and does nothing any more
        await two.store.create("/admin/delete_topics/t", b"")
        await one.kill()
        await two.wait(without("t"))

    run(steps)


def test_the_preferred_replicas_lead_that_a_tool_asks_for(run: Run) -> None:  # noqa: F811
    async def steps(members: Members) -> None:
        one, two = await members.start(2)
        topic = await one.metadata.create_topic("t", [[1, 2], [1, 2]])
        for index, state in enumerate(topic.partitions):
            await one.metadata.update_partition("t", index, state._replace(leader=2, leader_epoch=1, isr=(2, 1)))
        await two.wait(lambda image: "t" in image.topics and {each.leader for each in two.states()} == {2})
        await two.store.create(ELECTION, partitions({"topic": "t", "partition": 0}, {"topic": "no", "partition": 7}))
        image = await two.wait(on_first(lambda state: state.leader == 1))
        assert image.topics["t"].partitions[1].leader == 2
        await gone(two, ELECTION)

    run(steps)


def test_a_reassignment_stays_in_the_tree_until_it_has_arrived(run: Run) -> None:  # noqa: F811
    async def steps(members: Members) -> None:
        one, two, three = await members.start(3)
        await one.metadata.create_topic("t", [[1, 2], [1, 2]])
        await two.store.create(
            REASSIGNMENT,
            partitions(
                {"topic": "t", "partition": 0, "replicas": [3, 2]},
                {"topic": "t", "partition": 1, "replicas": [1, 2]},
                {"topic": "t", "partition": 9, "replicas": [1]},
            ),
        )
        image = await two.wait(on_first(lambda state: state.adding == (3,)))

        async def is_left_alone() -> bool:
            node = await two.store.get(REASSIGNMENT)
            assert node is not None
            left = json.loads(node.data)["partitions"]
            return bool(left == [{"topic": "t", "partition": 0, "replicas": [3, 2]}])

        await eventually(is_left_alone, "only what is on its way is left")
        state = image.topics["t"].partitions[0]
        await three.wait(on_first(lambda state: state.adding == (3,)))
        await three.metadata.update_partition("t", 0, state._replace(isr=(1, 2, 3)))
        image = await two.wait(on_first(lambda state: state.replicas == (3, 2)))
        assert not image.topics["t"].partitions[0].adding
        await gone(two, REASSIGNMENT)

    run(steps)


def test_a_new_controller_goes_on_with_a_reassignment(run: Run) -> None:  # noqa: F811
    async def steps(members: Members) -> None:
        one, two, three = await members.start(3)
        await two.metadata.create_topic("t", [[2]])
        await two.store.create(REASSIGNMENT, partitions({"topic": "t", "partition": 0, "replicas": [3]}))
        await two.wait(on_first(lambda state: state.adding == (3,)))
        await one.kill()
        await three.wait(lambda image: image.controller_id in (2, 3))
        state = three.metadata.image.topics["t"].partitions[0]
        await three.metadata.update_partition("t", 0, state._replace(isr=(2, 3)))
        await three.wait(on_first(lambda state: state.replicas == (3,)))
        await gone(three, REASSIGNMENT)

    run(steps)


@pytest.mark.parametrize("path", [ELECTION, REASSIGNMENT])
@pytest.mark.parametrize("data", [b"", b"{", b'{"partitions":[7]}', b'{"partitions":[{"topic":"t"}]}'])
def test_a_request_that_cannot_be_understood_is_removed_and_changes_nothing(
    run: Run,  # noqa: F811
    path: str,
    data: bytes,
) -> None:
    async def steps(members: Members) -> None:
        [one] = await members.start(1)
        topic = await one.metadata.create_topic("t", [[1]])
        await one.store.create(path, data)
        await gone(one, path)
        assert one.metadata.image.topics["t"] == topic

    run(steps)
