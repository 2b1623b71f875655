"""The short way into a partition: one plain batch of a producer whose last batch is known, into a segment with room. A
batch of a transaction that is open in the partition is as plain as one of none.

The law: it leaves log and partition as `Partition.append` would, or does not touch them. What is not plain is not
refused here either: whoever asks goes the long way then, which knows why. It is few functions because nearly every
batch comes this way, and half of what an append cost were the calls between small ones. A lane is a part of its
partition: it knows the partition's rules and its high watermark, and nothing of the batch and the log, whose segments
and producers are the business of `log/plain_append.py`.
"""

from typing import TYPE_CHECKING

from moldau.log.plain_append import append_plain
from moldau.records.batch import BATCH_HEADER_BYTES
from moldau.records.validate import AppendRules

if TYPE_CHECKING:
    from moldau.replication.partition import Partition

CHECK_BITS = 10
"""Bits of an offset between two checks of the invariants: each batch that passes another multiple of 1,024 is followed
by one. With 64, and batches of sixteen records, the checks were 2 % of an append."""


class Lane:
    """Into one partition, as long as its configuration and its in-sync replicas stay as they are."""

    __slots__ = (
        "_bytes_max",
        "_terms",
        "_traffic",
        "is_open",
        "log",
        "partition",
    )

    def __init__(self, partition: "Partition", rules: AppendRules, *, is_open: bool) -> None:
        """`rules` are those of the configuration that the log has now."""
        self.partition = partition
        self.log = partition.log
        self.is_open = is_open
        self._traffic = partition.log.traffic
        self._bytes_max = rules.max_message_bytes if is_open and rules.is_stored_as_sent else -1
        self._terms = (partition.leader_epoch, rules.timestamp_before_max_ms, rules.timestamp_after_max_ms)

    def close(self) -> None:
        """Close the lane: nothing goes this way any more."""
        self.is_open = False
        self._bytes_max = -1

    def append(self, frame: memoryview, start: int, stop: int, now_ms: int) -> int | None:
        """Append the batch that is `frame[start:stop]` and return its offset; None: it is not plain, nothing was done.

        It came with a version of Produce that may carry any codec. In a frame that can be written to it gets its offset
        in place. Raises ApiError if the disk does not take it, InvariantError if the partition must stop.
        """
        size = stop - start
        if not BATCH_HEADER_BYTES <= size <= self._bytes_max:
            return None
        log, partition = self.log, self.partition
        base_offset = append_plain(log, frame, start, stop, size, self._terms, now_ms)
        if base_offset is None:
            return None
        end = log.log_end_offset
        self._traffic.lane_appends += 1
        if not partition.sole:
            partition.replicated_append(end, size)
        elif partition.waiters or partition.high_watermark > base_offset:  # the latter must not be, and is told there
            partition.advance_high_watermark(end, size)
        else:
            partition.high_watermark = end
        if (base_offset ^ end) >> CHECK_BITS:
            partition.check()
        return base_offset
