"""A shard of transactions with its log, its clock and the leaders of its partitions: all in memory, moved by hand."""

from collections.abc import Callable
from itertools import count
from typing import Any, TypeVar

from moldau.coordinators.outcome import Decision, Outcome
from moldau.coordinators.promise import Promise
from moldau.coordinators.records import encode_record
from moldau.coordinators.timers import ManualTimers
from moldau.coordinators.transactions.markers import Marker
from moldau.coordinators.transactions.record_tables import TRANSACTION_RECORDS
from moldau.coordinators.transactions.shard import TransactionShard
from moldau.coordinators.transactions.transaction import PRODUCER_EPOCH_MAX, Numbering, Producer, Transaction, record_of
from moldau.coordinators.transactions.world import World
from moldau.core.broker_config import BrokerConfig
from moldau.core.clock import ManualClock
from moldau.core.ids import TopicPartition
from moldau.protocol.errors import ApiError, ErrorCode

T = TypeVar("T")

TIMEOUT_MS = 60_000
ID = "copier"
A, B = TopicPartition("t", 0), TopicPartition("t", 1)
FAILED = int(ErrorCode.COORDINATOR_NOT_AVAILABLE)


class SentMarkers:
    """Markers that were sent; a test says when they are written."""

    def __init__(self) -> None:
        self.under_way: dict[str, tuple[Marker, Callable[[bool], None]]] = {}
        self.sent: list[Marker] = []
        self.cancelled: list[str] = []

    def send(self, transactional_id: str, marker: Marker, done: Callable[[bool], None]) -> "SentDelivery":
        self.under_way[transactional_id] = (marker, done)
        self.sent.append(marker)
        return SentDelivery(self, transactional_id)


class SentDelivery:
    def __init__(self, markers: SentMarkers, transactional_id: str) -> None:
        self._markers = markers
        self._id = transactional_id

    def cancel(self) -> None:
        self._markers.under_way.pop(self._id, None)
        self._markers.cancelled.append(self._id)


class Driver:
    """One coordinator over a log. `reload` is another broker that takes over with the same log."""

    def __init__(self, *, transaction_version: int = 2, epoch_max: int = PRODUCER_EPOCH_MAX, **properties: str) -> None:
        self.clock = ManualClock()
        self.log: list[tuple[bytes, bytes | None]] = []
        self.transaction_version = transaction_version
        self.epoch_max = epoch_max
        self.config, _ = BrokerConfig.parse({name.replace("_", "."): value for name, value in properties.items()})
        self.producer_ids = count(4000)
        self.has_producer_ids = True
        self.fails_with = 0
        """What the next writes come to: they are in the log, and nobody knows whether the replicas have them."""
        self.refuses_with = 0
        """What the next writes come to: the log does not take them."""
        self.load()

    def load(self) -> None:
        self.timers = ManualTimers(self.apply)
        self.markers = SentMarkers()
        world = World(
            self.clock,
            self.timers,
            lambda: self.config,
            lambda: self.transaction_version,
            Numbering(self._new_producer_id, self.epoch_max),
            self.markers,
        )
        self.shard = TransactionShard(world)
        for key, value in self.log:
            record = TRANSACTION_RECORDS.decode(key, value)
            assert record is not None
            self.shard.replay(record)
        self.shard.on_loaded()
        self.timers.advance(0)

    def reload(self) -> None:
        self.shard.on_unloaded()
        self.load()

    def _new_producer_id(self) -> int:
        if not self.has_producer_ids:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "there is none")
        return next(self.producer_ids)

    def apply(self, outcome: Outcome) -> None:
        """As the runtime does: replay, append, tell."""
        if outcome.records and self.refuses_with:
            outcome.committed(self.refuses_with)
            return
        if outcome.records:
            self.log += map(encode_record, outcome.records)
            if outcome.adopt is not None:
                outcome.adopt()
            else:
                for record in outcome.records:
                    self.shard.replay(record)
        outcome.committed(self.fails_with if outcome.records else 0)

    def answer(self, decide: Callable[[], Decision[T]]) -> T:
        """The answer of a decision; raises ApiError."""
        outcome, promise = decide()
        self.apply(outcome)
        error = self.refuses_with or self.fails_with
        if outcome.records and error:
            raise ApiError(ErrorCode(error), "the write failed")
        value: Any = _kept(promise)
        if isinstance(value, ApiError):
            raise value
        kept: T = value
        return kept

    # Requests

    def init(self, expected: Producer | None = None, *, name: str = ID, timeout_ms: int = TIMEOUT_MS) -> Producer:
        found = self.answer(lambda: self.shard.init_producer_id(name, timeout_ms, expected))
        assert isinstance(found, Producer)
        return found

    def add(self, producer: Producer, *partitions: TopicPartition, version: int = 2, name: str = ID) -> None:
        wanted = frozenset(partitions or (A,))
        self.answer(lambda: self.shard.add_partitions(name, producer, wanted, version))

    def verify(
        self, producer: Producer, *partitions: TopicPartition, name: str = ID
    ) -> dict[TopicPartition, ErrorCode]:
        return self.answer(lambda: self.shard.verify_partitions(name, producer, frozenset(partitions)))

    def end(self, producer: Producer, *, committed: bool = True, version: int = 2, name: str = ID) -> Producer:
        return self.answer(lambda: self.shard.end(name, producer, committed=committed, client_version=version))

    # The world

    def written(self, name: str = ID, *, is_complete: bool = True) -> None:
        """All markers of a transaction are written."""
        _, done = self.markers.under_way.pop(name)
        done(is_complete)
        self.timers.advance(0)

    def pass_time(self, ms: int) -> None:
        self.clock.advance(ms)
        self.timers.advance(ms)

    def clean_up(self) -> None:
        self.apply(self.shard.clean_up())
        self.timers.advance(0)

    def transaction(self, name: str = ID) -> Transaction:
        found = self.shard.get(name)
        assert found is not None
        return found

    def state(self, name: str = ID) -> str:
        return self.transaction(name).state.value

    def jump_to(self, epoch: int) -> Producer:
        """Let the producer have come to this epoch."""
        now = self.transaction()._replace(producer_epoch=epoch)
        self.apply(Outcome([record_of(ID, now, self.transaction_version)]))
        return now.producer

    def commit_one(self, producer: Producer, *, version: int = 2, committed: bool = True) -> Producer:
        """A whole transaction with one partition; who the producer is after it."""
        self.add(producer, version=version)
        after = self.end(producer, committed=committed, version=version)
        self.written()
        return after if version >= 2 else producer


def code_of(call: Callable[[], object]) -> ErrorCode:
    """The error that a request comes to; NONE if it comes to none."""
    try:
        call()
    except ApiError as error:
        return error.code
    return ErrorCode.NONE


def _kept(promise: Promise[T]) -> T:
    assert promise.done
    return promise.value
