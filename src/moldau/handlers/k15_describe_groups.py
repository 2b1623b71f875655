"""DescribeGroups, versions 0 to 6: state and members of groups of the classic protocol.

- Subscriptions are told of stable groups only. During a rebalance the assignments are those before it.
- A group that does not exist, or speaks the consumer protocol (key 69 describes it), is Dead; 6+: and an error,
  GROUP_ID_NOT_FOUND (KIP-1043).
- 3+: what the client may do with the group, on request (KIP-430). 4+: instance ids of static members (KIP-345).
"""

from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.messages.k15_describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from moldau.requests.authorization import DESCRIBE, GROUP, NOT_ASKED
from moldau.requests.context import RequestContext
from moldau.requests.pieces import Pieces

MISSING_GROUP_IS_AN_ERROR = 6  # KIP-1043
DEAD = "Dead"


PIECES = Pieces("groups", "groups", distinct=lambda group_id: group_id)


def handle(request: DescribeGroupsRequest, context: RequestContext) -> DescribeGroupsResponse:
    described = [_describe(group_id, context) for group_id in request.groups]
    if request.include_authorized_operations:
        described = [_with_rights(group, context) for group in described]
    return DescribeGroupsResponse(groups=described)


def _describe(group_id: str, context: RequestContext) -> DescribedGroup:
    try:
        context.require(DESCRIBE, GROUP, group_id)
        return context.services.groups.read(group_id, lambda shard: shard.groups.describe(group_id))
    except ApiError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            return DescribedGroup(group_id=group_id, error_code=error.code)
        if context.api_version < MISSING_GROUP_IS_AN_ERROR:
            return DescribedGroup(group_id=group_id, group_state=DEAD)
        return DescribedGroup(group_id=group_id, group_state=DEAD, error_code=error.code, error_message=error.message)


def _with_rights(group: DescribedGroup, context: RequestContext) -> DescribedGroup:
    return DescribedGroup(
        error_code=group.error_code,
        error_message=group.error_message,
        group_id=group.group_id,
        group_state=group.group_state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol_data,
        members=group.members,
        authorized_operations=NOT_ASKED if group.error_code else context.rights(GROUP, group.group_id),
    )
