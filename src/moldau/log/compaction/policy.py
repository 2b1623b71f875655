"""Kafka's rules for `cleanup.policy=compact`: which part of a log is worth cleaning, and when.

The law: never the active segment, nothing at or above the last stable offset, nothing younger than
`min.compaction.lag.ms`. A log is due when the share of new bytes passes `min.cleanable.dirty.ratio`, or when the oldest
new record is older than `max.compaction.lag.ms` (KIP-354).
"""

from bisect import bisect_right
from typing import NamedTuple

from moldau.core.config import LONG_MAX
from moldau.log.compaction.job import CleanJob, LastBatch, Source
from moldau.log.log import Log
from moldau.log.segment import Segment


class Cleanable(NamedTuple):
    """The part of a log that may be cleaned now: whole segments up to `end_offset`."""

    log: Log
    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    @property
    def is_due(self) -> bool:
        if not self.dirty_bytes:
            return False
        return self.is_overdue or self.dirty_ratio > self.log.config.min_cleanable_dirty_ratio


def cleanable(log: Log, last_stable_offset: int, now_ms: int) -> Cleanable:
    """The part of a log that may be cleaned now."""
    dirty_from = first_dirty_offset(log)
    *sealed, active = log.segments.from_offset(log.log_start_offset)
    ends = [segment.base_offset for segment in sealed[1:]] + [active.base_offset]
    number = bisect_right(ends, dirty_from)
    clean, dirty = sealed[:number], sealed[number:]
    end = _end_offset(log, list(zip(dirty, ends[number:], strict=False)), last_stable_offset, now_ms)
    return Cleanable(
        log,
        dirty_from,
        end,
        sum(segment.size for segment in clean),
        sum(segment.size for segment in dirty if segment.base_offset < end),
        _is_overdue(log, dirty, now_ms),
    )


def first_dirty_offset(log: Log) -> int:
    """The offset at which the last cleaning ended; the log start offset if the log does not reach there."""
    start = log.log_start_offset
    return log.clean_offset if start <= log.clean_offset <= log.log_end_offset else start


def _end_offset(log: Log, dirty: list[tuple[Segment, int]], last_stable_offset: int, now_ms: int) -> int:
    """The base offset of the first segment that may not be cleaned yet; `dirty` are segments with their end offsets."""
    lag_ms = log.config.min_compaction_lag_ms
    for segment, end in dirty:
        is_young = lag_ms > 0 and segment.largest_timestamp() > now_ms - lag_ms
        if end > last_stable_offset or is_young:
            return segment.base_offset
    return log.segments.active.base_offset


def _is_overdue(log: Log, dirty: list[Segment], now_ms: int) -> bool:
    lag_ms = log.config.max_compaction_lag_ms
    if lag_ms == LONG_MAX:
        return False
    times = [segment.first_timestamp for segment in dirty]
    log.segments.release_sealed()  # the look at the first batch has opened them all
    return any(0 < time < now_ms - lag_ms for time in times)


def clean_job(due: Cleanable, *, now_ms: int, keys_max: int, suffix: str) -> CleanJob:
    """The job for another process."""
    log = due.log
    segments = log.segments.from_offset(log.log_start_offset)
    return CleanJob(
        directory=log.directory,
        sources=[Source(each.base_offset, each.size) for each in segments if each.base_offset < due.end_offset],
        later_offsets=[each.base_offset for each in segments if each.base_offset >= due.end_offset],
        first_dirty_offset=due.first_dirty_offset,
        end_offset=due.end_offset,
        now_ms=now_ms,
        delete_retention_ms=log.config.delete_retention_ms,
        segment_bytes=log.config.segment_bytes,
        segment_index_bytes=log.config.segment_index_bytes,
        index_interval_bytes=log.config.index_interval_bytes,
        keys_max=keys_max,
        last_batches={
            each.producer_id: LastBatch(each.batches[-1].last_offset if each.batches else -1, each.epoch)
            for each in log.producers
        },
        suffix=suffix,
        truncations=log.truncations,
    )
