from typing import Any

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.handlers.conftest import World
from tests.handlers.test_k08_offset_commit import commit, stored


def delete(world: World, *topics: str) -> Any:
    partitions = [OffsetDeleteRequestPartition(partition_index=0)]
    named = [OffsetDeleteRequestTopic(name=name, partitions=partitions) for name in topics]
    return world.ask(OffsetDeleteRequest(group_id="g", topics=named))


def test_an_offset_is_deleted_and_a_missing_topic_is_told(world: World) -> None:
    world.create("t")
    world.ask(FindCoordinatorRequest(key="g"), 0)
    commit(world, 9)
    answer = delete(world, "gone", "t")
    assert answer.error_code == 0
    codes = [topic.partitions[0].error_code for topic in answer.topics]
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]
    assert stored(world) == []


def test_a_group_that_does_not_exist_is_told(world: World) -> None:
    world.create("t")
    world.ask(FindCoordinatorRequest(key="g"), 0)
    assert delete(world, "t").error_code == ErrorCode.GROUP_ID_NOT_FOUND
