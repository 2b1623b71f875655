"""Shares of the process's descriptors: for connections, for files, and for work that must always get one.

The kernel gives the lowest number that is free. So the number of a new connection or file says how many descriptors
there are, whoever has them, and nobody needs to count.
"""

import resource
from typing import NamedTuple

RESERVED_MIN, RESERVED_MAX = 64, 1024
UNLIMITED = 1 << 20


class Descriptors(NamedTuple):
    """Bounds on descriptor numbers. A connection with a number from `connection_max` on is one too many; so is an idle
    file from `file_max` on, or one beyond `files_max` files. Numbers above are for rolls, checkpoints, indexes, the
    store and the like."""

    connection_max: int
    file_max: int
    files_max: int


def share_out(limit: int) -> Descriptors:
    """The shares for a process that may have `limit` descriptors."""
    reserved = min(RESERVED_MAX, max(RESERVED_MIN, limit // 8), limit // 4)
    return Descriptors(limit - reserved, limit - reserved // 2, (limit - reserved) // 2)


def shares() -> Descriptors:
    """The shares for this process, by its limit as it is now."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return share_out(UNLIMITED if soft == resource.RLIM_INFINITY else soft)
