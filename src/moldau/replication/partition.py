"""One partition on the broker that leads it.

The high watermark is the offset up to which every in-sync replica has the log; consumers never read past it. With
one replica it is the log's end. It never goes back while this broker leads.
"""

from collections.abc import Sequence
from typing import Protocol

from moldau.core.files import Buffer, FileRegion
from moldau.core.ids import TopicPartition
from moldau.core.invariants import InvariantError
from moldau.core.topic_config import TopicConfig
from moldau.log.log import AppendResult, Log
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.records.validate import AppendRules, prepare_for_append, prepare_own_batch
from moldau.replication.durability import ACKS_ALL


class Waiter(Protocol):
    """A fetch that waits for this partition to grow."""

    def advanced(self, appended_bytes: int) -> None:
        """The high watermark moved by this many bytes."""
        ...


class Partition:
    """Appends as leader, reads below the high watermark, tells waiting fetches."""

    __slots__ = (
        "_config",
        "_rules",
        "high_watermark",
        "in_sync_replicas",
        "leader_epoch",
        "log",
        "topic_id",
        "topic_partition",
        "waiters",
    )

    def __init__(self, topic_id: bytes, log: Log, leader_epoch: int, in_sync_replicas: Sequence[int]) -> None:
        self.topic_partition: TopicPartition = log.topic_partition
        self.topic_id = topic_id
        self.log = log
        self.leader_epoch = leader_epoch
        self._config: TopicConfig
        self._rules: AppendRules
        self.in_sync_replicas = tuple(in_sync_replicas)
        self.high_watermark = log.log_end_offset
        self.waiters: dict[Waiter, None] = {}
        self._configure(log.config)

    @property
    def last_stable_offset(self) -> int:
        """Up to where no transaction is open: what `read_committed` may read."""
        return self.log.last_stable_offset_below(self.high_watermark)

    def append(self, records: Buffer, produce_version: int, acks: int, now_ms: int) -> AppendResult:
        """Append what a producer sent."""
        log = self.log
        if log.config is not self._config:
            self._configure(log.config)
        if acks == ACKS_ALL and len(self.in_sync_replicas) < self._config.min_insync_replicas:
            raise self._too_few_replicas()
        batch = prepare_for_append(records, self._rules, produce_version, now_ms)
        result = log.append_as_leader(batch, self.leader_epoch, now_ms)
        end = log.log_end_offset
        if end != self.high_watermark:
            self._advance_high_watermark(end, len(records))
        return result

    def append_own(self, batch: bytes, now_ms: int) -> AppendResult:
        """Append a batch that the broker itself made, with acks=all: a coordinator's records."""
        self.check_own(len(batch))
        result = self.log.append_as_leader(prepare_own_batch(batch), self.leader_epoch, now_ms)
        self._advance_high_watermark(self.log.log_end_offset, len(batch))
        return result

    def check_own(self, batch_bytes: int) -> None:
        """Raise what `append_own` would: for one who wants to know before the batch is made."""
        config = self.log.config
        if len(self.in_sync_replicas) < config.min_insync_replicas:
            raise self._too_few_replicas()
        if batch_bytes > config.max_message_bytes:
            reason = f"{batch_bytes} bytes in one batch, max.message.bytes allows {config.max_message_bytes}"
            raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, reason)

    def _too_few_replicas(self) -> ApiError:
        return ApiError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"{self.topic_partition} has {len(self.in_sync_replicas)} in-sync replicas, "
            f"min.insync.replicas asks for {self.log.config.min_insync_replicas}",
        )

    def _configure(self, config: TopicConfig) -> None:
        """Take up a configuration that is new since the last append."""
        self._config = config
        self._rules = AppendRules(
            max_message_bytes=config.max_message_bytes,
            compression_type=config.compression_type,
            message_timestamp_type=config.message_timestamp_type,
            timestamp_before_max_ms=config.message_timestamp_before_max_ms,
            timestamp_after_max_ms=config.message_timestamp_after_max_ms,
            is_compacted=config.is_compacted,
        )

    def _advance_high_watermark(self, end: int, appended_bytes: int) -> None:
        before = self.high_watermark
        if end < before:
            raise InvariantError(f"the high watermark of {self.topic_partition} went back from {before} to {end}")
        self.high_watermark = end
        if self.waiters:
            for waiter in tuple(self.waiters):
                waiter.advanced(appended_bytes)

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

    def delete_records(self, before_offset: int) -> int:
        """Forget records below an offset (-1: all up to the high watermark); returns the new log start."""
        offset = self.high_watermark if before_offset == -1 else before_offset
        if not 0 <= offset <= self.high_watermark:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic_partition} has nothing to delete before {offset}: "
                f"the high watermark is {self.high_watermark}",
            )
        self.log.advance_log_start(offset)
        return self.log.log_start_offset
