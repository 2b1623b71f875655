"""CreateTopics. The codes are those that Apache Kafka 4.3.1 gave to the same requests."""

from typing import Any

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tests.handlers.conftest import World

Assignment = list[tuple[int, list[int]]]


def topic(
    name: str,
    partitions: int = 1,
    replication_factor: int = 1,
    *,
    assignment: Assignment | None = None,
    configs: list[tuple[str, str | None]] | None = None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=brokers) for index, brokers in assignment or ()
        ],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs or ()],
    )


def manual(*assignment: tuple[int, list[int]]) -> CreatableTopic:
    return topic("t", -1, -1, assignment=list(assignment))


def create(world: World, *topics: CreatableTopic, validate_only: bool = False) -> list[Any]:
    answer = world.ask(CreateTopicsRequest(topics=list(topics), validate_only=validate_only))
    results: list[Any] = answer.topics
    return results


def test_a_topic_is_led_and_writable_when_the_answer_comes(world: World) -> None:
    (result,) = create(world, topic("t", 3))
    assert (result.error_code, result.error_message) == (0, None)
    assert (result.num_partitions, result.replication_factor) == (3, 1)
    assert world.image.topics["t"].topic_id == result.topic_id
    world.produce("t", 2, partition=2)
    assert world.log_of("t", 2).log_end_offset == 2
    assert world.log_of("t", 2).topic_id == result.topic_id


@pytest.mark.parametrize("version", range(8))
def test_every_version_creates(world: World, version: int) -> None:
    (result,) = world.ask(CreateTopicsRequest(topics=[topic("t", 2)]), version).topics
    assert result.error_code == 0
    assert len(world.image.topics["t"].partitions) == 2


@pytest.mark.moldau({"num.partitions": "5"})
def test_minus_one_takes_the_brokers_defaults(world: World) -> None:
    (result,) = create(world, topic("t", -1, -1))
    assert (result.num_partitions, result.replication_factor) == (5, 1)


@pytest.mark.moldau({"log.segment.bytes": "2000000"})
def test_the_configuration_comes_back_with_its_sources(world: World) -> None:
    (result,) = create(world, topic("t", configs=[("retention.ms", "5")]))
    configs = {config.name: (config.value, config.config_source) for config in result.configs}
    assert configs["retention.ms"] == ("5", 1)
    assert configs["segment.bytes"] == ("2000000", 4)
    assert configs["flush.ms"] == ("9223372036854775807", 5)
    assert not any(config.is_sensitive or config.read_only for config in result.configs)
    assert world.log_of("t").config.retention_ms == 5


NAMES = ["", ".", "..", "a/b", "ü", "a" * 250]


@pytest.mark.parametrize("name", NAMES, ids=["empty", "dot", "dots", "slash", "umlaut", "long"])
def test_a_bad_name_is_refused(world: World, name: str) -> None:
    (result,) = create(world, topic(name))
    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert result.error_message
    assert (result.num_partitions, result.replication_factor, result.configs) == (-1, -1, [])


def test_a_name_that_metrics_cannot_tell_apart_is_refused(world: World) -> None:
    world.create("a.b")
    (result,) = create(world, topic("a_b"))
    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_kafkas_own_metadata_topic_cannot_be_created(world: World) -> None:
    (result,) = create(world, topic("__cluster_metadata"))
    assert result.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("validate_only", [False, True])
def test_an_existing_topic_is_refused(world: World, validate_only: bool) -> None:
    world.create("t")
    (result,) = create(world, topic("t"), validate_only=validate_only)
    assert result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_a_name_that_comes_twice_is_refused_once_and_the_others_are_created(world: World) -> None:
    results = create(world, topic("twice"), topic("once"), topic("twice"))
    assert {result.name: result.error_code for result in results} == {"twice": ErrorCode.INVALID_REQUEST, "once": 0}
    assert len(results) == 2
    assert set(world.image.topics) == {"once"}


def test_one_bad_topic_does_not_hurt_the_others(world: World) -> None:
    world.create("old")
    results = create(world, topic("a"), topic("old"), topic("b"))
    assert [(result.name, result.error_code) for result in results] == [
        ("a", 0),
        ("old", ErrorCode.TOPIC_ALREADY_EXISTS),
        ("b", 0),
    ]


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (topic("t", 0), ErrorCode.INVALID_PARTITIONS),
        (topic("t", -2), ErrorCode.INVALID_PARTITIONS),
        (topic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("t", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("t", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("t", 10_001), ErrorCode.POLICY_VIOLATION),
        (topic("t", 2**31 - 1), ErrorCode.POLICY_VIOLATION),
        (topic("t", 1, 1, assignment=[(0, [1])]), ErrorCode.INVALID_REQUEST),
        (topic("t", 1, -1, assignment=[(0, [1])]), ErrorCode.INVALID_REQUEST),
        (topic("t", -1, 1, assignment=[(0, [1])]), ErrorCode.INVALID_REQUEST),
        (manual((0, [1]), (2, [1])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (manual((1, [1])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (manual((-1, [1])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (manual((0, [1]), (0, [1])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (manual((0, [7])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (manual((0, [-1])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (manual((0, [1, 1])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (manual((0, [])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (manual((0, [1]), (1, [1, 2])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", configs=[("nope", "1")]), ErrorCode.INVALID_CONFIG),
        (topic("t", configs=[("", "1")]), ErrorCode.INVALID_CONFIG),
        (topic("t", configs=[("retention.ms", "abc")]), ErrorCode.INVALID_CONFIG),
        (topic("t", configs=[("retention.ms", None)]), ErrorCode.INVALID_CONFIG),
        (topic("t", configs=[("retention.ms", "-2")]), ErrorCode.INVALID_CONFIG),
        (topic("t", configs=[("segment.bytes", "99999999999")]), ErrorCode.INVALID_CONFIG),
        (topic("t", configs=[("preallocate", "yes")]), ErrorCode.INVALID_CONFIG),
        (topic("t", configs=[("min.cleanable.dirty.ratio", "2")]), ErrorCode.INVALID_CONFIG),
        (topic("t", configs=[("cleanup.policy", "delete,foo")]), ErrorCode.INVALID_CONFIG),
        (topic("t", configs=[("compression.type", "foo")]), ErrorCode.INVALID_CONFIG),
        (topic("t", configs=[("remote.storage.enable", "true")]), ErrorCode.INVALID_CONFIG),
    ],
)
def test_what_cannot_be_is_refused_and_not_created(world: World, asked: CreatableTopic, code: ErrorCode) -> None:
    (result,) = create(world, asked)
    assert result.error_code == code
    assert result.error_message
    assert not world.image.topics


def test_the_limit_on_partitions_is_the_requests(world: World) -> None:
    results = create(world, topic("a", 6000), topic("b", 6000))
    assert [result.error_code for result in results] == [ErrorCode.POLICY_VIOLATION] * 2


def test_a_manual_assignment_is_kept(world: World) -> None:
    (result,) = create(world, manual((1, [1]), (0, [1])))
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 2, 1)
    assert [partition.replicas for partition in world.image.topics["t"].partitions] == [(1,), (1,)]


def test_validate_only_creates_nothing(world: World) -> None:
    (result,) = create(world, topic("t", 3, configs=[("flush.ms", "1")]), validate_only=True)
    assert (result.error_code, result.num_partitions) == (0, 3)
    assert result.topic_id == bytes(16)
    assert next(config.value for config in result.configs if config.name == "flush.ms") == "1"
    assert not world.image.topics
    assert len(world.services.logs) == 0
