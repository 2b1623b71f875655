"""EndTxn, versions 0 to 5.

Commits or aborts a producer's transaction. It is answered when the decision is in the coordinator's log; the markers
follow, and until they are written the next transaction is told CONCURRENT_TRANSACTIONS.

- 0 to 1: a fenced producer is told INVALID_PRODUCER_EPOCH, later PRODUCER_FENCED (KIP-588).
- Up to 4 the epoch stays. A late or repeated request cannot be told from one for the next transaction: only clients of
  transaction version 2 are safe from that (ADR 26).
- 5+: the answer has the producer id and the epoch of the next transaction (KIP-890). A repeated request gets the same
  answer. A transaction without partitions may be aborted. A commit that comes after the coordinator has aborted the
  transaction is told PRODUCER_FENCED (KAFKA-20785).
"""

from moldau.coordinators.promise import Promise
from moldau.coordinators.transactions.transaction import EPOCH_BUMPS, ORIGINAL, Producer
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.messages.k26_end_txn import EndTxnRequest, EndTxnResponse
from moldau.requests.authorization import TRANSACTIONAL_ID, WRITE
from moldau.requests.context import RequestContext
from moldau.requests.pending import PendingAnswer, promised
from moldau.requests.transactions_access import code_of

TELLS_FENCING_APART = 2  # KIP-588
BUMPS_THE_EPOCH = 5  # KIP-890


def handle(request: EndTxnRequest, context: RequestContext) -> EndTxnResponse | PendingAnswer:
    transactional_id, version = request.transactional_id, context.api_version
    if not context.may(WRITE, TRANSACTIONAL_ID, transactional_id):
        return EndTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not transactional_id:
        return EndTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    producer = Producer(request.producer_id, request.producer_epoch)
    client_version = EPOCH_BUMPS if version >= BUMPS_THE_EPOCH else ORIGINAL

    def response(found: Producer | ApiError) -> EndTxnResponse:
        if isinstance(found, ApiError):
            return EndTxnResponse(error_code=code_of(found, knows_fencing=version >= TELLS_FENCING_APART))
        return EndTxnResponse(producer_id=found.producer_id, producer_epoch=found.producer_epoch)

    answer: Producer | ApiError | Promise[Producer | ApiError] = context.services.transactions.answer(
        transactional_id,
        lambda shard: shard.end(transactional_id, producer, committed=request.committed, client_version=client_version),
        _as_it_is,
    )
    return promised(answer.mapped(response) if isinstance(answer, Promise) else response(answer))


def _as_it_is(error: ApiError) -> ApiError:
    return error
