"""The loop's time and timers, as they are handed to what is below the shell.

The real one is the event loop itself: nothing stands between a fast path and its timer. The one for tests, whose time
moves when it is told to, is `moldau.testing.virtual_loop`.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol


class Cancellable(Protocol):
    """A call to come."""

    def cancel(self) -> None:
        """Let it not come any more; no error if it has."""
        ...


class Scheduler(Protocol):
    """Calls back: at a time, after a while, or at the end of the loop's turn. Times are in seconds."""

    def time(self) -> float:
        """Seconds since some moment; never fewer than before."""
        ...

    def call_at(self, when: float, callback: Callable[[], object], /) -> Cancellable: ...

    def call_later(self, delay: float, callback: Callable[[], object], /) -> Cancellable: ...

    def call_soon(self, callback: Callable[[], object], /) -> object: ...

    def create_future(self) -> "asyncio.Future[Any]":
        """A result that a coroutine waits for; its callbacks are called as by `call_soon`."""
        ...
