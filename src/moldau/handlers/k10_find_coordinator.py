"""FindCoordinator, versions 0 to 6.

Tells which broker coordinates a group or a transactional id: the leader of its partition of `__consumer_offsets` or of
`__transaction_state`, at the address of the listener that the client came through. The topic is made at the first such
question, and the logs of it that are kept here, before the answer.

- 4+: many keys in one request, each with its own result (KIP-699).
- COORDINATOR_NOT_AVAILABLE: the partition has no leader now.
- INVALID_REQUEST: the id is longer than the records of the topic have place for.

Gaps: coordinators of share groups (key type 2) do not exist: INVALID_REQUEST.
"""

from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.messages.k10_find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from moldau.requests import authorization
from moldau.requests.authorization import DESCRIBE, TRANSACTIONAL_ID
from moldau.requests.context import RequestContext
from moldau.requests.coordinator_topics import have_topic
from moldau.requests.pending import holds_order
from moldau.requests.pieces import Pieces
from moldau.requests.turns import Turns

FIND_MANY_KEYS = 4  # KIP-699
GROUP, TRANSACTION = 0, 1
NO_NODE = -1


PIECES = Pieces("coordinator_keys", "coordinators")


@holds_order
async def handle(request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorResponse:
    if context.api_version >= FIND_MANY_KEYS:
        keys = Turns().each(request.coordinator_keys)
        return FindCoordinatorResponse(coordinators=[await _find(key, request.key_type, context) async for key in keys])
    found = await _find(request.key, request.key_type, context)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


async def _find(key: str, key_type: int, context: RequestContext) -> Coordinator:
    services = context.services
    try:
        if key_type == GROUP:
            context.require(DESCRIBE, authorization.GROUP, key)
            await have_topic(services.groups, services)
            broker_id = await services.groups.coordinator_of(key)
        elif key_type == TRANSACTION:
            context.require(DESCRIBE, TRANSACTIONAL_ID, key)
            await have_topic(services.transactions, services)
            broker_id = await services.transactions.coordinator_of(key)
        else:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"there are no coordinators of type {key_type} here")
        return _at(broker_id, key, context)
    except ApiError as error:
        return Coordinator(
            key=key, node_id=NO_NODE, host="", port=-1, error_code=error.code, error_message=error.message
        )


def _at(broker_id: int, key: str, context: RequestContext) -> Coordinator:
    broker = context.services.metadata.image.brokers.get(broker_id)
    endpoint = None if broker is None else broker.endpoint(context.listener)
    if endpoint is None:
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the coordinator of {key!r} is away")
    return Coordinator(key=key, node_id=broker_id, host=endpoint.host, port=endpoint.port, error_message=None)
