"""One partition of a coordinator's topic while this broker leads it: its log and the state machines over it.

The law of a write: decide, replay, append, and answer when the log has it, on this disk and on every in-sync replica.
What one turn of the event loop decides is one batch, or a few if it is much: a crowd of members costs few appends. A
write that the log will not take is refused before it changes anything. An append or a sync that fails all the same
leaves the state machines ahead of the log: the shard is given up and read again, and whoever waits is told to look for
the coordinator again. A record that the replicas do not take in time may yet be taken: the state keeps it, and only the
answer says that nobody knows.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Any, Generic, TypeVar

from moldau.broker.loop_timers import LoopTimers
from moldau.coordinators.outcome import NOTHING, Decision, Outcome
from moldau.coordinators.promise import Promise
from moldau.coordinators.records import CoordinatorRecord, encode_record
from moldau.coordinators.shard import CoordinatorShard
from moldau.coordinators.timers import Expire, Timers
from moldau.coordinators.topic_settings import TopicSettings
from moldau.core.clock import Clock
from moldau.core.ids import NO_PRODUCER_ID
from moldau.core.invariants import InvariantError
from moldau.log.log import Log
from moldau.protocol.errors import ApiError, ErrorCode, ProtocolError
from moldau.records.batch import (
    BatchHeader,
    EndTxnMarker,
    Record,
    build_batch,
    iter_records,
    read_end_txn_marker,
    split_batches,
)
from moldau.replication.delayed import when_committed
from moldau.replication.durability import ACKS_ALL, Durability
from moldau.replication.partition import Partition
from moldau.requests.groups_access import TransactionalProducer, TransactionMarker

log = logging.getLogger(__name__)

PART_RECORDS_MAX = 1_000
"""Tombstones of the longest names that come to less than 1 MB, the default of max.message.bytes."""

GATHERED_MAX = 8
"""Writes that share a batch at most. When a thousand members join at once a turn of the loop is long: the first can
work on their answers while the last are still asking, and what was made for them is freed before it piles up."""

BATCH_OVERHEAD_BYTES = 61
RECORD_OVERHEAD_BYTES_MAX = 36
"""The variable lengths, deltas and the attributes of a record in a batch, each at its longest."""

S = TypeVar("S", bound=CoordinatorShard)
T = TypeVar("T")
R = TypeVar("R")
Told = Callable[[int], None]
"""Callback that is told the result of a write: 0, or the error's code."""

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


class State(Enum):
    """LOADING until the log is replayed; FAILED and CLOSED are final."""

    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    CLOSED = "closed"


class ShardRuntime(Generic[S]):
    """Runs one shard, whatever it coordinates."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        durability: Durability,
        settings: Callable[[], TopicSettings],
        make_shard: Callable[[Timers], S],
        partition: Partition,
        on_failed: "Callable[[ShardRuntime[S], bool], None]",
        *,
        is_cautious: bool = False,
    ) -> None:
        """`on_failed` is told when the shard is given up, and whether it had been active. `is_cautious`: it was given
        up before, so appends come before replays until the log has taken one."""
        self._loop = loop
        self._clock = clock
        self._durability = durability
        self._settings = settings
        self.partition = partition
        self.state = State.LOADING
        self._timers = LoopTimers(loop, self._expire)
        self.shard = make_shard(self._timers)
        self._on_failed = on_failed
        self._is_cautious = is_cautious
        self._gathered: list[Told] = []
        """Writes that were replayed in this turn of the loop and not yet appended, with `_gathered_records`; or that
        wait for these."""
        self._gathered_records: list[tuple[bytes, bytes | None]] = []
        self._gathered_bytes = 0
        self._in_flight: deque[_InFlight] = deque()
        self.waiting: dict[PendingWrite[Any], None] = {}
        """Answers that are waited for, in the order of the requests."""
        self._answers: deque[tuple[PendingWrite[Any], Any]] = deque()
        """Answers that are ready, to be given at the end of this turn of the loop."""

    # Loading

    async def load(self) -> None:
        """Replay the log up to its end, in steps."""
        try:
            for _ in self.load_steps():
                await asyncio.sleep(0)
        except Exception:
            log.exception("%s: coordinator not loaded", self.partition.topic_partition)
            self._give_up(State.FAILED)

    def load_steps(self) -> Iterator[int]:
        """Replay a piece of the log at each step; yields the offset reached.

        Up to the end, not to the high watermark: what this leader has in its log is going to be committed.
        """
        log_ = self.partition.log
        position, step_bytes = log_.log_start_offset, self._settings().load_step_bytes
        while self.state is State.LOADING:
            region = log_.read(position, step_bytes, log_.log_end_offset, True)
            if region is None:
                self._activate()
                return
            for header, batch in split_batches(region.read(), partial_end=True):
                self._replay_batch(header, batch)
                position = header.next_offset
            yield position

    def _replay_batch(self, header: BatchHeader, batch: memoryview) -> None:
        if header.is_control:
            marker = read_end_txn_marker(batch) if header.record_count else None  # compaction may have emptied it
            if marker is not None:
                self.shard.end_transaction(header.producer_id, committed=marker.committed)
            return
        producer_id = header.producer_id if header.is_transactional else -1
        for record in iter_records(batch):
            decoded = self._decoded(record)
            if decoded is not None:
                self.shard.replay(decoded, producer_id)

    def _decoded(self, record: Record) -> CoordinatorRecord | None:
        """None for what we cannot read: as Kafka does, a record of a newer kind is skipped."""
        try:
            return None if record.key is None else self.shard.record_types.decode(record.key, record.value)
        except (ProtocolError, ValueError) as error:
            log.warning("%s: record at %d is skipped: %s", self.partition.topic_partition, record.offset, error)
            return None

    def _activate(self) -> None:
        self.state = State.ACTIVE
        for outcome in self.shard.on_loaded():
            self.apply(outcome)

    # Writing

    def answer(self, decide: Callable[[S], Decision[T]], refused: Callable[[ApiError], R]) -> T | R | Promise[T | R]:
        """The answer, at once if nothing is left to wait for. What is refused, now or later, becomes one too."""
        if len(self._gathered) >= GATHERED_MAX:
            self._flush()
            self._tell_all()
            if self.state is not State.ACTIVE:
                return refused(ApiError(ErrorCode.NOT_COORDINATOR, "the coordinator moved"))
        try:
            outcome, promise = self._decided(decide)
        except ApiError as error:
            return refused(error)
        if not outcome.records and not self._gathered and not self._in_flight:
            outcome.committed(0)
            outcome = NOTHING
            if promise.done:
                return promise.value
        answer: PendingWrite[T | R] = PendingWrite(self, outcome, refused)
        self.hold(outcome, promise, answer)
        return answer

    def _decided(self, decide: Callable[[S], Decision[T]]) -> Decision[T]:
        """The decision of the shard; raises ApiError, also when its state turns out to be broken."""
        try:
            return decide(self.shard)
        except InvariantError as error:
            self._broken()
            raise ApiError(ErrorCode.NOT_COORDINATOR, "the coordinator's state is broken") from error

    def answer_in_transaction(
        self, producer: TransactionalProducer, decide: Callable[[S], Decision[T]], refused: Callable[[ApiError], R]
    ) -> T | R | Promise[T | R]:
        """Answer like `answer`, for records of the producer's transaction: they are a batch of their own, behind all
        others."""
        self._flush()
        if self.state is not State.ACTIVE:
            return refused(ApiError(ErrorCode.NOT_COORDINATOR, "the coordinator moved"))
        try:
            outcome, promise = self._decided(decide)
        except ApiError as error:
            return refused(error)
        answer: PendingWrite[T | R] = PendingWrite(self, outcome, refused)
        self.waiting[answer] = None
        promise.then(answer.keep)
        if outcome.records:
            self._append_alone(outcome, answer.committed, producer)
        else:
            self._write(outcome, answer.committed)
        return answer

    def end_transaction(self, marker: TransactionMarker) -> Promise[int]:
        """Append a marker, behind all that was decided before it; the error's code, 0 when it is durable."""
        self._flush()
        ended: Promise[int] = Promise()
        if self.state is not State.ACTIVE:
            return Promise.of(int(ErrorCode.NOT_COORDINATOR))
        producer_id, epoch, committed, coordinator_epoch, version = marker
        end = EndTxnMarker(committed, coordinator_epoch)
        try:
            self.partition.append_marker(end, producer_id, epoch, version, self._clock.now_ms())
        except ApiError as error:
            return Promise.of(int(error.code))
        try:
            self.shard.end_transaction(producer_id, committed=committed)
        except Exception:
            log.exception("%s: a transaction cannot be ended", self.partition.topic_partition)
            self._give_up(State.FAILED)
            return Promise.of(int(ErrorCode.NOT_COORDINATOR))
        self._appended([ended.complete])
        return ended

    def hold(self, outcome: Outcome, promise: Promise[T], answer: "PendingWrite[Any]") -> None:
        """Write, and let `answer` wait for that and for the promise, whichever is later."""
        self.waiting[answer] = None
        promise.then(answer.keep)
        try:
            self._write(outcome, answer.committed)
        except Exception:  # a record that cannot be encoded: nothing was replayed, and the caller tells the client
            self.waiting.pop(answer, None)
            raise

    def tell(self, answer: "PendingWrite[T]", value: T) -> None:
        """Give an answer later: its receiver may have another request waiting, and the shard may be in mid-change."""
        if not self._answers:
            self._loop.call_soon(self._tell_all)
        self._answers.append((answer, value))

    def _tell_all(self) -> None:
        answers, self._answers = self._answers, deque()
        try:
            while answers:
                answer, value = answers.popleft()
                answer.complete(value)
        finally:
            for each in answers:  # of one that failed the others know nothing
                self.tell(*each)

    def apply(self, outcome: Outcome) -> None:
        """Replay and append; `outcome` is told when that is durable. Without records it waits its turn, so that
        nobody is told of a state that may yet be lost."""
        self._write(outcome, outcome.committed)

    def apply_in_parts(self, outcome: Outcome) -> None:
        """Replay and append records that need not be written together and may be more than a batch holds."""
        for start in range(0, len(outcome.records), PART_RECORDS_MAX):
            self.apply(Outcome(outcome.records[start : start + PART_RECORDS_MAX]))

    def _write(self, outcome: Outcome, told: Told) -> None:
        if outcome.records:
            (self._append_alone if self._is_cautious else self._gather)(outcome, told)
        elif self._gathered:
            self._gathered.append(told)
        elif self._in_flight:
            self._in_flight[-1].told.append(told)
        else:
            told(0)

    def _gather(self, outcome: Outcome, told: Told) -> None:
        """Replay now, and append with all else that this turn of the loop brings."""
        encoded = list(map(encode_record, outcome.records))
        size = sum(len(key) + len(value or b"") + RECORD_OVERHEAD_BYTES_MAX for key, value in encoded)
        try:
            self.partition.check_own(self._gathered_bytes + size + BATCH_OVERHEAD_BYTES)
        except ApiError:  # alone and compressed it may pass, and if not nothing has changed
            self._append_alone(outcome, told)
            return
        if self._replay(outcome, told):
            if not self._gathered:
                self._loop.call_soon(self._flush)
            self._gathered.append(told)
            self._gathered_records += encoded
            self._gathered_bytes += size

    def _flush(self) -> None:
        """Append what was gathered, in one batch."""
        told, records = self._gathered, self._gathered_records
        self._gathered, self._gathered_records, self._gathered_bytes = [], [], 0
        if not told or self.state is not State.ACTIVE:
            return
        try:
            self._append(records)
        except ApiError as error:
            log.warning("%s: append refused: %s", self.partition.topic_partition, error)
            self._in_flight.append(_InFlight(told))
            self._give_up(State.FAILED)
        else:
            self._appended(told)

    def _append_alone(self, outcome: Outcome, told: Told, producer: TransactionalProducer | None = None) -> None:
        """Append, then replay: if the log refuses it, nothing has changed."""
        self._flush()
        if self.state is not State.ACTIVE:
            told(ErrorCode.NOT_COORDINATOR)
            return
        try:
            self._append(list(map(encode_record, outcome.records)), producer)
        except ApiError as error:
            log.warning("%s: append refused: %s", self.partition.topic_partition, error)
            told(_AS_CLIENTS_SEE_IT.get(error.code, error.code))
            return
        self._is_cautious = False
        if self._replay(outcome, told, NO_PRODUCER_ID if producer is None else producer.producer_id):
            self._appended([told])

    def _append(
        self, encoded: Sequence[tuple[bytes, bytes | None]], producer: TransactionalProducer | None = None
    ) -> None:
        now_ms = self._clock.now_ms()
        records = [Record(offset, now_ms, key, value) for offset, (key, value) in enumerate(encoded)]
        producer_id, epoch, guard = producer or (NO_PRODUCER_ID, -1, None)
        batch = build_batch(
            records,
            codec=self._settings().codec,
            producer_id=producer_id,
            producer_epoch=epoch,
            is_transactional=producer is not None,
        )
        self.partition.append_own(batch, now_ms, guard)

    def _replay(self, outcome: Outcome, told: Told, producer_id: int = NO_PRODUCER_ID) -> bool:
        """Change the shard's state; False, and the shard is given up, if it cannot take its own record."""
        try:
            if outcome.adopt is not None:
                outcome.adopt()
            else:
                for record in outcome.records:
                    self.shard.replay(record, producer_id)
        except Exception:
            log.exception("%s: coordinator unloaded, it cannot replay a record", self.partition.topic_partition)
            told(ErrorCode.UNKNOWN_SERVER_ERROR)
            self._give_up(State.FAILED)
            return False
        return True

    def _appended(self, told: list[Told]) -> None:
        """Tell them when it is safe, after all that was appended before."""
        entry = _InFlight(told)
        self._wait_until_safe(entry)
        self._in_flight.append(entry)
        self._settle()

    def _wait_until_safe(self, entry: "_InFlight") -> None:
        """Wait for the sync of this disk and for the other replicas, both at once."""
        partition = self.partition
        if self._durability.call_when_durable([partition.log], ACKS_ALL, partial(self._synced, entry)):
            entry.waits_for += 1
        if partition.high_watermark < partition.log.log_end_offset:
            parts = [(partition, partition.log.log_end_offset)]
            committing = when_committed(self._loop, parts, self._settings().commit_timeout_ms)
            if committing is not None:
                entry.waits_for += 1
                committing.add_done_callback(lambda done: self._replicated(entry, done.result()))

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
            for told in entry.told:
                told(entry.error)

    def _expire(self, expire: Expire) -> None:
        if self.state is State.ACTIVE:
            try:
                outcome = expire()
            except InvariantError:
                self._broken()
            else:
                self.apply(outcome)

    def _broken(self) -> None:
        """Give up a state that contradicts itself: it is read again from the log, which does not."""
        log.exception("%s: coordinator unloaded, its state contradicts itself", self.partition.topic_partition)
        self._give_up(State.FAILED)

    # The end

    def close(self) -> None:
        """Unload the shard: this broker leads the partition no more, or stops."""
        if self.state in (State.LOADING, State.ACTIVE):
            self._give_up(State.CLOSED)

    def _give_up(self, state: State) -> None:
        was_active = self.state is State.ACTIVE
        self.state = state
        self.shard.on_unloaded()
        self._timers.cancel_all()
        unwritten, self._gathered = self._gathered, []
        in_flight, self._in_flight = self._in_flight, deque()
        for those in (*(entry.told for entry in in_flight), unwritten):
            for told in those:
                told(ErrorCode.NOT_COORDINATOR)
        for answer in list(self.waiting):
            answer.refuse(ApiError(ErrorCode.NOT_COORDINATOR, "the coordinator moved"))
        if state is State.FAILED:
            self._on_failed(self, was_active)


class PendingWrite(Promise[T]):
    """An answer that waits for its write and for its decision's promise: told once, when it is there or when it is
    known that there will be none."""

    __slots__ = ("_outcome", "_refused", "_runtime")

    def __init__(self, runtime: ShardRuntime[Any], outcome: Outcome, refused: Callable[[ApiError], T]) -> None:
        super().__init__()
        self._runtime = runtime
        self._outcome = outcome
        self._refused = refused

    def keep(self, value: T) -> None:
        """Give the answer that the decision's promise has."""
        if self.ends_waiting():
            self._runtime.tell(self, value)

    def committed(self, error_code: int) -> None:
        """Take the result of the write: the records are durable, or will not be."""
        self._outcome.committed(error_code)
        if error_code:
            self.refuse(ApiError(ErrorCode(error_code), "the coordinator's log did not take it"))

    def refuse(self, error: ApiError) -> None:
        """Answer with this error."""
        if self.ends_waiting():
            self._runtime.tell(self, self._refused(error))

    def ends_waiting(self) -> bool:
        """End the wait; whether it waited until now."""
        return self._runtime.waiting.pop(self, self) is None


class _InFlight:
    """Writes that are appended and not yet known to be safe, and those without records that wait for them."""

    __slots__ = ("error", "told", "waits_for")

    def __init__(self, told: list[Told]) -> None:
        self.told = told
        self.waits_for = 0
        self.error = ErrorCode.NONE
