"""The machine's own file system."""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Sequence

from moldau.core.files import Buffer, DirectoryLock, File

# The kernel takes at most this many buffers in one vectored write (UIO_MAXIOV).
CHUNKS_PER_WRITE_MAX = 1024


class RealFile:
    """A descriptor, and the size we know the file to have.

    Writes name their position, so bytes that a failed write left behind the known end are overwritten by the next
    one even if they could not be cut off.
    """

    __slots__ = ("__weakref__", "_descriptor", "_size", "path")

    def __init__(self, path: str, *, create: bool = False) -> None:
        self._descriptor = -1
        self.path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o644)
        self._size = os.fstat(self._descriptor).st_size

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def size(self) -> int:
        return self._size

    def append(self, chunks: Sequence[Buffer]) -> int:
        start = self._size
        total = 0
        for chunk in chunks:  # nearly always two: a third of what `sum(map(len, chunks))` costs
            total += len(chunk)
        try:
            if len(chunks) > CHUNKS_PER_WRITE_MAX or os.pwritev(self._descriptor, chunks, start) != total:
                self._write_all(b"".join(chunks), start)
        except OSError:
            with contextlib.suppress(OSError):  # the write's own error is the one to report
                os.ftruncate(self._descriptor, start)
            raise
        self._size = start + total
        return start

    def _write_all(self, data: bytes, position: int) -> None:
        """After a short write: the disk is full or a signal came; going on finds out which."""
        rest = memoryview(data)
        while rest:
            written = os.pwrite(self._descriptor, rest, position)
            rest = rest[written:]
            position += written

    def read_at(self, position: int, size: int) -> bytes:
        data = os.pread(self._descriptor, size, position)
        if len(data) == size or not data:
            return data
        return self._read_rest(data, position, size)

    def _read_rest(self, data: bytes, position: int, size: int) -> bytes:
        """A read may be short without being at the end (a signal, more than 2 GiB asked for)."""
        parts = [data]
        have = len(data)
        while have < size and (part := os.pread(self._descriptor, size - have, position + have)):
            parts.append(part)
            have += len(part)
        return b"".join(parts)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)
        self._size = size

    def sync(self) -> None:
        os.fdatasync(self._descriptor)

    def fileno(self) -> int:
        return self._descriptor


class RealLock:
    """A locked descriptor.

    `flock` keeps out a second broker, also one in this very process; the POSIX record lock keeps out Apache Kafka,
    which takes that kind.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class RealFiles:
    """`Files` on the operating system."""

    def open(self, path: str, *, create: bool = False) -> File:
        return RealFile(path, create=create)

    def read(self, path: str) -> bytes:
        file = RealFile(path)  # a third of the cost of a buffered reader: a start reads thousands of tiny files
        return file.read_at(0, file.size())

    def write_atomically(self, path: str, data: bytes) -> None:
        temporary = path + ".tmp"
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fdatasync(file.fileno())
        os.replace(temporary, path)
        self.sync_directory(os.path.dirname(path))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def list(self, directory: str) -> list[str]:
        return sorted(os.listdir(directory))

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def make_directory(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)

    def remove_tree(self, directory: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(directory)

    def sync_directory(self, directory: str) -> None:
        descriptor = os.open(directory or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def lock(self, path: str) -> DirectoryLock | None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            os.close(descriptor)
            return None
        return RealLock(descriptor)
