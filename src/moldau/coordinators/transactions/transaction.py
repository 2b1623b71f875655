"""State of one transactional id: an immutable value, as a record has it.

Laws of epochs: a producer's writes, and the markers that end them, carry the epoch that the coordinator gave it. Who
has a lower one is fenced. The highest epoch is kept for the coordinator itself, so that the last producer of an id can
be fenced, too; after the one below it comes a new producer id with epoch 0.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from moldau.coordinators.records import CoordinatorRecord
from moldau.coordinators.transactions.record_tables import (
    FLEXIBLE_VALUE,
    LAST_EPOCH_UNKNOWN,
    PLAIN_VALUE,
    TransactionLogKey,
    TransactionLogValue,
    TransactionPartitions,
)
from moldau.coordinators.transactions.state import (
    AT_REST,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    PREPARE_COMMIT,
    PREPARED,
    STATE_IDS,
    STATES,
    TransactionState,
)
from moldau.core.ids import NO_PRODUCER_ID, TopicPartition

NO_EPOCH: Final = -1
NO_TIME: Final = -1
PRODUCER_EPOCH_MAX: Final = 32767

FLEXIBLE_LOG: Final = 1
EPOCH_BUMPS: Final = 2
"""The first `transaction.version` in which each transaction has an epoch of its own (KIP-890)."""
ORIGINAL: Final = 0


class Producer(NamedTuple):
    """A producer as it names itself in requests."""

    producer_id: int
    producer_epoch: int


NOBODY: Final = Producer(NO_PRODUCER_ID, NO_EPOCH)


class Numbering(NamedTuple):
    """The end of the epochs, and the source of producer ids, which may raise ApiError. Tests end epochs early."""

    new_producer_id: Callable[[], int]
    epoch_max: int = PRODUCER_EPOCH_MAX

    def is_exhausted(self, epoch: int) -> bool:
        """Whether a producer with this epoch gets no next one."""
        return epoch >= self.last_usable

    @property
    def last_usable(self) -> int:
        return self.epoch_max - 1


class Transaction(NamedTuple):
    """The newest state of a transactional id. Each change sets `previous_producer_id` to the id before it."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    last_update_ms: int
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIME
    last_producer_epoch: int = NO_EPOCH
    """Epoch of a producer that repeats a request whose answer it did not get (KIP-360); -1 if nobody may."""
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    """Id with which the producer goes on after this transaction, with epoch 0; -1 if the id stays."""
    client_version: int = ORIGINAL
    """The `transaction.version` of the producer that wrote last."""
    next_producer_epoch: int = NO_EPOCH

    @property
    def producer(self) -> Producer:
        return Producer(self.producer_id, self.producer_epoch)

    @property
    def is_prepared(self) -> bool:
        return self.state in PREPARED

    @property
    def next_producer(self) -> Producer:
        """The producer's id and epoch when this transaction has ended."""
        return self.producer if self.next_producer_id == NO_PRODUCER_ID else Producer(self.next_producer_id, 0)

    def is_overdue(self, now_ms: int) -> bool:
        return self.start_ms + self.timeout_ms < now_ms

    def is_unused_since(self, time_ms: int) -> bool:
        return self.state in AT_REST and self.last_update_ms <= time_ms

    def completed(self, now_ms: int) -> "Transaction":
        """All markers of the prepared transaction are written."""
        return self._replace(
            producer_id=self.next_producer.producer_id,
            producer_epoch=self.next_producer.producer_epoch,
            previous_producer_id=self.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            next_producer_epoch=NO_EPOCH,
            state=COMPLETE_COMMIT if self.state is PREPARE_COMMIT else COMPLETE_ABORT,
            partitions=frozenset(),
            last_update_ms=now_ms,
        )


def record_of(transactional_id: str, transaction: Transaction | None, transaction_version: int) -> CoordinatorRecord:
    """The record that makes replicas and successors know it; None: the id is forgotten."""
    key = TransactionLogKey(transactional_id=transactional_id)
    if transaction is None:
        return CoordinatorRecord(key, None)
    partitions = None if transaction.state is EMPTY else _by_topic(transaction.partitions)
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=STATE_IDS[transaction.state],
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=transaction.last_update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
        client_transaction_version=transaction.client_version,
        next_producer_epoch=transaction.next_producer_epoch,
        last_producer_epoch=transaction.last_producer_epoch,
        log_version=FLEXIBLE_VALUE if transaction_version >= FLEXIBLE_LOG else PLAIN_VALUE,
    )
    return CoordinatorRecord(key, value)


def transaction_of(value: TransactionLogValue, epoch_max: int = PRODUCER_EPOCH_MAX) -> Transaction:
    """The state that a record tells of, ours or Kafka's."""
    transaction = Transaction(
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=STATES[value.transaction_status],
        last_update_ms=value.transaction_last_update_timestamp_ms,
        partitions=frozenset(
            TopicPartition(each.topic, number)
            for each in value.transaction_partitions or ()
            for number in each.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        last_producer_epoch=value.last_producer_epoch,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        client_version=value.client_transaction_version,
        next_producer_epoch=value.next_producer_epoch,
    )
    if value.last_producer_epoch == LAST_EPOCH_UNKNOWN:
        return transaction._replace(last_producer_epoch=_last_epoch(transaction, epoch_max))
    return transaction


def _last_epoch(transaction: Transaction, epoch_max: int) -> int:
    """The last epoch, where a record of Kafka's does not say it. Of version 2 it is known after an end, which adds one
    to it; of anything else a wrong guess would give two producers the same epoch."""
    if transaction.client_version < EPOCH_BUMPS or transaction.state not in (
        *PREPARED,
        COMPLETE_COMMIT,
        COMPLETE_ABORT,
    ):
        return NO_EPOCH
    is_renewed = transaction.producer_epoch == 0 and transaction.previous_producer_id != transaction.producer_id
    return epoch_max - 1 if is_renewed else transaction.producer_epoch - 1


def _by_topic(partitions: Iterable[TopicPartition]) -> list[TransactionPartitions]:
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        topics.setdefault(topic, []).append(number)
    return [TransactionPartitions(topic=topic, partition_ids=numbers) for topic, numbers in topics.items()]
