"""JoinGroup, versions 0 to 9: a member enters a group of the classic protocol, or a rebalance of it.

The answer waits until every member has joined, or the rebalance timeout has passed; the first members of an empty
group wait `group.initial.rebalance.delay.ms` for others. The leader gets the subscriptions of all.

- 0: the session timeout bounds the rebalance too. 1+: the rebalance timeout does.
- 4+: a new member is given an id and sent back for another join (MEMBER_ID_REQUIRED, KIP-394).
- 5+: static members (KIP-345): an instance that comes back takes its old place, and the old one is fenced.
- 8+: the reason of a join, which changes nothing. 9+: a leader is told when its assignment is not wanted (KIP-814).
- INVALID_SESSION_TIMEOUT outside of group.min/max.session.timeout.ms, GROUP_MAX_SIZE_REACHED beyond group.max.size,
  INCONSISTENT_GROUP_PROTOCOL if no protocol is common to all.
"""

from moldau.coordinators.classic.member import refusal
from moldau.coordinators.groups.group import Caller
from moldau.coordinators.promise import mapped
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupResponse
from moldau.requests.authorization import GROUP, READ
from moldau.requests.context import RequestContext
from moldau.requests.pending import PendingAnswer, promised

PROTOCOL_MAY_BE_NULL = 7  # KIP-559


def handle(request: JoinGroupRequest, context: RequestContext) -> JoinGroupResponse | PendingAnswer:
    if not context.may(READ, GROUP, request.group_id):
        return refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED, request.member_id)
    caller = Caller(context.api_version, context.client_id or "", f"/{context.client_host}")
    answer = context.services.groups.answer(
        request.group_id,
        lambda shard: shard.groups.join(request, caller),
        lambda error: refusal(error.code, request.member_id),
    )
    return promised(answer if context.api_version >= PROTOCOL_MAY_BE_NULL else mapped(answer, _with_protocol))


def _with_protocol(joined: JoinGroupResponse) -> JoinGroupResponse:
    """Answer with an empty protocol name where it would be null."""
    if joined.protocol_name is not None:
        return joined
    return JoinGroupResponse(error_code=joined.error_code, member_id=joined.member_id)
