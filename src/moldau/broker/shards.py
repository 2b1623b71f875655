"""One partition of a coordinator's topic while this broker leads it: its log and the state machines over it.

The law of a write: decide, append, replay, and answer when the log has it, on this disk and on every in-sync replica.
A failed append changes nothing. A sync that failed leaves the state machines ahead of the disk: the shard is given up,
and whoever waits is told to look for the coordinator again. A record that the replicas do not take in time may yet be
taken: the state keeps it, and only the answer says that nobody knows.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from moldau.broker.loop_timers import LoopTimers
from moldau.broker.shard_states import State
from moldau.coordinators.outcome import Decision, Outcome
from moldau.coordinators.records import CoordinatorRecord, decode_record, encode_record
from moldau.coordinators.runtime import Shard
from moldau.coordinators.timers import Expire
from moldau.coordinators.world import World
from moldau.handlers.context import Services
from moldau.log.log import Log
from moldau.protocol.errors import ApiError, ErrorCode, ProtocolError
from moldau.records.batch import BatchHeader, Record, build_batch, iter_records, read_end_txn_marker, split_batches
from moldau.replication.delayed import when_committed
from moldau.replication.durability import ACKS_ALL
from moldau.replication.partition import Partition

log = logging.getLogger(__name__)

LOAD_STEP_BYTES = 256 * 1024
"""What is read and replayed in one turn of the event loop: about 10 ms."""
PART_RECORDS_MAX = 1_000
"""Tombstones of the longest names that come to less than 1 MB, the default of max.message.bytes."""

T = TypeVar("T")

_AS_CLIENTS_SEE_IT = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""A client knows nothing of the coordinator's log: it is told what to do about the coordinator."""


class ShardHost:
    """Runs one shard."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        services: Services,
        new_uuid: Callable[[], bytes],
        partition: Partition,
        on_failed: Callable[["ShardHost", bool], None],
    ) -> None:
        """`on_failed` is told when the shard is given up, and whether it had been active."""
        self._loop = loop
        self._services = services
        self.partition = partition
        self.state = State.LOADING
        self._timers = LoopTimers(loop, self._expire)
        self.shard = Shard(
            World(services.clock, self._timers, lambda: services.config, lambda: services.metadata.image, new_uuid)
        )
        self._on_failed = on_failed
        self._in_flight: deque[_InFlight] = deque()
        self._held: set[asyncio.Future[Any]] = set()

    # Loading

    async def load(self) -> None:
        """Replay the log up to its end, in steps."""
        try:
            for _ in self.load_steps():
                await asyncio.sleep(0)
        except Exception:
            log.exception("cannot load %s", self.partition.topic_partition)
            self._give_up(State.FAILED)

    def load_steps(self) -> Iterator[int]:
        """Replay a piece of the log at each step; yields the offset reached.

        Up to the end, not to the high watermark: what this leader has in its log is going to be committed.
        """
        log_ = self.partition.log
        position = log_.log_start_offset
        while self.state is State.LOADING:
            region = log_.read(position, LOAD_STEP_BYTES, log_.log_end_offset, True)
            if region is None:
                self._activate()
                return
            for header, batch in split_batches(region.read(), partial_end=True):
                self._replay_batch(header, batch)
                position = header.next_offset
            yield position

    def _replay_batch(self, header: BatchHeader, batch: memoryview) -> None:
        if header.is_control:
            marker = read_end_txn_marker(batch)
            if marker is not None:
                self.shard.offsets.end_transaction(header.producer_id, committed=marker.committed)
            return
        producer_id = header.producer_id if header.is_transactional else -1
        for record in iter_records(batch):
            decoded = self._decoded(record)
            if decoded is not None:
                self.shard.replay(decoded, producer_id)

    def _decoded(self, record: Record) -> CoordinatorRecord | None:
        """None for what we cannot read: as Kafka does, a record of a newer kind is skipped."""
        try:
            return None if record.key is None else decode_record(record.key, record.value)
        except (ProtocolError, ValueError) as error:
            log.warning("%s: record at %d is skipped: %s", self.partition.topic_partition, record.offset, error)
            return None

    def _activate(self) -> None:
        self.state = State.ACTIVE
        for outcome in self.shard.on_loaded():
            self.apply(outcome)

    # Writing

    def write(self, decide: Callable[[Shard], Decision[T]]) -> "asyncio.Future[T]":
        """The answer to come; raises ApiError if it is refused at once."""
        outcome, promise = decide(self.shard)
        answer: asyncio.Future[T] = self._loop.create_future()

        def completed(value: T) -> None:
            if not answer.done():
                answer.set_result(value)

        def committed(error_code: int) -> None:
            outcome.committed(error_code)
            if error_code and not answer.done():
                answer.set_exception(ApiError(ErrorCode(error_code), "the coordinator's log did not take it"))

        promise.then(completed)
        self.apply(Outcome(outcome.records, committed))
        if not answer.done():
            self._held.add(answer)
            answer.add_done_callback(self._held.discard)
        return answer

    def apply(self, outcome: Outcome) -> None:
        """Append and replay; `outcome` is told when that is safe. Without records it waits its turn, so that nobody is
        told of a state that may yet be lost."""
        entry = _InFlight(outcome)
        if outcome.records:
            try:
                self._append(outcome.records)
            except ApiError as error:
                log.warning("%s takes no records: %s", self.partition.topic_partition, error)
                outcome.committed(_AS_CLIENTS_SEE_IT.get(error.code, error.code))
                return
            self._wait_until_safe(entry)
            if not self._replay(outcome):
                return
        self._in_flight.append(entry)
        self._settle()

    def _wait_until_safe(self, entry: "_InFlight") -> None:
        """For this disk and for the other replicas, at once."""
        partition, config = self.partition, self._services.config
        syncing = self._services.durability.when_durable([partition.log], ACKS_ALL)
        if syncing is not None:
            entry.waits_for += 1
            asyncio.ensure_future(syncing).add_done_callback(lambda done: self._synced(entry, done.result()))
        if partition.high_watermark < partition.log.log_end_offset:
            parts, timeout_ms = [(partition, partition.log.log_end_offset)], config.int("offsets.commit.timeout.ms")
            committing = when_committed(self._loop, parts, timeout_ms)
            if committing is not None:
                entry.waits_for += 1
                committing.add_done_callback(lambda done: self._replicated(entry, done.result()))

    def apply_in_parts(self, outcome: Outcome) -> None:
        """As `apply`, for records that need not be written together and may be more than a batch holds."""
        for start in range(0, len(outcome.records), PART_RECORDS_MAX):
            self.apply(Outcome(outcome.records[start : start + PART_RECORDS_MAX]))

    def _append(self, records: Sequence[CoordinatorRecord]) -> None:
        now_ms = self._services.clock.now_ms()
        encoded = enumerate(map(encode_record, records))
        codec = self._services.config.int("offsets.topic.compression.codec")
        batch = build_batch([Record(offset, now_ms, key, value) for offset, (key, value) in encoded], codec=codec)
        self.partition.append_own(batch, now_ms)

    def _replay(self, outcome: Outcome) -> bool:
        """False, and the shard is given up, if a state machine cannot take its own record."""
        try:
            for record in outcome.records:
                self.shard.replay(record)
        except Exception:
            log.exception("%s: a record that was written cannot be replayed", self.partition.topic_partition)
            outcome.committed(ErrorCode.UNKNOWN_SERVER_ERROR)
            self._give_up(State.FAILED)
            return False
        return True

    def _synced(self, entry: "_InFlight", failed: frozenset[Log]) -> None:
        if self.state is not State.ACTIVE:
            return
        if self.partition.log in failed:
            self._give_up(State.FAILED)
            return
        entry.waits_for -= 1
        self._settle()

    def _replicated(self, entry: "_InFlight", failed: Mapping[Partition, ErrorCode]) -> None:
        if self.state is not State.ACTIVE:
            return
        error = failed.get(self.partition, ErrorCode.NONE)
        entry.error = _AS_CLIENTS_SEE_IT.get(error, error)
        entry.waits_for -= 1
        self._settle()

    def _settle(self) -> None:
        """Tell those that are safe, in the order in which they were decided."""
        while self._in_flight and not self._in_flight[0].waits_for:
            entry = self._in_flight.popleft()
            entry.outcome.committed(entry.error)

    def _expire(self, expire: Expire) -> None:
        if self.state is State.ACTIVE:
            self.apply(expire())

    # The end

    def close(self) -> None:
        """This broker leads the partition no more, or stops."""
        if self.state in (State.LOADING, State.ACTIVE):
            self._give_up(State.CLOSED)

    def _give_up(self, state: State) -> None:
        was_active = self.state is State.ACTIVE
        self.state = state
        self.shard.on_unloaded()
        self._timers.cancel_all()
        while self._in_flight:
            self._in_flight.popleft().outcome.committed(ErrorCode.NOT_COORDINATOR)
        for answer in tuple(self._held):
            if not answer.done():
                answer.set_exception(ApiError(ErrorCode.NOT_COORDINATOR, "the coordinator moved"))
        if state is State.FAILED:
            self._on_failed(self, was_active)


class _InFlight:
    """A write that is replayed and not yet known to be safe."""

    __slots__ = ("error", "outcome", "waits_for")

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.waits_for = 0
        self.error = ErrorCode.NONE
