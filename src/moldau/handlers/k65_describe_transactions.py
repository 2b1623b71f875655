"""DescribeTransactions, version 0 (KIP-664).

Tells all about transactional ids that this broker coordinates: the state, the producer, since when the transaction is
open, and its partitions, of those topics that the one who asks may describe.

- TRANSACTIONAL_ID_NOT_FOUND: nobody uses the id, or it has expired.
"""

from moldau.coordinators.transactions.state import DEAD
from moldau.coordinators.transactions.transaction import Transaction
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.messages.k65_describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from moldau.requests.authorization import DESCRIBE, TOPIC, TRANSACTIONAL_ID
from moldau.requests.context import RequestContext
from moldau.requests.pieces import Pieces

PIECES = Pieces("transactional_ids", "transaction_states")


def handle(request: DescribeTransactionsRequest, context: RequestContext) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[_described(each, context) for each in request.transactional_ids]
    )


def _described(transactional_id: str, context: RequestContext) -> TransactionState:
    try:
        context.require(DESCRIBE, TRANSACTIONAL_ID, transactional_id)
        if not transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST, "a transactional id cannot be empty")
        found = context.services.transactions.read(transactional_id, lambda shard: shard.get(transactional_id))
    except ApiError as error:
        return TransactionState(error_code=error.code, transactional_id=transactional_id)
    if found is None or found.state is DEAD:
        return TransactionState(error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id=transactional_id)
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=found.state.value,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.start_ms,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        topics=_topics(found, context),
    )


def _topics(transaction: Transaction, context: RequestContext) -> list[TopicData]:
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(transaction.partitions):
        topics.setdefault(topic, []).append(number)
    return [
        TopicData(topic=topic, partitions=numbers)
        for topic, numbers in topics.items()
        if context.may(DESCRIBE, TOPIC, topic)
    ]
