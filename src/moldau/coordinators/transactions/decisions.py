"""Decisions on requests of a transaction: each function takes the state and returns the next one, or raises ApiError.

The codes and the order of the checks are Kafka's. Kafka has a pending transition while a record is being written, and
answers CONCURRENT_TRANSACTIONS meanwhile; here the state has changed already, and whoever is told of it is told when
the record is durable. What is left of it are the prepared states: Kafka holds a pending transition through all of them.
"""

from moldau.coordinators.transactions.state import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
)
from moldau.coordinators.transactions.transaction import (
    EPOCH_BUMPS,
    NO_EPOCH,
    NO_TIME,
    ORIGINAL,
    Numbering,
    Producer,
    Transaction,
)
from moldau.core.ids import NO_PRODUCER_ID, TopicPartition
from moldau.protocol.errors import ApiError, ErrorCode


def initialized(
    known: Transaction | None,
    expected: Producer | None,
    timeout_ms: int,
    now_ms: int,
    numbering: Numbering,
    transaction_version: int,
) -> Transaction:
    """InitProducerId: the id with a producer that nobody else is; or its open transaction as `fenced`, which must be
    aborted first. `expected`: who the producer was, if it goes on after an error (KIP-360)."""
    if known is None:
        return Transaction(numbering.new_producer_id(), 0, timeout_ms, EMPTY, now_ms)
    if known.is_prepared:
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS, "the transaction before is still being ended")
    epoch = known.producer_epoch
    if expected is not None:
        _check_expected(known, expected, numbering)
    if known.state is ONGOING:
        return fenced(known, transaction_version, now_ms, numbering)
    begun = known._replace(
        state=EMPTY,
        timeout_ms=timeout_ms,
        partitions=frozenset(),
        start_ms=NO_TIME,
        last_update_ms=now_ms,
        previous_producer_id=known.producer_id,
    )
    if expected is not None and expected != known.producer:
        # The answer to the first attempt was lost, of which the last epoch may have been the outcome. Who repeats it
        # once more must still be known as who it was.
        return begun._replace(previous_producer_id=expected.producer_id)
    last = NO_EPOCH if expected is None else epoch
    if numbering.is_exhausted(epoch):
        return begun._replace(producer_id=numbering.new_producer_id(), producer_epoch=0, last_producer_epoch=last)
    return begun._replace(producer_epoch=epoch + 1, last_producer_epoch=last)


def _check_expected(known: Transaction, expected: Producer, numbering: Numbering) -> None:
    """A producer may go on as who it is, or as who it was if the answer was lost: then its id may have changed with the
    last epoch. While a transaction is open no answer was lost, as its producer has used its epoch. Kafka looks at the
    epoch only after it has aborted what is open: so can a zombie, or a request that comes late."""
    if expected == known.producer:
        return
    is_former = expected.producer_epoch == known.last_producer_epoch and known.state is not ONGOING
    is_exhausted = numbering.is_exhausted(expected.producer_epoch)
    has_same_id = expected.producer_id == known.producer_id
    if not is_former or not (has_same_id or (is_exhausted and expected.producer_id == known.previous_producer_id)):
        raise _fenced(known)


def with_partitions(
    known: Transaction | None,
    producer: Producer,
    partitions: frozenset[TopicPartition],
    client_version: int,
    now_ms: int,
) -> Transaction | None:
    """AddPartitionsToTxn, AddOffsetsToTxn: the open transaction with these partitions; None if they are in it already.

    A transaction that is being ended comes first: after the last epoch a producer knows its new id before the markers
    of the old one are written (KAFKA-18660)."""
    if known is None:
        raise _unknown(producer)
    if known.is_prepared:
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS, "the transaction before is still being ended")
    _check_producer(known, producer)
    is_open = known.state is ONGOING
    if is_open and partitions <= known.partitions:
        return None
    return known._replace(
        state=ONGOING,
        partitions=known.partitions | partitions if is_open else partitions,
        start_ms=known.start_ms if is_open else now_ms,
        last_update_ms=now_ms,
        previous_producer_id=known.producer_id,
        client_version=client_version,
    )


def verified(
    known: Transaction | None, producer: Producer, partitions: frozenset[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """AddPartitionsToTxn that only verifies: which of the partitions are in the producer's open transaction."""
    if known is None:
        raise _unknown(producer)
    _check_producer(known, producer)
    if known.is_prepared:
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS, "the transaction is being ended")
    return {
        each: ErrorCode.NONE if each in known.partitions else ErrorCode.TRANSACTION_ABORTABLE for each in partitions
    }


def ended_originally(known: Transaction | None, producer: Producer, committed: bool, now_ms: int) -> Transaction | None:
    """EndTxn up to version 4: the prepared transaction; None if the last one ended so already.

    The epoch does not change: nobody can tell a late request for the transaction before from one for this (KIP-890)."""
    if known is None:
        raise _unknown(producer)
    _check_producer(known, producer)
    if known.is_prepared:
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS, "the transaction is being ended")
    if known.state is (COMPLETE_COMMIT if committed else COMPLETE_ABORT):
        return None
    if known.state is not ONGOING:
        raise _wrong_state(known, committed)
    return known._replace(
        state=PREPARE_COMMIT if committed else PREPARE_ABORT,
        last_update_ms=now_ms,
        previous_producer_id=known.producer_id,
        client_version=ORIGINAL,
    )


def ended(
    known: Transaction | None, producer: Producer, committed: bool, now_ms: int, numbering: Numbering
) -> Transaction | None:
    """EndTxn since version 5: the prepared transaction, with the next epoch; None if this is a repeated request for one
    that has ended so. A producer that does not know whether it wrote anything may abort nothing."""
    if known is None:
        raise _unknown(producer)
    is_after_last_epoch = (
        known.producer_epoch == 0
        and producer == (known.previous_producer_id, numbering.last_usable)
        and known.previous_producer_id != known.producer_id
    )
    if known.is_prepared and producer.producer_id in (known.producer_id, known.next_producer.producer_id):
        # Before the epoch: a client that aborts nothing right after an end is not to be fenced (KAFKA-18464).
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS, "the transaction is being ended")
    if producer.producer_id != known.producer_id and not is_after_last_epoch:
        raise _unknown(producer)
    if (is_after_last_epoch or producer.producer_epoch == known.producer_epoch - 1) and known.state in (
        COMPLETE_COMMIT,
        COMPLETE_ABORT,
    ):
        _check_repeated(known, committed)
        return None
    if producer.producer_epoch != known.producer_epoch:
        raise _fenced(known)
    if known.state is not ONGOING and committed:
        raise _wrong_state(known, committed)
    return _prepared(known, committed, now_ms, numbering)


def fenced(known: Transaction, transaction_version: int, now_ms: int, numbering: Numbering) -> Transaction:
    """The open transaction, to be aborted without its producer, which gets no further with the epoch it has. One more
    epoch is enough (KAFKA-19367), and the last one is followed by a new producer id (KAFKA-20090)."""
    if transaction_version >= EPOCH_BUMPS:
        return _prepared(known, False, now_ms, numbering)
    return known._replace(
        state=PREPARE_ABORT,
        producer_epoch=min(known.producer_epoch + 1, numbering.epoch_max),
        last_producer_epoch=NO_EPOCH,
        last_update_ms=now_ms,
        previous_producer_id=known.producer_id,
        client_version=ORIGINAL,
    )


def _prepared(known: Transaction, committed: bool, now_ms: int, numbering: Numbering) -> Transaction:
    is_broken = known.producer_epoch >= numbering.epoch_max  # no producer is given this: end it as it was always done
    is_last = not is_broken and numbering.is_exhausted(known.producer_epoch)
    return known._replace(
        state=PREPARE_COMMIT if committed else PREPARE_ABORT,
        producer_epoch=known.producer_epoch + (not is_broken),
        last_producer_epoch=known.producer_epoch,
        start_ms=known.start_ms if known.state is ONGOING else now_ms,
        last_update_ms=now_ms,
        previous_producer_id=known.producer_id,
        next_producer_id=numbering.new_producer_id() if is_last else NO_PRODUCER_ID,
        client_version=ORIGINAL if is_broken else EPOCH_BUMPS,
    )


def _check_repeated(known: Transaction, committed: bool) -> None:
    """A request for the transaction that has ended. A commit of what was aborted here, as it took too long, was in
    flight then: its producer is told that it is fenced, from which clients recover (KAFKA-20785)."""
    if known.state is (COMPLETE_COMMIT if committed else COMPLETE_ABORT):
        return
    raise _fenced(known) if committed else _wrong_state(known, committed)


def _check_producer(known: Transaction, producer: Producer) -> None:
    if producer.producer_id != known.producer_id:
        raise _unknown(producer)
    if producer.producer_epoch != known.producer_epoch:
        raise _fenced(known)


def _unknown(producer: Producer) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"producer {producer.producer_id} does not have this transactional id"
    )


def _fenced(known: Transaction) -> ApiError:
    return ApiError(ErrorCode.PRODUCER_FENCED, f"a newer producer has epoch {known.producer_epoch}")


def _wrong_state(known: Transaction, committed: bool) -> ApiError:
    what = "committed" if committed else "aborted"
    return ApiError(ErrorCode.INVALID_TXN_STATE, f"in state {known.state.value} nothing can be {what}")
