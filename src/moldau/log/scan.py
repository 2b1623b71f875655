"""Walks over the batches in a file: by their headers alone, or with every checksum.

Directories of an older Kafka may hold messages of format v0 or v1. They are walked as batches of one record, so
that opening such a directory loses nothing.
"""

import zlib
from collections.abc import Iterator
from struct import Struct

from moldau.core.files import Buffer, File
from moldau.records.batch import (
    BATCH_HEADER_BYTES,
    LOG_OVERHEAD,
    BatchHeader,
    CorruptBatchError,
    check_batch,
    read_header,
)

HEADER_BLOCK_BYTES = 4096
CHECK_BLOCK_BYTES = 1 << 20

_MAGIC_POSITION = 16
_LEGACY = Struct(">qiIbbq")
_LEGACY_BYTES_MIN = 26  # v0: offset, size, crc, magic, attributes, two lengths
_LEGACY_CRC_START = 16


def iter_headers(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each batch from `position`, which must be the start of one, to `end`."""
    while position < end:
        block_start = position
        block = file.read_at(position, min(HEADER_BLOCK_BYTES, end - position))
        while position < end:
            at = position - block_start
            if at and len(block) - at < min(BATCH_HEADER_BYTES, end - position):
                break
            header = _read_any_header(block, at)
            _check_end(header, position, end)
            yield position, header
            position += header.size


def iter_checked(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Position, header and bytes of each batch, after its checksum was found right; otherwise like `iter_headers`."""
    step = CHECK_BLOCK_BYTES
    while position < end:
        block = memoryview(file.read_at(position, min(step, end - position)))
        at, step = 0, CHECK_BLOCK_BYTES
        while at < len(block):
            if len(block) - at < min(BATCH_HEADER_BYTES, end - position):
                break
            header = _read_any_header(block, at)
            _check_end(header, position, end)
            if at + header.size > len(block):
                step = max(step, header.size)
                break
            _check_any(block, header, at)
            yield position, header, block[at : at + header.size]
            at += header.size
            position += header.size
        if not block:
            raise CorruptBatchError(f"the file ends at {position}, before {end}")


def _check_end(header: BatchHeader, position: int, end: int) -> None:
    if position + header.size > end:
        raise CorruptBatchError(f"the batch of {header.size} bytes at {position} goes past {end}")


def _read_any_header(block: Buffer, at: int) -> BatchHeader:
    if len(block) - at > _MAGIC_POSITION and block[at + _MAGIC_POSITION] < 2:
        return _read_legacy_header(block, at)
    return read_header(block, at)


def _read_legacy_header(block: Buffer, at: int) -> BatchHeader:
    if len(block) - at < _LEGACY_BYTES_MIN:
        raise CorruptBatchError(f"{len(block) - at} bytes are too few for a message")
    offset, size, crc, magic, attributes, timestamp = _LEGACY.unpack_from(block, at)
    if size < _LEGACY_BYTES_MIN - LOG_OVERHEAD:
        raise CorruptBatchError(f"a message of {size} bytes")
    timestamp = timestamp if magic == 1 else -1
    return BatchHeader(offset, size, -1, magic, crc, attributes, 0, timestamp, timestamp, -1, -1, -1, 1)


def _check_any(block: memoryview, header: BatchHeader, at: int) -> None:
    if header.magic >= 2:
        check_batch(block, header, at)
    elif zlib.crc32(block[at + _LEGACY_CRC_START : at + header.size]) != header.crc:
        raise CorruptBatchError("the checksum of a message is wrong")
