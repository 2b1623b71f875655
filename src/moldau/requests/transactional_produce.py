"""The transactional batches of a Produce request: which of them must be verified before they are appended (KIP-890).

A batch of a transaction that is open in its partition is appended at once. The first one of a transaction waits for the
transaction's coordinator: up to Produce 11 it is asked whether the partition was added, from 12 on to add it.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from moldau.core.files import Buffer
from moldau.core.ids import TopicPartition
from moldau.core.internal_topics import INTERNAL_TOPICS
from moldau.log.verification import NOT_VERIFIED, VerificationGuard
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.messages.k00_produce import ProduceRequest
from moldau.records.batch import (
    ATTRIBUTES_POSITION,
    BATCH_HEADER_BYTES,
    MAGIC_POSITION,
    MAGIC_V2,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    CorruptBatchError,
    read_header,
)
from moldau.requests.authorization import TOPIC, WRITE
from moldau.requests.context import RequestContext
from moldau.requests.produce_answers import PRODUCE_BY_TOPIC_ID
from moldau.requests.transaction_verification import TransactionOperation, VerifiedTransaction

PRODUCE_KNOWS_ABORTABLE = 11  # KIP-890
PRODUCE_ADDS_PARTITIONS = 12  # KIP-890, transaction version 2

_RETRIED = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class Verdicts(NamedTuple):
    """Guards with which the batches of a request are appended, and errors of those that are not appended at all."""

    guards: Mapping[TopicPartition, VerificationGuard] = {}
    refusals: Mapping[TopicPartition, ApiError] = {}


NO_VERDICTS = Verdicts()


class Verification(NamedTuple):
    """Question to the coordinator before a request is handled."""

    transaction: VerifiedTransaction
    operation: TransactionOperation
    guards: Mapping[TopicPartition, VerificationGuard]

    async def ask(self, context: RequestContext) -> Verdicts:
        """The coordinator's word."""
        asked = list(self.guards)
        codes = await context.services.verifier.verify(self.transaction, asked, self.operation)
        refusals = {each: _refusal(code, self.operation) for each, code in codes.items() if code}
        return Verdicts(self.guards, refusals)


def is_transactional(records: Buffer | None) -> bool:
    """Whether the batch that a producer sent says that it is part of a transaction."""
    return (
        records is not None
        and len(records) >= BATCH_HEADER_BYTES
        and records[MAGIC_POSITION] == MAGIC_V2
        and records[ATTRIBUTES_POSITION] & TRANSACTIONAL_FLAG != 0
    )


def operation_of(version: int) -> TransactionOperation:
    if version >= PRODUCE_ADDS_PARTITIONS:
        return TransactionOperation.ADD
    return TransactionOperation.VERIFY if version >= PRODUCE_KNOWS_ABORTABLE else TransactionOperation.VERIFY_OLD


def begin(request: ProduceRequest, transactional_id: str, context: RequestContext) -> Verification | Verdicts:
    """Question to the coordinator for a request with transactional batches; Verdicts: nothing has to be asked. Raises
    ApiError if the batches are of more than one producer."""
    operation = operation_of(context.api_version)
    services = context.services
    is_verified = operation.bumps_epoch or services.config.bool("transaction.partition.verification.enable")
    guards: dict[TopicPartition, VerificationGuard] = {}
    producers: set[tuple[int, int]] = set()
    now_ms = services.clock.now_ms()
    for where, header in _transactional_batches(request, context):
        producers.add((header.producer_id, header.producer_epoch))
        partition = services.replicas.find(*where)
        if partition is None or not header.has_producer_id or header.is_control:
            continue  # refused when it is appended
        guard: VerificationGuard | None = NOT_VERIFIED
        if is_verified:
            guard = partition.begin_verification(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                now_ms,
                bumps_epoch=operation.bumps_epoch,
            )
        if guard is not None:
            guards[where] = guard
    if len(producers) > 1:
        raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "transactional batches of more than one producer")
    if not guards or not is_verified:
        return Verdicts(guards)
    ((producer_id, producer_epoch),) = producers
    return Verification(VerifiedTransaction(transactional_id, producer_id, producer_epoch), operation, guards)


def _transactional_batches(
    request: ProduceRequest, context: RequestContext
) -> Iterator[tuple[TopicPartition, BatchHeader]]:
    """The transactional batches that may be appended: of one that may not, the coordinator is told nothing."""
    replicas, by_id = context.services.replicas, context.api_version >= PRODUCE_BY_TOPIC_ID
    for topic in request.topic_data:
        name = replicas.name_of(topic.topic_id) if by_id else topic.name
        if name is None or name in INTERNAL_TOPICS or not context.may(WRITE, TOPIC, name):
            continue
        for data in topic.partition_data:
            if data.records is not None and is_transactional(data.records):
                with suppress(CorruptBatchError):
                    yield TopicPartition(name, data.index), read_header(data.records)


def _refusal(code: ErrorCode, operation: TransactionOperation) -> ApiError:
    """Error that producers know: at NOT_ENOUGH_REPLICAS every client tries again, without asking who leads the
    partition."""
    if code in _RETRIED or (code is ErrorCode.CONCURRENT_TRANSACTIONS and not operation.bumps_epoch):
        return ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, f"the transaction could not be verified: {code.name}")
    return ApiError(code, f"the partition is not in the transaction: {code.name}")
