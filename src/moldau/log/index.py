"""The sparse indexes of a segment: offset to position, and time to offset, in Kafka's formats.

Entries of the active segment wait in a small tail in memory. The file is opened for a look-up or a flush and closed
again, so an idle partition holds no descriptor for its indexes; sequential reads need no look-up at all. An index holds
nothing that is not in the log too: a broken one is built anew from the batches.
"""

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from moldau.core.file_errors import syncing
from moldau.core.files import File, Files

TAIL_BYTES_MAX = 4096
"""Bytes of index that may wait in memory: for 2 MB of log at least, as one entry stands for 4 KiB."""

WINDOW_ENTRIES = 512
"""Entries that a look-up reads at once: 4 KiB, and a fair guess hits the right ones."""


class CorruptIndexError(Exception):
    """Error: the index does not fit the log beside it."""


class OffsetEntry(NamedTuple):
    """Entry: the batch at `position` ends with `offset` (an older Kafka: a set of batches that starts there does)."""

    offset: int
    position: int


class TimeEntry(NamedTuple):
    """Entry: no record up to and with `offset` is younger than `timestamp`."""

    timestamp: int
    offset: int


class EntryFile:
    """Sorted entries of one size, growing at the end."""

    __slots__ = ("_entry", "_files", "_in_file", "_window", "path", "tail")

    def __init__(self, files: Files, path: str, entry: Struct) -> None:
        self._files = files
        self._entry = entry
        self.tail = bytearray()  # whole entries, not in the file yet; who owns the index adds them
        self._window: tuple[int, bytes] = (0, b"")  # where the last look-up was; a reader's next one is near
        self._in_file: int | None = None  # entries; None: not asked yet
        self.path = path

    def __len__(self) -> int:
        return self._count_in_file() + len(self.tail) // self._entry.size

    def flush(self) -> None:
        """Move the tail into the file."""
        if not self.tail:
            return
        count = self._count_in_file()
        file = self._files.open(self.path, create=True)
        if file.size() != count * self._entry.size:
            file.truncate(count * self._entry.size)  # a stray part of an entry: it was not counted
        file.append([self.tail])
        self._in_file = count + len(self.tail) // self._entry.size
        self.tail = bytearray()

    def sync(self) -> None:
        """Make the file durable. Called from threads: touches nothing that an append changes."""
        if self._files.exists(self.path):
            file = self._files.open(self.path)
            with syncing():
                file.sync()

    def truncate(self, count: int) -> None:
        """Keep the first `count` entries."""
        self.forget_window()
        in_file = self._count_in_file()
        if count < in_file:
            self._files.open(self.path).truncate(count * self._entry.size)
            self._in_file = in_file = count
        del self.tail[(count - in_file) * self._entry.size :]

    def remove(self) -> None:
        """Forget all entries and remove the file: the next look-up finds it missing."""
        self.tail = bytearray()
        self.forget_window()
        self._files.remove(self.path)
        self._in_file = None

    def reset(self) -> None:
        """Forget all entries and make an empty file in place of the old one."""
        self.tail = bytearray()
        self.forget_window()
        self._files.open(self.path, create=True).truncate(0)
        self._in_file = 0

    def entry(self, number: int) -> tuple[int, ...]:
        in_file = self._count_in_file()
        if number >= in_file:
            return self._entry.unpack_from(self.tail, (number - in_file) * self._entry.size)
        return self._read(self._files.open(self.path), number)

    def last_at_most(self, target: int, field: int, guess: float) -> tuple[int, ...] | None:
        """The last entry whose `field` is not above `target`; `guess` says how far along it may be, 0 to 1."""
        if self.tail and self._entry.unpack_from(self.tail)[field] <= target:
            return self._last_in(self.tail, target, field)
        count = self._count_in_file()
        if count == 0:
            return None
        start, window = self._window
        if not self._is_in_window(start, window, 0, count, target, field):
            self._window = start, window = self._find_window(count, target, field, guess)
        return self._last_in(window, target, field)

    def _find_window(self, count: int, target: int, field: int, guess: float) -> tuple[int, bytes]:
        """The entries around the answer: the number of the first one, and their bytes."""
        file = self._files.open(self.path)
        size = self._entry.size
        low, high = 0, count  # the answer is in [low, high)
        middle = int(guess * count)
        while True:
            start = min(max(middle - WINDOW_ENTRIES // 2, low), max(high - WINDOW_ENTRIES, low))
            window = file.read_at(start * size, min(WINDOW_ENTRIES, high - start) * size)
            if not window:
                raise CorruptIndexError(f"{self.path} has no entry {start}")
            if self._is_in_window(start, window, low, high, target, field):
                return start, window
            if self._entry.unpack_from(window)[field] > target:
                high = start
            else:
                low = start + len(window) // size - 1
            middle = (low + high) // 2

    def _is_in_window(self, start: int, window: bytes, low: int, high: int, target: int, field: int) -> bool:
        """Whether the answer is in these entries, if it is in [low, high)."""
        if not window:
            return False
        unpack, size = self._entry.unpack_from, self._entry.size
        return (start <= low or unpack(window)[field] <= target) and (
            start + len(window) // size >= high or unpack(window, len(window) - size)[field] > target
        )

    def forget_window(self) -> None:
        """Give back the entries that the last look-up left in memory."""
        self._window = 0, b""

    def count_below(self, target: int, field: int) -> int:
        """The number of entries whose `field` is below `target`."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self.entry(middle)[field] < target:
                low = middle + 1
            else:
                high = middle
        return low

    def survey(self) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """The first and the last entry of the file, which is there and holds whole entries; None if it has none."""
        try:
            file = self._files.open(self.path)
        except FileNotFoundError:
            raise CorruptIndexError(f"{self.path} is missing") from None
        if file.size() % self._entry.size:
            raise CorruptIndexError(f"{self.path} ends inside an entry: {file.size()} bytes")
        count = self._in_file = file.size() // self._entry.size
        return (self._read(file, 0), self._read(file, count - 1)) if count else None

    def _last_in(self, window: bytes | bytearray, target: int, field: int) -> tuple[int, ...] | None:
        """The last of these entries that is not above the target. (`bisect` would call a function for each step.)"""
        unpack, size = self._entry.unpack_from, self._entry.size
        low, high = 0, len(window) // size
        while low < high:
            middle = (low + high) >> 1
            if unpack(window, middle * size)[field] <= target:
                low = middle + 1
            else:
                high = middle
        return unpack(window, (low - 1) * size) if low else None

    def _read(self, file: File, number: int) -> tuple[int, ...]:
        data = file.read_at(number * self._entry.size, self._entry.size)
        if len(data) != self._entry.size:
            raise CorruptIndexError(f"{self.path} has no entry {number}")
        return self._entry.unpack(data)

    def _count_in_file(self) -> int:
        if self._in_file is None:
            try:
                self._in_file = self._files.open(self.path).size() // self._entry.size
            except FileNotFoundError:
                self._in_file = 0
        return self._in_file


class OffsetIndex:
    """`.index`: 4 bytes of offset relative to the segment's base, 4 bytes of position."""

    __slots__ = ("_base_offset", "entries")

    _ENTRY = Struct(">ii")
    _pack = _ENTRY.pack

    def __init__(self, files: Files, path: str, base_offset: int) -> None:
        self.entries = EntryFile(files, path, self._ENTRY)
        self._base_offset = base_offset

    def extend(self, entries: Sequence[OffsetEntry | tuple[int, int]]) -> bool:
        """Add entries; returns whether it is time to flush."""
        tail, pack, base_offset = self.entries.tail, self._pack, self._base_offset
        tail += b"".join([pack(offset - base_offset, position) for offset, position in entries])
        return len(tail) >= TAIL_BYTES_MAX

    def last_for_offset(self, offset: int, guess: float = 0.5) -> OffsetEntry | None:
        """The last entry at or below `offset`."""
        return self._absolute(self.entries.last_at_most(offset - self._base_offset, 0, guess))

    def last_for_position(self, position: int, guess: float = 0.5) -> OffsetEntry | None:
        """The last entry at or before `position`."""
        return self._absolute(self.entries.last_at_most(position, 1, guess))

    def last(self) -> OffsetEntry | None:
        count = len(self.entries)
        return self._absolute(self.entries.entry(count - 1)) if count else None

    def truncate_to(self, offset: int) -> None:
        """Keep entries below `offset`."""
        self.entries.truncate(self.entries.count_below(offset - self._base_offset, 0))

    def check(self, log_size: int) -> None:
        """Check that the file has whole entries, and that the last one points into the log (Kafka's zero padding does
        not)."""
        ends = self.entries.survey()
        if ends is None:
            return
        relative, position = ends[1]
        if relative < 0 or not 0 <= position < log_size or (len(self.entries) > 1 and position == 0):
            raise CorruptIndexError(f"{self.entries.path}: last entry {relative} -> {position}, log of {log_size}")

    def _absolute(self, entry: tuple[int, ...] | None) -> OffsetEntry | None:
        return None if entry is None else OffsetEntry(entry[0] + self._base_offset, entry[1])


class TimeIndex:
    """`.timeindex`: 8 bytes of timestamp, 4 bytes of relative offset; both only rise."""

    __slots__ = ("_base_offset", "_last_timestamp", "entries")

    _ENTRY = Struct(">qi")
    _pack = _ENTRY.pack
    ENTRY_BYTES = _ENTRY.size

    def __init__(self, files: Files, path: str, base_offset: int) -> None:
        self.entries = EntryFile(files, path, self._ENTRY)
        self._base_offset = base_offset
        self._last_timestamp: int | None = None

    def extend(self, entries: Sequence[TimeEntry | tuple[int, int]]) -> None:
        """Add entries, but leave out each that is not younger than the one before."""
        tail, pack, base_offset, last = self.entries.tail, self._pack, self._base_offset, self.last_timestamp
        for timestamp, offset in entries:
            if timestamp > last:
                tail += pack(timestamp, offset - base_offset)
                last = timestamp
        self._last_timestamp = last

    def know_last(self) -> None:
        """Read the last entry from the file now, so that `extend` need not: nobody expects an error of the disk
        there."""
        _ = self.last_timestamp

    @property
    def last_timestamp(self) -> int:
        if self._last_timestamp is None:
            last = self.last()
            self._last_timestamp = -1 if last is None else last.timestamp
        return self._last_timestamp

    def last_for_timestamp(self, timestamp: int) -> TimeEntry | None:
        """The last entry that is not younger than `timestamp`."""
        return self._absolute(self.entries.last_at_most(timestamp, 0, 0.5))

    def last(self) -> TimeEntry | None:
        count = len(self.entries)
        return self._absolute(self.entries.entry(count - 1)) if count else None

    def truncate_to(self, offset: int) -> None:
        """Keep entries below `offset`."""
        self.entries.truncate(self.entries.count_below(offset - self._base_offset, 1))
        self._last_timestamp = None

    def remove(self) -> None:
        self.entries.remove()
        self._last_timestamp = None

    def reset(self) -> None:
        self.entries.reset()
        self._last_timestamp = None

    def check(self) -> TimeEntry | None:
        """Check that the file has whole entries, and that the last is not before the first; returns the last one."""
        ends = self.entries.survey()
        if ends is None:
            return None
        if ends[1] < ends[0] or ends[1][1] < 0:
            raise CorruptIndexError(f"{self.entries.path}: the last entry is before the first")
        return self._absolute(ends[1])

    def _absolute(self, entry: tuple[int, ...] | None) -> TimeEntry | None:
        return None if entry is None else TimeEntry(entry[0], entry[1] + self._base_offset)
