"""CreatePartitions. The codes are those that Apache Kafka 4.3.1 gave to the same requests."""

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k37_create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from tests.handlers.conftest import World


def topic(name: str, count: int, assignments: list[list[int]] | None = None) -> CreatePartitionsTopic:
    given = None if assignments is None else [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments]
    return CreatePartitionsTopic(name=name, count=count, assignments=given)


def create(world: World, *topics: CreatePartitionsTopic, validate_only: bool = False) -> dict[str, int]:
    results = world.ask(CreatePartitionsRequest(topics=list(topics), validate_only=validate_only)).results
    assert all((each.error_message is None) == (each.error_code == 0) for each in results)
    assert len({each.name for each in results}) == len(results)
    return {each.name: each.error_code for each in results}


@pytest.mark.parametrize("version", range(4))
def test_new_partitions_are_writable_and_the_old_keep_what_they_have(world: World, version: int) -> None:
    world.create("t", 2)
    world.produce("t", 5)
    (result,) = world.ask(CreatePartitionsRequest(topics=[topic("t", 4)]), version).results
    assert result.error_code == 0
    world.produce("t", 1, partition=3)
    assert [world.log_of("t", index).log_end_offset for index in range(4)] == [5, 0, 0, 1]


def test_an_assignment_places_the_new_partitions(world: World) -> None:
    world.create("t", 1)
    assert create(world, topic("t", 3, [[1], [1]])) == {"t": 0}
    assert len(world.image.topics["t"].partitions) == 3


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (topic("t", 1), ErrorCode.INVALID_PARTITIONS),
        (topic("t", 2), ErrorCode.INVALID_PARTITIONS),
        (topic("t", 0), ErrorCode.INVALID_PARTITIONS),
        (topic("t", -1), ErrorCode.INVALID_PARTITIONS),
        (topic("nope", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (topic("", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (topic("t", 5, [[1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", 3, [[1], [1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", 3, []), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", 3, [[]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", 3, [[9]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", 3, [[1, 1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", 10_003), ErrorCode.POLICY_VIOLATION),
        (topic("t", 2**31 - 1), ErrorCode.POLICY_VIOLATION),
    ],
)
def test_what_cannot_be_is_refused(world: World, asked: CreatePartitionsTopic, code: ErrorCode) -> None:
    world.create("t", 2)
    assert create(world, asked) == {asked.name: code}
    assert len(world.image.topics["t"].partitions) == 2


def test_a_topic_that_comes_twice_is_refused_once(world: World) -> None:
    world.create("t", 2)
    world.create("other", 2)
    results = create(world, topic("t", 3), topic("other", 3), topic("t", 4))
    assert results == {"t": ErrorCode.INVALID_REQUEST, "other": 0}
    assert len(world.image.topics["t"].partitions) == 2


def test_validate_only_changes_nothing(world: World) -> None:
    world.create("t", 2)
    assert create(world, topic("t", 3), validate_only=True) == {"t": 0}
    assert create(world, topic("t", 1), validate_only=True) == {"t": ErrorCode.INVALID_PARTITIONS}
    assert len(world.image.topics["t"].partitions) == 2
