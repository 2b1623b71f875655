"""DeleteGroups, versions 0 to 2: remove groups without members, with all that was committed in their names.

Each group has its own result: NON_EMPTY_GROUP if it has members, GROUP_ID_NOT_FOUND if there is no such group.
"""

from moldau.coordinators.outcome import Decision
from moldau.coordinators.runtime import Shard
from moldau.handlers.context import RequestContext
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.messages.k42_delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


async def handle(request: DeleteGroupsRequest, context: RequestContext) -> DeleteGroupsResponse:
    names = dict.fromkeys(request.groups_names)
    return DeleteGroupsResponse(results=[await _delete(group_id, context) for group_id in names])


async def _delete(group_id: str, context: RequestContext) -> DeletableGroupResult:
    def decide(shard: Shard) -> Decision[None]:
        return shard.groups.delete(group_id, shard.offsets.tombstones(group_id))

    code = ErrorCode.NONE
    try:
        await context.services.groups.write(group_id, decide)
    except ApiError as error:
        code = error.code
    return DeletableGroupResult(group_id=group_id, error_code=code)
