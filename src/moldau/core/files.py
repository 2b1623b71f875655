"""`Files`, the disk as a parameter: everything that the log writes goes through it.

A `File` closes its descriptor when the last reference to it is gone, not before: a `FileRegion` that a slow connection
is still sending keeps its file open, so a descriptor number is never reused under it.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

Buffer = bytes | bytearray | memoryview

FILLER = 0x7F
"""Byte behind the end of a file that grows ahead of its appends. As the header of a batch it promises far more bytes
than there are, so that every reader of logs takes it for the end; with zeros Kafka's readers complain."""

FILLER_BYTES_MAX = 256 * 1024


OnResult = Callable[[int], None]
"""Listener for the result of a sync: the number of its error, or 0."""


class HasDescriptor(Protocol):
    """Object with a descriptor that is open as long as somebody refers to it."""

    def fileno(self) -> int: ...


class SyncEngine(Protocol):
    """Syncs files without waiting for them."""

    def begin(self, file: HasDescriptor, then: OnResult) -> bool:
        """Sync what was written to a file before `submit` is called, and call `then` later. False: not now, and nothing
        has begun."""
        ...

    def submit(self) -> None:
        """Hand over what was begun: many syncs cost little more than one."""
        ...


class File(Protocol):
    """An open file that grows at its end."""

    path: str

    def size(self) -> int:
        """Number of bytes in the file (tracked, not asked of the operating system on every call)."""
        ...

    def append(self, chunks: Sequence[Buffer], size: int | None = None) -> int:
        """Write all chunks at the end in one call; returns their position. After an error nothing of them stays.

        `size`: their total size, where it is known.
        """
        ...

    def append_one(self, data: Buffer, size: int) -> int:
        """Append one chunk, which has this size."""
        ...

    def read_at(self, position: int, size: int) -> bytes:
        """The bytes from `position` on, `size` of them; fewer only at the end of the file."""
        ...

    def truncate(self, size: int) -> None: ...

    def trim(self) -> None:
        """Cut off the filler of a file that has grown ahead and is about to be left alone."""
        ...

    def sync(self) -> None:
        """Make everything that was appended before survive power loss (fdatasync)."""
        ...

    def sync_later(self, engine: "SyncEngine", then: OnResult) -> bool:
        """Do as `sync`, without waiting: `then` is called with the number of the error, or 0, and never at once. False:
        it cannot be done so, and nothing has begun."""
        ...

    def fileno(self) -> int:
        """The descriptor for `sendfile`; -1 where there is none (in memory)."""
        ...


class FileRegion:
    """Region of a file, `size` bytes from `position`: record batches on their way from the page cache to a socket."""

    __slots__ = ("file", "position", "size")

    def __init__(self, file: File, position: int, size: int) -> None:
        self.file = file
        self.position = position
        self.size = size

    def __len__(self) -> int:
        return self.size

    def read(self) -> bytes:
        """The bytes themselves, for a caller that cannot `sendfile`."""
        return self.file.read_at(self.position, self.size)


class DirectoryLock(Protocol):
    """Lock that is held while a broker uses a data directory."""

    def release(self) -> None: ...


class Files(Protocol):
    """A file system."""

    def open(self, path: str, *, create: bool = False, ahead: bool = False) -> File:
        """Open for reading and appending.

        `ahead`: while much is appended the file may be longer than its content, until it is trimmed.
        """
        ...

    def read(self, path: str) -> bytes: ...

    def write_atomically(self, path: str, data: bytes) -> None:
        """Replace the content of a file: afterwards it is the old or the new one, never half (temporary file, sync,
        rename, sync of the directory)."""
        ...

    def exists(self, path: str) -> bool: ...

    def list(self, directory: str) -> list[str]:
        """Names in `directory`, sorted."""
        ...

    def is_directory(self, path: str) -> bool: ...

    def make_directory(self, path: str, *, private: bool = False) -> None:
        """Make a directory with its parents; no error if it is there. A `private` one, if it is new, is for its owner
        alone."""
        ...

    def is_ours(self, path: str) -> bool:
        """Whether the user that this process runs as owns the file or directory; a link is not followed."""
        ...

    def rename(self, old: str, new: str) -> None: ...

    def remove(self, path: str) -> None:
        """Remove a file; no error if it is gone already."""
        ...

    def remove_tree(self, directory: str) -> None:
        """Remove a directory and everything in it. A link goes itself, and its target stays."""
        ...

    def sync_directory(self, directory: str) -> None: ...

    def modified_ms(self, path: str) -> int: ...

    def room(self, directory: str) -> tuple[int, int]:
        """The size of the disk that a directory is on, and the bytes that we may still use."""
        ...

    def allocate(self, path: str, size: int) -> None:
        """Make a file that takes `size` bytes on the disk, with any content."""
        ...

    def lock(self, path: str) -> DirectoryLock | None:
        """An exclusive lock on `path` that the kernel frees when the process dies; None if another holds it.

        Raises OSError where `path` is a symbolic link: in a directory like /tmp anybody may have made it.
        """
        ...
