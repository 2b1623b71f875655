"""`.txnindex`: aborted transactions whose marker lies in a segment, for readers of committed records (KIP-98)."""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from moldau.core.file_errors import syncing
from moldau.core.files import Files

_VERSION = 0


class AbortedTxn(NamedTuple):
    """A transaction from its first record to its abort marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TxnIndex:
    """Index of aborted transactions: rarely there, written at once when a transaction aborts, read from the start.

    Entries that a full disk does not take wait in memory: their marker is in the log already.
    """

    __slots__ = ("_files", "_highest", "_is_there", "_unwritten", "is_changed", "path")

    _ENTRY = Struct(">hqqqq")

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._is_there: bool | None = None  # not looked yet
        self._unwritten: list[AbortedTxn] = []
        self._highest: int | None = None  # offset at which one ends; not looked yet
        self.is_changed = False  # since the last sync
        self.path = path

    def append(self, aborted: AbortedTxn) -> None:
        """Add an entry; it is in the index even if this raises."""
        self._unwritten.append(aborted)
        if self._highest is not None:
            self._highest = max(self._highest, aborted.last_offset)
        self.flush()

    def flush(self) -> None:
        """Write the entries that could not be written before."""
        if not self._unwritten:
            return
        self.is_changed = True
        file = self._files.open(self.path, create=True)
        self._is_there = True
        file.truncate(file.size() // self._ENTRY.size * self._ENTRY.size)
        file.append([self._ENTRY.pack(_VERSION, *aborted) for aborted in self._unwritten])
        self._unwritten = []

    def reaches(self, offset: int) -> bool:
        """Whether a transaction ends at `offset` or behind it. A reader at the end of a log need not read the file."""
        if self._highest is None:
            self._highest = max((aborted.last_offset for aborted in self), default=-1)
        return self._highest >= offset

    def __iter__(self) -> Iterator[AbortedTxn]:
        yield from self._written()
        yield from self._unwritten

    def _written(self) -> Iterator[AbortedTxn]:
        if self._is_there is None:
            self._is_there = self._files.exists(self.path)
        if not self._is_there:
            return
        data = self._files.read(self.path)
        for position in range(0, len(data) - self._ENTRY.size + 1, self._ENTRY.size):
            _, *fields = self._ENTRY.unpack_from(data, position)
            yield AbortedTxn(*fields)

    def truncate_to(self, offset: int) -> None:
        """Keep the transactions that ended below `offset`."""
        self._highest = None
        self._unwritten = [aborted for aborted in self._unwritten if aborted.last_offset < offset]
        if not self._files.exists(self.path):
            return
        kept = sum(1 for aborted in self._written() if aborted.last_offset < offset)
        self._files.open(self.path).truncate(kept * self._ENTRY.size)

    def reset(self) -> None:
        self._files.remove(self.path)
        self._is_there = False
        self._highest = -1
        self._unwritten = []

    def sync(self) -> None:
        """Make the index durable. For a thread."""
        self.is_changed = False  # first, as the loop may go on
        try:
            if self._files.exists(self.path):
                file = self._files.open(self.path)
                with syncing():
                    file.sync()
        except OSError:
            self.is_changed = True
            raise
