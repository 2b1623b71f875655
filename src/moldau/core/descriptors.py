"""How the descriptors of the process are shared out between connections, files, and what must never want for one.

The kernel gives the lowest number that is free. So the number that a new connection or file has got says how many there
are, whoever has them, and nobody needs to count.
"""

import resource
from typing import NamedTuple

RESERVED_MIN, RESERVED_MAX = 64, 1024
UNLIMITED = 1 << 20


class Descriptors(NamedTuple):
    """A connection with a number from `connection_max` on is one too many; so is an idle file from `file_max` on, or
    one beyond `files_max` files. What lies above is for rolls, checkpoints, indexes, the store and the like."""

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
