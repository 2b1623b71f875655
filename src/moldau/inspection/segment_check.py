"""A walk over one segment at the speed of the disk: every checksum, every offset, and the entries of its indexes.

Law: a batch costs the unpacking of its header, one checksum over memory that was read in large pieces, and some
comparisons of numbers. Records are never opened, but for the markers of transactions, which are one record each.
"""

import struct
import time
import zlib
from collections.abc import Callable
from typing import NamedTuple

from moldau.core.files import FILLER
from moldau.inspection.findings import FETCH_AGAIN, Report
from moldau.inspection.index_entries import IndexCheck, TimeCheck
from moldau.inspection.reading import ReadOnlyFile
from moldau.protocol.errors import ApiError
from moldau.records.batch import (
    BATCH_HEADER_BYTES,
    BATCH_LENGTH_MIN,
    CONTROL_FLAG,
    CRC_START,
    HEADER_LAYOUT,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    MAGIC_V2,
    read_end_txn_marker,
)
from moldau.records.crc import crc32c

BLOCK_BYTES = 4 * 1024 * 1024
"""Bytes that are read at once, and read ahead by the kernel meanwhile."""
LEGACY_BYTES_MIN = 26
RELATIVE_OFFSET_MAX = (1 << 31) - 1
LOOKS_MAX = 20
LOOK_S = 0.05
"""Looks, and the time between two, at a batch that a running broker may be writing at this moment."""
AGAIN_MAX = 1000
"""Batches of a running broker that are looked at more than once."""

_LEGACY = struct.Struct(">qiIbbq")
_MORE, _STOP, _AGAIN = 0, -1, -2
Progress = Callable[[int], None]


class SegmentFacts(NamedTuple):
    """Facts that a walk found out."""

    base_offset: int
    next_offset: int
    """One past the last offset; the base offset if there is no batch."""
    size: int
    whole_bytes: int
    """Bytes up to the end of the last whole batch."""
    batches: int
    gaps: int
    """Places at which offsets are missing."""
    epochs: list[tuple[int, int]]
    """Leader epochs, each with the first offset that has it, as they follow each other."""
    aborts: dict[int, int]
    """Producers of the abort markers, by offset."""
    is_filler: bool
    """Whether the bytes behind the last batch are the filler of a file that grows ahead."""


class SegmentWalk:
    """One walk over one segment."""

    def __init__(
        self,
        file: ReadOnlyFile,
        base_offset: int,
        report: Report,
        index: IndexCheck,
        times: TimeCheck,
        *,
        is_growing: bool,
        may_be_torn: bool = False,
        progress: Progress,
    ) -> None:
        self._file = file
        self._report = report
        self._index = index
        self._times = times
        self._is_growing = is_growing
        self._may_be_torn = may_be_torn
        self._progress = progress
        self._base_offset = base_offset
        self._next_offset = base_offset
        self._max_timestamp = -1
        self._batches = 0
        self._gaps = 0
        self._epochs: list[tuple[int, int]] = []
        self._aborts: dict[int, int] = {}
        self._again = 0

    def run(self, buffer: memoryview) -> SegmentFacts:
        """Walk to the end; the buffer is memory for a block, to be used again."""
        end = self._file.size()
        position = left = 0
        while position < end:
            wanted = min(len(buffer), end - position)
            have = left + self._file.read_into(buffer[left:wanted], position + left)
            self._file.read_ahead(position + have, BLOCK_BYTES)
            at = self._block(buffer, have, position)
            step = self._odd(buffer[at:have], position + at, end) if at < have else _MORE
            if step == _STOP or (step == _MORE and at == 0):
                position += at
                break
            at += max(step, 0)
            left = max(have - at, 0) if step != _AGAIN else 0
            if left:
                buffer[:left] = buffer[at:have]
            position += at
            self._progress(at)
        self._index.ended(self._next_offset)
        self._times.ended(self._next_offset)
        return self._facts(position, end)

    def _block(self, view: memoryview, have: int, position: int) -> int:
        """Walk over plain batches from the start of the view; returns where the first one is that is not plain, whole
        and right."""
        unpack = HEADER_LAYOUT.unpack_from
        index, times = self._index, self._times
        next_offset, highest, batches = self._next_offset, self._max_timestamp, self._batches
        epoch_now = self._epochs[-1][0] if self._epochs else None
        at = 0
        while have - at >= BATCH_HEADER_BYTES:
            base, length, epoch, magic, crc, attributes, delta, _, latest, producer_id, _, _, _ = unpack(view, at)
            stop = at + LOG_OVERHEAD + length
            if magic != MAGIC_V2 or length < BATCH_LENGTH_MIN or stop > have or base < next_offset or delta < 0:
                break
            if crc32c(view[at + CRC_START : stop]) != crc:
                break
            if base != next_offset:
                self._gaps += batches > 0
            if position + at >= index.wanted:
                index.reached(position + at, base)
            next_offset = base + delta + 1
            if latest > highest:
                highest = latest
            if next_offset > times.wanted:
                times.reached(next_offset - 1, highest)
            if epoch != epoch_now:
                self._epochs.append((epoch, base))
                epoch_now = epoch
            if attributes & CONTROL_FLAG:
                self._marker(view[at:stop], base, producer_id)
            batches += 1
            at = stop
        self._next_offset, self._max_timestamp, self._batches = next_offset, highest, batches
        return at

    def _marker(self, batch: memoryview, offset: int, producer_id: int) -> None:
        try:
            marker = read_end_txn_marker(batch)
        except (ApiError, StopIteration) as error:
            self._tell(f"the control batch at offset {offset} cannot be read: {error}", None, offset)
            return
        if marker is not None and not marker.committed:
            self._aborts[offset] = producer_id

    def _odd(self, view: memoryview, position: int, end: int) -> int:
        """Look at a batch that is not plain; returns its size, or that more bytes are needed, or that nothing behind it
        can be read."""
        if len(view) < LEGACY_BYTES_MIN and position + len(view) < end:
            return _MORE
        if len(view) < LEGACY_BYTES_MIN:
            return _STOP
        base, length, crc, _, _, timestamp = _LEGACY.unpack_from(view)
        magic, size = view[MAGIC_POSITION], LOG_OVERHEAD + length
        if position + size > end or is_filler(view[:BATCH_HEADER_BYTES]):
            return _STOP
        if self._may_be_torn and not any(view[:BATCH_HEADER_BYTES]):
            return _STOP  # a power cut leaves zeros where the file got its size, but not its bytes
        if magic > MAGIC_V2 or size < (LEGACY_BYTES_MIN if magic < MAGIC_V2 else BATCH_HEADER_BYTES):
            return self._unreadable(view, position, end)
        if size > len(view) and len(view) < BLOCK_BYTES:
            return _MORE
        if magic < MAGIC_V2:
            actual = zlib.crc32(self._bytes(position + MAGIC_POSITION, size - MAGIC_POSITION))
            return self._one(position, size, base, base, timestamp if magic else -1, crc == actual)
        header = HEADER_LAYOUT.unpack_from(view)
        is_right = self._long_checksum(position + CRC_START, size - CRC_START) == header[4]
        if is_right and header[5] & CONTROL_FLAG:
            self._marker(memoryview(self._bytes(position, size)), base, header[9])
        if is_right and (not self._epochs or self._epochs[-1][0] != header[2]):
            self._epochs.append((header[2], base))
        return self._one(position, size, base, base + header[6], header[8], is_right)

    def _one(self, position: int, size: int, base: int, last: int, timestamp: int, is_right: bool) -> int:
        """Take up one batch or message."""
        if not is_right:
            if self._is_growing and self._becomes_right(position):
                return _AGAIN
            what = f"the checksum of the batch of {size} bytes with offset {base} is wrong"
            self._tell(what, position, base)
            return size
        if base < self._next_offset or last < base:
            what = f"offsets {base} to {last} come after {self._next_offset - 1}"
            if self._batches == 0:
                what = f"offset {base} is before {self._base_offset}, which the file is named after"
            self._tell(what, position, base)
        if position >= self._index.wanted:
            self._index.reached(position, base)
        self._next_offset = max(last + 1, self._next_offset)
        self._max_timestamp = max(self._max_timestamp, timestamp)
        if last >= self._times.wanted:
            self._times.reached(last, self._max_timestamp)
        self._batches += 1
        return size

    def _becomes_right(self, position: int) -> bool:
        """Whether a batch is whole after a moment: its broker may be writing it. Looked at once more it is taken up."""
        for _ in range(LOOKS_MAX):
            head = self._file.read_at(position, BATCH_HEADER_BYTES)
            if len(head) == BATCH_HEADER_BYTES and head[MAGIC_POSITION] == MAGIC_V2:
                header = HEADER_LAYOUT.unpack_from(head)
                if self._long_checksum(position + CRC_START, header[1] + LOG_OVERHEAD - CRC_START) == header[4]:
                    self._is_growing = self._again < AGAIN_MAX
                    self._again += 1
                    return True
            time.sleep(LOOK_S)
        return False

    def _unreadable(self, view: memoryview, position: int, end: int) -> int:
        if self._is_growing and self._becomes_right(position):
            return _AGAIN
        what = f"no batch begins here (magic {view[MAGIC_POSITION]}), the last {end - position} bytes cannot be read"
        self._tell(what, position, self._next_offset)
        return _STOP

    def _long_checksum(self, position: int, size: int) -> int:
        """The checksum of bytes that may be too many for one block."""
        checksum = 0
        while size > 0:
            part = self._bytes(position, min(size, BLOCK_BYTES))
            if not part:
                break
            checksum = crc32c(part, checksum)
            position += len(part)
            size -= len(part)
        return checksum

    def _bytes(self, position: int, size: int) -> bytes:
        return self._file.read_at(position, size)

    def _tell(self, what: str, position: int | None, offset: int) -> None:
        self._report.problem(self._file.path, what, FETCH_AGAIN, position=position, offset=offset)

    def _facts(self, position: int, end: int) -> SegmentFacts:
        if self._next_offset - self._base_offset > RELATIVE_OFFSET_MAX:
            self._tell(f"offset {self._next_offset - 1} is too far from the file's {self._base_offset}", None, -1)
        rest = self._bytes(position, min(end - position, BLOCK_BYTES)) if position < end else b""
        return SegmentFacts(
            self._base_offset,
            self._next_offset,
            end,
            position,
            self._batches,
            self._gaps,
            self._epochs,
            self._aborts,
            bool(rest) and is_filler(rest),
        )


def is_filler(data: memoryview | bytes) -> bool:
    """Whether these bytes stand behind the end of a file that grows ahead."""
    return bytes(data).count(FILLER) == len(data)
