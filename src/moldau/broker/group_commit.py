"""Group commit: one sync of a log serves every write that was made before it began.

The law: a write is answered after a sync of its log that began after the write. Who waits for a log is kept with it;
the thread that is about to sync it takes them all, under a lock, and only then begins. Whoever comes later waits for
the next sync of this log, so the wait is at most two syncs. Nobody waits for a log that it did not write to.

The syncs of several logs run side by side in the threads of their data directory, so that a slow disk holds up its own
writes only. A thread tells the loop only when somebody has nothing left to wait for, or a log is to be synced again,
and once for all that has ended until the loop comes by: what costs most is not the disk but threads that hand the
interpreter to and fro. The next sync of a log is begun by the loop, after the answers of the last one and one look at
the sockets: who was just answered often has more to write, and shares it. (With a thread that went on by itself the
syncs were more and smaller, and a request cost a third more.)
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from moldau.broker.directory_threads import SYNC_THREADS
from moldau.core.files import SyncEngine
from moldau.log.log import Log
from moldau.protocol.errors import ApiError
from moldau.replication.durability import Committer, Failed, OnSynced

log = logging.getLogger(__name__)

NONE_FAILED: Failed = frozenset()


class Threads(Protocol):
    """Runs jobs beside the loop."""

    def submit(self, job: Callable[[Log], None], each: Log, /) -> object: ...


def committer(
    loop: asyncio.AbstractEventLoop,
    threads: Mapping[str, Threads],
    engines: Mapping[str, SyncEngine],
    *,
    engine_logs_min: int = 1,
) -> Committer:
    """Committer of the logs of some data directories, in the threads of each, or by its engine where at least so many
    are to be synced at once. One alone need not be looked for."""
    of = {path: GroupCommit(loop, each, engines.get(path), engine_logs_min) for path, each in threads.items()}
    only, *others = of.values()
    return GroupCommits(of) if others else only


def engine_logs_min(name: str) -> int:
    """Number of logs to be synced at once from which on the kernel does it.

    `auto`: when there are more than the threads can sync side by side, those counted that the kernel has under way: it
    ends in several portions what it was given together. Fewer cost less in threads, and as much as 15 % with several
    connections, as a hand-over to a thread of the kernel's is no cheaper than one to a thread of ours.
    """
    return SYNC_THREADS + 1 if name == "auto" else 1


class GroupCommits:
    """A group commit for each data directory."""

    def __init__(self, of: "Mapping[str, GroupCommit]") -> None:
        """Take the group commits `of` the directories, by their paths."""
        self._of = of

    def commit(self, logs: Sequence[Log], then: OnSynced) -> None:
        first = logs[0].data_directory
        if len(logs) == 1 or all(each.data_directory == first for each in logs):
            self._of[first].commit(logs, then)
            return
        by_directory: dict[str, list[Log]] = {}
        for each in logs:
            by_directory.setdefault(each.data_directory, []).append(each)
        waiter = _Several(len(by_directory), then)
        for path, here in by_directory.items():
            self._of[path].commit(here, waiter.ended)

    def is_last(self, log: Log, then: OnSynced) -> bool:
        return self._of[log.data_directory].is_last(log, then)

    def parts(self) -> "list[GroupCommit]":
        """The group commits of all directories."""
        return list(self._of.values())


class SyncCounts(NamedTuple):
    """Syncs of logs since the start, and the writes that waited for them."""

    syncs: int
    waits: int


def sync_counts(committer: Committer) -> SyncCounts:
    """Counts of all directories."""
    parts = committer.parts() if isinstance(committer, GroupCommits) else [committer]
    counted = [each for each in parts if isinstance(each, GroupCommit)]
    return SyncCounts(sum(each.syncs for each in counted), sum(each.waits for each in counted))


class _Several:
    """Waits until several parts have ended."""

    __slots__ = ("_failed", "_left", "then")

    def __init__(self, parts: int, then: OnSynced) -> None:
        self._left = parts
        self._failed = NONE_FAILED
        self.then = then

    def ended(self, failed: Failed) -> None:
        """One more has: tell the waiter if it was the last one."""
        if self.is_last(failed):
            self.tell()

    def is_last(self, failed: Failed) -> bool:
        """One more has: was it the last one?"""
        if failed:
            self._failed |= failed
        self._left -= 1
        return not self._left

    def tell(self, _: Failed = NONE_FAILED) -> None:
        self.then(self._failed)


Waiters = list[OnSynced | _Several]


class GroupCommit:
    """Syncs the logs of one data directory."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        threads: Threads,
        engine: SyncEngine | None = None,
        engine_logs_min: int = 1,
    ) -> None:
        """`engine` syncs logs if there are so many at once, those counted that it has under way, and `threads` the
        others."""
        self._loop = loop
        self._threads = threads
        self._engine = engine
        self._engine_logs_min = engine_logs_min
        self._in_engine = 0  # syncs under way there
        self._asked_for: list[Log] = []  # no thread knows of them yet
        self._is_starting = False
        # What threads use, too, under the lock:
        self._lock = threading.Lock()
        self._waiting: dict[Log, Waiters] = {}  # for a sync that has not begun
        self._under_way: set[Log] = set()
        self._ended: list[tuple[OnSynced, Failed]] = []  # to be told
        self._again: list[Log] = []  # to be synced once more
        self._is_loop_called = False
        self.syncs = 0
        self.waits = 0

    def commit(self, logs: Sequence[Log], then: OnSynced) -> None:
        if len(logs) == 1:
            with self._lock:
                others = self._waiting.get(logs[0])
                if others is not None:
                    others.append(then)
                    return
            self._wait(logs, then)
        else:
            each_once = set(logs)
            self._wait(each_once, _Several(len(each_once), then))

    def is_last(self, log: Log, then: OnSynced) -> bool:
        with self._lock:
            waiters = self._waiting.get(log)
            return waiters is not None and waiters[-1] == then

    def _wait(self, logs: Iterable[Log], waiter: OnSynced | _Several) -> None:
        asked_for: list[Log] = []
        with self._lock:
            for each in logs:
                others = self._waiting.get(each)
                if others is not None:
                    others.append(waiter)
                else:
                    self._waiting[each] = [waiter]
                    if each not in self._under_way:
                        asked_for.append(each)
        if asked_for:
            self._ask_for(asked_for)

    def _ask_for(self, logs: list[Log]) -> None:
        """Begin their syncs soon: who comes in the same turn of the loop shares them."""
        self._asked_for += logs
        self._start_soon()

    def _start_soon(self) -> None:
        """Begin what is asked for, when it is as much as the engine still has under way of the last portion: of many
        logs that are written together, each sync then serves more writes, and one slow log holds up no other."""
        if self._asked_for and not self._is_starting and len(self._asked_for) >= self._in_engine:
            self._is_starting = True
            self._loop.call_soon(self._start)

    def _start(self) -> None:
        self._is_starting = False
        logs, self._asked_for = self._asked_for, []
        if self._engine is not None and len(logs) + self._in_engine >= self._engine_logs_min:
            logs = self._sync_later(logs, self._engine)
        for each in logs:
            self._threads.submit(self._sync, each)

    def _sync(self, each: Log) -> None:
        """One log, in a thread."""
        waiters = self._begun(each)
        if self._ended_for(each, waiters, _sync(each)):
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody wants to know
                self._loop.call_soon_threadsafe(self._tell)

    def _sync_later(self, logs: list[Log], engine: SyncEngine) -> list[Log]:
        """Sync logs without a thread, all at once; returns those with which that cannot be."""
        left: list[Log] = []
        with self._lock:  # nobody comes, and no sync begins, before these have
            for each in logs:
                waiters = self._waiting[each]
                if each.sync_later(engine, partial(self._synced_later, each, waiters)):
                    self._under_way.add(each)
                    del self._waiting[each]
                    self._in_engine += 1
                    self.syncs += 1
                    self.waits += len(waiters)
                else:
                    left.append(each)
        engine.submit()
        return left

    def _synced_later(self, each: Log, waiters: Waiters, error: ApiError | None) -> None:
        self._in_engine -= 1
        failed = NONE_FAILED
        if error is not None:
            log.error("cannot sync %s", each.topic_partition, exc_info=error)
            failed = frozenset((each,))
        if self._ended_for(each, waiters, failed):
            self._loop.call_soon(self._tell)
        self._start_soon()

    def _begun(self, each: Log) -> Waiters:
        """Take the waiters of this sync: all that have come until now, and no one else."""
        with self._lock:
            self._under_way.add(each)
            waiters = self._waiting.pop(each)
            self.syncs += 1
            self.waits += len(waiters)
            return waiters

    def _ended_for(self, each: Log, waiters: Waiters, failed: Failed) -> bool:
        """Note what a sync comes to; whether the loop is to be called because of it."""
        with self._lock:
            self._under_way.discard(each)
            if each in self._waiting:
                self._again.append(each)
            for waiter in waiters:
                if not isinstance(waiter, _Several):
                    self._ended.append((waiter, failed))
                elif waiter.is_last(failed):
                    self._ended.append((waiter.tell, failed))
            if self._is_loop_called or not (self._ended or self._again):
                return False
            self._is_loop_called = True
            return True

    def _tell(self) -> None:
        with self._lock:
            ended, self._ended = self._ended, []
            again, self._again = self._again, []
            self._is_loop_called = False
        for then, failed in reversed(ended):  # a connection's first answer comes last: then all leave in one write
            try:
                then(failed)
            except Exception:
                log.exception("one who waited for a sync has failed")
        if again:
            self._ask_for(again)


def _sync(each: Log) -> Failed:
    """Sync one log in a thread; the log if that failed."""
    try:
        each.sync()
    except Exception:
        log.exception("cannot sync %s", each.topic_partition)
        return frozenset((each,))
    return NONE_FAILED
