"""ListTransactions, versions 0 to 2 (KIP-664).

Tells which transactional ids this broker coordinates, of those that the one who asks may describe: by state and by
producer id. Names of states that do not exist are told back.

- 1+: only those that are open for longer than some time (KIP-994).
- 2+: only those whose id matches a pattern of RE2's syntax as a whole (KIP-1152); INVALID_REGULAR_EXPRESSION.
- COORDINATOR_LOAD_IN_PROGRESS: some of the transactions are still being read.
"""

from moldau.coordinators.consumer.topic_regex import TopicRegex
from moldau.coordinators.transactions.listing import Filters
from moldau.coordinators.transactions.state import BY_NAME
from moldau.protocol.errors import ApiError
from moldau.protocol.messages.k66_list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from moldau.requests.authorization import DESCRIBE, TRANSACTIONAL_ID
from moldau.requests.context import RequestContext
from moldau.requests.pending import holds_order
from moldau.requests.turns import Turns


@holds_order
async def handle(request: ListTransactionsRequest, context: RequestContext) -> ListTransactionsResponse:
    turns = Turns()
    states = {each: None async for each in turns.each(request.state_filters)}
    producer_ids = {each async for each in turns.each(request.producer_id_filters)}
    try:
        pattern = TopicRegex(request.transactional_id_pattern) if request.transactional_id_pattern else None
        filters = Filters(frozenset(states), frozenset(producer_ids), request.duration_filter, pattern)
        return ListTransactionsResponse(
            unknown_state_filters=[each async for each in turns.each(states) if each not in BY_NAME],
            transaction_states=await _listed(filters, context, turns),
        )
    except ApiError as error:
        return ListTransactionsResponse(error_code=error.code)


async def _listed(filters: Filters, context: RequestContext, turns: Turns) -> list[TransactionState]:
    now_ms = context.services.clock.now_ms()
    return [
        TransactionState(transactional_id=name, producer_id=each.producer_id, transaction_state=each.state.value)
        for shard in context.services.transactions.shards()
        async for name, each in turns.each(list(shard.items()))
        if filters.asks_for(name, each, now_ms) and context.may(DESCRIBE, TRANSACTIONAL_ID, name)
    ]
