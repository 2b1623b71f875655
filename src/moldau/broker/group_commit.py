"""Group commit: one round of syncs serves every write that was made before it began.

While a round runs in its threads, new writes gather for the next one. So the rate of acknowledged writes does not
depend on the rate of syncs, and the wait is at most two syncs. The threads tell the loop once a round: a future for
each sync and one over them cost more than the rest of a round. Whoever waits has a future of its own, and may cancel
it without a word to the others.
"""

import asyncio
import logging
import threading
from collections.abc import Sequence
from concurrent.futures import Executor

from moldau.log.log import Log

log = logging.getLogger(__name__)

Failed = frozenset[Log]


class GroupCommit:
    """Syncs logs in rounds."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: Executor) -> None:
        self._loop = loop
        self._threads = threads
        self._dirty: set[Log] = set()
        self._next: list[asyncio.Future[Failed]] = []
        self._running = False

    def commit(self, logs: Sequence[Log]) -> "asyncio.Future[Failed]":
        self._dirty.update(logs)
        if not self._running:
            self._running = True
            self._loop.call_soon(self._start)  # requests of the same wake-up join this round
        future: asyncio.Future[Failed] = self._loop.create_future()
        self._next.append(future)
        return future

    def _start(self) -> None:
        logs, self._dirty = self._dirty, set()
        waiters, self._next = self._next, []
        syncing = _Round(len(logs), waiters)
        for each in logs:
            self._threads.submit(self._sync, each, syncing)

    def _sync(self, each: Log, syncing: "_Round") -> None:
        """One log, in a thread."""
        if syncing.is_last(_sync(each)):
            self._loop.call_soon_threadsafe(self._finish, syncing)

    def _finish(self, syncing: "_Round") -> None:
        failed = frozenset(syncing.failed)
        for waiter in reversed(syncing.waiters):  # a connection's first answer comes last: then all leave in one write
            if not waiter.done():
                waiter.set_result(failed)
        self._running = bool(self._dirty)
        if self._running:
            self._start()


class _Round:
    """Counts the syncs that are still under way."""

    def __init__(self, syncs: int, waiters: "list[asyncio.Future[Failed]]") -> None:
        self.waiters = waiters
        self.failed: list[Log] = []
        self._left = syncs
        self._lock = threading.Lock()

    def is_last(self, failed: Log | None) -> bool:
        """One sync has ended: with this one, have all?"""
        with self._lock:
            if failed is not None:
                self.failed.append(failed)
            self._left -= 1
            return self._left == 0


def _sync(each: Log) -> Log | None:
    """Sync one log in a thread; the log if that failed (it has taken itself offline)."""
    try:
        each.sync()
    except Exception:
        log.exception("cannot sync %s: it is offline now", each.topic_partition)
        return each
    return None
