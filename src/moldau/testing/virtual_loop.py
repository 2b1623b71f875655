"""An event loop without sockets, threads and time of its own: for tests of what waits.

It is the twin of the real loop as `moldau.core.scheduler` describes it. Futures and tasks work in it, streams do not.
"""

import asyncio
import contextvars
import heapq
from collections import deque
from collections.abc import Callable
from typing import Any


class VirtualLoop(asyncio.AbstractEventLoop):
    """Runs callbacks in order; when there are none, it is the time of the next timer at once."""

    def __init__(self) -> None:
        self._now = 1.0
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._number = 0
        self.errors: list[Any] = []

    def time(self) -> float:
        return self._now

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._number += 1
        heapq.heappush(self._timers, (when, self._number, handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: the timer stays where it is, and is skipped."""

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, **_: Any) -> "asyncio.Task[Any]":
        return asyncio.Task(coro, loop=self)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.errors.append(context)

    def run_until(self, when: float) -> None:
        """Let everything happen that happens until then."""
        asyncio._set_running_loop(self)
        try:
            while True:
                while self._ready:
                    handle = self._ready.popleft()
                    if not handle.cancelled():
                        handle._run()
                if not self._timers or self._timers[0][0] > when:
                    break
                self._now = self._timers[0][0]
                while self._timers and self._timers[0][0] <= self._now:
                    self._ready.append(heapq.heappop(self._timers)[2])
            self._now = when
        finally:
            asyncio._set_running_loop(None)
        if self.errors:
            error = self.errors[0].get("exception")
            raise AssertionError(f"a callback failed: {self.errors[0]}") from error


def virtual_loop() -> VirtualLoop:
    """A loop whose time is 1 second; `run_until` moves it."""
    return VirtualLoop()  # type: ignore[abstract]  # what it does not have, nobody calls
