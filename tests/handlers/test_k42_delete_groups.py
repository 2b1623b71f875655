import pytest

from moldau.handlers import k42_delete_groups
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.k42_delete_groups import DeleteGroupsRequest
from tests.handlers.conftest import World

AT_ONCE = 3
PARTITIONS = 10


def commit(world: World, group_id: str, partitions: int = PARTITIONS) -> None:
    """Commit an offset for each partition of a topic."""
    there = [OffsetCommitRequestPartition(partition_index=index, committed_offset=1) for index in range(partitions)]
    topics = [OffsetCommitRequestTopic(name="t", partitions=there)]
    answer = world.ask(OffsetCommitRequest(group_id=group_id, topics=topics), 9)
    assert {each.error_code for topic in answer.topics for each in topic.partitions} == {0}


def committed(world: World, group_id: str) -> int:
    return len(world.groups.read(group_id, lambda shard: shard.offsets.fetch(group_id, None)))


def delete(world: World, *names: str) -> dict[str, int]:
    answer = world.ask(DeleteGroupsRequest(groups_names=list(names)), 2)
    return {each.group_id: each.error_code for each in answer.results}


@pytest.fixture
def few_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """A broker that removes few offsets in one turn of its loop."""
    monkeypatch.setattr(k42_delete_groups, "OFFSETS_AT_ONCE_MAX", AT_ONCE)
    world.create("t", PARTITIONS)
    world.ask(FindCoordinatorRequest(key="g"), 0)
    return world


def test_groups_with_more_offsets_than_one_turn_removes_are_removed_in_turns(few_at_once: World) -> None:
    for name in ("large", "larger", "small"):
        commit(few_at_once, name, 1 if name == "small" else PARTITIONS)
    found = delete(few_at_once, "small", "large", "none", "larger", "small")
    assert found == {"small": 0, "large": 0, "larger": 0, "none": ErrorCode.GROUP_ID_NOT_FOUND}
    assert [committed(few_at_once, name) for name in found] == [0, 0, 0, 0]
    assert set(delete(few_at_once, *found).values()) == {ErrorCode.GROUP_ID_NOT_FOUND}


def test_one_turn_removes_no_more_than_its_share(few_at_once: World, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(few_at_once, "large")
    removed: list[int] = []

    class Watched(k42_delete_groups._Turn):
        def _decide(self, shard: object, group_id: str) -> object:  # type: ignore[override]
            outcome, promise = super()._decide(shard, group_id)  # type: ignore[arg-type]
            removed.append(len(outcome.records))
            return outcome, promise

    monkeypatch.setattr(k42_delete_groups, "_Turn", Watched)
    assert delete(few_at_once, "large") == {"large": 0}
    assert removed == [3, 3, 3, 2]  # the last one is that of the group
