"""ListGroups, versions 0 to 5: the groups that this broker coordinates. A client asks every broker.

- 4+: filtered by state (KIP-518). 5+: filtered by type, classic or consumer (KIP-848). Letters of either case do.
- COORDINATOR_LOAD_IN_PROGRESS while a part of them is still being read.
"""

from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.messages.k16_list_groups import ListGroupsRequest, ListGroupsResponse
from moldau.requests.authorization import CLUSTER, DESCRIBE, GROUP
from moldau.requests.context import RequestContext

FILTERS_MAX = 100
"""States and types in one request; there are about ten of each."""


def handle(request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    if len(request.states_filter) + len(request.types_filter) > FILTERS_MAX:
        return ListGroupsResponse(error_code=ErrorCode.INVALID_REQUEST)
    try:
        shards = context.services.groups.shards()
    except ApiError as error:
        return ListGroupsResponse(error_code=error.code)
    groups = [group for shard in shards for group in shard.groups.listed(request.states_filter, request.types_filter)]
    if not context.may(DESCRIBE, CLUSTER):
        groups = [group for group in groups if context.may(DESCRIBE, GROUP, group.group_id)]
    return ListGroupsResponse(groups=groups)
