"""InitProducerId, versions 0 to 5.

Gives an idempotent producer an id that nobody else has or had, with epoch 0; and a transactional one the producer id of
its transactional id, with an epoch that nobody else has: whoever had the id before is fenced.

- What the producer before has left open is aborted first: CONCURRENT_TRANSACTIONS, and clients ask again.
- 3+: a producer that goes on after an error sends the id and epoch it has (KIP-360). A transactional one is fenced
  unless it is the newest, or repeats a request whose answer was lost; then it gets the same answer. Without a
  transactional id there is nothing to fence, so it just gets a new id. An id without an epoch is INVALID_REQUEST.
- 0 to 3: a fenced producer is told INVALID_PRODUCER_EPOCH, later PRODUCER_FENCED (KIP-588).
- INVALID_TRANSACTION_TIMEOUT: the timeout is not above 0, or above `transaction.max.timeout.ms`.
- While the metadata store cannot be reached there may be no id to give: COORDINATOR_LOAD_IN_PROGRESS, Kafka's answer
  when it has no block of ids. Clients try again.

Gaps: two-phase commit (version 6, KIP-939), which is not stable in Kafka either.
"""

from moldau.coordinators.transactions.transaction import Producer
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from moldau.requests.authorization import CLUSTER, IDEMPOTENT_WRITE, TOPIC, TRANSACTIONAL_ID, WRITE
from moldau.requests.context import RequestContext
from moldau.requests.groups_access import awaited
from moldau.requests.pending import holds_order
from moldau.requests.transactions_access import code_of

NONE = -1
TELLS_FENCING_APART = 4  # KIP-588


@holds_order
async def handle(request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    code = _denied(request, context) or _reason_to_refuse(request, context)
    if code is not None:
        return _refused(code)
    try:
        await context.services.producer_ids.ready()
        if request.transactional_id is None:
            return InitProducerIdResponse(producer_id=context.services.producer_ids.take(), producer_epoch=0)
    except ApiError:
        return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    found = await _initialized(request.transactional_id, request, context)
    if isinstance(found, ApiError):
        return _refused(code_of(found, knows_fencing=context.api_version >= TELLS_FENCING_APART))
    return InitProducerIdResponse(producer_id=found.producer_id, producer_epoch=found.producer_epoch)


async def _initialized(
    transactional_id: str, request: InitProducerIdRequest, context: RequestContext
) -> Producer | ApiError:
    expected = None if request.producer_id == NONE else Producer(request.producer_id, request.producer_epoch)
    return await awaited(
        context.services.transactions.answer(
            transactional_id,
            lambda shard: shard.init_producer_id(transactional_id, request.transaction_timeout_ms, expected),
            _as_it_is,
        )
    )


def _as_it_is(error: ApiError) -> ApiError:
    return error


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_epoch=NONE)


def _reason_to_refuse(request: InitProducerIdRequest, context: RequestContext) -> ErrorCode | None:
    if (request.producer_id == NONE) != (request.producer_epoch == NONE):
        return ErrorCode.INVALID_REQUEST
    if request.transactional_id is None:
        return None
    if not request.transactional_id:
        return ErrorCode.INVALID_REQUEST
    longest_ms = context.services.config.int("transaction.max.timeout.ms")
    if not 0 < request.transaction_timeout_ms <= longest_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return None


def _denied(request: InitProducerIdRequest, context: RequestContext) -> ErrorCode | None:
    """Error if the client may not have a producer id. A client that may write to some topic may do so idempotently
    (KIP-679)."""
    transactional_id = request.transactional_id
    if transactional_id is not None:
        is_allowed = context.may(WRITE, TRANSACTIONAL_ID, transactional_id)
        return None if is_allowed else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    is_allowed = context.may(IDEMPOTENT_WRITE, CLUSTER) or context.may_on_any(WRITE, TOPIC)
    return None if is_allowed else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
