"""A file system in memory with fault switches: the twin of `RealFiles` for tests and simulation.

The law: `power_loss()` leaves as much as a strict disk promises: bytes up to the last sync of the file, and names, also
those of directories, up to the last sync of the directory they are in. Entries directly below the root are durable at
once, as mount points are. A disk may also have done more than it promised; the switches of `power_loss` say what. For
faults at a certain operation put `FaultyFiles` around it.
"""

import contextlib
import errno
import os
from collections.abc import Sequence

from moldau.core.files import Buffer, DirectoryLock, File, OnResult, SyncEngine
from moldau.core.invariants import invariant

DISK_BYTES = 1 << 40


class _Node:
    """The content of one file, apart from its name."""

    __slots__ = ("before_cut", "data", "modified_ms", "synced_size")

    def __init__(self) -> None:
        self.data = bytearray()
        self.synced_size = 0
        self.before_cut: bytes | None = None  # as it was synced, where it was cut since
        self.modified_ms = 0

    def cut(self, size: int) -> None:
        if size < self.synced_size:
            if self.before_cut is None:
                self.before_cut = bytes(self.data[: self.synced_size])
            self.synced_size = size
        del self.data[size:]
        self.data.extend(bytes(size - len(self.data)))

    def sync(self) -> None:
        self.synced_size = len(self.data)
        self.before_cut = None

    def after_power_loss(self, torn_bytes: int, cuts_undone: bool) -> "_Node":
        survivor = _Node()
        survivor.data += self.data[: self.synced_size + torn_bytes]
        if cuts_undone and self.before_cut is not None:
            survivor.data[:] = self.before_cut
        survivor.synced_size = len(survivor.data)
        survivor.modified_ms = self.modified_ms
        return survivor


class _Directory:
    """Names as they are now, and as they were at the last sync."""

    __slots__ = ("durable", "entries")

    def __init__(self) -> None:
        self.entries: dict[str, _Node | _Directory] = {}
        self.durable: dict[str, _Node | _Directory] = {}

    def after_power_loss(self, torn_bytes: int, names_kept: bool, cuts_undone: bool) -> "_Directory":
        survivor = _Directory()
        for name, each in (self.entries if names_kept else self.durable).items():
            if isinstance(each, _Directory):
                survivor.entries[name] = each.after_power_loss(torn_bytes, names_kept, cuts_undone)
            else:
                survivor.entries[name] = each.after_power_loss(torn_bytes, cuts_undone)
        survivor.durable = dict(survivor.entries)
        return survivor


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
        self._node.cut(size)

    def trim(self) -> None:
        """Do nothing, as this file never grows ahead."""

    def sync(self) -> None:
        self._files.check_sync(self.path)
        self._node.sync()

    def sync_later(self, engine: SyncEngine, then: OnResult) -> bool:  # noqa: ARG002  # there is no descriptor
        return False

    def fileno(self) -> int:
        return -1


class MemoryLock:
    """Lock that is held until it is released or until the power is gone."""

    def __init__(self, held: set[str], path: str) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        self._held.discard(self._path)


class MemoryFiles:
    """`Files` in a tree of dictionaries.

    Faults: `fail_next_append(error)`, `fail_next_sync(error)`, `power_loss(...)`, `process_death()`. `now_ms` is the
    time that modified files get, `free_bytes` the room that the disk reports.
    """

    def __init__(self) -> None:
        self._root = _Directory()
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
        """Let the next append to any file raise OSError(error) and write nothing."""
        self._append_error = error

    def fail_next_sync(self, error: int = errno.EIO) -> None:
        """Let the next sync of any file raise OSError(error)."""
        self._sync_error = error

    def power_loss(self, torn_bytes: int = 0, *, names_kept: bool = False, cuts_undone: bool = False) -> None:
        """Lose everything that was not synced. Handles that are open now are dead.

        `torn_bytes`: this many bytes of it stay in each file. `names_kept`: names came to the disk at once, without the
        content of the files. `cuts_undone`: files that were truncated are as long as they were when last synced.
        """
        self._root = self._root.after_power_loss(torn_bytes, names_kept, cuts_undone)
        self._locks = set()

    def process_death(self) -> None:
        """Let the process die: written bytes stay, as the operating system has them; locks are free."""
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
        parent, name = self._parent(path)
        node = parent.entries.get(name)
        if node is None and create:
            node = parent.entries[name] = _Node()
            node.modified_ms = self.now_ms
        if not isinstance(node, _Node):
            raise _missing(path)
        return MemoryFile(self, path, node)

    def read(self, path: str) -> bytes:
        return bytes(self._node(path).data)

    def write_atomically(self, path: str, data: bytes) -> None:
        self.check_append(path)
        self.check_sync(path)
        node = _Node()
        node.data += data
        node.modified_ms = self.now_ms
        node.sync()
        parent, name = self._parent(path)
        parent.entries[name] = node
        self.sync_directory(os.path.dirname(path))

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def list(self, directory: str) -> list[str]:
        return sorted(self._directory(directory).entries)

    def is_directory(self, path: str) -> bool:
        return isinstance(self._find(path), _Directory)

    def make_directory(self, path: str, *, private: bool = False) -> None:  # noqa: ARG002  # there is one user
        above = self._root
        for name in _parts(path):
            each = above.entries.setdefault(name, _Directory())
            if above is self._root:
                above.durable.setdefault(name, each)
            if not isinstance(each, _Directory):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            above = each

    def is_ours(self, path: str) -> bool:
        return path not in self.foreign

    def rename(self, old: str, new: str) -> None:
        (old_parent, old_name), (new_parent, new_name) = self._parent(old), self._parent(new)
        if old_name not in old_parent.entries:
            raise _missing(old)
        new_parent.entries[new_name] = old_parent.entries.pop(old_name)

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            parent, name = self._parent(path)
            parent.entries.pop(name, None)

    def remove_tree(self, directory: str) -> None:
        self.remove(directory)

    def sync_directory(self, directory: str) -> None:
        synced = self._directory(directory)
        synced.durable = dict(synced.entries)

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

    def _find(self, path: str) -> _Node | _Directory | None:
        found: _Node | _Directory | None = self._root
        for name in _parts(path):
            found = found.entries.get(name) if isinstance(found, _Directory) else None
        return found

    def _directory(self, path: str) -> _Directory:
        found = self._find(path)
        if not isinstance(found, _Directory):
            raise _missing(path)
        return found

    def _parent(self, path: str) -> tuple[_Directory, str]:
        directory, _, name = path.rpartition("/")
        return self._directory(directory), name

    def _node(self, path: str) -> _Node:
        found = self._find(path)
        if not isinstance(found, _Node):
            raise _missing(path)
        return found


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
