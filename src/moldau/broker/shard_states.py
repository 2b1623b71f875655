"""In what state a shard is."""

from enum import Enum


class State(Enum):
    """LOADING until the log is replayed; FAILED and CLOSED are final."""

    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    CLOSED = "closed"
