"""Single laws of rolling, recovering and closing a log, each with the smallest example."""

import errno

import pytest

from moldau.core.faulty_files import FaultyFiles
from moldau.core.memory_files import MemoryFiles
from moldau.log.leader_epochs import EpochStart
from moldau.protocol.errors import ApiError
from tests.log.helpers import (
    DIRECTORY,
    NOW_MS,
    append,
    batch,
    fill,
    offsets,
    open_log,
    segment_names,
    sized_batch,
    small_segments,
)


def test_a_segment_that_cannot_be_made_leaves_no_file() -> None:
    for number in range(1, 100):
        disk = MemoryFiles()
        files = FaultyFiles(disk)
        log = open_log(files, small_segments(1000))
        fill(log, 2)
        files.count_from_here()
        files.fail_at(number, errno.ENOSPC)
        try:
            append(log, sized_batch(500))
        except ApiError:
            assert segment_names(disk) == [f"{segment.base_offset:020d}.log" for segment in log.segments]
        else:
            assert number > 5
            return


@pytest.mark.parametrize("clean", [True, False])
def test_an_empty_segment_inside_the_log_is_a_leftover(clean: bool) -> None:
    """As an older version left it: its base is below the end of the segment before it."""
    files = MemoryFiles()
    log = open_log(files, small_segments(1000))
    fill(log, 5)
    log.close()
    files.open(f"{DIRECTORY}/{3:020d}.log", create=True)
    again = open_log(files, small_segments(1000), clean=clean)
    assert offsets(again) == list(range(5))
    assert f"{3:020d}.log" not in segment_names(files)


def test_epochs_above_the_recovery_point_come_from_the_batches() -> None:
    files = MemoryFiles()
    log = open_log(files)
    for _ in range(3):
        append(log, batch(b"x"), leader_epoch=2)
    append(log, batch(b"lost"), leader_epoch=5)
    log.checkpoint()
    log.truncate_to(3)
    for epoch in (4, 4, 4, 7):
        append(log, batch(b"y"), leader_epoch=epoch)
    again = open_log(files, clean=False)
    assert again.leader_epochs.entries() == (EpochStart(2, 0), EpochStart(4, 3), EpochStart(7, 6))


def test_a_clean_stop_vouches_for_the_times() -> None:
    files = MemoryFiles()
    log = open_log(files, small_segments(100_000))
    fill(log, 30)
    log.close()
    files.power_loss()
    again = open_log(files, small_segments(100_000))
    found = again.offset_for_timestamp(NOW_MS + 20)
    assert found is not None
    assert found.offset == 20
    assert segment_names(files, ".snapshot") == [f"{30:020d}.snapshot"]
    assert len(files.read(f"{DIRECTORY}/{30:020d}.snapshot")) > 0


def test_a_log_whose_making_failed_once_is_durable_with_its_first_sync() -> None:
    files = MemoryFiles()
    files.make_directory(DIRECTORY)  # all that an earlier try has left
    log = open_log(files)
    fill(log, 3)
    assert log.sync() == 3
    files.power_loss()
    assert offsets(open_log(files, clean=False)) == [0, 1, 2]
