"""The machine's own file system."""

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Sequence

from moldau.core.file_errors import sync_error
from moldau.core.files import FILLER, FILLER_BYTES_MAX, Buffer, DirectoryLock, File, OnResult, SyncEngine
from moldau.core.reserving import reserve

# The kernel takes at most this many buffers in one vectored write (UIO_MAXIOV).
CHUNKS_PER_WRITE_MAX = 1024

STRETCH_BYTES = FILLER_BYTES_MAX // 2
"""Bytes by which a file grows ahead at a time. Twice as much or half as much costs the same."""

FIRST_STRETCH_BYTES = STRETCH_BYTES // 2
"""The first ones are shorter, so that filler is a quarter of what was appended at the most: bursts that ended just
behind the first stretch had a third less of their throughput."""

SHORT_BYTES = 4 * STRETCH_BYTES
"""Bytes appended without a rest until stretches are long."""

RESERVED_BYTES = 4 * 1024 * 1024
"""Bytes reserved on the disk for a file that grows ahead; its filler then costs a third less."""

GROWN_SIZE_MAX = (1 << 31) - 1
"""Largest size of a grown file: Kafka opens no log file that is longer."""

BUSY_BYTES = 256 * 1024
"""Bytes appended without a rest after which a file grows ahead: files that few write to have no filler."""

SURE_BYTES = 768 * 1024
"""Bytes appended behind those after which room is reserved, too: a thousand files that are a little busy take no
gigabytes."""

LOOK_S = 1.0
"""Time between looks at files that have grown ahead."""

REST_BYTES = STRETCH_BYTES // 4
"""A file that took less between two looks is at rest, and trimmed."""

_filler = memoryview(bytes([FILLER]) * FILLER_BYTES_MAX)

CallLater = Callable[[float, Callable[[], None]], object]


class RealFile:
    """A descriptor, and the size that we know the file to have.

    Writes name their position, so bytes that a failed write left behind the known end are overwritten by the next
    one even if they could not be cut off.

    A file that was opened to grow `ahead` and gets many small appends is written in long stretches of filler first,
    and then over it: the kernel makes large pages for a long write, and pays for the new size once (12 to 7 us an
    append of 16 KiB, 6 with room that was reserved). A sync of bytes written over filler is one of data alone; where
    each append makes the file longer, each sync has to write the file system's journal, too.
    """

    __slots__ = (
        "__weakref__",
        "_ahead",
        "_descriptor",
        "_end",
        "_reserved",
        "_size",
        "_thrifty_until",
        "path",
        "size_seen",
    )

    def __init__(self, path: str, *, create: bool = False, ahead: "Ahead | None" = None) -> None:
        self._descriptor = -1
        self.path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o644)
        self._size = self._end = os.fstat(self._descriptor).st_size
        self._reserved = 0  # up to here, in bytes from the beginning
        self._ahead = ahead
        self._thrifty_until = self._size + BUSY_BYTES
        self.size_seen = 0

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def size(self) -> int:
        return self._size

    def append(self, chunks: Sequence[Buffer], size: int | None = None) -> int:
        start = self._size
        end = start + (sum(map(len, chunks)) if size is None else size)
        if end > self._end:
            self._grow(end)
        try:
            if len(chunks) > CHUNKS_PER_WRITE_MAX or start + os.pwritev(self._descriptor, chunks, start) != end:
                _write_all(self._descriptor, b"".join(chunks), start)
        except OSError:
            self._take_back(start)
            raise
        self._size = end
        return start

    def append_one(self, data: Buffer, size: int) -> int:
        start = self._size
        end = start + size
        if end > self._end:
            self._grow(end)
        try:
            if os.pwrite(self._descriptor, data, start) != size:
                _write_all(self._descriptor, data, start)
        except OSError:
            self._take_back(start)
            raise
        self._size = end
        return start

    def _take_back(self, start: int) -> None:
        """Cut off the bytes of a write that failed; the error of that write is the one to report."""
        with contextlib.suppress(OSError):
            self.truncate(start)

    def _grow(self, end: int) -> None:
        """Make room for a write up to `end`, which is past the end of the file."""
        if self._ahead is not None and end > self._thrifty_until and end - self._end < STRETCH_BYTES // 2:
            with contextlib.suppress(OSError):  # a full disk may still have room for what is really to be written
                is_short = end - self._thrifty_until + BUSY_BYTES <= SHORT_BYTES
                stretch = FIRST_STRETCH_BYTES if is_short else STRETCH_BYTES
                grown = min((end + stretch) // stretch * stretch, GROWN_SIZE_MAX)
                if grown > self._reserved and end > self._thrifty_until + SURE_BYTES:
                    self._reserved = self._end + RESERVED_BYTES  # if it is refused, that holds for so much as well
                    reserve(self._descriptor, self._end, RESERVED_BYTES)
                self._end += os.pwrite(self._descriptor, _filler[: max(grown - self._end, 0)], self._end)
                self._ahead.add(self)
        self._end = max(self._end, end)

    def trim(self) -> None:
        if max(self._end, self._reserved) > self._size:
            self.truncate(self._size)
        self._thrifty_until = self._size + BUSY_BYTES

    def read_at(self, position: int, size: int) -> bytes:
        data = os.pread(self._descriptor, size, position)
        if len(data) == size or not data:
            return data
        return self._read_rest(data, position, size)

    def _read_rest(self, data: bytes, position: int, size: int) -> bytes:
        """The whole of a read that was short without being at the end (a signal, more than 2 GiB asked for)."""
        parts = [data]
        have = len(data)
        while have < size and (part := os.pread(self._descriptor, size - have, position + have)):
            parts.append(part)
            have += len(part)
        return b"".join(parts)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)
        self._size = self._end = size
        self._reserved = 0

    def sync(self) -> None:
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            raise sync_error(error) from error

    def sync_later(self, engine: SyncEngine, then: OnResult) -> bool:
        return engine.begin(self, then)

    def fileno(self) -> int:
        return self._descriptor


def _write_all(descriptor: int, data: Buffer, position: int) -> None:
    """Go on after a short write: the disk is full or a signal came, and the next write finds out which."""
    rest = memoryview(data)
    while rest:
        written = os.pwrite(descriptor, rest, position)
        rest = rest[written:]
        position += written


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


class Ahead:
    """The files that have grown ahead; each is trimmed soon after it has come to rest."""

    def __init__(self, call_later: CallLater) -> None:
        self._call_later = call_later
        self._files: set[RealFile] = set()

    def add(self, file: RealFile) -> None:
        if not self._files:
            self._call_later(LOOK_S, self._look)
        self._files.add(file)

    def _look(self) -> None:
        for file in list(self._files):
            if file.size() - file.size_seen < REST_BYTES:
                self._files.discard(file)
                with contextlib.suppress(OSError):  # a disk that fails is noticed by who appends, and filler is no harm
                    file.trim()
            file.size_seen = file.size()
        if self._files:
            self._call_later(LOOK_S, self._look)


class RealFiles:
    """`Files` on the operating system.

    With `call_later` of the loop in whose thread they are appended to, files may grow ahead.
    """

    def __init__(self, call_later: CallLater | None = None) -> None:
        self._ahead = None if call_later is None else Ahead(call_later)

    def open(self, path: str, *, create: bool = False, ahead: bool = False) -> File:
        return RealFile(path, create=create, ahead=self._ahead if ahead else None)

    def read(self, path: str) -> bytes:
        file = RealFile(path)  # a third of the cost of a buffered reader: a start reads thousands of tiny files
        return file.read_at(0, file.size())

    def write_atomically(self, path: str, data: bytes) -> None:
        temporary = path + ".tmp"
        try:
            with open(temporary, "wb", buffering=0) as file:
                _write_all(file.fileno(), data, 0)
                os.fdatasync(file.fileno())  # the error of a file that is thrown away is no `SyncError`
            os.replace(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.remove(temporary)
            raise
        self.sync_directory(os.path.dirname(path))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def list(self, directory: str) -> list[str]:
        return sorted(os.listdir(directory))

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def make_directory(self, path: str, *, private: bool = False) -> None:
        try:
            os.makedirs(path, 0o700 if private else 0o777, exist_ok=True)
        except FileExistsError:  # a file, or a link that leads nowhere
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path) from None

    def is_ours(self, path: str) -> bool:
        return os.lstat(path).st_uid == os.geteuid()

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)

    def remove_tree(self, directory: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            if os.path.islink(directory):
                os.unlink(directory)
            else:
                shutil.rmtree(directory)

    def sync_directory(self, directory: str) -> None:
        descriptor = os.open(directory or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise sync_error(error) from error
        finally:
            os.close(descriptor)

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def room(self, directory: str) -> tuple[int, int]:
        disk = os.statvfs(directory)
        return disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize

    def allocate(self, path: str, size: int) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, size)
        finally:
            os.close(descriptor)

    def lock(self, path: str) -> DirectoryLock | None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            os.close(descriptor)
            return None
        return RealLock(descriptor)
