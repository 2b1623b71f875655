"""DescribeTopicPartitions. Pages and codes are those of Apache Kafka 4.3.1 for the same requests."""

from typing import Any

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k75_describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from tests.handlers.conftest import World

Position = tuple[str, int]
ALL_OPERATIONS = 3576


def ask(world: World, names: list[str], limit: int = 2000, cursor: Position | None = None) -> Any:
    return world.ask(
        DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in names],
            response_partition_limit=limit,
            cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
        )
    )


def page(world: World, *names: str, limit: int = 2000, cursor: Position | None = None) -> Any:
    """The partitions by topic, and where the next page starts."""
    answer = ask(world, list(names), limit, cursor)
    topics = {topic.name: [each.partition_index for each in topic.partitions] for topic in answer.topics}
    following = answer.next_cursor
    return topics, None if following is None else (following.topic_name, following.partition_index)


def codes(answer: Any) -> list[tuple[str, int]]:
    return [(topic.name, topic.error_code) for topic in answer.topics]


@pytest.fixture
def three(world: World) -> World:
    for name in ("t1", "t2", "t3"):
        world.create(name, 3)
    return world


def test_a_topic_is_told_with_its_partitions(world: World) -> None:
    topic_id = world.create("t", 2)
    (topic,) = ask(world, ["t"]).topics
    assert (topic.error_code, topic.name, topic.topic_id, topic.is_internal) == (0, "t", topic_id, False)
    assert topic.topic_authorized_operations == ALL_OPERATIONS
    first = topic.partitions[0]
    assert (first.error_code, first.leader_id, first.leader_epoch) == (0, 1, 0)
    assert (first.replica_nodes, first.isr_nodes, first.offline_replicas) == ([1], [1], [])
    assert (first.eligible_leader_replicas, first.last_known_elr) == ([], [])


def test_pages_go_through_the_topics_in_the_order_of_their_names(three: World) -> None:
    assert page(three, "t3", "t1", "t2", limit=4) == ({"t1": [0, 1, 2], "t2": [0]}, ("t2", 1))
    assert page(three, "t3", "t1", "t2", limit=4, cursor=("t2", 1)) == ({"t2": [1, 2], "t3": [0, 1]}, ("t3", 2))
    assert page(three, "t3", "t1", "t2", limit=4, cursor=("t3", 2)) == ({"t3": [2]}, None)


def test_no_names_ask_for_all_topics(three: World) -> None:
    assert page(three) == ({"t1": [0, 1, 2], "t2": [0, 1, 2], "t3": [0, 1, 2]}, None)
    assert page(three, limit=2, cursor=("t2", 1)) == ({"t2": [1, 2]}, ("t3", 0))


def test_a_page_that_ends_with_a_topic_points_to_the_next(three: World) -> None:
    assert page(three, "t1", "t2", limit=3) == ({"t1": [0, 1, 2]}, ("t2", 0))
    assert page(three, "t1", "t1zzz", "t2", limit=3) == ({"t1": [0, 1, 2]}, ("t1zzz", 0))
    assert page(three, "t1", limit=3) == ({"t1": [0, 1, 2]}, None)


def test_a_cursor_past_the_last_partition_goes_on_with_the_next_topic(three: World) -> None:
    assert page(three, "t1", "t2", cursor=("t1", 3)) == ({"t1": [], "t2": [0, 1, 2]}, None)


@pytest.mark.parametrize("limit", [0, -1, 1])
def test_a_page_has_at_least_one_partition(three: World, limit: int) -> None:
    assert page(three, "t1", limit=limit) == ({"t1": [0]}, ("t1", 1))


@pytest.mark.moldau({"max.request.partition.size.limit": "2"})
def test_the_broker_limits_a_page_too(three: World) -> None:
    assert page(three, "t1", limit=100) == ({"t1": [0, 1]}, ("t1", 2))


def test_a_topic_that_comes_twice_is_told_once(three: World) -> None:
    assert page(three, "t1", "t1") == ({"t1": [0, 1, 2]}, None)


def test_unknown_topics_and_bad_names_are_told(three: World) -> None:
    assert codes(ask(three, ["nope", "a/b", "t1"])) == [
        ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t1", 0),
    ]


def test_a_cursor_that_cannot_be_refuses_the_request(three: World) -> None:
    assert codes(ask(three, ["t1"], cursor=("t1", -1))) == [("t1", ErrorCode.INVALID_REQUEST)]
    invalid = ErrorCode.INVALID_REQUEST
    assert codes(ask(three, ["t3", "t1"], cursor=("t2", 0))) == [("t1", invalid), ("t3", invalid)]
