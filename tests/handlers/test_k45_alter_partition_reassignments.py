"""AlterPartitionReassignments and ListPartitionReassignments see the same moves."""

from typing import Any

import pytest

from moldau.cluster.image import BrokerInfo, PartitionImage
from moldau.cluster.metadata import Conflict
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k37_create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from moldau.protocol.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from moldau.protocol.messages.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tests.handlers.conftest import World
from tests.handlers.test_k43_elect_leaders import Refusing


@pytest.fixture
def cluster(world: World) -> World:
    """Brokers 1 to 4, a topic with three partitions on 1 and 2."""
    for id_ in (2, 3, 4):
        world.run(world.metadata.register_broker(BrokerInfo(id_, None, ())))
    world.run(world.metadata.create_topic("t", [[1, 2]] * 3))
    return world


def alter(
    world: World, moves: dict[int, list[int] | None], *, topic: str = "t", may_resize: bool = True, version: int = 1
) -> dict[int, int]:
    """Partition to error."""
    partitions = [ReassignablePartition(partition_index=index, replicas=to) for index, to in moves.items()]
    request = AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=may_resize, topics=[ReassignableTopic(name=topic, partitions=partitions)]
    )
    answer = world.ask(request, version)
    assert answer.error_code == 0
    (result,) = answer.responses
    assert result.name == topic
    return {each.partition_index: each.error_code for each in result.partitions}


def moving(world: World, topics: dict[str, list[int]] | None = None) -> dict[tuple[str, int], Any]:
    """Partition to replicas, added, removed."""
    named = None
    if topics is not None:
        named = [ListPartitionReassignmentsTopics(name=name, partition_indexes=of) for name, of in topics.items()]
    answer = world.ask(ListPartitionReassignmentsRequest(topics=named))
    return {
        (topic.name, each.partition_index): (each.replicas, each.adding_replicas, each.removing_replicas)
        for topic in answer.topics
        for each in topic.partitions
    }


def test_a_move_begins_and_is_listed(cluster: World) -> None:
    assert alter(cluster, {0: [3, 2], 2: [3, 4, 1]}, version=0) == {0: 0, 2: 0}
    both = {("t", 0): ([3, 2, 1], [3], [1]), ("t", 2): ([3, 4, 1, 2], [3, 4], [2])}
    assert moving(cluster) == both
    assert moving(cluster, {"t": [0, 1, 9], "no": [0]}) == {("t", 0): both["t", 0]}
    assert moving(cluster, {"t": []}) == {}
    assert cluster.image.topics["t"].version == 1  # one change for all partitions of a topic


def test_a_move_is_called_off(cluster: World) -> None:
    alter(cluster, {0: [3, 2]})
    assert alter(cluster, {0: None, 1: None}) == {0: 0, 1: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS}
    assert moving(cluster) == {}
    assert cluster.image.topics["t"].partitions[0] == PartitionImage(1, 0, (1, 2), (2, 1), 0)


def test_what_cannot_be_is_refused_partition_by_partition(cluster: World) -> None:
    moves: dict[int, list[int] | None] = {0: [], 1: [3, 3], 2: [3, 9], 7: [1]}
    assert alter(cluster, moves) == {
        0: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        1: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        2: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert alter(cluster, {0: [1]}, topic="no") == {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert moving(cluster) == {}
    assert cluster.image.topics["t"].version == 0


def test_another_number_of_replicas_is_refused_on_request(cluster: World) -> None:
    assert alter(cluster, {0: [3, 4, 1], 1: [3, 4]}, may_resize=False) == {
        0: ErrorCode.INVALID_REPLICATION_FACTOR,
        1: ErrorCode.NONE,
    }
    # The number that counts is that of before the move, not of while it goes on.
    assert alter(cluster, {1: [3, 4, 1]}, may_resize=False) == {1: ErrorCode.INVALID_REPLICATION_FACTOR}
    assert alter(cluster, {1: [3, 1]}, may_resize=False) == {1: ErrorCode.NONE}


def test_a_move_to_where_the_partition_is_changes_nothing(cluster: World) -> None:
    assert alter(cluster, {0: [1, 2]}) == {0: 0}
    assert cluster.image.topics["t"].version == 0


def test_a_topic_that_is_being_moved_does_not_grow(cluster: World) -> None:
    alter(cluster, {0: [3, 2]})
    grow = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=4, assignments=None)])
    assert cluster.ask(grow).results[0].error_code == ErrorCode.REASSIGNMENT_IN_PROGRESS
    alter(cluster, {0: None})
    assert cluster.ask(grow).results[0].error_code == 0


def test_a_move_is_tried_again_when_others_are_quicker(cluster: World) -> None:
    cluster.metadata.write = Refusing(cluster, 2, Conflict())  # type: ignore[method-assign]
    assert alter(cluster, {0: [3, 2]}) == {0: 0}
    cluster.metadata.write = Refusing(cluster, 99, Conflict())  # type: ignore[method-assign]
    assert alter(cluster, {1: [3, 2]}) == {1: ErrorCode.REQUEST_TIMED_OUT}
    assert list(moving(cluster)) == [("t", 0)]
