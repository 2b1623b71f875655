"""ListOffsets as the oldest clients ask for it (version 0): by the times at which segments were written."""

import pytest

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
