"""What goes and what stays."""

from dataclasses import replace

import pytest

from moldau.core.memory_files import MemoryFiles
from moldau.core.topic_config import TopicConfig
from moldau.log.log import Log
from tests.log.helpers import DIRECTORY, NOW_MS, append, idempotent, offsets, open_log, sized_batch, small_segments

DAY_MS = 86_400_000


def log_of(config: TopicConfig, files: MemoryFiles | None = None) -> Log:
    """Ten batches, two to a segment, a day apart; the last one now."""
    log = open_log(files or MemoryFiles(), config)
    for number in range(10):
        append(log, sized_batch(300, timestamp=NOW_MS - (9 - number) * DAY_MS), leader_epoch=number // 4)
    return log


def config_of(**values: int) -> TopicConfig:
    return small_segments(1000, segment_ms=100 * DAY_MS, **{"retention_ms": -1, **values})


def test_segments_go_when_their_youngest_record_is_too_old() -> None:
    log = log_of(config_of(retention_ms=5 * DAY_MS))
    assert log.delete_expired(NOW_MS, 10) == [0, 2]
    assert (log.log_start_offset, offsets(log)) == (4, [4, 5, 6, 7, 8, 9])
    assert log.delete_expired(NOW_MS, 10) == []


def test_the_oldest_segments_go_when_the_log_is_too_large() -> None:
    log = log_of(config_of())
    log.config = replace(log.config, retention_bytes=log.size_bytes - log.segments.first.size - 1)
    assert log.delete_expired(NOW_MS, 10) == [0]
    log.config = replace(log.config, retention_bytes=0)
    assert log.delete_expired(NOW_MS, 10) == [2, 4, 6, 8]
    assert log.size_bytes == 0


def test_a_log_whose_all_records_are_old_goes_on_empty_at_its_end() -> None:
    log = log_of(config_of(retention_ms=1))
    assert log.delete_expired(NOW_MS + DAY_MS, 10) == [0, 2, 4, 6, 8]
    assert (log.log_start_offset, log.log_end_offset, len(log.segments)) == (10, 10, 1)
    assert log.delete_expired(NOW_MS + DAY_MS, 10) == []
    assert append(log, sized_batch(10)) == 10


@pytest.mark.parametrize(("high_watermark", "gone"), [(0, []), (3, [0]), (4, [0, 2]), (9, [0, 2, 4, 6])])
def test_nothing_uncommitted_goes(high_watermark: int, gone: list[int]) -> None:
    log = log_of(config_of(retention_ms=1))
    assert log.delete_expired(NOW_MS + DAY_MS, high_watermark) == gone


def test_segments_below_the_log_start_go_even_from_a_compacted_topic() -> None:
    log = log_of(replace(config_of(retention_ms=1), cleanup_policy=frozenset({"compact"})))
    assert log.delete_expired(NOW_MS + DAY_MS, 10) == []
    log.advance_log_start(5)
    assert log.delete_expired(NOW_MS, 10) == [0, 2]
    assert log.log_start_offset == 5
    log.advance_log_start(10)
    assert log.delete_expired(NOW_MS, 10) == [4, 6]


def test_no_limit_keeps_everything() -> None:
    log = log_of(config_of())
    assert log.delete_expired(NOW_MS + 1000 * DAY_MS, 10) == []


def test_records_without_time_are_as_old_as_their_file() -> None:
    files = MemoryFiles()
    files.now_ms = NOW_MS
    log = open_log(files, config_of(retention_ms=1000))
    append(log, sized_batch(100, timestamp=-1))
    assert log.delete_expired(NOW_MS + 1000, 1) == []
    assert log.delete_expired(NOW_MS + 1001, 1) == [0]


def test_files_are_renamed_at_once_and_removed_when_their_time_has_come() -> None:
    files = MemoryFiles()
    log = log_of(config_of(retention_ms=7 * DAY_MS, file_delete_delay_ms=60_000), files)
    log.delete_expired(NOW_MS, 10)
    deleted = [name for name in files.list(DIRECTORY) if name.endswith(".deleted")]
    assert deleted == [f"{0:020d}.{suffix}.deleted" for suffix in ("index", "log", "timeindex")]
    log.remove_doomed(NOW_MS + 59_999)
    assert [name for name in files.list(DIRECTORY) if name.endswith(".deleted")] == deleted
    log.remove_doomed(NOW_MS + 60_000)
    assert not [name for name in files.list(DIRECTORY) if name.endswith(".deleted")]
    assert not log._directory.doomed


def test_leader_epochs_and_producers_follow_the_start() -> None:
    log = log_of(config_of(retention_ms=5 * DAY_MS))
    append(log, idempotent(0))
    log.delete_expired(NOW_MS, 11)
    assert [tuple(entry) for entry in log.leader_epochs.entries()] == [(1, 4), (2, 8)]
    assert append(log, idempotent(1)) == 11


def test_what_is_left_opens_after_a_crash() -> None:
    files = MemoryFiles()
    config = config_of(retention_ms=5 * DAY_MS)
    log_of(config, files).delete_expired(NOW_MS, 10)
    log = open_log(files, config, clean=False)
    assert (log.log_start_offset, offsets(log)) == (4, [4, 5, 6, 7, 8, 9])
