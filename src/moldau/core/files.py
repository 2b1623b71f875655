"""The disk is a parameter: everything the log writes goes through `Files`.

A `File` closes its descriptor when the last reference to it is gone, not before: a `FileRegion` that a slow
connection is still sending keeps its file open, so a descriptor number is never reused under it.
"""

from collections.abc import Sequence
from typing import Protocol

Buffer = bytes | bytearray | memoryview

FILLER = 0x7F
"""What a file holds behind its end while it grows ahead of its appends. Read as the header of a batch it promises far
more bytes than there are, so that every reader of logs takes it for the end; for zeros Kafka's complain."""

FILLER_BYTES_MAX = 256 * 1024


class File(Protocol):
    """An open file that grows at its end."""

    path: str

    def size(self) -> int:
        """Bytes in the file (tracked, not asked of the operating system on every call)."""
        ...

    def append(self, chunks: Sequence[Buffer], size: int | None = None) -> int:
        """Write all chunks at the end in one call; returns where they start. On an error nothing of them stays.

        `size`: of all of them, where it is known.
        """
        ...

    def append_one(self, data: Buffer, size: int) -> int:
        """`append` of one chunk, which has this size."""
        ...

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""
        ...

    def truncate(self, size: int) -> None: ...

    def trim(self) -> None:
        """Cut off the filler of a file that has grown ahead: it is about to be left alone."""
        ...

    def sync(self) -> None:
        """fdatasync: what was appended before survives power loss."""
        ...

    def fileno(self) -> int:
        """The descriptor for `sendfile`; -1 where there is none (in memory)."""
        ...


class FileRegion:
    """`size` bytes of `file` from `position`: record batches on their way from the page cache to a socket."""

    __slots__ = ("file", "position", "size")

    def __init__(self, file: File, position: int, size: int) -> None:
        self.file = file
        self.position = position
        self.size = size

    def __len__(self) -> int:
        return self.size

    def read(self) -> bytes:
        """The bytes themselves, for whoever cannot `sendfile`."""
        return self.file.read_at(self.position, self.size)


class DirectoryLock(Protocol):
    """Held while a broker uses a data directory."""

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
        """Temporary file, sync, rename, sync of the directory: the old or the new content, never half."""
        ...

    def exists(self, path: str) -> bool: ...

    def list(self, directory: str) -> list[str]:
        """Names in `directory`, sorted."""
        ...

    def is_directory(self, path: str) -> bool: ...

    def make_directory(self, path: str, *, private: bool = False) -> None:
        """With its parents; not an error if it is there. A `private` one, if it is new, is for its owner alone."""
        ...

    def is_ours(self, path: str) -> bool:
        """Whether the user that this process runs as owns the file or directory; a link is not followed."""
        ...

    def rename(self, old: str, new: str) -> None: ...

    def remove(self, path: str) -> None:
        """Not an error if it is gone already."""
        ...

    def remove_tree(self, directory: str) -> None:
        """A directory with all that is in it. Where it is a link the link goes, and what it leads to stays."""
        ...

    def sync_directory(self, directory: str) -> None: ...

    def modified_ms(self, path: str) -> int: ...

    def room(self, directory: str) -> tuple[int, int]:
        """The size of the disk that a directory is on, and the bytes of it that we may still use."""
        ...

    def allocate(self, path: str, size: int) -> None:
        """Make a file that takes `size` bytes on the disk, whatever is in it."""
        ...

    def lock(self, path: str) -> DirectoryLock | None:
        """An exclusive lock on `path` that the kernel frees when the process dies; None if another holds it.

        Raises OSError where `path` is a symbolic link: in a directory like /tmp anybody may have made it.
        """
        ...
