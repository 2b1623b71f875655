"""A shard's timers on the event loop."""

import asyncio
from collections.abc import Callable

from moldau.coordinators.outcome import Outcome
from moldau.coordinators.timers import Expire


class LoopTimers:
    """`apply` writes what a timer comes to."""

    def __init__(self, loop: asyncio.AbstractEventLoop, apply: Callable[[Expire], None]) -> None:
        self._loop = loop
        self._apply = apply
        self._handles: dict[str, asyncio.TimerHandle] = {}

    def schedule(self, key: str, delay_ms: int, expire: Callable[[], Outcome]) -> None:
        self.cancel(key)
        self._handles[key] = self._loop.call_later(delay_ms / 1000, self._run, key, expire)

    def cancel(self, key: str) -> None:
        handle = self._handles.pop(key, None)
        if handle is not None:
            handle.cancel()

    def cancel_all(self) -> None:
        for handle in self._handles.values():
            handle.cancel()
        self._handles.clear()

    def _run(self, key: str, expire: Expire) -> None:
        del self._handles[key]
        self._apply(expire)
