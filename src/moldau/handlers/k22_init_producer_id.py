"""InitProducerId, versions 0 to 5.

Gives an idempotent producer an id that nobody else has or had, with epoch 0.

- 3+: a producer that lost track of its sequences sends the id and epoch it has (KIP-360). Without a transactional id
  there is nothing to fence, so it just gets a new id, as from Kafka; an id without an epoch is INVALID_REQUEST.
- While the metadata store cannot be reached there may be no id to give: COORDINATOR_LOAD_IN_PROGRESS, Kafka's answer
  when it has no block of ids. Clients try again.

Gaps: a transactional id is refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED until there is a transaction
coordinator. Of the codes that are not wrong it is the one at which both the Java client and librdkafka stop instead of
trying again.
"""

from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from moldau.requests.authorization import CLUSTER, IDEMPOTENT_WRITE, TOPIC, TRANSACTIONAL_ID, WRITE
from moldau.requests.context import RequestContext
from moldau.requests.pending import holds_order

NONE = -1


@holds_order
async def handle(request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    code = _denied(request, context) or _reason_to_refuse(request)
    if code is not None:
        return InitProducerIdResponse(error_code=code, producer_epoch=NONE)
    try:
        producer_id = await context.services.producer_ids.next()
    except ApiError:
        return InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, producer_epoch=NONE)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _reason_to_refuse(request: InitProducerIdRequest) -> ErrorCode | None:
    if request.transactional_id == "":
        return ErrorCode.INVALID_REQUEST
    if (request.producer_id == NONE) != (request.producer_epoch == NONE):
        return ErrorCode.INVALID_REQUEST
    if request.transactional_id is not None:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return None


def _denied(request: InitProducerIdRequest, context: RequestContext) -> ErrorCode | None:
    """Whoever may write to some topic may do so idempotently (KIP-679)."""
    transactional_id = request.transactional_id
    if transactional_id is not None:
        is_allowed = context.may(WRITE, TRANSACTIONAL_ID, transactional_id)
        return None if is_allowed else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    is_allowed = context.may(IDEMPOTENT_WRITE, CLUSTER) or context.may_on_any(WRITE, TOPIC)
    return None if is_allowed else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
