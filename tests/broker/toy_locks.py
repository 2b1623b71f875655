"""A service of locks with leases, kept in a topic of its own: all that a second coordinator takes."""

from collections.abc import Sequence
from functools import partial

from moldau.coordinators.outcome import NOTHING, Decision, Outcome, answered
from moldau.coordinators.records import CoordinatorRecord, RecordKey, RecordTypes, RecordValue
from moldau.coordinators.shard import CoordinatorShard
from moldau.coordinators.timers import Timers
from moldau.coordinators.topic_settings import TopicSettings
from moldau.core.broker_config import BrokerConfig
from moldau.core.ids import NO_PRODUCER_ID
from moldau.protocol.schema import INT64, STRING, field

TOPIC = "__toy_state"


class LockKey(RecordKey, record_type=0):
    name: str = field(STRING)


class LockValue(RecordValue, written=0):
    owner: str = field(STRING)
    lease_ms: int = field(INT64)


def settings(_: BrokerConfig) -> TopicSettings:
    return TopicSettings(partitions=3, replication_factor=3)


class LockShard(CoordinatorShard):
    record_types = RecordTypes({LockKey: LockValue})

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._locks: dict[str, LockValue] = {}
        self._is_loaded = False

    def acquire(self, name: str, owner: str, lease_ms: int) -> Decision[str]:
        """Who has the lock then: the caller, unless somebody had it before."""
        held = self._locks.get(name)
        if held is not None and held.owner != owner:
            return answered(held.owner)
        return answered(owner, [CoordinatorRecord(LockKey(name=name), LockValue(owner=owner, lease_ms=lease_ms))])

    def release(self, name: str, owner: str) -> Decision[bool]:
        held = self._locks.get(name)
        is_theirs = held is not None and held.owner == owner
        return answered(is_theirs, [CoordinatorRecord(LockKey(name=name), None)] if is_theirs else [])

    def replay(self, record: CoordinatorRecord, producer_id: int = NO_PRODUCER_ID) -> None:  # noqa: ARG002  # no transactions
        key, value = record
        assert isinstance(key, LockKey)
        if isinstance(value, LockValue):
            self._locks[key.name] = value
            if self._is_loaded:
                self._begin_lease(key.name)
        else:
            self._locks.pop(key.name, None)
            self._timers.cancel(key.name)

    def on_loaded(self) -> Sequence[Outcome]:
        """Every owner has the whole lease to come back."""
        self._is_loaded = True
        for name in self._locks:
            self._begin_lease(name)
        return ()

    def _begin_lease(self, name: str) -> None:
        self._timers.schedule(name, self._locks[name].lease_ms, partial(self._end_lease, name))

    def _end_lease(self, name: str) -> Outcome:
        return Outcome([CoordinatorRecord(LockKey(name=name), None)]) if name in self._locks else NOTHING
