"""Access of handlers to the group coordinator: `context.services.groups`."""

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from moldau.coordinators.promise import Promise
from moldau.protocol.errors import ApiError

if TYPE_CHECKING:  # a broker without groups starts without importing what keeps them
    from moldau.coordinators.groups.shard import GroupShard
    from moldau.coordinators.outcome import Decision
    from moldau.log.verification import VerificationGuard
    from moldau.replication.partition import Partition

T = TypeVar("T")
R = TypeVar("R")


class TransactionalProducer(NamedTuple):
    """Producer whose transaction records are part of, and the guard of its verification if they may begin it."""

    producer_id: int
    producer_epoch: int
    guard: "VerificationGuard | None"


class TransactionMarker(NamedTuple):
    """The end of a producer's transaction, as its coordinator wants it written."""

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    transaction_version: int = 0


class GroupsAccess(Protocol):
    """All raise ApiError: NOT_COORDINATOR and COORDINATOR_LOAD_IN_PROGRESS, and what a decision itself raises.

    answer = services.groups.answer(group_id, lambda shard: shard.offsets.commit(...), refused)  # which is a Decision
    found = services.groups.read(group_id, lambda shard: shard.groups.describe(group_id))
    """

    def answer(
        self, group_id: str, decide: "Callable[[GroupShard], Decision[T]]", refused: Callable[[ApiError], R]
    ) -> "T | R | Promise[T | R]":
        """Decide in the group's shard now, append, replay; the answer, at once or to come. `refused` makes one of an
        error, also of those above: this raises none.

        A decision without records is answered after all that was written to the shard before it is durable.
        """
        ...

    def read(self, group_id: str, query: "Callable[[GroupShard], T]") -> T:
        """Ask the group's shard at once: what is read may be a sync away from being durable."""
        ...

    def shards(self) -> "Iterable[GroupShard]":
        """All shards of this broker, for ListGroups; raises COORDINATOR_LOAD_IN_PROGRESS while one is loading."""
        ...

    def partition(self, group_id: str) -> "Partition":
        """The partition of `__consumer_offsets` that the group is kept in, for whoever verifies a transaction."""
        ...

    def answer_in_transaction(
        self,
        group_id: str,
        producer: "TransactionalProducer",
        decide: "Callable[[GroupShard], Decision[T]]",
        refused: Callable[[ApiError], R],
    ) -> "T | R | Promise[T | R]":
        """Answer like `answer`, for records that count when the producer's transaction is committed."""
        ...

    def end_transaction(self, index: int, marker: "TransactionMarker") -> int | Promise[int]:
        """Write a marker into a partition of `__consumer_offsets`, and let what its transaction carried count or not;
        the error's code, 0 once the marker is durable."""
        ...

    @property
    def has_topic(self) -> bool:
        """Whether there is a topic of the offsets."""
        ...

    async def coordinator_of(self, group_id: str) -> int:
        """The id of the broker that coordinates the group; makes the topic of the offsets where it is missing."""
        ...

    async def ensure_topic(self) -> None:
        """Make the topic of the offsets, for clients that never ask who coordinates (OffsetCommit 0)."""
        ...


async def awaited(answer: T | Promise[T]) -> T:
    """An answer, for one who can wait for it."""
    if not isinstance(answer, Promise):
        return answer
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    answer.then(lambda value: None if future.done() else future.set_result(value))
    return await future
