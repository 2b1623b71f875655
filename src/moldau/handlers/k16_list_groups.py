"""ListGroups, versions 0 to 5: the groups that this broker coordinates. A client asks every broker.

- 4+: filtered by state (KIP-518). 5+: filtered by type, classic or consumer (KIP-848). Letters of either case do.
- COORDINATOR_LOAD_IN_PROGRESS while a part of them is still being read.
"""

from moldau.handlers.context import RequestContext
from moldau.protocol.errors import ApiError
from moldau.protocol.messages.k16_list_groups import ListGroupsRequest, ListGroupsResponse


def handle(request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    try:
        shards = context.services.groups.shards()
    except ApiError as error:
        return ListGroupsResponse(error_code=error.code)
    return ListGroupsResponse(
        groups=[group for shard in shards for group in shard.groups.listed(request.states_filter, request.types_filter)]
    )
