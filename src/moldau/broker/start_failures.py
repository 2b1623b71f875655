"""Sentences about why a broker does not start: what an operator reads who sees nothing else."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from moldau.cluster.store import StoreError
from moldau.core.file_errors import is_full

FREE_BYTES_MIN = 64 * 1024
"""Free bytes below which a disk is taken for the one that is full."""


def reason(error: Exception, directories: Sequence[str]) -> str:
    """Reason why the broker does not start. An error of the system names no file where one that is open is written to;
    so the directories that the broker writes to are looked at."""
    if isinstance(error, StoreError):
        return f"the metadata store does not answer ({error!r})"
    if not isinstance(error, OSError) or not is_full(error):
        return str(error)
    full = list(_full(directories))
    if full:
        return f"the disk of {' and of '.join(full)} is full ({error}): free some of it, and start again"
    named = error.filename or " or ".join(directories)
    return f"there is no room for {named} ({error}): look at the quotas and inodes of its disk, and start again"


def _full(directories: Iterable[str]) -> Iterator[str]:
    for each in dict.fromkeys(directories):
        with suppress(OSError):
            disk = os.statvfs(each)
            if disk.f_bavail * disk.f_frsize < FREE_BYTES_MIN:
                yield each
