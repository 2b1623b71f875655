"""Policy that says when a write is safe enough to be acknowledged (`log.flush.policy`).

`group`: acks=all is answered after a sync that began after the write. One sync serves every write before it, so its
cost is shared. `os`: at once, as Apache Kafka does: the page cache holds it and replication is the durability.
Under both, `flush.messages` asks for a sync after so many records, whatever the acks.
"""

from asyncio import Future, get_running_loop
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from moldau.core.config import LONG_MAX
from moldau.log.log import Log

ACKS_ALL = -1
NO_ACKS = 0

Failed = frozenset[Log]
"""The logs whose sync failed."""

OnSynced = Callable[[Failed], None]
"""Listener, in the loop, for the end of a sync."""


class Committer(Protocol):
    """Makes logs durable together."""

    def commit(self, logs: Sequence[Log], then: OnSynced) -> None:
        """Call `then` when all that was appended to `logs` before is on disk, or not to be had there; never at once."""
        ...

    def is_last(self, log: Log, then: OnSynced) -> bool:
        """Whether `then` waits for a sync of `log` that has not begun, and was the last to ask for it: so that sync is
        one of all that was appended until now."""
        ...


def counts_records(log: Log) -> bool:
    """Whether more than the acks decides, as long as the log's configuration stays."""
    return log.config.flush_messages != LONG_MAX


class Durability:
    """Decides which writes wait for a sync."""

    __slots__ = ("_acks_all_is_synced", "commit", "committer", "is_last")

    def __init__(self, policy: str, committer: Committer) -> None:
        self._acks_all_is_synced = policy == "group"
        self.committer = committer
        self.commit = committer.commit
        """Waits for a sync, where it is known that there is one to wait for."""
        self.is_last = committer.is_last

    def is_synced(self, acks: int) -> bool:
        """Whether every write with these acks waits for a sync."""
        return acks == ACKS_ALL and self._acks_all_is_synced

    def call_when_durable(self, logs: Sequence[Log], acks: int, then: OnSynced) -> bool:
        """Whether there is a sync to wait for, after which `then` is called. If not, what was appended may be
        acknowledged now."""
        if not self.is_synced(acks):
            logs = [log for log in logs if log.log_end_offset - log.recovery_point >= log.config.flush_messages]
        if logs:
            self.commit(logs, then)
        return bool(logs)

    def when_durable(self, logs: Sequence[Log], acks: int) -> "Future[Failed] | None":
        """Future that is done when nothing is left to wait for; None: there never was. It is the caller's own, who may
        cancel it."""
        future: Future[Failed] = get_running_loop().create_future()
        return future if self.call_when_durable(logs, acks, partial(_end, future)) else None


def _end(future: "Future[Failed]", failed: Failed) -> None:
    if not future.done():
        future.set_result(failed)
