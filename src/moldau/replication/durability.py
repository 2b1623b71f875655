"""When a write is safe enough to be acknowledged: a named policy (`log.flush.policy`).

`group`: acks=all is answered after a sync that began after the write. One sync serves every write before it, so its
cost is shared. `os`: at once, as Apache Kafka does: the page cache holds it and replication is the durability.
Under both, `flush.messages` asks for a sync after so many records, whatever the acks.
"""

from asyncio import Future
from collections.abc import Sequence
from typing import Protocol

from moldau.core.config import LONG_MAX
from moldau.log.log import Log

ACKS_ALL = -1


class Committer(Protocol):
    """Makes logs durable together."""

    def commit(self, logs: Sequence[Log]) -> "Future[frozenset[Log]]":
        """Done when all that was appended to `logs` before is on disk; the result are those whose sync failed.

        It is the caller's own, who may cancel it.
        """
        ...


def counts_records(log: Log) -> bool:
    """Whether more than the acks decides, as long as the log's configuration stays."""
    return log.config.flush_messages != LONG_MAX


class Durability:
    """Decides which writes wait for a sync."""

    __slots__ = ("_acks_all_is_synced", "_committer")

    def __init__(self, policy: str, committer: Committer) -> None:
        self._acks_all_is_synced = policy == "group"
        self._committer = committer

    def is_synced(self, acks: int) -> bool:
        """Whether every write with these acks waits for a sync."""
        return acks == ACKS_ALL and self._acks_all_is_synced

    def when_durable(self, logs: Sequence[Log], acks: int) -> "Future[frozenset[Log]] | None":
        """None if what was appended may be acknowledged now."""
        if not self.is_synced(acks):
            logs = [log for log in logs if log.log_end_offset - log.recovery_point >= log.config.flush_messages]
        return self._committer.commit(logs) if logs else None
