"""Dump of offset indexes and time indexes, each compared with the segment beside it as Kafka's tool does."""

import os
from bisect import bisect_right
from collections.abc import Iterator
from struct import Struct

from moldau.inspection.dump_segments import any_header
from moldau.inspection.faults import Faults
from moldau.inspection.reading import ReadError, ReadOnlyFile, content, opened
from moldau.inspection.rows import Pairs, Row, Text
from moldau.protocol.errors import ApiError
from moldau.records.batch import BATCH_HEADER_BYTES, LOG_OVERHEAD, MAGIC_V2, NO_TIMESTAMP, BatchHeader, iter_records
from moldau.records.legacy import read_message_set

OFFSET_ENTRY = Struct(">ii")
TIME_ENTRY = Struct(">qi")


def dump_offset_index(path: str, *, sanity_only: bool, verify_only: bool, faults: Faults) -> Iterator[Row]:
    """Rows of an `.index` file."""
    base_offset, data = _base_offset(path), content(path)
    entries = [(base_offset + relative, position) for relative, position in _entries(OFFSET_ENTRY, data)]
    if not entries:
        yield Text("index", f"{path} is empty.", {"isEmpty": True})
        return
    if sanity_only:
        yield from _sanity(path, _offset_insanity(path, base_offset, data, entries), faults)
        return
    with opened(_beside(path, ".log")) as log:
        for number, (offset, position) in enumerate(entries):
            if number and offset == base_offset:  # room that was taken in advance, and not used
                return
            header = _header_at(log, position)
            found = -1 if header is None else header.last_offset
            if found != offset:
                faults.index_mismatches.setdefault(os.path.abspath(path), {})[offset] = found
            if not verify_only:
                yield Pairs("indexEntry", {"offset": offset, "position": position})


def dump_time_index(path: str, *, sanity_only: bool, verify_only: bool, faults: Faults) -> Iterator[Row]:
    """Rows of a `.timeindex` file."""
    base_offset, data = _base_offset(path), content(path)
    entries = [(timestamp, base_offset + relative) for timestamp, relative in _entries(TIME_ENTRY, data)]
    if sanity_only:
        yield from _sanity(path, _time_insanity(path, base_offset, data, entries), faults)
        return
    positions = _positions(path, base_offset)
    with opened(_beside(path, ".log")) as log:
        last = NO_TIMESTAMP
        for number, (timestamp, offset) in enumerate(entries):
            if number and offset == base_offset:
                return
            _check_time(os.path.abspath(path), log, positions, (timestamp, offset), last, faults)
            if not verify_only:
                yield Pairs("timeIndexEntry", {"timestamp": timestamp, "offset": offset})
            last = timestamp


def _check_time(
    path: str, log: ReadOnlyFile, positions: list[tuple[int, int]], entry: tuple[int, int], last: int, faults: Faults
) -> None:
    timestamp, offset = entry
    before = bisect_right(positions, offset, key=lambda each: each[0])
    position = positions[before - 1][1] if before else 0
    while (header := _header_at(log, position)) is not None and header.last_offset < offset:
        position += header.size
    if header is None or header.last_offset != offset:
        found = -1 if header is None else header.last_offset
        faults.offsets_not_found.setdefault(path, []).append((offset, found))
        return
    highest = _highest_timestamp(log, position, header)
    if highest != timestamp:
        faults.time_mismatches.setdefault(path, []).append((timestamp, highest))
    if last >= timestamp:
        faults.times_out_of_order.setdefault(path, []).append((timestamp, last))


def _highest_timestamp(log: ReadOnlyFile, position: int, header: BatchHeader) -> int:
    batch = log.read_at(position, header.size)
    try:
        records = iter_records(batch) if header.magic >= MAGIC_V2 else read_message_set(batch)
        return max((record.timestamp for record in records), default=NO_TIMESTAMP)
    except ApiError:
        return NO_TIMESTAMP


def _header_at(log: ReadOnlyFile, position: int) -> BatchHeader | None:
    """The header of the whole batch at a position; None if there is none."""
    if not 0 <= position < log.size():
        return None
    head = log.read_at(position, BATCH_HEADER_BYTES)
    header = any_header(head) if len(head) > LOG_OVERHEAD + 4 else None
    return header if header is not None and 0 < header.size <= log.size() - position else None


def _positions(path: str, base_offset: int) -> list[tuple[int, int]]:
    """Offsets and positions of the offset index beside a time index; none if it is missing."""
    try:
        data = content(_beside(path, ".index"))
    except ReadError:
        return []
    entries = _entries(OFFSET_ENTRY, data)
    used = [entry for number, entry in enumerate(entries) if not number or entry[0]]
    return [(base_offset + relative, position) for relative, position in used]


def _entries(layout: Struct, data: bytes) -> list[tuple[int, int]]:
    whole = len(data) // layout.size * layout.size
    return [(first, second) for first, second in layout.iter_unpack(data[:whole])]


def _sanity(path: str, insanity: str | None, faults: Faults) -> Iterator[Row]:
    if insanity is None:
        yield Text("index", f"{path} passed sanity check.", {"isSane": True})
    else:
        faults.errors.append(insanity)
        yield Text("index", f"{path} failed sanity check.", {"isSane": False})


def _offset_insanity(path: str, base_offset: int, data: bytes, entries: list[tuple[int, int]]) -> str | None:
    if len(data) % OFFSET_ENTRY.size:
        return f"{path} is corrupt: {len(data)} bytes are no multiple of {OFFSET_ENTRY.size}"
    if entries[-1][0] < base_offset:
        return f"{path} is corrupt: its last offset {entries[-1][0]} is less than the base offset {base_offset}"
    return None


def _time_insanity(path: str, base_offset: int, data: bytes, entries: list[tuple[int, int]]) -> str | None:
    if len(data) % TIME_ENTRY.size:
        return f"{path} is corrupt: {len(data)} bytes are no multiple of {TIME_ENTRY.size}"
    if entries and entries[-1][0] < entries[0][0]:
        return f"{path} is corrupt: its last timestamp {entries[-1][0]} is less than its first, {entries[0][0]}"
    if entries and entries[-1][1] < base_offset:
        return f"{path} is corrupt: its last offset {entries[-1][1]} is less than the base offset {base_offset}"
    return None


def _base_offset(path: str) -> int:
    stem = os.path.basename(path).split(".")[0]
    if not stem.isdecimal():
        raise ReadError(f"{path} is not named after an offset: it is no index of a segment")
    return int(stem)


def _beside(path: str, suffix: str) -> str:
    return os.path.join(os.path.dirname(path), os.path.basename(path).split(".")[0] + suffix)
