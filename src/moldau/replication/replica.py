"""One copy of a partition on this broker, whoever leads it: what a reader needs.

The high watermark is the offset up to which every in-sync replica is known to have the log; consumers never read
past it, on whichever copy they read.
"""

from typing import Protocol

from moldau.core.files import FileRegion
from moldau.core.ids import TopicPartition
from moldau.core.invariants import InvariantError
from moldau.core.topic_config import TopicConfig
from moldau.log.log import Log
from moldau.protocol.errors import ApiError, ErrorCode

ENOUGH_BYTES = 1 << 62
"""More than any fetch waits for."""


class Waiter(Protocol):
    """A fetch that waits for this copy to grow."""

    def advanced(self, appended_bytes: int) -> None:
        """The high watermark moved by this many bytes."""
        ...


class Replica:
    """Reads below the high watermark, tells waiting fetches."""

    __slots__ = ("high_watermark", "leader_epoch", "log", "topic_id", "topic_partition", "waiters")

    def __init__(self, topic_id: bytes, log: Log, leader_epoch: int, high_watermark: int) -> None:
        self.topic_partition: TopicPartition = log.topic_partition
        self.topic_id = topic_id
        self.log = log
        self.leader_epoch = leader_epoch
        self.high_watermark = high_watermark
        self.waiters: dict[Waiter, None] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.topic_partition}, epoch {self.leader_epoch}, hw {self.high_watermark})"

    def check(self) -> None:
        """Raise InvariantError unless log start <= high watermark <= log end.

        The last stable offset cannot be elsewhere than between the first two: see how the log finds it.
        """
        log, high_watermark = self.log, self.high_watermark
        if not log.log_start_offset <= high_watermark <= log.log_end_offset:
            raise InvariantError(f"the high watermark {high_watermark} is outside of {log}")

    def configure(self, config: TopicConfig) -> None:
        """The topic's configuration is this one from now on."""
        self.log.config = config

    @property
    def last_stable_offset(self) -> int:
        """Up to where no transaction is open: what `read_committed` may read."""
        return self.log.last_stable_offset_below(self.high_watermark)

    def read(self, offset: int, max_bytes: int, *, committed: bool, min_one_batch: bool) -> FileRegion | None:
        """Batches from `offset` up to the high watermark, or to the last stable offset for `read_committed`."""
        limit = self.last_stable_offset if committed else self.high_watermark
        return self.log.read(offset, max_bytes, limit, min_one_batch)

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """KIP-320: a client with an older or newer idea of who leads is told so."""
        if current_leader_epoch in (-1, self.leader_epoch):
            return
        if current_leader_epoch < self.leader_epoch:
            raise ApiError(ErrorCode.FENCED_LEADER_EPOCH, f"leader epoch is {self.leader_epoch} by now")
        raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"leader epoch is {self.leader_epoch} here")

    def wake(self) -> None:
        """The role of this copy changed: every fetch that waits for it reads again."""
        for waiter in tuple(self.waiters):
            waiter.advanced(ENOUGH_BYTES)
