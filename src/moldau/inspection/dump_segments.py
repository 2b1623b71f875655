"""Dump of a segment: batches of any message format, their records, and the markers of transactions in them."""

import os
import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from moldau.inspection.control_records import Control
from moldau.inspection.decoders import Decoder
from moldau.inspection.faults import Faults
from moldau.inspection.reading import ReadOnlyFile, opened
from moldau.inspection.rows import BatchRow, RecordRow, Row, Text, timestamp_type
from moldau.protocol.errors import ApiError
from moldau.records.batch import (
    BATCH_HEADER_BYTES,
    CRC_START,
    HEADER_LAYOUT,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    MAGIC_V2,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    SEQUENCE_MASK,
    BatchHeader,
    iter_records,
)
from moldau.records.crc import crc32c
from moldau.records.legacy import Message, check_message, decompressed, inner_messages, iter_frames, read_message

LOG_SUFFIX = ".log"
ALL_BYTES = (1 << 31) - 1
"""Bytes of a segment that are dumped unless fewer are asked for: no segment is longer."""

_SIZE_MIN = 14  # of a message of format v0, behind its offset and size
_HEADER_BYTES_MIN = 17  # up to the magic, which tells the format
_SIZE = struct.Struct(">qi")
_LEGACY = struct.Struct(">qiIbbq")
_LEGACY_BYTES = 26


class SegmentOptions(NamedTuple):
    """Wishes of whoever dumps a segment."""

    is_deep: bool = False
    decoder: Decoder | None = None
    """None: keys and values are not shown."""
    skip_metadata: bool = False
    bytes_max: int = ALL_BYTES


def dump_segment(path: str, options: SegmentOptions, faults: Faults) -> Iterator[Row]:
    """Rows of a segment file, or of a snapshot of a KRaft controller, which has the same form."""
    name = os.path.basename(path)
    yield from _opening(name)
    with opened(path) as file:
        end = min(file.size(), options.bytes_max)
        position, last_offset = 0, -1
        for header, is_valid, batch in _batches(file, end, faults):
            yield BatchRow(header, position, is_valid)
            position += header.size
            if options.is_deep:
                for row in _records(path, header, batch, options, faults):
                    if row.record.offset != last_offset + 1:
                        faults.gaps.setdefault(os.path.abspath(path), {})[last_offset] = row.record.offset
                    last_offset = row.record.offset
                    yield row
        if position < end and options.bytes_max == ALL_BYTES:
            left = end - position
            yield Text("end", f"Found {left} invalid bytes at the end of {name}", {"invalidBytes": left})


def _opening(name: str) -> Iterator[Row]:
    stem = name.split(".")[0]
    if name.endswith(LOG_SUFFIX):
        start = int(stem) if stem.isdecimal() else 0
        yield Text("segment", f"Log starting offset: {start}", {"startOffset": start})
    elif name == "bootstrap.checkpoint":
        yield Text("segment", "KRaft bootstrap snapshot", {})
    elif stem.replace("-", "").isdecimal():
        offset, _, epoch = stem.partition("-")
        line = f"Snapshot end offset: {int(offset)}, epoch: {int(epoch or 0)}"
        yield Text("segment", line, {"endOffset": int(offset), "epoch": int(epoch or 0)})


def _batches(file: ReadOnlyFile, end: int, faults: Faults) -> Iterator[tuple[BatchHeader, bool, memoryview]]:
    """Header, validity and bytes of each batch that is there to its end."""
    position = 0
    while position < end - _HEADER_BYTES_MIN:
        head = file.read_at(position, min(BATCH_HEADER_BYTES, end - position))
        if len(head) < _HEADER_BYTES_MIN:
            return
        size = LOG_OVERHEAD + _SIZE.unpack_from(head)[1]
        if size < LOG_OVERHEAD + _SIZE_MIN:
            faults.errors.append(f"{file.path}: a batch of {size - LOG_OVERHEAD} bytes at {position} cannot be")
            return
        if position + size > end:
            return
        header = any_header(head)
        if header is None:
            faults.errors.append(f"{file.path}: {size} bytes at {position} are too few for a batch of their format")
            return
        batch = memoryview(file.read_at(position, size))
        yield header, is_valid(header, batch), batch
        position += size


def any_header(head: bytes) -> BatchHeader | None:
    """The header of a batch of any format; None if the bytes are too few."""
    if head[MAGIC_POSITION] >= MAGIC_V2:
        return None if len(head) < BATCH_HEADER_BYTES else BatchHeader(*HEADER_LAYOUT.unpack_from(head))
    if len(head) < _LEGACY_BYTES:
        return None
    offset, size, crc, magic, attributes, timestamp = _LEGACY.unpack_from(head)
    timestamp = timestamp if magic else NO_TIMESTAMP
    return BatchHeader(offset, size, -1, magic, crc, attributes, 0, timestamp, timestamp, -1, -1, NO_SEQUENCE, 1)


def is_valid(header: BatchHeader, batch: memoryview) -> bool:
    """Whether the checksum is right."""
    if header.magic >= MAGIC_V2:
        return crc32c(batch[CRC_START:]) == header.crc
    return zlib.crc32(batch[MAGIC_POSITION:]) == header.crc


def _records(
    path: str, header: BatchHeader, batch: memoryview, options: SegmentOptions, faults: Faults
) -> Iterator[RecordRow]:
    rows = _plain_records if header.magic >= MAGIC_V2 else _legacy_records
    try:
        yield from rows(header, batch, options)
    except (ApiError, ValueError, struct.error) as error:
        faults.errors.append(f"{path}: the records of the batch at offset {header.base_offset} cannot be read: {error}")


def _plain_records(header: BatchHeader, batch: memoryview, options: SegmentOptions) -> Iterator[RecordRow]:
    kind = timestamp_type(header)
    for number, record in enumerate(iter_records(batch)):
        sequence = NO_SEQUENCE
        if header.base_sequence != NO_SEQUENCE:
            sequence = (header.base_sequence + number) & SEQUENCE_MASK
        is_shown = options.decoder is not None and not header.is_control
        yield RecordRow(
            record,
            kind,
            sequence,
            None,
            Control(record) if header.is_control else None,
            options.decoder(record) if options.decoder is not None and is_shown else None,
            not options.skip_metadata,
        )


def _legacy_records(header: BatchHeader, batch: memoryview, options: SegmentOptions) -> Iterator[RecordRow]:
    wrapper = read_message(batch)
    if wrapper.codec == 0:
        yield _legacy_row(header, wrapper, batch, options)
        return
    inner = decompressed(wrapper)
    for message, frame in zip(inner_messages(wrapper, inner), iter_frames(inner), strict=True):
        yield _legacy_row(header, message, frame, options)


def _legacy_row(header: BatchHeader, message: Message, frame: memoryview, options: SegmentOptions) -> RecordRow:
    crc = int.from_bytes(frame[LOG_OVERHEAD:MAGIC_POSITION], "big")
    try:
        check_message(frame)
        is_right = True
    except ApiError:
        is_right = False
    shown = None if options.decoder is None else options.decoder(message.record)
    return RecordRow(
        message.record, timestamp_type(header), None, (is_right, crc), None, shown, not options.skip_metadata
    )
