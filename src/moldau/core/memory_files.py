"""A file system in memory with fault switches: the twin of `RealFiles` for tests and simulation.

What survives `power_loss()` is what a strict disk promises: bytes up to the last sync of the file, and names up to
the last sync of their directory. Directories themselves are durable at once.
"""

import errno
import os
from collections.abc import Sequence

from moldau.core.files import Buffer, DirectoryLock, File
from moldau.core.invariants import invariant

DISK_BYTES = 1 << 40


class _Node:
    """The content of one file, apart from its name."""

    __slots__ = ("data", "modified_ms", "synced_size")

    def __init__(self) -> None:
        self.data = bytearray()
        self.synced_size = 0
        self.modified_ms = 0


class MemoryFile:
    """An open handle on a node."""

    __slots__ = ("_files", "_node", "path")

    def __init__(self, files: "MemoryFiles", path: str, node: _Node) -> None:
        self._files = files
        self._node = node
        self.path = path

    def size(self) -> int:
        return len(self._node.data)

    def append(self, chunks: Sequence[Buffer], size: int | None = None) -> int:
        self._files.check_append(self.path)
        start, data = len(self._node.data), b"".join(chunks)
        invariant(size is None or size == len(data), f"{size} bytes were announced, {len(data)} came")
        self._node.data += data
        self._node.modified_ms = self._files.now_ms
        return start

    def append_one(self, data: Buffer, size: int) -> int:
        return self.append((data,), size)

    def read_at(self, position: int, size: int) -> bytes:
        return bytes(self._node.data[position : position + size])

    def truncate(self, size: int) -> None:
        data = self._node.data
        if size < len(data):
            del data[size:]
        else:
            data.extend(bytes(size - len(data)))
        self._node.synced_size = min(self._node.synced_size, size)

    def trim(self) -> None:
        """It never grows ahead."""

    def sync(self) -> None:
        self._files.check_sync(self.path)
        self._node.synced_size = len(self._node.data)

    def fileno(self) -> int:
        return -1


class MemoryLock:
    """Held until released or until the power is gone."""

    def __init__(self, held: set[str], path: str) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        self._held.discard(self._path)


class MemoryFiles:
    """`Files` in a dictionary.

    Faults: `fail_next_append(error)`, `fail_next_sync(error)`, `power_loss(torn_bytes)`. `now_ms` is the time that
    modified files get, `free_bytes` what the disk says of itself.
    """

    def __init__(self) -> None:
        self._names: dict[str, _Node] = {}
        self._durable_names: dict[str, _Node] = {}
        self._directories: set[str] = {"/"}
        self._locks: set[str] = set()
        self._append_error: int | None = None
        self._sync_error: int | None = None
        self.now_ms = 0
        self.syncs = 0
        self.free_bytes = DISK_BYTES
        self.foreign: set[str] = set()
        """Paths that belong to another user."""

    # Faults

    def fail_next_append(self, error: int = errno.ENOSPC) -> None:
        """The next append to any file raises OSError(error) and writes nothing."""
        self._append_error = error

    def fail_next_sync(self, error: int = errno.EIO) -> None:
        """The next sync of any file raises OSError(error)."""
        self._sync_error = error

    def power_loss(self, torn_bytes: int = 0) -> None:
        """Lose what was not synced, except the first `torn_bytes` of it in each file. Handles open now are dead."""
        survivors: dict[str, _Node] = {}
        for path, node in self._durable_names.items():
            survivor = _Node()
            survivor.data += node.data[: node.synced_size + torn_bytes]
            survivor.synced_size = len(survivor.data)
            survivor.modified_ms = node.modified_ms
            survivors[path] = survivor
        self._names = survivors
        self._durable_names = dict(survivors)
        self._locks = set()

    def check_append(self, path: str) -> None:
        if self._append_error is not None:
            error, self._append_error = self._append_error, None
            raise OSError(error, os.strerror(error), path)

    def check_sync(self, path: str) -> None:
        self.syncs += 1
        if self._sync_error is not None:
            error, self._sync_error = self._sync_error, None
            raise OSError(error, os.strerror(error), path)

    # Files

    def open(self, path: str, *, create: bool = False, ahead: bool = False) -> File:  # noqa: ARG002  # never ahead
        node = self._names.get(path)
        if node is None:
            if not create or os.path.dirname(path) not in self._directories:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            node = self._names[path] = _Node()
            node.modified_ms = self.now_ms
        return MemoryFile(self, path, node)

    def read(self, path: str) -> bytes:
        return bytes(self._node(path).data)

    def write_atomically(self, path: str, data: bytes) -> None:
        self.check_append(path)
        self.check_sync(path)
        node = _Node()
        node.data += data
        node.synced_size = len(data)
        node.modified_ms = self.now_ms
        self._names[path] = node
        self.sync_directory(os.path.dirname(path))

    def exists(self, path: str) -> bool:
        return path in self._names or path in self._directories

    def list(self, directory: str) -> list[str]:
        if directory not in self._directories:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), directory)
        paths = [*self._names, *self._directories]
        return sorted(os.path.basename(path) for path in paths if os.path.dirname(path) == directory and path != "/")

    def is_directory(self, path: str) -> bool:
        return path in self._directories

    def make_directory(self, path: str, *, private: bool = False) -> None:  # noqa: ARG002  # there is one user
        while path not in self._directories:
            self._directories.add(path)
            path = os.path.dirname(path)

    def is_ours(self, path: str) -> bool:
        return path not in self.foreign

    def rename(self, old: str, new: str) -> None:
        if old in self._directories:
            self._rename_directory(old, new)
        else:
            self._names[new] = self._node(old)
            del self._names[old]

    def _rename_directory(self, old: str, new: str) -> None:
        def moved(path: str) -> str:
            return new + path[len(old) :] if path == old or path.startswith(old + "/") else path

        self._names = {moved(path): node for path, node in self._names.items()}
        self._durable_names = {moved(path): node for path, node in self._durable_names.items()}
        self._directories = {moved(path) for path in self._directories}

    def remove(self, path: str) -> None:
        self._names.pop(path, None)

    def remove_tree(self, directory: str) -> None:
        inside = directory + "/"
        self._directories = {path for path in self._directories if path != directory and not path.startswith(inside)}
        for names in (self._names, self._durable_names):
            for path in [path for path in names if path.startswith(inside)]:
                del names[path]

    def sync_directory(self, directory: str) -> None:
        for path in [path for path in self._durable_names if os.path.dirname(path) == directory]:
            if path not in self._names:
                del self._durable_names[path]
        self._durable_names.update(
            (path, node) for path, node in self._names.items() if os.path.dirname(path) == directory
        )

    def modified_ms(self, path: str) -> int:
        return self._node(path).modified_ms

    def room(self, directory: str) -> tuple[int, int]:  # noqa: ARG002  # it is all one disk
        return DISK_BYTES, self.free_bytes

    def allocate(self, path: str, size: int) -> None:  # noqa: ARG002  # only the name is of interest
        self.open(path, create=True)

    def lock(self, path: str) -> DirectoryLock | None:
        if path in self._locks:
            return None
        self.open(path, create=True)
        self._locks.add(path)
        return MemoryLock(self._locks, path)

    def _node(self, path: str) -> _Node:
        try:
            return self._names[path]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None
