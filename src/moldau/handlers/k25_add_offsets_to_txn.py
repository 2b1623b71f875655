"""AddOffsetsToTxn, versions 0 to 4.

Makes the offsets of a consumer group part of a producer's transaction: the partition of `__consumer_offsets` that the
group belongs to is added to it. Clients of transaction version 2 do without it (KIP-890).

- 0 to 1: a fenced producer is told INVALID_PRODUCER_EPOCH, later PRODUCER_FENCED (KIP-588).
- CONCURRENT_TRANSACTIONS: the transaction before is still being ended; clients try again.
"""

from moldau.coordinators.key_partition import partition_of
from moldau.coordinators.promise import Promise, mapped
from moldau.coordinators.transactions.transaction import ORIGINAL, Producer
from moldau.core.ids import TopicPartition
from moldau.core.internal_topics import OFFSETS_TOPIC
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from moldau.requests.authorization import GROUP, READ, TRANSACTIONAL_ID, WRITE
from moldau.requests.context import RequestContext
from moldau.requests.coordinator_topics import have_topic
from moldau.requests.groups_access import awaited
from moldau.requests.pending import PendingAnswer, promised, undecided
from moldau.requests.transaction_partitions import added

TELLS_FENCING_APART = 2  # KIP-588


def handle(request: AddOffsetsToTxnRequest, context: RequestContext) -> AddOffsetsToTxnResponse | PendingAnswer:
    if not context.may(WRITE, TRANSACTIONAL_ID, request.transactional_id):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not context.may(READ, GROUP, request.group_id):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if context.services.groups.has_topic:
        return promised(_add(request, context))
    return undecided(_make_and_add(request, context))


async def _make_and_add(request: AddOffsetsToTxnRequest, context: RequestContext) -> AddOffsetsToTxnResponse:
    """Add a group's offsets where the topic for them does not exist yet: it is made first."""
    try:
        await have_topic(context.services.groups, context.services)
    except ApiError as error:
        return AddOffsetsToTxnResponse(error_code=error.code)
    return await awaited(_add(request, context))


def _add(
    request: AddOffsetsToTxnRequest, context: RequestContext
) -> AddOffsetsToTxnResponse | Promise[AddOffsetsToTxnResponse]:
    count = len(context.services.metadata.image.topics[OFFSETS_TOPIC].partitions)
    try:
        partition = TopicPartition(OFFSETS_TOPIC, partition_of(request.group_id, count))
    except ApiError as error:
        return AddOffsetsToTxnResponse(error_code=error.code)
    producer = Producer(request.producer_id, request.producer_epoch)
    codes = added(context.services.transactions, request.transactional_id, producer, [partition], ORIGINAL)

    def response(found: dict[TopicPartition, ErrorCode]) -> AddOffsetsToTxnResponse:
        code = found[partition]
        if code is ErrorCode.PRODUCER_FENCED and context.api_version < TELLS_FENCING_APART:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        return AddOffsetsToTxnResponse(error_code=code)

    return mapped(codes, response)
