"""LeaveGroup, versions 0 to 5: members leave a group at once instead of by their silence.

- 0-2: one member, whose error is the answer's. 3+: many, each with its own result (KIP-345); a static member may be
  removed by its instance id alone. 5+: a reason, which changes nothing.
- Members of the consumer protocol leave by a heartbeat, but an administrator takes them out with this request too.
- The answer waits until a group that is empty now is written as such.
"""

from moldau.coordinators.promise import Promise, mapped
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.messages.k13_leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from moldau.requests.authorization import GROUP, READ
from moldau.requests.context import RequestContext
from moldau.requests.pending import PendingAnswer, promised
from moldau.requests.pieces import Pieces

LEAVE_MANY_MEMBERS = 3  # KIP-345


PIECES = Pieces("members", "members")


def handle(request: LeaveGroupRequest, context: RequestContext) -> LeaveGroupResponse | PendingAnswer:
    if not context.may(READ, GROUP, request.group_id):
        return LeaveGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if context.api_version >= LEAVE_MANY_MEMBERS:
        return promised(_leave(request, context))
    member = MemberIdentity(member_id=request.member_id)
    answer = _leave(LeaveGroupRequest(group_id=request.group_id, members=[member]), context)
    return promised(mapped(answer, _of_one))


def _of_one(answer: LeaveGroupResponse) -> LeaveGroupResponse:
    codes = [answer.error_code, *(member.error_code for member in answer.members)]
    return LeaveGroupResponse(error_code=next((code for code in codes if code), ErrorCode.NONE))


def _leave(request: LeaveGroupRequest, context: RequestContext) -> LeaveGroupResponse | Promise[LeaveGroupResponse]:
    def refused(error: ApiError) -> LeaveGroupResponse:
        if error.code == ErrorCode.UNKNOWN_MEMBER_ID:  # there is no such group, so none of them is in it
            return LeaveGroupResponse(members=[_unknown(member) for member in request.members])
        return LeaveGroupResponse(error_code=error.code)

    return context.services.groups.answer(request.group_id, lambda shard: shard.groups.leave(request), refused)


def _unknown(member: MemberIdentity) -> MemberResponse:
    return MemberResponse(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        error_code=ErrorCode.UNKNOWN_MEMBER_ID,
    )
