"""When a log is due for compaction."""

from dataclasses import replace

import pytest

from moldau.core.memory_files import MemoryFiles
from moldau.core.topic_config import TopicConfig
from moldau.log.log import Log
from tests.log.compaction.cleaning import CONFIG, compact, due, new_log, put
from tests.log.helpers import (
    NOW_MS,
)


def dirty_log(config: TopicConfig = CONFIG) -> tuple[MemoryFiles, Log]:
    files, log = new_log()
    put(log, (b"a", b"1"))
    put(log, (b"b", b"1"))
    compact(files, log)
    log.config = config
    put(log, (b"a", b"2"), timestamp=NOW_MS + 5000)
    log.roll(NOW_MS)
    return files, log


def test_a_log_is_due_by_the_share_of_new_bytes() -> None:
    _, log = dirty_log()
    state = due(log)
    assert state.clean_bytes == 2 * state.dirty_bytes
    for ratio, is_due in ((0.3, True), (0.34, False), (0.5, False)):
        log.config = replace(CONFIG, min_cleanable_dirty_ratio=ratio)
        assert due(log).is_due == is_due


def test_a_log_without_new_segments_is_not_due() -> None:
    files, log = new_log()
    put(log, (b"a", b"1"))
    assert not due(log).is_due
    compact(files, log)
    assert not due(log).is_due
    assert not due(new_log()[1]).is_due


def test_young_records_are_left_alone() -> None:
    _, log = dirty_log(replace(CONFIG, min_compaction_lag_ms=1000))
    assert not due(log, NOW_MS + 5999).is_due
    assert due(log, NOW_MS + 6000).is_due


def test_a_log_is_due_when_its_oldest_new_record_is_old() -> None:
    _, log = dirty_log(replace(CONFIG, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=1000))
    assert not due(log, NOW_MS + 6000).is_due
    assert due(log, NOW_MS + 6001).is_due


def test_max_compaction_lag_closes_the_active_segment() -> None:
    _, log = new_log(replace(CONFIG, max_compaction_lag_ms=1000))
    put(log, (b"a", b"1"))
    assert not log.roll_if_due(NOW_MS + 1000)
    assert log.roll_if_due(NOW_MS + 1001)


@pytest.mark.parametrize("clean_offset", [1, 99])
def test_an_offset_that_cannot_be_right_means_that_all_is_dirty(clean_offset: int) -> None:
    _, log = new_log()
    for number in range(4):
        put(log, (b"%d" % number, b"1"))
    log.roll(NOW_MS)
    log.advance_log_start(2)
    log.clean_offset = clean_offset
    assert due(log).first_dirty_offset == 2
