"""AddPartitionsToTxn, versions 0 to 5.

Makes partitions part of a producer's transaction, which begins with the first of them. It is answered when the
coordinator's log has it.

- If one partition is unknown or may not be written to, none is added: the others are told OPERATION_NOT_ATTEMPTED. No
  client may add partitions of internal topics.
- 0 to 1: a fenced producer is told INVALID_PRODUCER_EPOCH, later PRODUCER_FENCED (KIP-588).
- 4+: brokers ask for many transactions at once, to add what a client of transaction version 2 produces to, or only to
  verify that it is part of the transaction (KIP-890). A partition that is not is told TRANSACTION_ABORTABLE.
- CONCURRENT_TRANSACTIONS: the transaction before is still being ended; clients try again.
"""

from collections.abc import Callable

from moldau.coordinators.promise import Promise, mapped
from moldau.coordinators.transactions.transaction import ORIGINAL, Producer
from moldau.core.ids import TopicPartition
from moldau.core.internal_topics import INTERNAL_TOPICS
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from moldau.requests.authorization import CLUSTER, CLUSTER_ACTION, TOPIC, TRANSACTIONAL_ID, WRITE
from moldau.requests.context import RequestContext
from moldau.requests.groups_access import awaited
from moldau.requests.pending import PendingAnswer, promised, undecided
from moldau.requests.pieces import Pieces
from moldau.requests.transaction_partitions import (
    Codes,
    add_partitions,
    add_partitions_in_turns,
    added,
    all_or_nothing,
    by_topic,
    by_topic_in_turns,
    is_long,
    looked_through,
    named,
    refusal,
)
from moldau.requests.turns import Turns

PIECES = Pieces("transactions", "results_by_transaction")
TELLS_FENCING_APART = 2  # KIP-588
ASKED_BY_BROKERS = 4  # KIP-890


def handle(request: AddPartitionsToTxnRequest, context: RequestContext) -> AddPartitionsToTxnResponse | PendingAnswer:
    if context.api_version < ASKED_BY_BROKERS:
        return _of_a_client(request, context)
    if not context.may(CLUSTER_ACTION, CLUSTER):
        return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    transactions, image = context.services.transactions, context.services.metadata.image
    if any(is_long(each.topics) for each in request.transactions):
        return undecided(add_partitions_in_turns(transactions, image, request))
    return promised(add_partitions(transactions, image, request))


def _of_a_client(
    request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse | PendingAnswer:
    if is_long(request.v3_and_below_topics):
        return undecided(_in_turns(request, context))
    partitions, refused = named(request.v3_and_below_topics), _refusals(request, context)
    failed = {each: code for each in partitions if (code := refused(each)) is not None}
    if failed:
        return _response(by_topic(all_or_nothing(partitions, failed)))
    return promised(_added(request, partitions, context))


async def _in_turns(request: AddPartitionsToTxnRequest, context: RequestContext) -> AddPartitionsToTxnResponse:
    """The same for very many partitions."""
    turns = Turns()
    topics = request.v3_and_below_topics
    partitions, failed = await looked_through(topics, _refusals(request, context), turns)
    if failed:
        return _response(await by_topic_in_turns(partitions, failed, turns))
    return await awaited(_added(request, partitions, context))


def _added(
    request: AddPartitionsToTxnRequest, partitions: list[TopicPartition], context: RequestContext
) -> AddPartitionsToTxnResponse | Promise[AddPartitionsToTxnResponse]:
    transactional_id = request.v3_and_below_transactional_id
    producer = Producer(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
    codes = added(context.services.transactions, transactional_id, producer, partitions, ORIGINAL)
    return mapped(codes, lambda found: _response(by_topic(_as_known(found, context.api_version))))


def _refusals(
    request: AddPartitionsToTxnRequest, context: RequestContext
) -> Callable[[TopicPartition], ErrorCode | None]:
    """Function that returns why a partition cannot be added, or None."""
    if not context.may(WRITE, TRANSACTIONAL_ID, request.v3_and_below_transactional_id):
        return lambda _: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    image = context.services.metadata.image
    allowed: dict[str, bool] = {}

    def refused(partition: TopicPartition) -> ErrorCode | None:
        topic = partition.topic
        if topic not in allowed:
            allowed[topic] = topic not in INTERNAL_TOPICS and context.may(WRITE, TOPIC, topic)
        return refusal(image, partition) if allowed[topic] else ErrorCode.TOPIC_AUTHORIZATION_FAILED

    return refused


def _as_known(codes: Codes, version: int) -> Codes:
    if version >= TELLS_FENCING_APART:
        return codes
    fenced, old = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH
    return {each: old if code is fenced else code for each, code in codes.items()}


def _response(topics: list[AddPartitionsToTxnTopicResult]) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)
