"""Meaning of errors of file operations: one place says which of them pass, and which are the end of a disk.

The law: a disk that is full, or a process that is short of descriptors or memory, refuses: the operation is not done,
and may be done later. Every other error is the disk's own failure. So is a sync that failed, whatever its error says:
the kernel may have dropped the pages that it could not write, and a second sync would not say so.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

_FULL = frozenset((errno.ENOSPC, errno.EDQUOT))
_SHORT = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EAGAIN, errno.EINTR))


class SyncError(OSError):
    """Error: written bytes may be lost, and no later sync would say so."""


def is_full(error: OSError) -> bool:
    """Whether the disk has no room, or no inode, for the operation."""
    return error.errno in _FULL and not isinstance(error, SyncError)


def is_short(error: OSError) -> bool:
    """Whether the process or the machine lacks descriptors or memory."""
    return error.errno in _SHORT and not isinstance(error, SyncError)


def passes(error: OSError) -> bool:
    """Whether the same operation may work later; if not, the disk has failed."""
    return is_full(error) or is_short(error)


def sync_error(error: OSError) -> SyncError:
    """The `SyncError` for an error of a sync alone, not of the opening of the file."""
    return error if isinstance(error, SyncError) else SyncError(error.errno, error.strerror, error.filename)


@contextmanager
def syncing() -> Iterator[None]:
    """Turn errors inside the block into a `SyncError`; for syncs that are not made often."""
    try:
        yield
    except OSError as error:
        raise sync_error(error) from error
