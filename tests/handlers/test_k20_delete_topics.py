"""DeleteTopics. The codes are those that Apache Kafka 4.3.1 gave to the same requests."""

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.handlers.conftest import World

Result = tuple[str | None, bytes, int]
ZERO = bytes(16)


def delete(world: World, *topics: tuple[str | None, bytes]) -> list[Result]:
    asked = [DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in topics]
    responses = world.ask(DeleteTopicsRequest(topics=asked)).responses
    return [(each.name, each.topic_id, each.error_code) for each in responses]


def test_a_deleted_topic_is_gone_and_its_name_free(world: World) -> None:
    topic_id = world.create("t")
    world.produce("t", 3)
    assert delete(world, ("t", ZERO)) == [("t", topic_id, 0)]
    assert "t" not in world.image.topics
    assert world.services.replicas.find("t", 0) is None
    assert world.create("t") != topic_id
    assert world.log_of("t").log_end_offset == 0


def test_a_topic_can_be_deleted_by_id(world: World) -> None:
    topic_id = world.create("t")
    assert delete(world, (None, topic_id)) == [("t", topic_id, 0)]


@pytest.mark.parametrize("version", range(6))
def test_older_versions_delete_by_name(world: World, version: int) -> None:
    world.create("t")
    responses = world.ask(DeleteTopicsRequest(topic_names=["t", "nope"]), version).responses
    assert [(each.name, each.error_code) for each in responses] == [
        ("t", 0),
        ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert all(each.error_message for each in responses if version >= 5 and each.error_code)


def test_what_is_not_there_cannot_be_deleted(world: World) -> None:
    assert delete(world, ("nope", ZERO), ("a/b", ZERO), (None, b"x" * 16)) == [
        ("nope", ZERO, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("a/b", ZERO, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (None, b"x" * 16, ErrorCode.UNKNOWN_TOPIC_ID),
    ]


def test_name_and_id_at_once_or_neither_are_refused(world: World) -> None:
    topic_id = world.create("t")
    assert delete(world, ("t", topic_id)) == [("t", topic_id, ErrorCode.INVALID_REQUEST)]
    assert delete(world, (None, ZERO)) == [(None, ZERO, ErrorCode.INVALID_REQUEST)]
    assert "t" in world.image.topics


def test_what_is_named_twice_is_refused_once(world: World) -> None:
    topic_id = world.create("t")
    world.create("other")
    invalid = ErrorCode.INVALID_REQUEST
    assert delete(world, ("t", ZERO), ("t", ZERO)) == [("t", ZERO, invalid)]
    assert delete(world, (None, topic_id), (None, topic_id)) == [(None, topic_id, invalid)]
    by_name_and_id = delete(world, ("t", ZERO), (None, topic_id), ("other", ZERO))
    assert {code for name, _id, code in by_name_and_id if name != "other"} == {invalid}
    assert set(world.image.topics) == {"t"}


@pytest.mark.moldau({"delete.topic.enable": "false"})
def test_deletion_can_be_forbidden(world: World) -> None:
    topic_id = world.create("t")
    assert delete(world, (None, topic_id)) == [(None, topic_id, ErrorCode.TOPIC_DELETION_DISABLED)]
    (old,) = world.ask(DeleteTopicsRequest(topic_names=["t"]), 2).responses
    assert old.error_code == ErrorCode.INVALID_REQUEST
    assert "t" in world.image.topics
