"""How handlers reach the group coordinator: `context.services.groups`."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol, TypeVar

from moldau.protocol.errors import ApiError

if TYPE_CHECKING:  # a broker without groups starts without importing what keeps them
    from moldau.coordinators.outcome import Decision
    from moldau.coordinators.promise import Promise
    from moldau.coordinators.runtime import Shard

T = TypeVar("T")


class GroupsAccess(Protocol):
    """All raise ApiError: NOT_COORDINATOR and COORDINATOR_LOAD_IN_PROGRESS, and what a decision itself raises.

    answer = await services.groups.write(group_id, lambda shard: shard.offsets.commit(...))  # which is a Decision
    found = services.groups.read(group_id, lambda shard: shard.groups.describe(group_id))
    """

    async def write(self, group_id: str, decide: "Callable[[Shard], Decision[T]]") -> T:
        """Decide in the group's shard, append, replay; the promise's value once it is completed.

        A decision without records is answered after all that was written to the shard before it is durable.
        """
        ...

    def answer(
        self, group_id: str, decide: "Callable[[Shard], Decision[T]]", refused: Callable[[ApiError], T]
    ) -> "T | Promise[T]":
        """As `write` for a handler that is no coroutine: the answer, at once or to come; `refused` makes one of an
        error. No task and no future is made for the request."""
        ...

    def read(self, group_id: str, query: "Callable[[Shard], T]") -> T:
        """Ask the group's shard at once: what is read may be a sync away from being durable."""
        ...

    def shards(self) -> "Iterable[Shard]":
        """All shards of this broker, for ListGroups; raises COORDINATOR_LOAD_IN_PROGRESS while one is loading."""
        ...

    async def coordinator_of(self, group_id: str) -> int:
        """The id of the broker that coordinates the group; makes the topic of the offsets where it is missing."""
        ...

    async def ensure_topic(self) -> None:
        """Make the topic of the offsets, for clients that never ask who coordinates (OffsetCommit 0)."""
        ...
