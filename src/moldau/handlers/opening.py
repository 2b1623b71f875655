"""Where records are opened that are too many for the event loop."""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class Opening(Protocol):
    """Runs what may take long, one after the other, so that what is held for it is held once."""

    def run(self, work: Callable[[], T]) -> Awaitable[T]:
        """What `work` comes to. It touches nothing that belongs to the loop."""
        ...


class OpeningHere:
    """The twin without a thread: for handlers that are called without a broker around them."""

    async def run(self, work: Callable[[], T]) -> T:
        return work()
