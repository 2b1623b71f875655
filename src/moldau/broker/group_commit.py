"""Group commit: one round of syncs serves every write that was made before it began.

While a round runs in its threads, new writes gather for the next one. So the rate of acknowledged writes does not
depend on the rate of syncs, and the wait is at most two syncs. The threads tell the loop once a round: a future for
each sync and one over them cost more than the rest of a round. Whoever waits has a future of its own, and may cancel
it without a word to the others.

Each data directory has rounds and threads of its own, so that a slow disk holds up its own writes only. A request that
writes to two of them waits for both.
"""

import asyncio
import logging
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor

from moldau.log.log import Log
from moldau.replication.durability import Committer

log = logging.getLogger(__name__)

Failed = frozenset[Log]


def committer(loop: asyncio.AbstractEventLoop, threads: Mapping[str, Executor]) -> Committer:
    """What syncs the logs of some data directories, in `threads` of each. One alone need not be looked for."""
    only, *others = threads.values()
    return GroupCommits(loop, threads) if others else GroupCommit(loop, only)


class GroupCommits:
    """A group commit for each data directory."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: Mapping[str, Executor]) -> None:
        """`threads` are those of each directory, by its path."""
        self._loop = loop
        self._of = {path: GroupCommit(loop, each) for path, each in threads.items()}

    def commit(self, logs: Sequence[Log]) -> "asyncio.Future[Failed]":
        first = logs[0].data_directory
        if len(logs) == 1 or all(each.data_directory == first for each in logs):
            return self._of[first].commit(logs)
        by_directory: dict[str, list[Log]] = {}
        for each in logs:
            by_directory.setdefault(each.data_directory, []).append(each)
        return self._all([self._of[path].commit(here) for path, here in by_directory.items()])

    def _all(self, parts: "Sequence[asyncio.Future[Failed]]") -> "asyncio.Future[Failed]":
        """Done when the last of `parts` is."""
        future: asyncio.Future[Failed] = self._loop.create_future()
        left = len(parts)

        def one_is_done(_: "asyncio.Future[Failed]") -> None:
            nonlocal left
            left -= 1
            if not left and not future.done():
                future.set_result(frozenset[Log]().union(*(part.result() for part in parts)))

        for part in parts:
            part.add_done_callback(one_is_done)
        return future


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
    """Sync one log in a thread; the log if that failed."""
    try:
        each.sync()
    except Exception:
        log.exception("cannot sync %s", each.topic_partition)
        return each
    return None
