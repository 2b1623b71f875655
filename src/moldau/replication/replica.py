"""One copy of a partition on this broker, whoever leads it: what a reader needs.

The high watermark is the offset up to which every in-sync replica is known to have the log; consumers never read
past it, on whichever copy they read. Readers of committed records never read past the last stable offset, and so wait
for that one: an append inside or behind an open transaction wakes nobody who could not read it.
"""

from collections import deque
from typing import Protocol

from moldau.core.files import FileRegion
from moldau.core.ids import TopicPartition
from moldau.core.invariants import InvariantError
from moldau.core.topic_config import TopicConfig
from moldau.log.log import Log
from moldau.protocol.errors import ApiError, ErrorCode

ENOUGH_BYTES = 1 << 62
"""More than any fetch waits for."""

UNCOMMITTED_MAX = 1024
"""Appends above the high watermark, or above the last stable offset, that are counted apart. Beyond it each two
neighbours become one: either may stand still for days, and still tells those who wait how many bytes each step brings.
"""


class Waiter(Protocol):
    """A fetch that waits for this copy to grow."""

    def advanced(self, appended_bytes: int) -> None:
        """The high watermark moved by this many bytes, or the last stable offset for who reads committed records."""
        ...


class Replica:
    """Reads below the high watermark, tells waiting fetches."""

    __slots__ = ("_stable", "high_watermark", "leader_epoch", "log", "topic_id", "topic_partition", "waiters")

    def __init__(self, topic_id: bytes, log: Log, leader_epoch: int, high_watermark: int) -> None:
        self.topic_partition: TopicPartition = log.topic_partition
        self.topic_id = topic_id
        self.log = log
        self.leader_epoch = leader_epoch
        self.high_watermark = high_watermark
        self.waiters: dict[Waiter, None] = {}
        """Fetches that wait for the high watermark; `_StableWaiters` is one of them while anybody waits there."""
        self._stable: _StableWaiters | None = None
        """Made for the first reader of committed records."""

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
        """Take a new configuration of the topic."""
        self.log.config = config

    @property
    def last_stable_offset(self) -> int:
        """Offset before which no transaction is open: `read_committed` may read up to it."""
        return self.log.last_stable_offset_below(self.high_watermark)

    def read(self, offset: int, max_bytes: int, *, committed: bool, min_one_batch: bool) -> FileRegion | None:
        """Batches from `offset` up to the high watermark, or to the last stable offset for `read_committed`."""
        log = self.log
        try:
            limit = self.last_stable_offset if committed else self.high_watermark
            region = log.read(offset, max_bytes, limit, min_one_batch)
        except ApiError:
            raise
        except Exception:
            log.traffic.failed_reads += 1
            raise
        if region is not None:
            traffic = log.traffic
            traffic.reads += 1
            traffic.bytes_out += region.size
        return region

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Raise ApiError for a client with an older or newer idea of who leads (KIP-320)."""
        if current_leader_epoch in (-1, self.leader_epoch):
            return
        if current_leader_epoch < self.leader_epoch:
            raise ApiError(ErrorCode.FENCED_LEADER_EPOCH, f"leader epoch is {self.leader_epoch} by now")
        raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"leader epoch is {self.leader_epoch} here")

    def wait(self, waiter: Waiter, *, committed: bool) -> None:
        """Tell `waiter` how many bytes each step of the high watermark brings, or each of the last stable offset."""
        if not committed:
            self.waiters[waiter] = None
            return
        if self._stable is None:
            self._stable = _StableWaiters(self)
        self._stable.add(waiter)

    def stop_waiting(self, waiter: Waiter) -> None:
        """Tell `waiter` nothing more; one that does not wait is no error."""
        self.waiters.pop(waiter, None)
        if self._stable is not None:
            self._stable.remove(waiter)

    def wake(self) -> None:
        """Let every fetch that waits for this copy read again: its role has changed."""
        stable = () if self._stable is None else self._stable.waiters
        for waiter in (*self.waiters, *stable):
            waiter.advanced(ENOUGH_BYTES)


class _StableWaiters:
    """Fetches that wait for the last stable offset: together one waiter of the high watermark, so that an append costs
    nothing more where there are none, and one look at the open transactions where there are some."""

    __slots__ = ("_last", "_replica", "_unstable", "waiters")

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._last = 0
        self._unstable: deque[tuple[int, int]] = deque()
        """High watermark and bytes of each step above the last stable offset."""
        self.waiters: dict[Waiter, None] = {}

    def add(self, waiter: Waiter) -> None:
        if not self.waiters:
            self._begin()
        self.waiters[waiter] = None

    def remove(self, waiter: Waiter) -> None:
        if self.waiters.pop(waiter, self) is None and not self.waiters:
            self._replica.waiters.pop(self, None)

    def _begin(self) -> None:
        replica = self._replica
        replica.waiters[self] = None
        self._last = replica.last_stable_offset
        self._unstable.clear()
        if self._last < replica.high_watermark:
            self._unstable.append((replica.high_watermark, self._unstable_bytes()))

    def _unstable_bytes(self) -> int:
        """Bytes between the last stable offset and the high watermark; more than enough if nobody knows at once."""
        log = self._replica.log
        if log.failure is not None or self._last < log.segments.active.base_offset:
            return ENOUGH_BYTES
        region = log.read(self._last, ENOUGH_BYTES, self._replica.high_watermark)
        return 0 if region is None else len(region)

    def advanced(self, appended_bytes: int) -> None:
        replica, size = self._replica, appended_bytes
        stable, before = replica.last_stable_offset, self._last
        self._last = stable
        if stable != replica.high_watermark or self._unstable:
            unstable = self._unstable
            unstable.append((replica.high_watermark, appended_bytes))
            if len(unstable) > UNCOMMITTED_MAX:
                unstable = self._unstable = in_pairs(unstable)
            if stable <= before:
                return
            size = 0
            while unstable and unstable[0][0] <= stable:
                size += unstable.popleft()[1]
        for waiter in tuple(self.waiters):
            waiter.advanced(size or 1)  # a transaction that begins inside a step: its bytes are counted with the rest


def in_pairs(appends: deque[tuple[int, int]]) -> deque[tuple[int, int]]:
    """Half as many: the end of each second append, with the bytes of both."""
    each = iter(appends)
    merged = deque((end, size + before) for (_, before), (end, size) in zip(each, each, strict=False))
    if len(appends) % 2:
        merged.append(appends[-1])
    return merged
