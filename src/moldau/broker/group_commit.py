"""Group commit: one round of syncs serves every write that was made before it began.

While a round runs in its threads, new writes gather for the next one. So the rate of acknowledged writes does not
depend on the rate of syncs, and the wait is at most two syncs.
"""

import asyncio
import logging
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
        self._next: asyncio.Future[Failed] = loop.create_future()
        self._running = False

    def commit(self, logs: Sequence[Log]) -> "asyncio.Future[Failed]":
        self._dirty.update(logs)
        if not self._running:
            self._running = True
            self._loop.call_soon(self._start)  # requests of the same wake-up join this round
        return self._next

    def _start(self) -> None:
        logs, self._dirty = list(self._dirty), set()
        waiters, self._next = self._next, self._loop.create_future()
        syncs = [self._loop.run_in_executor(self._threads, _sync, each) for each in logs]
        asyncio.gather(*syncs).add_done_callback(lambda done: self._finish(waiters, done))

    def _finish(self, waiters: "asyncio.Future[Failed]", done: "asyncio.Future[list[Log | None]]") -> None:
        if not waiters.done():
            waiters.set_result(frozenset(each for each in done.result() if each is not None))
        self._running = bool(self._dirty)
        if self._running:
            self._start()


def _sync(each: Log) -> Log | None:
    """Sync one log in a thread; the log if that failed (it has taken itself offline)."""
    try:
        each.sync()
    except Exception:
        log.exception("cannot sync %s: it is offline now", each.topic_partition)
        return each
    return None
