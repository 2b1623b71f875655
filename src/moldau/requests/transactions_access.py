"""Access of handlers to the transaction coordinator, `context.services.transactions`."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol, TypeVar

from moldau.coordinators.promise import Promise
from moldau.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:  # a broker without transactions starts without importing what keeps them
    from moldau.coordinators.outcome import Decision
    from moldau.coordinators.transactions.shard import TransactionShard

T = TypeVar("T")
R = TypeVar("R")


class TransactionsAccess(Protocol):
    """All raise ApiError: NOT_COORDINATOR and COORDINATOR_LOAD_IN_PROGRESS, and what a decision itself raises.

    answer = services.transactions.answer(transactional_id, lambda shard: shard.end(...), refused)
    found = services.transactions.read(transactional_id, lambda shard: shard.get(transactional_id))
    """

    def answer(
        self,
        transactional_id: str,
        decide: "Callable[[TransactionShard], Decision[T]]",
        refused: Callable[[ApiError], R],
    ) -> "T | R | Promise[T | R]":
        """Decide in the id's shard now, append, replay; the answer, at once or to come. `refused` makes one of an
        error, also of those above: this raises none."""
        ...

    def read(self, transactional_id: str, query: "Callable[[TransactionShard], T]") -> T:
        """Ask the id's shard at once: what is read may be a sync away from being durable."""
        ...

    def shards(self) -> "Iterable[TransactionShard]":
        """All shards of this broker; raises COORDINATOR_LOAD_IN_PROGRESS while one is loading."""
        ...

    async def coordinator_of(self, transactional_id: str) -> int:
        """The id of the broker that coordinates it; makes the topic of the transactions where it is missing."""
        ...

    @property
    def has_topic(self) -> bool:
        """Whether there is a topic of the transactions."""
        ...

    async def ensure_topic(self) -> None:
        """Make the topic of the transactions, for clients that name it."""
        ...


def code_of(error: ApiError, *, knows_fencing: bool) -> ErrorCode:
    """The code of a refusal for clients that know PRODUCER_FENCED, and for those from before KIP-588."""
    if error.code is ErrorCode.PRODUCER_FENCED and not knows_fencing:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error.code
