"""A file system that stops or fails at a certain operation, around any other: the real one or the one in memory.

Operations are counted, so that a test can go through all of them: stop after the first, after the second, and so on. An
operation that changes nothing and cannot fail, such as the question whether a file is there, is not counted.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from moldau.core.files import Buffer, DirectoryLock, File, Files, OnResult, SyncEngine

LOOKS = frozenset({"open", "read", "list"})
"""Operations that leave the disk as it is: a stop before one is the same as a stop after the operation before it."""


class Operation(NamedTuple):
    """One operation and the file that it was done to."""

    what: str
    path: str


class Stopped(BaseException):
    """Signal that the process is dead. It is no Exception, so that no handler goes on from it."""


class FaultyFile:
    """A file whose operations are counted with all others."""

    __slots__ = ("_file", "_files", "path")

    def __init__(self, files: "FaultyFiles", file: File) -> None:
        self._files = files
        self._file = file
        self.path = file.path

    def size(self) -> int:
        return self._file.size()

    def append(self, chunks: Sequence[Buffer], size: int | None = None) -> int:
        self._files.step("append", self.path)
        return self._file.append(chunks, size)

    def append_one(self, data: Buffer, size: int) -> int:
        self._files.step("append", self.path)
        return self._file.append_one(data, size)

    def read_at(self, position: int, size: int) -> bytes:
        self._files.step("read", self.path)
        return self._file.read_at(position, size)

    def truncate(self, size: int) -> None:
        self._files.step("truncate", self.path)
        self._file.truncate(size)

    def trim(self) -> None:
        self._files.step("trim", self.path)
        self._file.trim()

    def sync(self) -> None:
        self._files.step("sync", self.path)
        self._file.sync()

    def sync_later(self, engine: SyncEngine, then: OnResult) -> bool:  # noqa: ARG002  # a fault is one of this thread
        return False

    def fileno(self) -> int:
        return self._file.fileno()


class FaultyFiles:
    """`Files` with faults by number, counted from the last `count_from_here`; the first operation is number 1."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._faults: dict[int, Callable[[str], None]] = {}
        self.operations: list[Operation] = []
        self.is_stopped = False
        self._is_counting = True

    # Faults

    def count_from_here(self) -> None:
        self.operations = []
        self._faults = {}

    def stop_at(self, number: int) -> None:
        """Die before this operation: it and all that follow raise Stopped."""
        self._faults[number] = self._stop

    def fail_at(self, number: int, error: int) -> None:
        """Let this operation raise OSError(error) and do nothing."""

        def fail(path: str) -> None:
            raise OSError(error, os.strerror(error), path)

        self._faults[number] = fail

    def call_at(self, number: int, action: Callable[[], object]) -> None:
        """Call `action` before this operation, as another thread might."""
        self._faults[number] = lambda _: (action(), None)[1]

    @contextlib.contextmanager
    def not_counted(self) -> Iterator[None]:
        """Let operations inside the block neither count nor fail."""
        was_counting, self._is_counting = self._is_counting, False
        try:
            yield
        finally:
            self._is_counting = was_counting

    def step(self, what: str, path: str) -> None:
        if not self._is_counting:
            return
        if self.is_stopped:
            raise Stopped
        self.operations.append(Operation(what, path))
        fault = self._faults.pop(len(self.operations), None)
        if fault is not None:
            fault(path)

    def _stop(self, _path: str) -> None:
        self.is_stopped = True
        raise Stopped

    # Files

    def open(self, path: str, *, create: bool = False, ahead: bool = False) -> File:
        self.step("create" if create and not self._files.exists(path) else "open", path)
        return FaultyFile(self, self._files.open(path, create=create, ahead=ahead))

    def read(self, path: str) -> bytes:
        self.step("read", path)
        return self._files.read(path)

    def write_atomically(self, path: str, data: bytes) -> None:
        """Write in single steps, each of which may be the last."""
        temporary = path + ".tmp"
        file = self.open(temporary, create=True)
        file.truncate(0)
        file.append([data])
        file.sync()
        self.rename(temporary, path)
        self.sync_directory(os.path.dirname(path))

    def exists(self, path: str) -> bool:
        return self._files.exists(path)

    def list(self, directory: str) -> list[str]:
        self.step("list", directory)
        return self._files.list(directory)

    def is_directory(self, path: str) -> bool:
        return self._files.is_directory(path)

    def make_directory(self, path: str, *, private: bool = False) -> None:
        self.step("make_directory", path)
        self._files.make_directory(path, private=private)

    def is_ours(self, path: str) -> bool:
        return self._files.is_ours(path)

    def rename(self, old: str, new: str) -> None:
        self.step("rename", old)
        self._files.rename(old, new)

    def remove(self, path: str) -> None:
        self.step("remove", path)
        self._files.remove(path)

    def remove_tree(self, directory: str) -> None:
        self.step("remove_tree", directory)
        self._files.remove_tree(directory)

    def sync_directory(self, directory: str) -> None:
        self.step("sync_directory", directory)
        self._files.sync_directory(directory)

    def modified_ms(self, path: str) -> int:
        self.step("read", path)
        return self._files.modified_ms(path)

    def room(self, directory: str) -> tuple[int, int]:
        return self._files.room(directory)

    def allocate(self, path: str, size: int) -> None:
        self.step("allocate", path)
        self._files.allocate(path, size)

    def lock(self, path: str) -> DirectoryLock | None:
        self.step("lock", path)
        return self._files.lock(path)
