"""Files of a data directory, opened for reading only, and whether a broker uses the directory.

Law: nothing is written, created or locked here. A lock is not even opened: a process that closes a file gives up every
lock of its own on it, and a broker may live in this very process.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

LOCK_FILE = ".lock"
LOCKS = "/proc/locks"
_PLACE = 5
"""Place in a line of /proc/locks, from 0 on, of `major:minor:inode`."""


class ReadError(Exception):
    """Error: a file cannot be read; the message says which, and why."""


class ReadOnlyFile:
    """A file that is read at positions."""

    __slots__ = ("_descriptor", "_size", "path")

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        self._descriptor = -1
        try:
            # A pipe would be waited for until somebody writes to it.
            self._descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            found = os.fstat(self._descriptor)
        except OSError as error:
            raise ReadError(f"cannot read {self.path}: {error.strerror}") from error
        self._size = found.st_size
        if not stat.S_ISREG(found.st_mode):
            self.close()
            raise ReadError(f"cannot read {self.path}: it is no regular file")

    def size(self) -> int:
        """Bytes of the file when it was opened."""
        return self._size

    def size_now(self) -> int:
        """Bytes of the file at this moment: that of a running broker grows."""
        return os.fstat(self._descriptor).st_size

    def read_at(self, position: int, size: int) -> bytes:
        """Bytes from `position` on, fewer than `size` only at the end of the file."""
        parts: list[bytes] = []
        while size > 0 and (part := os.pread(self._descriptor, size, position)):
            parts.append(part)
            position += len(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_into(self, buffer: memoryview, position: int) -> int:
        """Fill the buffer from `position` on; returns how many bytes there were."""
        have = 0
        while have < len(buffer):
            got = os.preadv(self._descriptor, [buffer[have:]], position + have)
            if not got:
                break
            have += got
        return have

    def read_ahead(self, position: int, size: int) -> None:
        """Ask the kernel to read a part of the file before it is needed."""
        os.posix_fadvise(self._descriptor, position, size, os.POSIX_FADV_WILLNEED)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


@contextmanager
def opened(path: str | Path) -> Iterator[ReadOnlyFile]:
    """The file at `path`, until the block ends."""
    file = ReadOnlyFile(path)
    try:
        yield file
    finally:
        file.close()


def content(path: str | Path) -> bytes:
    """Everything in a small file."""
    with opened(path) as file:
        return file.read_at(0, file.size())


class Listed(NamedTuple):
    """Names in a directory."""

    files: list[str]
    directories: list[str]


def names_in(directory: str | Path) -> Listed:
    """The names in a directory, sorted."""
    try:
        with os.scandir(directory) as entries:
            found = [(entry.name, entry.is_dir()) for entry in entries]
    except OSError as error:
        raise ReadError(f"cannot read {directory}: {error.strerror}") from error
    return Listed(
        sorted(name for name, is_directory in found if not is_directory),
        sorted(name for name, is_directory in found if is_directory),
    )


def is_in_use(directory: str | Path) -> bool:
    """Whether a running broker holds the lock of a data directory; where the system does not tell, one does."""
    try:
        inode = str(os.stat(os.path.join(directory, LOCK_FILE)).st_ino)
    except OSError:
        return False
    try:
        with open(LOCKS) as table:
            rows = [line.split() for line in table]
    except OSError:
        return True
    # By the inode alone: the device is not the one that `stat` tells on overlay and btrfs.
    return any(len(row) > _PLACE and row[1] != "->" and row[_PLACE].rpartition(":")[2] == inode for row in rows)
