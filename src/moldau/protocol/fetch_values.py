"""Numbers that mean something in Fetch, in its sessions (KIP-227) and in what is asked beside it."""

from typing import Final

READ_COMMITTED: Final = 1
"""The isolation level at which nothing of an open or aborted transaction is read."""

UNKNOWN: Final = -1
"""An epoch or an offset that the sender does not know, or has no use for."""

FETCH_BY_TOPIC_ID: Final = 13  # KIP-516

NO_SESSION: Final = 0
FIRST_EPOCH: Final = 0
"""The epoch of a request that begins a session."""

WITHOUT_SESSION: Final = -1
"""The epoch of a request that stands alone."""

EPOCH_MAX: Final = (1 << 31) - 1
"""The epoch of a session after which it is 1 again; ids are not above it either."""


def next_session_epoch(epoch: int) -> int:
    """The epoch that the next request of a session has."""
    return 1 if epoch == EPOCH_MAX else epoch + 1
