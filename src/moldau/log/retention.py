"""Retention: the segments that a log may delete by age, by size, and below its start. Whole segments, oldest first, all
committed."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moldau.log.log import Log


def expired_count(log: "Log", now_ms: int, high_watermark: int) -> int:
    """The number of oldest segments that the topic's settings no longer ask for."""
    config = log.config
    retention_ms = config.retention_ms if config.is_deleted_by_retention else -1
    retention_bytes = config.retention_bytes if config.is_deleted_by_retention else -1
    surplus_bytes = log.size_bytes - retention_bytes if retention_bytes >= 0 else 0
    segments = list(log.segments)
    for number, segment in enumerate(segments):
        is_last = number + 1 == len(segments)
        next_offset = log.log_end_offset if is_last else segments[number + 1].base_offset
        if next_offset > high_watermark or (is_last and segment.size == 0):
            return number
        is_old = retention_ms >= 0 and now_ms - segment.largest_timestamp() > retention_ms
        is_surplus = retention_bytes >= 0 and surplus_bytes - segment.size >= 0
        is_below_start = not is_last and next_offset <= log.log_start_offset
        if not (is_old or is_surplus or is_below_start):
            return number
        surplus_bytes -= segment.size
    return len(segments)
