from typing import Any

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from moldau.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from tests.handlers.conftest import World
from tests.handlers.test_k08_offset_commit import commit

ONE_GROUP_UP_TO = 7
BY_ID = 10


@pytest.fixture
def topic_id(world: World) -> bytes:
    """Of `t`, of which group g has committed 7 in partition 0 and nothing in 1."""
    made = world.create("t", 2)
    world.ask(FindCoordinatorRequest(key="g"), 0)
    assert commit(world, 9) == [0]
    return made


def fetch(world: World, version: int, topic_id: bytes, group_id: str = "g", *, everything: bool = False) -> Any:
    """The answer of a group, or the whole one where there is no group in it."""
    if version <= ONE_GROUP_UP_TO:
        old = None if everything else [OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
        return world.ask(OffsetFetchRequest(group_id=group_id, topics=old), version)
    named: dict[str, Any] = {"topic_id": topic_id} if version >= BY_ID else {"name": "t"}
    topics = None if everything else [OffsetFetchRequestTopics(partition_indexes=[0, 1], **named)]
    group = OffsetFetchRequestGroup(group_id=group_id, topics=topics)
    (answer,) = world.ask(OffsetFetchRequest(groups=[group]), version).groups
    return answer


def offsets(answer: Any) -> list[tuple[int, int]]:
    return [(each.committed_offset, each.error_code) for topic in answer.topics for each in topic.partitions]


@pytest.mark.parametrize("version", range(11))
def test_every_version_finds_what_is_there_and_says_what_is_not(world: World, topic_id: bytes, version: int) -> None:
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if version == 0 else ErrorCode.NONE
    assert offsets(fetch(world, version, topic_id)) == [(7, 0), (-1, missing)]


@pytest.mark.parametrize("version", range(2, 11))
def test_null_topics_ask_for_everything(world: World, topic_id: bytes, version: int) -> None:
    answer = fetch(world, version, topic_id, everything=True)
    assert offsets(answer) == [(7, 0)]
    assert [topic.topic_id if version >= BY_ID else topic.name for topic in answer.topics] == [
        topic_id if version >= BY_ID else "t"
    ]


def test_a_group_that_does_not_exist_has_no_offsets_and_no_error(world: World, topic_id: bytes) -> None:
    answer = fetch(world, 9, topic_id, "nobody")
    assert (answer.error_code, offsets(answer)) == (0, [(-1, 0), (-1, 0)])
    assert fetch(world, 9, topic_id, "nobody", everything=True).topics == []


def test_an_error_of_the_group_stands_where_the_version_has_room_for_it(world: World) -> None:
    expected = ErrorCode.NOT_COORDINATOR  # nobody has asked for a coordinator yet
    world.create("t", 2)
    assert offsets(fetch(world, 1, b"")) == [(-1, expected)] * 2
    assert fetch(world, 2, b"").error_code == expected
    assert fetch(world, 8, b"").error_code == expected


def test_an_id_that_no_topic_has_is_refused_alone(world: World, topic_id: bytes) -> None:
    topics = [OffsetFetchRequestTopics(topic_id=each, partition_indexes=[0]) for each in (b"?" * 16, topic_id)]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)])
    (answer,) = world.ask(request).groups
    assert offsets(answer) == [(-1, ErrorCode.UNKNOWN_TOPIC_ID), (7, 0)]


def test_many_groups_are_answered_in_their_order(world: World, topic_id: bytes) -> None:
    topics = [OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[0])]
    groups = [OffsetFetchRequestGroup(group_id=name, topics=topics) for name in ("other", "g")]
    answer = world.ask(OffsetFetchRequest(groups=groups))
    assert [(group.group_id, offsets(group)) for group in answer.groups] == [("other", [(-1, 0)]), ("g", [(7, 0)])]


@pytest.mark.parametrize("version", range(ONE_GROUP_UP_TO + 1))
def test_a_topic_without_partitions_has_nothing_to_be_refused(world: World, version: int) -> None:
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[])]
    assert world.ask(OffsetFetchRequest(group_id="g", topics=topics), version).topics == []
