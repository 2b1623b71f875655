"""Heartbeat, versions 0 to 4: a member of a classic group is alive, and learns that it has to join again.

- REBALANCE_IN_PROGRESS while the group waits for joins; the heartbeat counts all the same.
- 3+: static members (KIP-345): FENCED_INSTANCE_ID once another member has taken the place.
- While the coordinator is still reading its log, a heartbeat is simply accepted, as in Kafka.
"""

from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.requests.authorization import GROUP, READ
from moldau.requests.context import RequestContext
from moldau.requests.pending import PendingAnswer, promised


def handle(request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse | PendingAnswer:
    if not context.may(READ, GROUP, request.group_id):
        return HeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    groups = context.services.groups
    return promised(groups.answer(request.group_id, lambda shard: shard.groups.heartbeat(request), _refused))


def _refused(error: ApiError) -> HeartbeatResponse:
    is_loading = error.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return HeartbeatResponse(error_code=ErrorCode.NONE if is_loading else error.code)
