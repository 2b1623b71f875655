"""From time to offset: what ListOffsets asks. The only look at records that a log takes by itself."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from moldau.log.segment import NO_TIMESTAMP, Segment
from moldau.records.batch import BatchHeader, Record, iter_records

if TYPE_CHECKING:
    from moldau.log.log import Log


class TimestampOffset(NamedTuple):
    """A record's place and time."""

    offset: int
    timestamp: int
    leader_epoch: int


def find_timestamp(log: "Log", timestamp: int) -> TimestampOffset | None:
    """The first record at or after the log's start that is not older than `timestamp`."""
    for segment in log.segments:
        if segment.max_timestamp >= timestamp:
            found = _find_in_segment(segment, timestamp, log.log_start_offset)
            if found is not None:
                return found
    return None


def find_max_timestamp(log: "Log") -> TimestampOffset | None:
    """The first record with the youngest timestamp of all."""
    segment = max(log.segments, key=lambda each: each.max_timestamp)
    if segment.max_timestamp == NO_TIMESTAMP:
        return None
    found = segment.find(segment.offset_of_max_timestamp)
    if found is None:
        return None
    position, header = found
    records = _records(segment, position, header)
    youngest = max(records, key=lambda record: (record.timestamp, -record.offset), default=None)
    if youngest is None:
        return None  # compaction has emptied the batch, and Kafka looks no further either
    return TimestampOffset(youngest.offset, youngest.timestamp, header.partition_leader_epoch)


def _find_in_segment(segment: Segment, timestamp: int, start_offset: int) -> TimestampOffset | None:
    # Up to an older entry's offset nothing is as young as what is asked for.
    entry = segment.time_index.last_for_timestamp(timestamp - 1)
    first = segment.find(max(start_offset, entry.offset if entry else segment.base_offset))
    if first is None:
        return None
    for position, header in segment.headers(first[0]):
        if header.max_timestamp >= timestamp:
            for record in _records(segment, position, header):
                if record.timestamp >= timestamp and record.offset >= start_offset:
                    return TimestampOffset(record.offset, record.timestamp, header.partition_leader_epoch)
    return None


def _records(segment: Segment, position: int, header: BatchHeader) -> Iterator[Record]:
    if header.magic < 2:
        return iter([Record(header.base_offset, header.max_timestamp, None, None)])
    return iter_records(segment.batch_at(position, header))
