"""FindCoordinator, versions 0 to 6.

Tells which broker coordinates a group: the leader of the group's partition of `__consumer_offsets`, at the address of
the listener that the client came through. The topic is made at the first such question, before the answer.

- 4+: many keys in one request, each with its own result (KIP-699).
- COORDINATOR_NOT_AVAILABLE: the partition has no leader now.

Gaps: coordinators of transactions (key type 1) do not exist yet: TRANSACTIONAL_ID_AUTHORIZATION_FAILED, at which both
the Java client and librdkafka stop; librdkafka asks again for ever at any code but this and the cluster's. Nor do those
of share groups (2): INVALID_REQUEST.
"""

from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.messages.k10_find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from moldau.requests import authorization
from moldau.requests.authorization import DESCRIBE, TRANSACTIONAL_ID
from moldau.requests.context import RequestContext
from moldau.requests.pending import holds_order
from moldau.requests.pieces import Pieces

FIND_MANY_KEYS = 4  # KIP-699
GROUP, TRANSACTION = 0, 1
NO_NODE = -1


PIECES = Pieces("coordinator_keys", "coordinators")


@holds_order
async def handle(request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorResponse:
    if context.api_version >= FIND_MANY_KEYS:
        keys = request.coordinator_keys
        return FindCoordinatorResponse(coordinators=[await _find(key, request.key_type, context) for key in keys])
    found = await _find(request.key, request.key_type, context)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


async def _find(key: str, key_type: int, context: RequestContext) -> Coordinator:
    try:
        if key_type == GROUP:
            context.require(DESCRIBE, authorization.GROUP, key)
        elif key_type == TRANSACTION:
            context.require(DESCRIBE, TRANSACTIONAL_ID, key)
        if key_type != GROUP:
            raise ApiError(_refusal(key_type), f"there are no coordinators of type {key_type} here")
        return await _coordinator(key, context)
    except ApiError as error:
        return Coordinator(
            key=key, node_id=NO_NODE, host="", port=-1, error_code=error.code, error_message=error.message
        )


def _refusal(key_type: int) -> ErrorCode:
    is_transaction = key_type == TRANSACTION
    return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED if is_transaction else ErrorCode.INVALID_REQUEST


async def _coordinator(group_id: str, context: RequestContext) -> Coordinator:
    broker_id = await context.services.groups.coordinator_of(group_id)
    broker = context.services.metadata.image.brokers.get(broker_id)
    endpoint = None if broker is None else broker.endpoint(context.listener)
    if endpoint is None:
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the coordinator of group {group_id!r} is away")
    return Coordinator(key=group_id, node_id=broker_id, host=endpoint.host, port=endpoint.port, error_message=None)
