"""One partition on a broker that follows its leader.

The law: below the high watermark this log is the leader's, byte for byte. What the leader sends is appended as sent,
and where the logs part this one is cut back, epoch by epoch, until they meet (KIP-101, KIP-279).
"""

import logging
from collections import deque

from moldau.core.files import Buffer
from moldau.core.invariants import InvariantError
from moldau.log.leader_epochs import NO_EPOCH
from moldau.log.log import Log
from moldau.records.batch import BATCH_HEADER_BYTES, read_header
from moldau.replication.replica import Replica

logger = logging.getLogger(__name__)

UNCOMMITTED_MAX = 256
"""Appends above the high watermark that are counted one by one; further ones are added to the last."""


class FollowedPartition(Replica):
    """Takes over what its leader sends."""

    __slots__ = ("_uncommitted", "leader_id")

    def __init__(self, topic_id: bytes, log: Log, leader_id: int, leader_epoch: int, high_watermark: int) -> None:
        clamped = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        super().__init__(topic_id, log, leader_epoch, clamped)
        self.leader_id = leader_id
        self._uncommitted: deque[tuple[int, int]] = deque()  # (end, bytes) of appends above the high watermark

    def take(self, records: Buffer, leader_high_watermark: int, leader_log_start: int, now_ms: int) -> int:
        """Append what the leader sent and move with its high watermark and log start; the bytes appended."""
        log = self.log
        size = 0
        try:
            if len(records) >= BATCH_HEADER_BYTES:
                if log.log_end_offset in (log.log_start_offset, leader_log_start):
                    size = self._append_first(records, now_ms)
                else:
                    size = log.append_as_follower(records, now_ms)
            end = log.log_end_offset
            if size:
                self._count(end, size)
            committed = leader_high_watermark if leader_high_watermark < end else end
            if committed > self.high_watermark:
                self._advance_high_watermark(committed)
            if leader_log_start > log.log_start_offset:
                stable = self.last_stable_offset
                log.advance_log_start(min(leader_log_start, self.high_watermark))
                if self.last_stable_offset != stable:  # an open transaction is gone with its records
                    self.wake()
            self.check()
        except InvariantError as error:
            raise log.stop(error) from error
        return size

    def _append_first(self, records: Buffer, now_ms: int) -> int:
        """Append at a log start, which may lie inside a batch (DeleteRecords): the leader sends that batch as a whole.

        Nobody needs what lies before it: either we have nothing there, or the leader has it no more.
        """
        log = self.log
        start = log.log_end_offset
        first = read_header(records)
        if not first.base_offset < start <= first.last_offset:
            return log.append_as_follower(records, now_ms)
        log.truncate_fully_and_start_at(first.base_offset)
        size = log.append_as_follower(records, now_ms)
        log.advance_log_start(start)
        self.high_watermark = max(self.high_watermark, log.log_start_offset)
        return size

    def _count(self, end: int, size: int) -> None:
        uncommitted = self._uncommitted
        if len(uncommitted) >= UNCOMMITTED_MAX:
            size += uncommitted.pop()[1]
        uncommitted.append((end, size))

    def _advance_high_watermark(self, offset: int) -> None:
        self.high_watermark = offset
        self.log.producers.replicated_to(offset)
        uncommitted, size = self._uncommitted, 0
        while uncommitted and uncommitted[0][0] <= offset:
            size += uncommitted.popleft()[1]
        for waiter in tuple(self.waiters):
            waiter.advanced(size or 1)  # inside an answer, or of before our time: its bytes are not known

    def diverged(self, epoch: int, end_offset: int) -> None:
        """Truncate: the leader's `epoch`, the last it has in common with ours or an older one, ends at `end_offset`.

        The log is truncated to where the logs agree as far as is known now. If our epochs differ in between, the next
        fetch, from an older epoch, asks again.
        """
        log = self.log
        own = log.epoch_end_offset(epoch)
        if own.epoch == epoch:
            offset = min(own.end_offset, end_offset)
        elif own.epoch != NO_EPOCH:
            offset = own.end_offset
        else:
            offset = end_offset
        self._truncate_to(min(offset, log.log_end_offset))

    def truncate_to_leader(self, log_start: int, log_end: int) -> None:
        """Truncate a log whose end the leader does not have: start over at its start, or end where it ends."""
        log = self.log
        if log.log_end_offset < log_start:
            logger.warning("%s truncated fully, starts at offset %d as its leader", self.topic_partition, log_start)
            log.truncate_fully_and_start_at(log_start)
            self._uncommitted.clear()
            self.high_watermark = log.log_start_offset
        elif log_end < log.log_end_offset:
            self._truncate_to(log_end)

    def _truncate_to(self, offset: int) -> None:
        log = self.log
        if offset < self.high_watermark:
            # Only an unclean election can do this; anything else would be a lost record.
            logger.error(
                "%s truncated to offset %d, below its high watermark %d: the leader of leader epoch %d has no more",
                self.topic_partition, offset, self.high_watermark, self.leader_epoch,
            )  # fmt: skip
        elif offset < log.log_end_offset:
            logger.info("%s truncated to offset %d from %d", self.topic_partition, offset, log.log_end_offset)
        try:
            log.truncate_to(offset)
        except InvariantError as error:
            raise log.stop(error) from error
        uncommitted = self._uncommitted
        while uncommitted and uncommitted[-1][0] > log.log_end_offset:
            uncommitted.pop()
        self.high_watermark = max(min(self.high_watermark, log.log_end_offset), log.log_start_offset)
