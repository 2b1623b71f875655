"""ListOffsets: by the times at which segments were written (version 0), and by those of records."""

from collections.abc import Callable
from typing import Any

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.handlers.conftest import World

LATEST, EARLIEST = -1, -2
HOUR_MS = 3_600_000


def offsets(world: World, timestamp: int, count: int = 10) -> list[int]:
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp, max_num_offsets=count)
    answer = world.ask(ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[asked])]), 0)
    (result,) = answer.topics[0].partitions
    assert result.error_code == 0
    found: list[int] = result.old_style_offsets
    return found


@pytest.fixture
def now_ms(world: World) -> int:
    """Two segments, of an hour ago and of now, that end at 3 and 5; the records' own times are all of now."""
    now_ms = world.clock.now_ms()
    world.create("t")
    world.files.now_ms = now_ms - HOUR_MS
    world.produce("t", 3)
    world.log_of("t").roll(now_ms)
    world.files.now_ms = now_ms
    world.produce("t", 2)
    return now_ms


@pytest.mark.parametrize(("target", "expected"), [(LATEST, [5, 3, 0]), (EARLIEST, [0])], ids=["latest", "earliest"])
def test_the_end_and_the_start_of_every_segment_are_listed(
    world: World, now_ms: int, target: int, expected: list[int]
) -> None:
    assert now_ms > 0
    assert offsets(world, target) == expected
    assert offsets(world, target, count=1) == expected[:1]


@pytest.mark.parametrize(
    ("age_ms", "expected"),
    [(2 * HOUR_MS, []), (HOUR_MS, [0]), (1, [0]), (0, [5, 3, 0]), (-HOUR_MS, [5, 3, 0])],
)
def test_a_time_finds_what_was_written_by_then_whatever_the_records_say(
    world: World, now_ms: int, age_ms: int, expected: list[int]
) -> None:
    assert offsets(world, now_ms - age_ms) == expected


class Meanwhile:
    """Opens records at once; something else happens before it is told what was found."""

    def __init__(self, happens: Callable[[], object]) -> None:
        self._happens = happens
        self.count = 0

    async def run(self, work: Callable[[], Any]) -> Any:
        found = work()
        self.count += 1
        self._happens()
        return found


def by_time(world: World, *timestamps: int, version: int = 9) -> list[tuple[int, int]]:
    """Error code and offset for each, all of one partition in one request."""
    asked = [ListOffsetsPartition(partition_index=0, timestamp=timestamp) for timestamp in timestamps]
    answer = world.ask(ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=asked)]), version)
    return [(each.error_code, each.offset) for each in answer.topics[0].partitions]


def fill(world: World, count: int = 5) -> int:
    """Batches of one record, a second apart; the time of the first."""
    world.create("t")
    begin_ms = world.clock.now_ms()
    for _ in range(count):
        world.produce("t", 1)
        world.clock.advance(1000)
    return begin_ms


@pytest.mark.parametrize("version", range(1, 12))
def test_a_time_finds_the_first_record_that_is_not_older(world: World, version: int) -> None:
    begin_ms = fill(world)
    assert by_time(world, begin_ms + 1001, version=version) == [(0, 2)]
    assert by_time(world, begin_ms + 4001, version=version) == [(0, -1)]
    if version >= 7:
        assert by_time(world, -3, version=version) == [(0, 4)]


def test_a_partition_that_is_named_twice_is_refused(world: World) -> None:
    begin_ms = fill(world)
    assert by_time(world, begin_ms, LATEST) == [(ErrorCode.INVALID_REQUEST, -1)] * 2


def test_records_that_are_deleted_while_they_are_found_are_not_told(world: World) -> None:
    begin_ms = fill(world)
    partition = world.services.replicas.get("t", 0)
    world.replace(opener=Meanwhile(lambda: partition.delete_records(3)))
    assert by_time(world, begin_ms + 500) == [(0, 3)]


@pytest.mark.parametrize(
    ("version", "code"), [(4, ErrorCode.LEADER_NOT_AVAILABLE), (5, ErrorCode.OFFSET_NOT_AVAILABLE)]
)
def test_a_search_that_deletion_overtakes_again_and_again_may_be_tried_again(
    world: World, version: int, code: ErrorCode
) -> None:
    begin_ms = fill(world)
    partition = world.services.replicas.get("t", 0)
    world.replace(opener=Meanwhile(lambda: partition.delete_records(partition.log.log_start_offset + 1)))
    assert by_time(world, begin_ms, version=version) == [(code, -1)]


def test_a_leader_that_changes_during_a_search_is_told(world: World) -> None:
    begin_ms = fill(world)
    world.replace(opener=Meanwhile(lambda: world.services.replicas.remove("t", 0)))
    ((code, offset),) = by_time(world, begin_ms)
    assert (code, offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


def test_a_disk_that_fails_during_a_search_is_told(world: World) -> None:
    begin_ms = fill(world)

    def fail() -> None:
        raise OSError(5, "Input/output error")

    world.replace(opener=Meanwhile(fail))
    assert by_time(world, begin_ms) == [(ErrorCode.KAFKA_STORAGE_ERROR, -1)]
