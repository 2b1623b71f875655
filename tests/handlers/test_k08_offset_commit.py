from typing import Any

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from moldau.protocol.schema import ZERO_UUID
from tests.handlers.conftest import World

BY_ID = 10


def commit(
    world: World, version: int, offset: int = 7, *, name: str = "t", topic_id: bytes = ZERO_UUID, **more: Any
) -> list[int]:
    """The error codes."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata=None)
    if version >= BY_ID:
        topic = OffsetCommitRequestTopic(topic_id=topic_id, partitions=[partition])
    else:
        topic = OffsetCommitRequestTopic(name=name, partitions=[partition])
    answer = world.ask(OffsetCommitRequest(group_id="g", topics=[topic], **more), version)
    return [each.error_code for topic in answer.topics for each in topic.partitions]


def stored(world: World) -> list[tuple[str, int]]:
    found = world.groups.read("g", lambda shard: shard.offsets.fetch("g", None))
    return [(each.topic, each.offset) for each in found]


@pytest.mark.parametrize("version", range(11))
def test_every_version_commits(world: World, version: int) -> None:
    topic_id = world.create("t")
    world.ask(FindCoordinatorRequest(key="g"), 0)
    assert commit(world, version, topic_id=topic_id) == [0]
    assert stored(world) == [("t", 7)]


def test_the_oldest_clients_need_not_look_for_a_coordinator(world: World) -> None:
    world.create("t")
    assert commit(world, 1) == [ErrorCode.NOT_COORDINATOR]
    assert commit(world, 0) == [0]


def test_a_topic_that_does_not_exist_is_refused_alone(world: World) -> None:
    world.create("t")
    world.ask(FindCoordinatorRequest(key="g"), 0)
    topics = [
        OffsetCommitRequestTopic(name=name, partitions=[OffsetCommitRequestPartition(committed_offset=1)])
        for name in ("gone", "t")
    ]
    answer = world.ask(OffsetCommitRequest(group_id="g", topics=topics), 9)
    codes = [topic.partitions[0].error_code for topic in answer.topics]
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]
    assert stored(world) == [("t", 1)]


@pytest.mark.parametrize("version", [1, 9, BY_ID])
def test_a_partition_that_does_not_exist_is_refused_alone(world: World, version: int) -> None:
    topic_id = world.create("t")
    world.ask(FindCoordinatorRequest(key="g"), 0)
    named = {"topic_id": topic_id} if version >= BY_ID else {"name": "t"}
    partitions = [OffsetCommitRequestPartition(partition_index=each, committed_offset=1) for each in (1, 0, -1)]
    topic = OffsetCommitRequestTopic(partitions=partitions, **named)
    answer = world.ask(OffsetCommitRequest(group_id="g", topics=[topic]), version)
    codes = [each.error_code for each in answer.topics[0].partitions]
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert stored(world) == [("t", 1)]
    assert commit(world, BY_ID, topic_id=b"?" * 16) == [ErrorCode.UNKNOWN_TOPIC_ID]


def test_a_member_of_a_group_that_is_gone_learns_so_from_version_9_on(world: World) -> None:
    world.create("t")
    world.ask(FindCoordinatorRequest(key="g"), 0)
    member: dict[str, Any] = {"generation_id_or_member_epoch": 3, "member_id": "m"}
    assert commit(world, 8, **member) == [ErrorCode.ILLEGAL_GENERATION]
    assert commit(world, 9, **member) == [ErrorCode.GROUP_ID_NOT_FOUND]


@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize("retention_ms", [2**63 - 1, -(2**63), 0])
def test_a_retention_of_any_length_is_taken(world: World, version: int, retention_ms: int) -> None:
    world.create("t")
    world.ask(FindCoordinatorRequest(key="g"), 0)
    assert commit(world, version, retention_time_ms=retention_ms) == [0]
    assert stored(world) == [("t", 7)]


def test_a_commit_that_could_not_be_written_down_is_refused_and_leaves_nothing_behind(world: World) -> None:
    """The record of a commit has room for 32,767 bytes of the group's name, the request has room for more."""
    world.create("t")
    world.ask(FindCoordinatorRequest(key="g"), 0)
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    answer = world.ask(OffsetCommitRequest(group_id="g" * 40_000, topics=[topic]), 9)
    assert [each.error_code for each in answer.topics[0].partitions] == [ErrorCode.INVALID_REQUEST]
    assert not any(host.waiting for host in world.groups._shards.values())
