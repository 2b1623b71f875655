"""Long work on the event loop, in turns with everybody else.

Law: between two turns of one request's work the loop serves all others, and however many requests are at long work,
one of them has its turn before the loop looks at its sockets again. So others wait for one turn, not for one of each.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

from moldau.protocol.codec import Steps

T = TypeVar("T")

TURN_S: Final = 0.0003
"""Time that one request works before it gives way."""


class Turns:
    """One request's share of the loop, from now on."""

    __slots__ = ("_end",)

    def __init__(self) -> None:
        self._end = time.perf_counter() + TURN_S

    async def give_way(self) -> None:
        """Wait for the next turn if this one is over."""
        if time.perf_counter() >= self._end:
            await next_turn()
            self._end = time.perf_counter() + TURN_S

    async def each(self, items: Iterable[T]) -> AsyncIterator[T]:
        """The items, and a pause now and then."""
        for item in items:
            yield item
            if time.perf_counter() >= self._end:
                await self.give_way()

    async def run(self, steps: Steps[T]) -> T:
        """Result of `steps`."""
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            await self.give_way()


def next_turn() -> "asyncio.Future[None]":
    """The end of a wait for the next turn, for work that is no coroutine."""
    return _queue().wait()


class _Queue:
    """Requests that wait for a turn of one loop, the longest first."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._call_soon = loop.call_soon
        self._new_future = loop.create_future
        self._waiting: deque[asyncio.Future[None]] = deque()

    def wait(self) -> "asyncio.Future[None]":
        turn = self._new_future()
        self._waiting.append(turn)
        if len(self._waiting) == 1:
            self._call_soon(self._begin)
        return turn

    def _begin(self) -> None:
        """One turn in each round of the loop: what is scheduled in a round runs in the next."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # else its request was cancelled
                turn.set_result(None)
                break
        if self._waiting:
            self._call_soon(self._begin)


_queues: WeakKeyDictionary[asyncio.AbstractEventLoop, _Queue] = WeakKeyDictionary()


def _queue() -> _Queue:
    loop = asyncio.get_running_loop()
    queue = _queues.get(loop)
    if queue is None:
        queue = _queues[loop] = _Queue(loop)
    return queue
