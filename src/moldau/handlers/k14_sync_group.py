"""SyncGroup, versions 0 to 5: the leader of a classic group hands in the assignment, every member gets its share.

The answer waits until the leader's assignment is in the log. A member of a stable group gets its share again.

- REBALANCE_IN_PROGRESS: join again. ILLEGAL_GENERATION: the group has gone on without this member.
- 3+: static members (KIP-345). 5+: the protocol's type and name must be given and be the group's (KIP-559).
"""

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse
from moldau.requests.authorization import GROUP, READ
from moldau.requests.context import RequestContext
from moldau.requests.pending import PendingAnswer, promised

PROTOCOL_IS_REQUIRED = 5  # KIP-559


def handle(request: SyncGroupRequest, context: RequestContext) -> SyncGroupResponse | PendingAnswer:
    if not context.may(READ, GROUP, request.group_id):
        return SyncGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    is_protocol_given = request.protocol_type is not None and request.protocol_name is not None
    if context.api_version >= PROTOCOL_IS_REQUIRED and not is_protocol_given:
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    answer = context.services.groups.answer(
        request.group_id,
        lambda shard: shard.groups.sync(request),
        lambda error: SyncGroupResponse(error_code=error.code),
    )
    return promised(answer)
