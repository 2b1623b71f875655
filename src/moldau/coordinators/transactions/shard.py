"""One partition of `__transaction_state` in memory. Handlers reach it through `requests.transactions_access`.

The law of an end: the prepared state is durable before the first marker leaves, and the completed one is written after
the last marker is in its log. A coordinator that finds a prepared transaction in its log sends the markers again. So a
transaction that was answered as committed is committed, whoever dies.

Every prepared transaction has an owner: a write that may still be repeated, markers on their way, or a completion that
is due. `clean_up` finds those that have lost theirs.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from moldau.coordinators.outcome import NOTHING, Decision, Outcome, answered
from moldau.coordinators.promise import Promise
from moldau.coordinators.records import CoordinatorRecord
from moldau.coordinators.shard import CoordinatorShard
from moldau.coordinators.transactions import decisions
from moldau.coordinators.transactions.markers import Delivery, Marker
from moldau.coordinators.transactions.record_tables import TRANSACTION_RECORDS, TransactionLogKey, TransactionLogValue
from moldau.coordinators.transactions.state import DEAD, ONGOING, check_transition
from moldau.coordinators.transactions.transaction import (
    EPOCH_BUMPS,
    NOBODY,
    Producer,
    Transaction,
    record_of,
    transaction_of,
)
from moldau.coordinators.transactions.world import World
from moldau.core.ids import NO_PRODUCER_ID, TopicPartition
from moldau.protocol.errors import ApiError, ErrorCode

T = TypeVar("T")

AGAIN_MS = 1_000
"""Pause before a write is repeated that the replicas did not take in time."""
OVERDUE_STEP_IDS_MAX = 1_000
"""Open transactions that are looked at in one turn of the loop."""
EXPIRY_STEP_IDS_MAX = 1_000
EXPIRY_STEP_CHARACTERS_MAX = 100_000
"""Ids that are looked at in one turn of the loop: their tombstones, with up to three bytes for a character, fit into
a batch of the default max.message.bytes."""


class TransactionShard(CoordinatorShard):
    """Transactional ids, each with its newest transaction."""

    record_types = TRANSACTION_RECORDS

    def __init__(self, world: World) -> None:
        self._world = world
        self._transactions: dict[str, Transaction] = {}
        self._open: dict[str, None] = {}
        self._prepared: dict[str, Delivery | None] = {}
        """Prepared transactions, with their markers on the way if nothing else is due."""
        self._unowned: dict[str, None] = {}
        """Prepared transactions whose markers are neither sent nor about to be."""
        self._is_loaded = False
        self._expiry_due_ms = 0

    # State

    def replay(self, record: CoordinatorRecord, producer_id: int = NO_PRODUCER_ID) -> None:  # noqa: ARG002  # no transactions
        key, value = record
        if not isinstance(key, TransactionLogKey):
            return
        if isinstance(value, TransactionLogValue):
            self._put(key.transactional_id, transaction_of(value, self._world.numbering.epoch_max))
        else:
            self._put(key.transactional_id, None)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Do nothing: this topic is not written to in transactions."""

    def _put(self, transactional_id: str, transaction: Transaction | None) -> None:
        self._open.pop(transactional_id, None)
        if transaction is None:
            self._transactions.pop(transactional_id, None)
            self._prepared.pop(transactional_id, None)
            return
        self._transactions[transactional_id] = transaction
        if transaction.is_prepared:
            self._prepared.setdefault(transactional_id, None)
            return
        self._prepared.pop(transactional_id, None)
        if transaction.state is ONGOING:
            self._open[transactional_id] = None

    def get(self, transactional_id: str) -> Transaction | None:
        """The newest state of an id; None if it is unknown."""
        return self._transactions.get(transactional_id)

    def items(self) -> Iterable[tuple[str, Transaction]]:
        """All ids with their states."""
        return self._transactions.items()

    # Requests

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: Producer | None = None
    ) -> Decision[Producer | ApiError]:
        """Give the id to whoever asks. What its last producer left open is aborted; then the answer is an error, which
        is told when the abort is durable, and the one who asks is to ask again."""
        known = self._live(transactional_id)
        new = decisions.initialized(
            known,
            expected,
            timeout_ms,
            self._world.clock.now_ms(),
            self._world.numbering,
            self._world.transaction_version(),
        )
        is_open = ApiError(ErrorCode.CONCURRENT_TRANSACTIONS, "the transaction that was open is being aborted")
        answer: Producer | ApiError = is_open if new.is_prepared else new.producer
        return self._write(transactional_id, known, new, answer)

    def add_partitions(
        self, transactional_id: str, producer: Producer, partitions: frozenset[TopicPartition], client_version: int
    ) -> Decision[Producer]:
        """Make partitions part of the producer's transaction, which begins with the first of them."""
        known = self._live(transactional_id)
        now_ms = self._world.clock.now_ms()
        new = decisions.with_partitions(known, producer, partitions, client_version, now_ms)
        return self._write(transactional_id, known, new, producer)

    def verify_partitions(
        self, transactional_id: str, producer: Producer, partitions: frozenset[TopicPartition]
    ) -> Decision[dict[TopicPartition, ErrorCode]]:
        """Say which of the partitions are part of the producer's open transaction."""
        return NOTHING, Promise.of(decisions.verified(self._live(transactional_id), producer, partitions))

    def end(
        self, transactional_id: str, producer: Producer, *, committed: bool, client_version: int
    ) -> Decision[Producer]:
        """Commit or abort; who the producer is from now on, if that is told in the client's version."""
        known = self._live(transactional_id)
        now_ms = self._world.clock.now_ms()
        if client_version < EPOCH_BUMPS:
            new = decisions.ended_originally(known, producer, committed, now_ms)
            return self._write(transactional_id, known, new, NOBODY)
        new = decisions.ended(known, producer, committed, now_ms, self._world.numbering)
        result = new if new is not None else known
        return self._write(transactional_id, known, new, result.next_producer if result is not None else NOBODY)

    def _live(self, transactional_id: str) -> Transaction | None:
        known = self._transactions.get(transactional_id)
        return None if known is None or known.state is DEAD else known

    # Writing

    def _write(
        self, transactional_id: str, known: Transaction | None, new: Transaction | None, answer: T
    ) -> Decision[T]:
        """The answer, when the new state is durable, or what was decided before if there is no new one."""
        if new is None:
            return answered(answer)
        if known is not None:
            check_transition(known.state, new.state)
        promise: Promise[T] = Promise()
        return self._outcome(transactional_id, new, partial(promise.complete, answer)), promise

    def _outcome(self, transactional_id: str, new: Transaction, then: Callable[[], None] | None = None) -> Outcome:
        def on_committed(error_code: int) -> None:
            if error_code == 0 and then is not None:
                then()
            if new.is_prepared:
                self._prepared_is_written(transactional_id, new, error_code)

        record = record_of(transactional_id, new, self._world.transaction_version())
        return Outcome([record], on_committed, partial(self._put, transactional_id, new))

    # The end of a transaction

    def _prepared_is_written(self, transactional_id: str, transaction: Transaction, error_code: int) -> None:
        """Send the markers; or write it again, if nobody knows whether the replicas have it: until they do, another
        broker may come to lead that does not know of it."""
        if not self._is_loaded or self._transactions.get(transactional_id) is not transaction:
            return
        if error_code:
            self._world.timers.schedule(
                f"again/{transactional_id}", AGAIN_MS, partial(self._prepare_again, transactional_id)
            )
        elif transaction.partitions:
            self._send(transactional_id, transaction)
        else:
            self._due(transactional_id, 0)

    def _prepare_again(self, transactional_id: str) -> Outcome:
        transaction = self._transactions.get(transactional_id)
        if transaction is None or not transaction.is_prepared or self._prepared.get(transactional_id) is not None:
            return NOTHING
        return self._outcome(transactional_id, transaction)

    def _send(self, transactional_id: str, transaction: Transaction) -> None:
        def done(is_complete: bool) -> None:
            if self._prepared.get(transactional_id) is not delivery:
                return
            if is_complete:
                self._due(transactional_id, 0)
            else:
                self._prepared[transactional_id] = None
                self._unowned[transactional_id] = None

        delivery = self._world.markers.send(transactional_id, Marker.of(transaction), done)
        self._prepared[transactional_id] = delivery

    def _due(self, transactional_id: str, delay_ms: int) -> None:
        """Complete it with all others whose markers have just been written: they share a batch."""
        self._world.timers.schedule(f"complete/{transactional_id}", delay_ms, partial(self._complete, transactional_id))

    def _complete(self, transactional_id: str) -> Outcome:
        known = self._transactions.get(transactional_id)
        if known is None or not known.is_prepared:
            return NOTHING
        new = known.completed(self._world.clock.now_ms())
        check_transition(known.state, new.state)

        def on_committed(error_code: int) -> None:
            if error_code and self._is_loaded and self._transactions.get(transactional_id) is known:
                self._due(transactional_id, AGAIN_MS)  # the log refused it

        record = record_of(transactional_id, new, self._world.transaction_version())
        return Outcome([record], on_committed, partial(self._put, transactional_id, new))

    # Coming and going

    def on_loaded(self) -> Sequence[Outcome]:
        """Have each prepared transaction written once more, not all in one turn of the loop, so that its markers leave
        when it is known to be replicated."""
        self._is_loaded = True
        for each in self._prepared:
            self._world.timers.schedule(f"again/{each}", 0, partial(self._prepare_again, each))
        return ()

    def on_unloaded(self) -> None:
        """Stop sending: the next coordinator does it."""
        self._is_loaded = False
        for delivery in self._prepared.values():
            if delivery is not None:
                delivery.cancel()

    def clean_up(self) -> Outcome:
        """Abort what is open for too long, take care of markers that nobody sends, and forget ids that nobody uses."""
        now_ms, timers = self._world.clock.now_ms(), self._world.timers
        timers.schedule("overdue", 0, partial(self._find_overdue, list(self._open)))
        unowned, self._unowned = self._unowned, {}
        for each in unowned:
            timers.schedule(f"again/{each}", 0, partial(self._prepare_again, each))
        if now_ms >= self._expiry_due_ms:
            config = self._world.config()
            self._expiry_due_ms = now_ms + config.int("transaction.remove.expired.transaction.cleanup.interval.ms")
            timers.schedule("expiry", 0, partial(self._expire, list(self._transactions)))
        return NOTHING

    def _find_overdue(self, ids: list[str]) -> Outcome:
        """Have the overdue ones among the ids aborted, some in each turn of the loop."""
        now_ms, timers = self._world.clock.now_ms(), self._world.timers
        for each in ids[:OVERDUE_STEP_IDS_MAX]:
            known = self._transactions.get(each)
            if known is not None and known.is_overdue(now_ms):
                timers.schedule(f"overdue/{each}", 0, partial(self._abort_overdue, each))
        if len(ids) > OVERDUE_STEP_IDS_MAX:
            timers.schedule("overdue", 0, partial(self._find_overdue, ids[OVERDUE_STEP_IDS_MAX:]))
        return NOTHING

    def _abort_overdue(self, transactional_id: str) -> Outcome:
        known, now_ms = self._transactions.get(transactional_id), self._world.clock.now_ms()
        if known is None or known.state is not ONGOING or not known.is_overdue(now_ms):
            return NOTHING
        try:
            new = decisions.fenced(known, self._world.transaction_version(), now_ms, self._world.numbering)
        except ApiError:  # there is no producer id at hand: the next time
            return NOTHING
        check_transition(known.state, new.state)
        return self._outcome(transactional_id, new)

    def _expire(self, ids: list[str]) -> Outcome:
        """Forget unused ones among the ids, some in each turn of the loop."""
        characters = number = 0
        while number < min(len(ids), EXPIRY_STEP_IDS_MAX) and characters < EXPIRY_STEP_CHARACTERS_MAX:
            characters += len(ids[number])
            number += 1
        if number < len(ids):
            self._world.timers.schedule("expiry", 0, partial(self._expire, ids[number:]))
        unused_since_ms = self._world.clock.now_ms() - self._world.config().int("transactional.id.expiration.ms")
        unused = [
            each
            for each in ids[:number]
            if (known := self._transactions.get(each)) is not None and known.is_unused_since(unused_since_ms)
        ]
        for each in unused:
            check_transition(self._transactions[each].state, DEAD)
        return Outcome([record_of(each, None, self._world.transaction_version()) for each in unused])
