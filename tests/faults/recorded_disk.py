"""A disk that knows what a power cut would leave of it: real files, and for each what was synced and when.

What is sure to survive is what a strict disk promises: bytes up to the last sync of the file, names up to the last sync
of their directory. What was written after that may survive, in part, or as zeros: `what_is_left` chooses.
"""

import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

from moldau.core.files import Buffer, DirectoryLock, File, OnResult, SyncEngine
from moldau.core.real_files import RealFiles

SYNC_S_MAX = 0.004
"""Longest time of a sync, in seconds: the more happens meanwhile, the more is tried."""


class FileNode:
    """The content of a file, apart from its name."""

    def __init__(self, path: str) -> None:
        self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # its content outlives its names
        self.synced_size = os.fstat(self.descriptor).st_size
        self.before_truncation: bytes | None = None
        self.truncations = 0

    def __del__(self) -> None:
        os.close(self.descriptor)

    def content(self) -> bytes:
        return os.pread(self.descriptor, os.fstat(self.descriptor).st_size, 0)

    def is_truncated(self, size: int) -> None:
        """Note a truncation: until the next sync the disk may have the file as it was."""
        self.truncations += 1
        if size < self.synced_size:
            if self.before_truncation is None:
                self.before_truncation = self.content()[: self.synced_size]
            self.synced_size = size

    def what_is_left(self, chance: Random) -> bytes:
        kind, content = chance.random(), self.content()
        if self.before_truncation is not None and kind < 0.5:
            return self.before_truncation
        unsynced = len(content) - self.synced_size
        if kind < 0.6 or unsynced <= 0:
            return content[: self.synced_size]
        kept = content[: self.synced_size + chance.randrange(unsynced + 1)]
        return kept if kind < 0.85 else kept.ljust(len(content), b"\0")


class DirectoryNode:
    """The names in a directory, now and at its last sync."""

    def __init__(self) -> None:
        self.names: dict[str, FileNode | DirectoryNode] = {}
        self.durable: dict[str, FileNode | DirectoryNode] = {}

    def what_is_left(self, target: Path, chance: Random) -> None:
        target.mkdir()
        names = self.durable if chance.random() < 0.7 else self.names
        for name, node in names.items():
            if isinstance(node, DirectoryNode):
                node.what_is_left(target / name, chance)
            else:
                (target / name).write_bytes(node.what_is_left(chance))


class RecordedFile:
    """A real file whose changes are noted."""

    def __init__(self, disk: "RecordedDisk", inner: File, node: FileNode) -> None:
        self._disk = disk
        self._inner = inner
        self._node = node
        self.path = inner.path

    def size(self) -> int:
        return self._inner.size()

    def append(self, chunks: Sequence[Buffer], size: int | None = None) -> int:
        with self._disk.power:
            return self._inner.append(chunks, size)

    def append_one(self, data: Buffer, size: int) -> int:
        with self._disk.power:
            return self._inner.append_one(data, size)

    def read_at(self, position: int, size: int) -> bytes:
        return self._inner.read_at(position, size)

    def truncate(self, size: int) -> None:
        with self._disk.power:
            self._node.is_truncated(size)
            self._inner.truncate(size)

    def trim(self) -> None:
        with self._disk.power:
            self._inner.trim()

    def sync(self) -> None:
        node = self._node
        with self._disk.power:
            truncations, size = node.truncations, self._inner.size()
        self._disk.take_time()
        with self._disk.power:
            if truncations == node.truncations:
                node.synced_size, node.before_truncation = max(size, node.synced_size), None

    def sync_later(self, engine: SyncEngine, then: OnResult) -> bool:
        node = self._node

        def ended(error: int) -> None:
            with self._disk.power:
                if not error and truncations == node.truncations:
                    node.synced_size, node.before_truncation = max(size, node.synced_size), None
            then(error)

        with self._disk.power:
            truncations, size = node.truncations, self._inner.size()
            return self._inner.sync_later(engine, ended)

    def fileno(self) -> int:
        return self._inner.fileno()


class RecordedDisk:
    """`Files` below one directory, for the brokers of one machine. Whoever holds `power` keeps it still."""

    def __init__(self, root: Path, seed: int) -> None:
        self.power = threading.RLock()
        self._root = root
        self._inner = RealFiles()
        self._chance = Random(seed)
        self._top = DirectoryNode()

    def take_time(self) -> None:
        """Take as long as a sync does."""
        time.sleep(self._chance.uniform(0, SYNC_S_MAX))

    def is_as_found(self) -> None:
        """Take everything that is there now as synced."""
        with self.power:
            self._top = _found(self._root)

    def what_is_left(self, name: str, target: Path, chance: Random) -> None:
        """Write the rest that a power cut now would leave of a directory of the root."""
        node = self._top.names[name]
        assert isinstance(node, DirectoryNode)
        node.what_is_left(target, chance)

    # As Files

    def open(self, path: str, *, create: bool = False, ahead: bool = False) -> File:
        with self.power:
            inner = self._inner.open(path, create=create, ahead=ahead)
            directory, name = self._parent(path)
            node = directory.names.get(name)
            if not isinstance(node, FileNode):
                node = directory.names[name] = FileNode(path)
            return RecordedFile(self, inner, node)

    def read(self, path: str) -> bytes:
        return self._inner.read(path)

    def write_atomically(self, path: str, data: bytes) -> None:
        self.take_time()
        with self.power:
            temporary = Path(path + ".tmp")
            temporary.write_bytes(data)
            temporary.rename(path)
            directory, name = self._parent(path)
            directory.names[name] = FileNode(path)
            directory.durable = dict(directory.names)

    def exists(self, path: str) -> bool:
        return self._inner.exists(path)

    def list(self, directory: str) -> list[str]:
        return self._inner.list(directory)

    def is_directory(self, path: str) -> bool:
        return self._inner.is_directory(path)

    def make_directory(self, path: str, *, private: bool = False) -> None:
        with self.power:
            self._inner.make_directory(path, private=private)
            self._directory(path)

    def is_ours(self, path: str) -> bool:
        return self._inner.is_ours(path)

    def rename(self, old: str, new: str) -> None:
        with self.power:
            self._inner.rename(old, new)
            directory, name = self._parent(old)
            node = directory.names.pop(name)
            directory, name = self._parent(new)
            directory.names[name] = node

    def remove(self, path: str) -> None:
        with self.power:
            self._inner.remove(path)
            directory, name = self._parent(path)
            directory.names.pop(name, None)

    def remove_tree(self, directory: str) -> None:
        with self.power:
            self._inner.remove_tree(directory)
            parent, name = self._parent(directory)
            parent.names.pop(name, None)

    def sync_directory(self, directory: str) -> None:
        self.take_time()
        with self.power:
            node = self._directory(directory)
            node.durable = dict(node.names)

    def modified_ms(self, path: str) -> int:
        return self._inner.modified_ms(path)

    def room(self, directory: str) -> tuple[int, int]:
        return self._inner.room(directory)

    def allocate(self, path: str, size: int) -> None:
        """Do nothing: the ballast means nothing, and nobody looks for it after a power cut."""

    def lock(self, path: str) -> DirectoryLock | None:
        return self._inner.lock(path)

    def _parent(self, path: str) -> tuple[DirectoryNode, str]:
        parent, _, name = path.rpartition("/")
        return self._directory(parent), name

    def _directory(self, path: str) -> DirectoryNode:
        node = self._top
        for name in Path(path).relative_to(self._root).parts:
            child = node.names.setdefault(name, DirectoryNode())
            assert isinstance(child, DirectoryNode)
            node = child
        return node


def _found(path: Path) -> DirectoryNode:
    node = DirectoryNode()
    for child in path.iterdir():
        if child.is_dir():
            node.names[child.name] = _found(child)
        elif child.is_file() and child.name != ".lock":
            node.names[child.name] = FileNode(str(child))
    node.durable = dict(node.names)
    return node
