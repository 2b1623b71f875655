"""`.txnindex`: aborted transactions whose marker lies in a segment, for readers of committed records (KIP-98)."""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from moldau.core.files import Files

_VERSION = 0


class AbortedTxn(NamedTuple):
    """A transaction from its first record to its abort marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TxnIndex:
    """Rarely there, written at once when a transaction aborts, read from the start."""

    __slots__ = ("_files", "_is_there", "path")

    _ENTRY = Struct(">hqqqq")

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._is_there: bool | None = None  # not looked yet
        self.path = path

    def append(self, aborted: AbortedTxn) -> None:
        self._is_there = True
        file = self._files.open(self.path, create=True)
        file.truncate(file.size() // self._ENTRY.size * self._ENTRY.size)
        file.append([self._ENTRY.pack(_VERSION, *aborted)])

    def __iter__(self) -> Iterator[AbortedTxn]:
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
        if not self._files.exists(self.path):
            return
        kept = sum(1 for aborted in self if aborted.last_offset < offset)
        self._files.open(self.path).truncate(kept * self._ENTRY.size)

    def reset(self) -> None:
        self._files.remove(self.path)
        self._is_there = False

    def sync(self) -> None:
        if self._files.exists(self.path):
            self._files.open(self.path).sync()
