"""A shard's timers on the event loop.

A session is put off by every heartbeat and hardly ever ends, so putting off must cost next to nothing: it notes the
later time, and the loop's one timer of a shard finds that out when it comes to the earlier one.

Ten thousand that are due at once, of one shard or of fifty, run some at a time, in turns with long requests.
"""

import asyncio
import time
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from moldau.coordinators.timers import Expire
from moldau.requests.turns import next_turn

EARLY_S = 0.001
"""A loop that counts milliseconds may wake us that much too soon."""
AT_ONCE_S = 0.0005
"""Time for which the timers of a shard that are due run one after the other before they wait for another turn."""
STALE_ENTRIES_MIN = 64
"""Below this nobody cares how many entries of the queue are of no use any more."""


_Entry = tuple[float, int, str]
"""Time, order and key of a timer."""


class _Timer(NamedTuple):
    due: float
    entry: _Entry
    """Place in the queue: at or before its time."""
    expire: Expire


class LoopTimers:
    """`apply` writes what a timer comes to."""

    def __init__(self, loop: asyncio.AbstractEventLoop, apply: Callable[[Expire], None]) -> None:
        self._loop = loop
        self._apply = apply
        self._timers: dict[str, _Timer] = {}
        self._queue: list[_Entry] = []
        self._order = 0
        self._handle: asyncio.TimerHandle | asyncio.Future[None] | None = None
        self._wakes_at = 0.0

    def schedule(self, key: str, delay_ms: int, expire: Expire) -> None:
        due = self._loop.time() + delay_ms / 1000
        known = self._timers.get(key)
        if known is not None and known.entry[0] <= due:
            self._timers[key] = _Timer(due, known.entry, expire)
        else:
            self._enqueue(key, due, expire)
            self._wake_at(due)

    def cancel(self, key: str) -> None:
        self._timers.pop(key, None)

    def cancel_all(self) -> None:
        self._timers.clear()
        self._queue.clear()
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _enqueue(self, key: str, due: float, expire: Expire) -> None:
        if len(self._queue) > STALE_ENTRIES_MIN + 2 * len(self._timers):
            self._queue = [timer.entry for timer in self._timers.values()]
            heapify(self._queue)
        self._order += 1
        entry = (due, self._order, key)
        self._timers[key] = _Timer(due, entry, expire)
        heappush(self._queue, entry)

    def _wake_at(self, due: float) -> None:
        if self._handle is not None:
            if self._wakes_at <= due:
                return
            self._handle.cancel()
        self._wakes_at = due
        self._handle = self._loop.call_later(max(due - self._loop.time(), 0), self._wake)

    def _wake(self) -> None:
        """Run the timers that are due, until the turn is over. Timers that they schedule have their turn later, even if
        they are due at once."""
        self._handle = None
        now, newest, over_at = self._loop.time() + EARLY_S, self._order, time.perf_counter() + AT_ONCE_S
        is_over = False
        try:
            while not is_over and self._queue and self._queue[0][0] <= now and self._queue[0][1] <= newest:
                self._pass(heappop(self._queue), now)
                is_over = time.perf_counter() >= over_at
        finally:
            if is_over and self._queue and self._queue[0][0] <= now:
                self._wait_for_turn()
            elif self._queue:
                self._wake_at(self._queue[0][0])

    def _wait_for_turn(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._wakes_at = 0.0
        self._handle = turn = next_turn()
        turn.add_done_callback(self._turn_came)

    def _turn_came(self, turn: "asyncio.Future[None]") -> None:
        if not turn.cancelled():
            self._wake()

    def _pass(self, entry: _Entry, now: float) -> None:
        """Run the timer whose time has come, or put it where it belongs by now."""
        key = entry[2]
        timer = self._timers.get(key)
        if timer is None or timer.entry is not entry:
            return
        if timer.due > now:
            self._enqueue(key, timer.due, timer.expire)
        else:
            del self._timers[key]
            self._apply(timer.expire)
