"""One partition on the broker that leads it, for one leader epoch: a new epoch is a new object.

The high watermark is the smallest log end among the *maximal* in-sync replicas: those that the store has, and those
that a proposal under way may add. Whichever of them the store elects next has every record below it. It never goes
back, and does not move while there are fewer in-sync replicas than `min.insync.replicas` (KIP-966).

A leader learns what the store has by `update` alone. A proposal whose outcome is unknown stays, and counts, until an
update or a plain refusal.

With no other replica to wait for (`sole`) the high watermark is the log's end, and an append costs what it did before
there was replication.
"""

from collections import deque
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Protocol

from moldau.core.clock import Clock, SystemClock
from moldau.core.files import Buffer, FileRegion
from moldau.core.invariants import InvariantError
from moldau.core.topic_config import TopicConfig
from moldau.log.log import AppendResult, Log
from moldau.log.position import Position
from moldau.log.verification import VerificationGuard
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.records.batch import EndTxnMarker, build_end_txn_marker
from moldau.records.validate import Allowance, AppendRules, PreparedBatch, prepare_for_append, prepare_own_batch
from moldau.replication.durability import ACKS_ALL
from moldau.replication.follower_progress import FollowerProgress
from moldau.replication.lane import Lane
from moldau.replication.replica import ENOUGH_BYTES, UNCOMMITTED_MAX, Replica, in_pairs

EXPECTED_FAILURES = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    )
)
"""Errors that Kafka's FailedProduceRequestsPerSec leaves out."""


class IsrChanges(Protocol):
    """Writes a leader's proposals for the ISR to the store."""

    def propose(self, partition: "Partition", isr: tuple[int, ...]) -> None:
        """Write it, expecting the partition's `partition_epoch`; `update` or `proposal_refused` follow."""
        ...

    def may_join(self, replica_id: int, broker_epoch: int, partition: "Partition") -> bool:
        """Whether this start of the broker is known to live, and to have the partition."""
        ...


class CommitWaiter(Protocol):
    """A write that waits for the high watermark."""

    def committed(self, partition: "Partition", error: ErrorCode) -> None:
        """Called once. NONE: every in-sync replica has it."""
        ...


class ReplicaWaiter(Protocol):
    """A follower's fetch session."""

    def grown(self, partition: "Partition") -> None:
        """Called when there is more to fetch, or when the partition is led no more."""
        ...


class Partition(Replica):
    """Appends as leader, keeps the high watermark and the in-sync replicas, tells those who wait."""

    __slots__ = (
        "_clock",
        "_commit_number",
        "_commits",
        "_isr_changes",
        "_rules",
        "_some_at_end",
        "_uncommitted",
        "_waited_for",
        "broker_id",
        "epoch_start_offset",
        "epoch_start_position",
        "followers",
        "in_sync_replicas",
        "is_led",
        "is_under_min_isr",
        "lane",
        "maximal_isr",
        "partition_epoch",
        "pending_isr",
        "replica_waiters",
        "replicas",
        "sole",
    )

    def __init__(
        self,
        topic_id: bytes,
        log: Log,
        leader_epoch: int,
        in_sync_replicas: Sequence[int],
        *,
        broker_id: int | None = None,
        replicas: Sequence[int] = (),
        partition_epoch: int = 0,
        high_watermark: int | None = None,
        isr_changes: IsrChanges | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Make the leader: without `broker_id` it is the first in-sync replica, without `replicas` they are all in
        sync."""
        start, end = log.log_start_offset, log.log_end_offset
        super().__init__(topic_id, log, leader_epoch, max(start, min(high_watermark or start, end)))
        self.is_led = True
        self.broker_id = in_sync_replicas[0] if broker_id is None else broker_id
        self.in_sync_replicas = tuple(in_sync_replicas)
        self.replicas = tuple(replicas) or self.in_sync_replicas
        self.partition_epoch = partition_epoch
        self.pending_isr: tuple[int, ...] | None = None
        self.epoch_start_offset: int = end
        self.epoch_start_position = Position.end_of(log)
        self.followers: dict[int, FollowerProgress] = {}
        self.replica_waiters: dict[ReplicaWaiter, None] = {}
        self._isr_changes = isr_changes
        self._clock = clock or SystemClock()
        self._uncommitted: deque[tuple[int, int]] = deque()
        self._commits: list[tuple[int, int, CommitWaiter]] = []
        self._commit_number = 0
        self._some_at_end = False
        self._rules = _append_rules(log.config)
        self.lane = Lane(self, self._rules, is_open=False)
        # A follower may ask for this epoch before anything is written in it.
        log.leader_epochs.assign(leader_epoch, end)
        self._meet_followers()
        if self.high_watermark < end:
            self._uncommitted.append((end, ENOUGH_BYTES))
        self._replicas_changed()

    # Appending

    def append(
        self,
        records: Buffer,
        produce_version: int,
        acks: int,
        now_ms: int,
        allowance: Allowance | None = None,
        guard: VerificationGuard | None = None,
    ) -> AppendResult:
        """Append what a producer sent. Raises RecordsToOpen if that takes more work than is allowed. The first batch of
        a transaction needs the guard of `begin_verification`."""
        try:
            self._check_writable(acks)
            batch = prepare_for_append(records, self._rules, produce_version, now_ms, allowance)
            return self._append(batch, len(records), now_ms, guard)
        except ApiError as error:
            self._count_failure(error)
            raise

    def append_opened(
        self, batch: PreparedBatch, acks: int, now_ms: int, guard: VerificationGuard | None = None
    ) -> AppendResult:
        """Append what became of RecordsToOpen: much may have changed meanwhile."""
        try:
            self._check_writable(acks)
            return self._append(batch, batch.size, now_ms, guard)
        except ApiError as error:
            self._count_failure(error)
            raise

    def _count_failure(self, error: ApiError) -> None:
        """Count a refused batch, unless Kafka expects the reason: a client that is behind, or a disk."""
        if error.code not in EXPECTED_FAILURES:
            self.log.traffic.failed_appends += 1

    def begin_verification(
        self, producer_id: int, producer_epoch: int, base_sequence: int, now_ms: int, *, bumps_epoch: bool
    ) -> VerificationGuard | None:
        """The guard for the first batch of a transaction, before its coordinator is asked whether this partition is in
        it; None: nobody need be asked, as the transaction is open here or the producer is fenced."""
        return self.log.producers.begin_verification(
            producer_id, producer_epoch, base_sequence, now_ms, bumps_epoch=bumps_epoch
        )

    def append_marker(
        self, marker: EndTxnMarker, producer_id: int, producer_epoch: int, transaction_version: int, now_ms: int
    ) -> AppendResult:
        """End a producer's transaction in this partition, as its coordinator wishes; with acks=all."""
        self._check_writable(ACKS_ALL)
        self.log.producers.replicated_to(self.high_watermark)
        batch = build_end_txn_marker(marker, producer_id=producer_id, producer_epoch=producer_epoch, timestamp=now_ms)
        return self._append(prepare_own_batch(batch), len(batch), now_ms, None, transaction_version)

    def _check_writable(self, acks: int) -> None:
        if acks == ACKS_ALL and self.is_under_min_isr:
            raise self._too_few_replicas()
        if not self.is_led:
            raise self._not_leader()

    def _append(
        self,
        batch: PreparedBatch,
        size: int,
        now_ms: int,
        guard: VerificationGuard | None = None,
        transaction_version: int = 0,
    ) -> AppendResult:
        log = self.log
        try:
            result = log.append_as_leader(batch, self.leader_epoch, now_ms, guard, transaction_version)
            end = log.log_end_offset
            log.traffic.appends += 1
            if self.sole:
                if end != self.high_watermark:
                    self.advance_high_watermark(end, size)
            elif not result.duplicate:
                self.replicated_append(end, size)
            self.check()
        except InvariantError as error:
            raise log.stop(error) from error
        return result

    def append_own(self, batch: bytes, now_ms: int, guard: VerificationGuard | None = None) -> AppendResult:
        """Append a batch that the broker itself made, with acks=all: a coordinator's records."""
        self.check_own(len(batch))
        return self._append(prepare_own_batch(batch), len(batch), now_ms, guard)

    def check_own(self, batch_bytes: int) -> None:
        """Raise what `append_own` would: for one who wants to know before the batch is made."""
        if not self.is_led:
            raise self._not_leader()
        if self.is_under_min_isr:
            raise self._too_few_replicas()
        if self.log.is_full:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic_partition}: the disk is full")
        if batch_bytes > self._rules.max_message_bytes:
            reason = f"{batch_bytes} bytes in one batch, max.message.bytes allows {self._rules.max_message_bytes}"
            raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, reason)

    def replicated_append(self, end: int, size: int) -> None:
        """The others have to fetch it first. What this does is all that replication costs an append."""
        self._uncommitted.append((end, size))
        if len(self._uncommitted) > UNCOMMITTED_MAX:
            self._uncommitted = in_pairs(self._uncommitted)
        if self._some_at_end:
            self._some_at_end = False
            now_ms = self._clock.monotonic_ms()
            for follower in self.followers.values():
                follower.leader_appended(now_ms)
        if self.replica_waiters:
            for waiter in tuple(self.replica_waiters):
                waiter.grown(self)

    def _too_few_replicas(self) -> ApiError:
        return ApiError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"{self.topic_partition} has {len(self.in_sync_replicas)} in-sync replicas, "
            f"min.insync.replicas asks for {self.log.config.min_insync_replicas}",
        )

    def _not_leader(self) -> ApiError:
        return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.topic_partition} is not led here any more")

    def configure(self, config: TopicConfig) -> None:
        super().configure(config)
        self._rules = _append_rules(config)
        self._replicas_changed()

    # The high watermark

    def advance_high_watermark(self, end: int, appended_bytes: int) -> None:
        """Advance to `end`, and tell those who wait for more."""
        before = self.high_watermark
        if end < before:
            raise InvariantError(f"the high watermark of {self.topic_partition} went back from {before} to {end}")
        self.high_watermark = end
        if self.waiters:
            for waiter in tuple(self.waiters):
                waiter.advanced(appended_bytes)

    def _commit(self) -> None:
        """Advance to what every replica has that may be in sync, and answer those who waited for it."""
        end = self.log.log_end_offset
        for follower in self._waited_for:
            if follower.log_end_offset < end:
                end = follower.log_end_offset
        if end <= self.high_watermark or self.is_under_min_isr:
            self._stop_if_broken()
            return
        uncommitted, size = self._uncommitted, 0
        while uncommitted and uncommitted[0][0] <= end:
            size += uncommitted.popleft()[1]
        self.advance_high_watermark(end, size)
        while self._commits and self._commits[0][0] <= end:  # whoever is told may append, or wait, or forget
            heappop(self._commits)[2].committed(self, ErrorCode.NONE)

    def _stop_if_broken(self) -> None:
        try:
            self.check()
        except InvariantError as error:
            self.log.stop(error)

    def wait_for_commit(self, next_offset: int, waiter: CommitWaiter) -> None:
        """Tell `waiter` once all below `next_offset` is committed, or cannot be by this leader."""
        if not self.is_led:
            waiter.committed(self, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif next_offset <= self.high_watermark:
            waiter.committed(self, ErrorCode.NONE)
        else:
            self._commit_number += 1
            heappush(self._commits, (next_offset, self._commit_number, waiter))

    def forget(self, waiter: CommitWaiter) -> None:
        """Let a write wait no more."""
        self._commits = [each for each in self._commits if each[2] is not waiter]
        heapify(self._commits)

    def _fail_commits(self, error: ErrorCode) -> None:
        commits, self._commits = sorted(self._commits), []
        for _, _, waiter in commits:
            waiter.committed(self, error)

    # Followers

    def replica_fetched(self, replica_id: int, broker_epoch: int, offset: int, log_start: int, now_ms: int) -> None:
        """A follower asks for `offset`: it has all before it."""
        follower = self.follower(replica_id)
        moved = follower.fetched(offset, log_start, broker_epoch, self.log.log_end_offset, now_ms)
        if follower.behind_since_ms is None:
            self._some_at_end = True
        if replica_id in self.maximal_isr:
            if moved:
                self._commit()
        elif self._may_join(follower):
            self._propose((*self.in_sync_replicas, replica_id))

    def follower(self, replica_id: int) -> FollowerProgress:
        """Progress of a replica; raises ApiError if the broker is none. It may know of a reassignment before we do."""
        follower = self.followers.get(replica_id)
        if follower is None:
            reason = f"broker {replica_id} is no replica of {self.topic_partition}"
            raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH, reason)
        return follower

    def consider_joiners(self) -> None:
        """Let somebody in who could not join when it last fetched: if it has all, it may not fetch again soon."""
        for follower in self.followers.values():
            is_out = follower.replica_id not in self.maximal_isr
            if is_out and not follower.is_given_up and self._may_join(follower):
                self._propose((*self.in_sync_replicas, follower.replica_id))

    def _may_join(self, follower: FollowerProgress) -> bool:
        return (
            self.pending_isr is None
            and follower.log_end_offset >= max(self.high_watermark, self.epoch_start_offset)
            and follower.replica_id in self.replicas
            and self._isr_changes is not None
            and self._isr_changes.may_join(follower.replica_id, follower.broker_epoch, self)
        )

    def read_for_replica(self, offset: int, max_bytes: int, min_one_batch: bool) -> FileRegion | None:
        """Batches from `offset` up to the log's end."""
        return self.log.read(offset, max_bytes, self.log.log_end_offset, min_one_batch)

    def check_lag(self, now_ms: int, lag_ms: int) -> None:
        """Propose an ISR without the followers that have been behind for too long."""
        if self.pending_isr is not None or self._isr_changes is None:
            return
        slow = [each for each in self._waited_for if each.is_behind(now_ms, lag_ms)]
        if slow:
            for follower in slow:
                follower.is_given_up = True
            out = {follower.replica_id for follower in slow}
            self._propose(tuple(each for each in self.in_sync_replicas if each not in out))

    def _propose(self, isr: tuple[int, ...]) -> None:
        self.pending_isr = isr
        self._replicas_changed()
        if self._isr_changes is not None:
            self._isr_changes.propose(self, isr)

    def proposal_refused(self) -> None:
        """Take back the proposal: the store has surely not taken it, and never will."""
        self.pending_isr = None
        self._meet_followers()
        self._replicas_changed()

    def update(self, isr: Sequence[int], replicas: Sequence[int], partition_epoch: int) -> None:
        """Take the ISR and the replicas that the store has by now. A reassignment changes `replicas` without a new
        `partition_epoch`: a replica that a pending proposal may add still counts then, until the proposal is
        refused."""
        if partition_epoch < self.partition_epoch or not self.is_led:
            return
        if partition_epoch > self.partition_epoch:
            self.pending_isr = None
        self.partition_epoch = partition_epoch
        self.in_sync_replicas = tuple(isr)
        self.replicas = tuple(replicas)
        self._meet_followers()
        self._replicas_changed()
        if self.is_under_min_isr:
            self._fail_commits(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        self.consider_joiners()

    def _meet_followers(self) -> None:
        now_ms = self._clock.monotonic_ms()
        others = dict.fromkeys((*self.replicas, *self.in_sync_replicas, *(self.pending_isr or ())))
        others.pop(self.broker_id, None)
        self.followers = {each: self.followers.get(each) or FollowerProgress(each, now_ms) for each in others}

    def _replicas_changed(self) -> None:
        """Work out whom a commit waits for, and what is committed by that."""
        self.maximal_isr = frozenset(self.in_sync_replicas).union(self.pending_isr or ())
        self._waited_for = tuple(self.followers[each] for each in self.maximal_isr if each != self.broker_id)
        in_sync_min = min(self.log.config.min_insync_replicas, len(self.replicas))
        self.is_under_min_isr = len(self.in_sync_replicas) < in_sync_min
        self.sole = not self._waited_for and not self.is_under_min_isr
        self.lane.close()
        self.lane = Lane(self, self._rules, is_open=self.is_led and not self.is_under_min_isr)
        self._commit()

    # The end

    def resign(self) -> None:
        """Lead no more: nothing is appended from now on, and whoever waits is told."""
        self.is_led = False
        self.lane.close()
        self._fail_commits(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.wake()
        for waiter in tuple(self.replica_waiters):
            waiter.grown(self)

    def delete_records(self, before_offset: int) -> int:
        """Forget records below an offset (-1: all up to the high watermark); returns the new log start."""
        offset = self.high_watermark if before_offset == -1 else before_offset
        if not 0 <= offset <= self.high_watermark:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic_partition} has nothing to delete before {offset}: "
                f"the high watermark is {self.high_watermark}",
            )
        stable = self.last_stable_offset
        if self.log.advance_log_start(offset):
            self._stop_if_broken()
            for waiter in tuple(self.replica_waiters):
                waiter.grown(self)
            if self.last_stable_offset != stable:  # an open transaction is gone with its records
                self.wake()
        return self.log.log_start_offset


def _append_rules(config: TopicConfig) -> AppendRules:
    return AppendRules(
        max_message_bytes=config.max_message_bytes,
        compression_type=config.compression_type,
        message_timestamp_type=config.message_timestamp_type,
        timestamp_before_max_ms=config.message_timestamp_before_max_ms,
        timestamp_after_max_ms=config.message_timestamp_after_max_ms,
        is_compacted=config.is_compacted,
    )
