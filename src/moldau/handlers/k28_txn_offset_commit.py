"""TxnOffsetCommit, versions 0 to 5.

Stores where a group goes on reading as part of a producer's transaction: the offsets count when the transaction is
committed, and never if it is aborted. The answer comes when they are as safe as a write with acks=all.

- Needs WRITE on the transactional id, READ on the group and on each topic.
- A partition that does not exist is refused alone: UNKNOWN_TOPIC_OR_PARTITION.
- The first of a transaction waits for the transaction's coordinator: up to 3 it is asked whether the group's partition
  of `__consumer_offsets` was added, in errors that old clients know; 4 with TRANSACTION_ABORTABLE; 5+ add it (KIP-890).
- 0-1: COORDINATOR_LOAD_IN_PROGRESS is told as COORDINATOR_NOT_AVAILABLE (KAFKA-7296). 2+: leader epoch (KIP-320).
- 3+: whoever names a generation, a member or an instance must be that member: ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID,
  FENCED_INSTANCE_ID (KIP-447).
"""

from collections.abc import Sequence

from moldau.coordinators.groups.offsets import Committing, OffsetToCommit
from moldau.coordinators.promise import Promise, mapped
from moldau.log.verification import NOT_VERIFIED, VerificationGuard
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from moldau.records.batch import NO_SEQUENCE
from moldau.requests.authorization import GROUP, READ, TOPIC, TRANSACTIONAL_ID, WRITE
from moldau.requests.context import RequestContext
from moldau.requests.groups_access import TransactionalProducer, awaited
from moldau.requests.pending import PendingAnswer, promised, undecided
from moldau.requests.pieces import Pieces
from moldau.requests.transaction_verification import TransactionOperation, VerifiedTransaction

LOADING_IS_TOLD = 2  # KAFKA-7296
COMMIT_KNOWS_ABORTABLE = 4  # KIP-890
COMMIT_ADDS_PARTITIONS = 5  # KIP-890, transaction version 2

_OF_THE_VERIFICATION = {
    # Retried by every client, without looking for the coordinator again.
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
}

PIECES = Pieces("topics", "topics", "partitions", "partitions", elements_max=50)

_Answer = TxnOffsetCommitResponse | Promise[TxnOffsetCommitResponse]


def handle(request: TxnOffsetCommitRequest, context: RequestContext) -> TxnOffsetCommitResponse | PendingAnswer:
    if not context.may(WRITE, TRANSACTIONAL_ID, request.transactional_id):
        return _refused(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not context.may(READ, GROUP, request.group_id):
        return _refused(request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    refusals = [code for topic in request.topics for code in _refusals(topic, context)]
    if all(refusals):
        return _response(request, refusals, [])
    if not request.group_id:
        return _response(request, refusals, _for_all(refusals, ErrorCode.INVALID_GROUP_ID))
    try:
        guard = _begin_verification(request, context)
    except ApiError as error:
        return _response(request, refusals, _for_all(refusals, _as_told(error.code, context)))
    if guard is None or guard is NOT_VERIFIED:
        return promised(_commit(request, context, refusals, guard))
    return undecided(_verify_and_commit(request, context, refusals, guard))


def _refusals(topic: TxnOffsetCommitRequestTopic, context: RequestContext) -> list[int]:
    """The code of each partition for which no offset can be committed, and NONE for the others."""
    if not context.may(READ, TOPIC, topic.name):
        return [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * len(topic.partitions)
    found = context.services.metadata.image.topics.get(topic.name)
    count = 0 if found is None else len(found.partitions)
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return [ErrorCode.NONE if 0 <= each.partition_index < count else missing for each in topic.partitions]


def _operation(version: int) -> TransactionOperation:
    if version >= COMMIT_ADDS_PARTITIONS:
        return TransactionOperation.ADD
    return TransactionOperation.VERIFY if version >= COMMIT_KNOWS_ABORTABLE else TransactionOperation.VERIFY_OLD


def _begin_verification(request: TxnOffsetCommitRequest, context: RequestContext) -> VerificationGuard | None:
    """The guard to ask with; None: the transaction is open in the group's partition. Raises ApiError."""
    services, operation = context.services, _operation(context.api_version)
    partition = services.groups.partition(request.group_id)
    if not operation.bumps_epoch and not services.config.bool("transaction.partition.verification.enable"):
        return NOT_VERIFIED
    return partition.begin_verification(
        request.producer_id,
        request.producer_epoch,
        NO_SEQUENCE,
        services.clock.now_ms(),
        bumps_epoch=operation.bumps_epoch,
    )


async def _verify_and_commit(
    request: TxnOffsetCommitRequest, context: RequestContext, refusals: Sequence[int], guard: VerificationGuard
) -> TxnOffsetCommitResponse:
    transaction = VerifiedTransaction(request.transactional_id, request.producer_id, request.producer_epoch)
    try:
        where = context.services.groups.partition(request.group_id).topic_partition
        codes = await context.services.verifier.verify(transaction, [where], _operation(context.api_version))
        code = codes[where]
        if code:
            raise ApiError(_OF_THE_VERIFICATION.get(code, code), "the group's partition is not in the transaction")
    except ApiError as error:
        return _response(request, refusals, _for_all(refusals, _as_told(error.code, context)))
    return await awaited(_commit(request, context, refusals, guard))


def _commit(
    request: TxnOffsetCommitRequest,
    context: RequestContext,
    refusals: Sequence[int],
    guard: VerificationGuard | None,
) -> _Answer:
    who = Committing(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        context.api_version,
    )
    offsets = _offsets(request, context, refusals)
    codes = context.services.groups.answer_in_transaction(
        request.group_id,
        TransactionalProducer(request.producer_id, request.producer_epoch, guard),
        lambda shard: shard.offsets.commit_in_transaction(who, offsets),
        lambda error: [int(_as_told(error.code, context))] * len(offsets),
    )
    return mapped(codes, lambda known: _response(request, refusals, known))


def _offsets(request: TxnOffsetCommitRequest, context: RequestContext, refusals: Sequence[int]) -> list[OffsetToCommit]:
    topics = context.services.metadata.image.topics
    named = ((topic.name, each) for topic in request.topics for each in topic.partitions)
    return [
        OffsetToCommit(
            name,
            topics[name].topic_id,
            each.partition_index,
            each.committed_offset,
            each.committed_leader_epoch,
            each.committed_metadata,
        )
        for (name, each), refusal in zip(named, refusals, strict=True)
        if not refusal
    ]


def _as_told(code: int, context: RequestContext) -> int:
    """Code that clients of this version know."""
    if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and context.api_version < LOADING_IS_TOLD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code


def _for_all(refusals: Sequence[int], code: int) -> list[int]:
    return [code for refusal in refusals if not refusal]


def _refused(request: TxnOffsetCommitRequest, code: ErrorCode) -> TxnOffsetCommitResponse:
    return _response(request, [code for topic in request.topics for _ in topic.partitions], [])


def _response(
    request: TxnOffsetCommitRequest, refusals: Sequence[int], codes: Sequence[int]
) -> TxnOffsetCommitResponse:
    accepted = iter(codes)
    told = iter([refusal or next(accepted) for refusal in refusals])
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=next(told))
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
