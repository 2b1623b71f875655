"""DeleteGroups, versions 0 to 2: remove groups without members, with all that was committed in their names.

Each group has its own result: NON_EMPTY_GROUP if it has members, GROUP_ID_NOT_FOUND if there is no such group.
"""

from collections.abc import Iterable

from moldau.coordinators.groups.shard import GroupShard
from moldau.coordinators.outcome import Decision, answered
from moldau.coordinators.promise import Promise, all_of, mapped
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k42_delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from moldau.requests.authorization import DELETE, GROUP
from moldau.requests.context import RequestContext
from moldau.requests.groups_access import awaited
from moldau.requests.pending import PendingAnswer, promised, undecided
from moldau.requests.pieces import Pieces

PIECES = Pieces("groups_names", "results", distinct=lambda group_id: group_id)

OFFSETS_AT_ONCE_MAX = 1000
"""Removed in one turn of the loop, about ten milliseconds; a group may have a hundred times as many."""
UNFINISHED = -2
"""No error code: some offsets of the group are left."""


def handle(request: DeleteGroupsRequest, context: RequestContext) -> DeleteGroupsResponse | PendingAnswer:
    names = dict.fromkeys(request.groups_names)
    turn = _Turn(context)
    codes = turn.delete(names)
    if turn.is_over:
        return undecided(_delete_in_turns(names, codes, context))
    return promised(mapped(codes, lambda each: _response(names, each)))


async def _delete_in_turns(
    names: Iterable[str], begun: list[int] | Promise[list[int]], context: RequestContext
) -> DeleteGroupsResponse:
    """Go on where one turn was not enough. A group that gets a member meanwhile stays, with what is left."""
    found: list[int] = await awaited(begun)
    codes = dict(zip(names, found, strict=True))
    while unfinished := [name for name, code in codes.items() if code == UNFINISHED]:
        found = await awaited(_Turn(context).delete(unfinished))
        codes |= zip(unfinished, found, strict=True)
    return _response(codes, codes.values())


class _Turn:
    """Groups removed in one turn of the loop, as far as it goes."""

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self._offsets_left = OFFSETS_AT_ONCE_MAX
        self.is_over = False

    def delete(self, names: Iterable[str]) -> list[int] | Promise[list[int]]:
        """Error codes in the order of `names`."""
        return all_of([self._delete(group_id) for group_id in names])

    def _delete(self, group_id: str) -> int | Promise[int]:
        context = self._context
        if not context.may(DELETE, GROUP, group_id):
            return ErrorCode.GROUP_AUTHORIZATION_FAILED
        return context.services.groups.answer(
            group_id, lambda shard: self._decide(shard, group_id), lambda error: int(error.code)
        )

    def _decide(self, shard: GroupShard, group_id: str) -> Decision[int]:
        tombstones = shard.offsets.tombstones(group_id, self._offsets_left + 1)
        if len(tombstones) <= self._offsets_left:
            self._offsets_left -= len(tombstones)
            return shard.groups.delete(group_id, tombstones)
        shard.groups.validate_delete(group_id)
        self._offsets_left, now = 0, self._offsets_left
        self.is_over = True
        return answered(UNFINISHED, tombstones[:now])


def _response(names: Iterable[str], codes: Iterable[int]) -> DeleteGroupsResponse:
    results = [DeletableGroupResult(group_id=name, error_code=code) for name, code in zip(names, codes, strict=True)]
    return DeleteGroupsResponse(results=results)
