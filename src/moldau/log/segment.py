"""A stretch of the log: one `.log` file and its indexes, named after the first offset it may hold.

Only the last segment of a log grows. The files of the others are opened when a reader comes.
"""

import contextlib
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from moldau.core.file_errors import is_short, sync_error
from moldau.core.files import FILLER, FILLER_BYTES_MAX, Buffer, File, FileRegion, Files
from moldau.core.topic_config import TopicConfig
from moldau.log.index import CorruptIndexError, OffsetEntry, OffsetIndex, TimeEntry, TimeIndex
from moldau.log.open_files import OpenFiles
from moldau.log.scan import iter_checked, iter_headers
from moldau.log.txn_index import TxnIndex
from moldau.records.batch import BATCH_HEADER_BYTES, MAGIC_V2, NO_TIMESTAMP, BatchHeader, CorruptBatchError

RELATIVE_OFFSET_MAX = (1 << 31) - 1
HINTS_MAX = 64
"""Batch positions that are remembered by offset, twice: enough for readers at the end and a few that read through."""

UNSETTLED_MAX = 64
"""Batches that may wait until they are indexed: many in a row cost half of what they cost one by one."""

UNKNOWN_TIMESTAMP = -2
"""Mark of a timestamp that has not been read yet."""

SEGMENT_SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"


def file_name(offset: int, suffix: str) -> str:
    """Kafka's file name: the offset in twenty digits."""
    return f"{offset:020d}{suffix}"


class Room(NamedTuple):
    """Bounds of an append that needs no further check, while the log's configuration is this one."""

    config: TopicConfig | None
    size: int
    offset: int
    timestamp: int


NO_ROOM = Room(None, -1, -1, -1)


class Segment:
    """Batches from `base_offset` on."""

    __slots__ = (
        "__weakref__",
        "_bytes_since_index_entry",
        "_checked",
        "_files",
        "_first_timestamp",
        "_hints",
        "_max_timestamp",
        "_offset_of_max_timestamp",
        "_older_hints",
        "base_offset",
        "created_ms",
        "index",
        "index_entries_left",
        "index_interval_bytes",
        "open_file",
        "open_files",
        "path",
        "room",
        "size",
        "time_index",
        "txn_index",
        "unsettled",
        "wants_room",
    )

    def __init__(
        self,
        files: Files,
        directory: str,
        base_offset: int,
        *,
        size: int,
        index_interval_bytes: int,
        created_ms: int,
        suffix: str = "",
    ) -> None:
        stem = f"{directory}/{file_name(base_offset, '')}"
        self._files = files
        self.open_file: File | None = None  # `file` opens it
        self.open_files: OpenFiles | None = None
        self.path = f"{stem}.log{suffix}"
        self.base_offset = base_offset
        self.size = size
        self.created_ms = created_ms
        self.index = OffsetIndex(files, f"{stem}.index{suffix}", base_offset)
        self.time_index = TimeIndex(files, f"{stem}.timeindex{suffix}", base_offset)
        self.txn_index = TxnIndex(files, f"{stem}.txnindex{suffix}")
        self.index_interval_bytes = index_interval_bytes
        self.index_entries_left = 0
        self.wants_room = False
        self.room = NO_ROOM
        self.unsettled: list[tuple[int, int, int, int, int]] = []
        self._checked = False
        self._bytes_since_index_entry = 0
        self._first_timestamp: int | None = None
        self._max_timestamp = UNKNOWN_TIMESTAMP
        self._offset_of_max_timestamp = base_offset
        self._hints: dict[int, int] = {}
        self._older_hints: dict[int, int] = {}

    @classmethod
    def create(
        cls,
        files: Files,
        directory: str,
        base_offset: int,
        index_interval_bytes: int,
        now_ms: int,
        suffix: str = "",
    ) -> "Segment":
        """An empty segment with all its files, or none after an error; with a `suffix` to their names it is not in the
        log yet."""
        segment = cls(
            files,
            directory,
            base_offset,
            size=0,
            index_interval_bytes=index_interval_bytes,
            created_ms=now_ms,
            suffix=suffix,
        )
        try:
            segment._make_files(ahead=not suffix)
        except OSError:
            segment._remove_files()
            raise
        segment._checked = True
        segment._max_timestamp = NO_TIMESTAMP
        return segment

    def _make_files(self, *, ahead: bool) -> None:
        self.open_file = self._files.open(self.path, create=True, ahead=ahead)
        if self.open_file.size():  # a leftover of this name, which is not in the log
            self.open_file.truncate(0)
        self.index.entries.reset()
        self.time_index.reset()
        self.txn_index.reset()

    def _remove_files(self) -> None:
        """Remove all files after an error: an empty segment would look like the end of the log to the next user."""
        self.open_file = None
        for path in (self.path, self.index.entries.path, self.time_index.entries.path):
            with contextlib.suppress(OSError):  # recovery knows a leftover
                self._files.remove(path)

    @property
    def file(self) -> File:
        file = self.open_file
        if file is None:
            file = self._open()
        return file

    def _open(self) -> File:
        open_files = self.open_files
        try:
            file = self._files.open(self.path, ahead=True)
        except OSError as error:
            # Out of descriptors: others are closed for this one, as a read or an append is worth more than they are.
            if open_files is None or not is_short(error) or not open_files.shed():
                raise
            file = self._files.open(self.path, ahead=True)
        self.open_file = file
        if open_files is not None:
            open_files.opened(self)
        return file

    def belongs_to(self, open_files: OpenFiles | None) -> None:
        """Join the open files of a broker, which decide how long this segment's file stays open."""
        if open_files is not self.open_files:
            self.open_files = open_files
            if open_files is not None and self.open_file is not None:
                open_files.opened(self)

    def fileno(self) -> int:
        return -1 if self.open_file is None else self.open_file.fileno()

    def park(self) -> None:
        """Close the file until it is needed again, and remove the filler behind its end."""
        if self.open_file is not None:
            self.open_file.trim()
        self.release()

    @property
    def is_open(self) -> bool:
        return self.open_file is not None

    def release(self) -> None:
        """Let go of the descriptor; a reader that still sends from it keeps it."""
        self.open_file = None
        if self.open_files is not None:
            self.open_files.closed(self)
        self.index.entries.forget_window()
        self.time_index.entries.forget_window()

    # Writing

    def make_room(self) -> None:
        """Write out long index tails. Called before an append, so that a failure here leaves nothing behind."""
        self.settle()
        self.index.entries.flush()
        self.time_index.entries.flush()
        self.wants_room = False

    def write(self, chunks: Sequence[Buffer], size: int) -> int:
        """Append bytes; returns their position. The batches in them must be noted in order."""
        position = self.file.append(chunks, size)
        self.size = position + size
        return position

    def note(self, base_offset: int, last_offset: int, max_timestamp: int, position: int, size: int) -> None:
        """Account for a batch that was written at `position`."""
        self.unsettled.append((base_offset, last_offset, max_timestamp, position, size))
        if len(self.unsettled) >= UNSETTLED_MAX:
            self.settle()

    def settle(self) -> None:
        """Bring the indexes, and the counters that readers see, up to date with the batches that were noted."""
        if not self.unsettled:
            return
        unsettled, self.unsettled = self.unsettled, []
        max_timestamp, offset_of_max = self._max_timestamp, self._offset_of_max_timestamp
        bytes_since_entry, interval = self._bytes_since_index_entry, self.index_interval_bytes
        hints = self._hints
        if len(hints) >= HINTS_MAX:  # two generations: the older half goes at once, without an order to keep
            self._older_hints = hints
            self._hints = hints = {}
        entries: list[tuple[int, int]] = []
        times: list[tuple[int, int]] = []
        for base_offset, last_offset, timestamp, position, size in unsettled:
            if timestamp > max_timestamp:
                max_timestamp, offset_of_max = timestamp, last_offset
            if bytes_since_entry > interval:  # as Kafka does: the first batch of a segment never gets an entry
                bytes_since_entry = size
                entries.append((last_offset, position))
                times.append((max_timestamp, offset_of_max))
            else:
                bytes_since_entry += size
                if position == 0:
                    self._first_timestamp = timestamp
            hints[base_offset] = position
        self._max_timestamp, self._offset_of_max_timestamp = max_timestamp, offset_of_max
        self._bytes_since_index_entry = bytes_since_entry
        if entries:
            self.time_index.extend(times)
            self.wants_room |= self.index.extend(entries)
            self.index_entries_left -= len(entries)
            # From here on each append asks: as many batches may be noted before the next settle, each with an entry.
            if self.wants_room or self.index_entries_left <= UNSETTLED_MAX:
                self.room = NO_ROOM

    def prepare_to_grow(self, index_bytes_max: int) -> None:
        """Prepare the last segment for appends: load everything that an append needs to know."""
        self.settle()
        # The time index has the larger entries, and `seal` adds one to it.
        self.index_entries_left = index_bytes_max // TimeIndex.ENTRY_BYTES - 1 - len(self.index.entries)
        if self._max_timestamp == UNKNOWN_TIMESTAMP:
            self._load_max_timestamp()
        self.time_index.know_last()

    def seal(self) -> None:
        """End the appends: complete the indexes on disk, leave no filler in the log."""
        self.settle()
        self._checked = True  # `prepare_to_grow` has seen to that, or they were just built
        if self.open_file is not None:
            self.open_file.trim()
        if self.max_timestamp != NO_TIMESTAMP:
            self.time_index.extend([(self.max_timestamp, self._offset_of_max_timestamp)])
        self.index.entries.flush()
        self.time_index.entries.flush()
        self.txn_index.flush()

    def sync(self, *, indexes: bool) -> None:
        """Make the segment durable. From a thread, with a file of its own: the loop may append to the other one.

        Without its `indexes`, except that of aborted transactions, which is not built anew below the recovery point.
        """
        file = self.open_file or self._files.open(self.path)
        try:
            file.sync()
        except OSError as error:
            raise sync_error(error) from error
        if indexes:
            self.sync_indexes()
        elif self.txn_index.is_changed:
            self.txn_index.sync()

    def sync_indexes(self) -> None:
        self.index.entries.sync()
        self.time_index.entries.sync()
        self.txn_index.sync()

    # Timestamps

    @property
    def max_timestamp(self) -> int:
        """The timestamp of the youngest record; for an old segment the time index has it."""
        self.settle()
        if self._max_timestamp == UNKNOWN_TIMESTAMP:
            self._load_max_timestamp()
        return self._max_timestamp

    @property
    def offset_of_max_timestamp(self) -> int:
        """The last offset of the batch that has the largest timestamp."""
        self.settle()
        if self._max_timestamp == UNKNOWN_TIMESTAMP:
            self._load_max_timestamp()
        return self._offset_of_max_timestamp

    @property
    def first_timestamp(self) -> int:
        """The timestamp of the first batch, from which the age of the segment is counted."""
        self.settle()
        if self._first_timestamp is None:
            if self.size == 0:
                return NO_TIMESTAMP
            _, header = next(iter_headers(self.file, 0, self.size))
            self._first_timestamp = header.max_timestamp
        return self._first_timestamp

    def jitter_ms(self, jitter_ms_max: int) -> int:
        """A number below the bound that differs between segments (segment.jitter.ms)."""
        return zlib.crc32(self.path.encode()) % jitter_ms_max if jitter_ms_max > 0 else 0

    def largest_timestamp(self) -> int:
        """The time that retention goes by: the youngest record's, or the file's where records have none."""
        if self.max_timestamp >= 0:
            return self.max_timestamp
        return self.modified_ms()

    def modified_ms(self) -> int:
        """The time at which the file was last written, whatever the records say."""
        return self._files.modified_ms(self.path)

    def _load_max_timestamp(self) -> None:
        self._check_indexes()
        if self._max_timestamp == UNKNOWN_TIMESTAMP:
            self._take_max_timestamp(self.time_index.last())

    def _take_max_timestamp(self, last: TimeEntry | None) -> None:
        self._max_timestamp = NO_TIMESTAMP if last is None else last.timestamp
        self._offset_of_max_timestamp = self.base_offset if last is None else last.offset

    # Reading

    def hint(self, offset: int, position: int) -> None:
        """Remember that the batch with `offset` is at `position`."""
        hints = self._hints
        if len(hints) >= HINTS_MAX:
            self._older_hints = hints
            self._hints = hints = {}
        hints[offset] = position

    def position_of(self, offset: int) -> int | None:
        """The position of the first batch that reaches `offset`; None if none does."""
        self.settle()
        position = self._hints.get(offset)
        if position is None:
            position = self._older_hints.get(offset)
        if position is None:
            found = self.find(offset)
            if found is None:
                return None
            position = found[0]
            self.hint(offset, position)
        return position

    def find(self, offset: int) -> tuple[int, BatchHeader] | None:
        """The first batch that reaches `offset`, by index and a walk of at most a few kilobytes."""
        entry = self._look_up(lambda: self.index.last_for_offset(offset))
        for position, header in iter_headers(self.file, entry.position if entry else 0, self.size):
            if header.last_offset >= offset:
                return position, header
        return None

    def region(self, start: int, limit: int, max_bytes: int, *, min_one_batch: bool) -> FileRegion | None:
        """Whole batches from `start` to `limit` (both starts of batches), at most `max_bytes` of them."""
        if limit - start <= max_bytes:
            return FileRegion(self.file, start, limit - start) if limit > start else None
        end = self._last_boundary(start, start + max_bytes, min_one_batch)
        return FileRegion(self.file, start, end - start) if end > start else None

    def is_emptied(self) -> bool:
        """Whether compaction has left only one batch without records, which marks the end of the segment."""
        if self.size != BATCH_HEADER_BYTES:  # a batch with records is larger
            return False
        # A message of format v0 or v1 may have the same size, and is a record.
        return next(iter_headers(self.file, 0, self.size))[1].magic == MAGIC_V2

    def headers(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        return iter_headers(self.file, position, self.size)

    def checked_batches(self, position: int = 0) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        return iter_checked(self.file, position, self.size)

    def batch_at(self, position: int, header: BatchHeader) -> bytes:
        return self.file.read_at(position, header.size)

    def next_offset(self) -> int:
        """One past the last offset, from the last index entry on."""
        entry = self._look_up(self.index.last)
        next_offset = self.base_offset
        for _, header in iter_headers(self.file, entry.position if entry else 0, self.size):
            next_offset = header.next_offset
        return next_offset

    def _last_boundary(self, start: int, end: int, min_one_batch: bool) -> int:
        """The last start of a batch in (start, end], remembered for the reader's next call; `start` if none."""
        entry = self._look_up(lambda: self.index.last_for_position(end, end / self.size))
        position = max(entry.position, start) if entry else start
        for found, header in iter_headers(self.file, position, self.size):
            if found + header.size > end:
                # A consumer that is never given its first batch would not get past it (KIP-74).
                if found == start and min_one_batch:
                    self.hint(header.next_offset, start + header.size)
                    return start + header.size
                self.hint(header.base_offset, found)
                return found
        return self.size

    # Indexes

    def _look_up(self, question: Callable[[], OffsetEntry | None]) -> OffsetEntry | None:
        """An answer of the offset index that fits the batch it points to; the index is rebuilt if it does not."""
        self.settle()
        self._check_indexes()
        try:
            entry = question()
            if entry is None or self._fits(entry):
                return entry
        except CorruptIndexError:
            pass  # rebuilt below
        self.rebuild_indexes()
        return question()

    def _fits(self, entry: OffsetEntry) -> bool:
        if not 0 <= entry.position < self.size:
            return False
        try:
            _, header = next(iter_headers(self.file, entry.position, self.size))
        except CorruptBatchError:
            return False
        return self.base_offset <= header.base_offset <= entry.offset

    def _check_indexes(self) -> None:
        """Check the indexes of a segment that was there at the start, once, when they are first needed."""
        if self._checked:
            return
        try:
            self.index.check(self.size)
            self._take_max_timestamp(self.time_index.check())
            self._check_end()
        except CorruptIndexError:
            self.rebuild_indexes()
        self._checked = True

    def _check_end(self) -> None:
        """Check that the time index has the last batches: it is not synced with them, and may have lost its end."""
        entry = self.index.last()
        with contextlib.suppress(CorruptBatchError):  # whoever reads it will say so
            for _, header in iter_headers(self.file, entry.position if entry else 0, self.size):
                if header.max_timestamp > self._max_timestamp:
                    raise CorruptIndexError(f"{self.time_index.entries.path} ends at {self._max_timestamp}")

    def rebuild_indexes(self) -> None:
        """Build both indexes from the batches, or leave none: half an index would be believed."""
        try:
            self.start_over()
            for position, header in iter_headers(self.file, 0, self.size):
                self.note(header.base_offset, header.last_offset, header.max_timestamp, position, header.size)
                if self.wants_room:
                    self.make_room()
            self.seal()
        except OSError:
            self._forget_indexes()
            raise

    def _forget_indexes(self) -> None:
        """Remove the indexes, so that the next look-up builds them."""
        self._checked = False
        self._max_timestamp = UNKNOWN_TIMESTAMP
        self.unsettled = []
        with contextlib.suppress(OSError):  # a disk that fails is noticed by whoever comes next
            self.index.entries.remove()
            self.time_index.remove()

    def start_over(self) -> None:
        """Forget everything about the batches: they are going to be noted again from the first."""
        self._checked = True
        self.unsettled = []
        self.index.entries.reset()
        self.time_index.reset()
        self._bytes_since_index_entry = 0
        self._first_timestamp = None
        self._max_timestamp = NO_TIMESTAMP
        self._offset_of_max_timestamp = self.base_offset
        self._hints, self._older_hints = {}, {}

    def truncate_to(self, offset: int) -> None:
        """Cut off the batch that holds `offset` and all after it."""
        found = self.find(offset)
        if found is None:
            return
        self.cut(found[0])
        self.index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        self._take_max_timestamp(self.time_index.last())
        entry = self.index.last()
        # Batches behind the last index entry may be younger than it says.
        for _, header in iter_headers(self.file, entry.position if entry else 0, self.size):
            if header.max_timestamp > self._max_timestamp:
                self._max_timestamp = header.max_timestamp
                self._offset_of_max_timestamp = header.last_offset

    def is_filler_from(self, position: int) -> bool:
        """Whether only filler is behind `position`: the broker crashed while the file had grown ahead."""
        size = self.size - position
        return size <= FILLER_BYTES_MAX and self.file.read_at(position, size).count(FILLER) == size

    def cut(self, size: int) -> None:
        """Keep `size` bytes of the log file."""
        self.settle()
        self.file.truncate(size)
        self.size = size
        self.room = NO_ROOM
        self._bytes_since_index_entry = 0
        self._hints, self._older_hints = {}, {}
        if size == 0:  # the next batch is the first, and the age of the segment counts from it
            self._first_timestamp = None
