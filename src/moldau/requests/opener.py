"""Opening of records that are too many for the event loop."""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from moldau.core.clock import Clock
from moldau.log.log import AppendResult
from moldau.log.verification import VerificationGuard
from moldau.records.validate import RecordsToOpen
from moldau.replication.partition import Partition

T = TypeVar("T")


class Opener(Protocol):
    """Runs what may take long, one after the other, so that what is held for it is held once."""

    def run(self, work: Callable[[], T]) -> Awaitable[T]:
        """Result of `work`, which touches nothing that belongs to the loop."""
        ...


class InlineOpener:
    """The twin without a thread: for handlers that are called without a broker around them."""

    async def run(self, work: Callable[[], T]) -> T:
        return work()


async def append_opened(
    to_open: RecordsToOpen,
    partition: Partition,
    acks: int,
    opener: Opener,
    clock: Clock,
    guard: VerificationGuard | None = None,
) -> AppendResult:
    """Append what had to be opened first. It is checked again whether this broker may: it may lead no more."""
    batch = await opener.run(to_open.work)
    return partition.append_opened(batch, acks, clock.now_ms(), guard)
