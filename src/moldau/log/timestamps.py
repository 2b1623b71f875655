"""Searches from time to offset, for ListOffsets: the only time that a log looks into records by itself.

The law: a search alternates between two halves. `next_region` asks the log where to look, on the thread that owns it,
and costs an index look-up; `look` reads headers and opens batches, in any thread, and touches nothing but the file of
its region, which stays readable even if the log is deleted. A record that is found was there when its region was named.

A header says how young its records are, and is not proof. Batches are opened until RECORDS_MAX records were read;
behind that, and where a batch is too large or makes no sense, the header is believed: the answer is then the batch's
first offset, at or before the record that is asked for, so that a client that seeks there misses nothing.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol

from moldau.core.files import File, FileRegion
from moldau.log.scan import iter_headers
from moldau.log.segment import Segment
from moldau.protocol.errors import ApiError
from moldau.records.batch import MAGIC_V2, NO_TIMESTAMP, BatchHeader, records_data
from moldau.records.compression import opened_bytes_max
from moldau.records.record import outline_records

if TYPE_CHECKING:
    from moldau.log.log import Log

RECORDS_MAX = 500_000
"""Records that all searches of one request read: half a second of a thread."""
HEADERS_AT_ONCE = 20_000
"""Headers that one call of `look` walks over: 30 ms, then others may have the thread."""

OPENED_BYTES_MAX = 64 * 1024
UNPACKED_BYTES_MAX = 512 * 1024
OPENED_RECORDS_MAX = 2_000
"""Size, stored and unpacked, and records of a batch that is opened on the loop, to look at one record: a millisecond or
two. Of zeros 64 KiB may hold the 16 MiB that a request may unpack in a thread: 60 to 170 ms of gzip."""


class TimestampOffset(NamedTuple):
    """Offset and timestamp of a record."""

    offset: int
    timestamp: int
    leader_epoch: int


class RecordsLeft:
    """The number of records that may still be read."""

    __slots__ = ("count",)

    def __init__(self, count: int = RECORDS_MAX) -> None:
        self.count = count

    def take(self, count: int) -> bool:
        """Take `count` from the number; False, and nothing is taken, if fewer are left."""
        if count > self.count:
            return False
        self.count -= count
        return True


class Search(Protocol):
    """Either kind of search, driven by turns: `next_region`, `look`, `next_region`, ... until one says it is over."""

    def next_region(self, log: "Log") -> FileRegion | None:
        """The region to look at next; None if there is none any more."""
        ...

    def look(self, region: FileRegion) -> TimestampOffset | None:
        """The record that was found in a region; None if none was found yet."""
        ...


class TimestampSearch:
    """Search for the first record at or after the log start offset that is not older than `timestamp`."""

    __slots__ = ("_left", "_next_base", "_rest", "_start_offset", "_timestamp")

    def __init__(self, timestamp: int, left: RecordsLeft) -> None:
        self._timestamp = timestamp
        self._left = left
        self._start_offset = 0
        self._next_base = 0  # segments that begin before it were looked at
        self._rest: FileRegion | None = None

    def next_region(self, log: "Log") -> FileRegion | None:
        if self._rest is not None:
            return self._rest
        self._start_offset = log.log_start_offset
        for segment in log.segments:
            if segment.base_offset >= self._next_base and segment.max_timestamp >= self._timestamp:
                self._next_base = segment.base_offset + 1
                region = self._region_in(segment)
                if region is not None:
                    log.segments.opened(segment)
                    return region
        return None

    def _region_in(self, segment: Segment) -> FileRegion | None:
        # Up to an older entry's offset nothing is as young as what is asked for.
        entry = segment.time_index.last_for_timestamp(self._timestamp - 1)
        first = segment.find(max(self._start_offset, entry.offset if entry else segment.base_offset))
        return None if first is None else FileRegion(segment.file, first[0], segment.size - first[0])

    def look(self, region: FileRegion) -> TimestampOffset | None:
        self._rest = None
        file, end = region.file, region.position + region.size
        for walked, (position, header) in enumerate(iter_headers(file, region.position, end), 1):
            if header.max_timestamp >= self._timestamp and header.last_offset >= self._start_offset:
                found = self._open(file, position, header)
                if found is not None:
                    return found
            if walked >= HEADERS_AT_ONCE:
                rest = position + header.size
                self._rest = FileRegion(file, rest, end - rest) if rest < end else None
                return None
        return None

    def _open(self, file: File, position: int, header: BatchHeader) -> TimestampOffset | None:
        epoch = header.partition_leader_epoch
        try:
            outlines = _outlines(file, position, header, self._left, opened_bytes_max(header.size))
            if outlines is not None:
                for timestamp, offset in outlines:
                    if timestamp >= self._timestamp and offset >= self._start_offset:
                        return TimestampOffset(offset, timestamp, epoch)
                return None
        except ApiError:  # more than may be held, or no records at all: a consumer will meet it in any case
            pass
        return TimestampOffset(max(header.base_offset, self._start_offset), header.max_timestamp, epoch)


class MaxTimestampSearch:
    """Search for the first record with the youngest timestamp of all, in the batch that should have it (KIP-734)."""

    __slots__ = ("_is_over", "_left")

    def __init__(self, left: RecordsLeft) -> None:
        self._left = left
        self._is_over = False

    def next_region(self, log: "Log") -> FileRegion | None:
        if self._is_over:  # compaction has emptied the batch, and Kafka looks no further either
            return None
        self._is_over = True
        segment = max(log.segments, key=lambda each: each.max_timestamp)
        if segment.max_timestamp == NO_TIMESTAMP:
            return None
        found = segment.find(segment.offset_of_max_timestamp)
        if found is None:
            return None
        log.segments.opened(segment)
        return FileRegion(segment.file, found[0], found[1].size)

    def look(self, region: FileRegion) -> TimestampOffset | None:
        position, header = next(iter_headers(region.file, region.position, region.position + region.size))
        epoch = header.partition_leader_epoch
        try:
            outlines = _outlines(region.file, position, header, self._left, opened_bytes_max(header.size))
            if outlines is not None:
                youngest = max(outlines, key=lambda each: (each[0], -each[1]), default=None)
                return None if youngest is None else TimestampOffset(youngest[1], youngest[0], epoch)
        except ApiError:
            pass
        return TimestampOffset(header.last_offset, header.max_timestamp, epoch)


def find_timestamp(log: "Log", timestamp: int) -> TimestampOffset | None:
    """The first record at or after the log start offset that is not older than `timestamp`."""
    return _run(TimestampSearch(timestamp, RecordsLeft()), log)


def find_max_timestamp(log: "Log") -> TimestampOffset | None:
    """The first record with the youngest timestamp of all."""
    return _run(MaxTimestampSearch(RecordsLeft()), log)


def timestamp_at(log: "Log", offset: int) -> int | None:
    """Timestamp of the first record at or behind `offset`; None if there is none.

    The batch is opened if that is little work. Of a large one the header is believed, which says how old its first
    record is.
    """
    return log.guarded(lambda: _timestamp_at(log, offset))


def _timestamp_at(log: "Log", offset: int) -> int | None:
    for segment in log.segments.from_offset(offset):
        found = segment.find(offset)
        if found is not None:
            log.segments.opened(segment)
            return _timestamp_in(segment.file, *found, offset)
    return None


def _timestamp_in(file: File, position: int, header: BatchHeader, offset: int) -> int:
    if header.is_log_append_time or header.base_timestamp == header.max_timestamp or header.magic < MAGIC_V2:
        return header.max_timestamp
    # Compaction may keep another time in the place of that of the first record (KIP-534).
    first_timestamp = header.max_timestamp if header.has_delete_horizon else header.base_timestamp
    if header.base_offset >= offset and not header.has_delete_horizon:
        return first_timestamp
    if header.size > OPENED_BYTES_MAX:
        return first_timestamp
    try:
        outlines = _outlines(file, position, header, RecordsLeft(OPENED_RECORDS_MAX), UNPACKED_BYTES_MAX)
    except ApiError:
        outlines = None  # more than is unpacked here, or it makes no sense: a consumer will meet it in any case
    if outlines is None:
        return first_timestamp
    return next((timestamp for timestamp, each in outlines if each >= offset), header.max_timestamp)


def _run(search: Search, log: "Log") -> TimestampOffset | None:
    while (region := search.next_region(log)) is not None:
        found = search.look(region)
        if found is not None:
            return found
    return None


def _outlines(
    file: File, position: int, header: BatchHeader, left: RecordsLeft, unpacked_max: int
) -> Iterator[tuple[int, int]] | None:
    """Timestamp and offset of each record of a batch; None if there are too many to read. Raises ApiError for one that
    unpacks to more than so many bytes."""
    base_offset, base_timestamp, count = header.base_offset, header.base_timestamp, header.record_count
    if header.magic < MAGIC_V2:
        return iter([(header.max_timestamp, base_offset)])
    if not left.take(count):
        return None
    data = records_data(file.read_at(position, header.size), header, limit=unpacked_max)
    outlines = outline_records(data, count)
    if header.is_log_append_time:
        return ((header.max_timestamp, base_offset + delta) for _, delta, _ in outlines)
    return ((base_timestamp + since, base_offset + delta) for since, delta, _ in outlines)
