"""DeleteGroups, versions 0 to 2: remove groups without members, with all that was committed in their names.

Each group has its own result: NON_EMPTY_GROUP if it has members, GROUP_ID_NOT_FOUND if there is no such group.
"""

from collections.abc import Iterable

from moldau.coordinators.groups.shard import GroupShard
from moldau.coordinators.outcome import Decision
from moldau.coordinators.promise import Promise, all_of, mapped
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k42_delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from moldau.requests.authorization import DELETE, GROUP
from moldau.requests.context import RequestContext
from moldau.requests.pending import PendingAnswer, promised
from moldau.requests.pieces import Pieces

PIECES = Pieces("groups_names", "results", distinct=lambda group_id: group_id)


def handle(request: DeleteGroupsRequest, context: RequestContext) -> DeleteGroupsResponse | PendingAnswer:
    names = dict.fromkeys(request.groups_names)
    codes = all_of([_delete(group_id, context) for group_id in names])
    return promised(mapped(codes, lambda each: _response(names, each)))


def _delete(group_id: str, context: RequestContext) -> int | Promise[int]:
    if not context.may(DELETE, GROUP, group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED

    def decide(shard: GroupShard) -> Decision[None]:
        return shard.groups.delete(group_id, shard.offsets.tombstones(group_id))

    answer = context.services.groups.answer(group_id, decide, lambda error: error.code)
    return mapped(answer, lambda code: code or ErrorCode.NONE)


def _response(names: Iterable[str], codes: Iterable[int]) -> DeleteGroupsResponse:
    results = [DeletableGroupResult(group_id=name, error_code=code) for name, code in zip(names, codes, strict=True)]
    return DeleteGroupsResponse(results=results)
