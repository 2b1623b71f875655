"""Memory that was needed for a moment, given back to the system.

The C library keeps what was freed between things that are still in use: after a request with very many elements tens
of megabytes, for as long as nobody asks for them again. `malloc_trim` gives such pages back. It runs in a thread,
and without the interpreter's lock; where the C library has no such function, nothing happens.
"""

import asyncio
from collections.abc import Callable

QUIET_S = 1.0
"""Time without such a moment after which memory is given back."""


class Heap:
    """The memory of this process, as one loop sees it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None

    def much_was_freed(self) -> None:
        """Give it back, when nothing of this kind has happened for a while."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(QUIET_S, self._trim)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _trim(self) -> None:
        self._timer = None
        self._loop.run_in_executor(None, trim)


def trim() -> None:
    """Give the system back what is free."""
    import ctypes  # no start needs it

    malloc_trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)
