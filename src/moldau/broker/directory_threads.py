"""Threads of each data directory: what is done for one never waits for the disk of another."""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import TypeVar

from moldau.core.files import FileRegion
from moldau.log.log import Log

log = logging.getLogger(__name__)

SYNC_THREADS = 4
READ_THREADS = 2

T = TypeVar("T")


class ReadThreads(Executor):
    """Reads regions of files that are not in the page cache, each in a thread of its data directory."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._threads = {path: ThreadPoolExecutor(READ_THREADS, "moldau-read") for path in paths}

    def submit(  # type: ignore[override]  # for regions only
        self, read: Callable[[FileRegion], T], region: FileRegion, /
    ) -> "Future[T]":
        partition = region.file.path.rpartition("/")[0]
        return self._threads[partition.rpartition("/")[0]].submit(read, region)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        for threads in self._threads.values():
            threads.shutdown(wait, cancel_futures=cancel_futures)


class SyncThreads:
    """A few threads that are kept, and wait for the next job without a future, or a semaphore, for each."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[tuple[Callable[[Log], None], Log] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._idle: deque[None] = deque()

    def submit(self, job: Callable[[Log], None], each: Log) -> None:
        """Do `job`, which raises nothing, in a thread."""
        self._jobs.put((job, each))
        if self._idle:
            self._idle.pop()
        elif len(self._threads) < SYNC_THREADS:
            self._threads.append(threading.Thread(target=self._work, name=self._name, daemon=True))
            self._threads[-1].start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            do, each = job
            do(each)
            del job, do, each  # a thread without work keeps no log that is deleted
            self._idle.append(None)

    def shutdown(self) -> None:
        """Stop when all that was submitted is done."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()


class DirectoryThreads:
    """Threads of each directory: some for the syncs that somebody waits for, and one for the periodic work."""

    def __init__(self, paths: Iterable[str]) -> None:
        self.syncs = {path: SyncThreads("moldau-sync") for path in paths}
        self._chores = {path: ThreadPoolExecutor(1, "moldau-chore") for path in self.syncs}
        self._running: dict[tuple[str, str], asyncio.Future[None]] = {}

    def in_each(self, name: str, work: Callable[[str], object]) -> None:
        """Do `work` for each directory, but where the last of this name is still under way: that disk is slow."""
        loop = asyncio.get_running_loop()
        for path, thread in self._chores.items():
            running = self._running.get((name, path))
            if running is None or running.done():
                self._running[name, path] = loop.run_in_executor(thread, _logged, work, path)

    async def wait(self) -> None:
        """Wait until all work that was begun is done."""
        if self._running:
            await asyncio.wait(self._running.values())

    def shutdown(self) -> None:
        for syncs in self.syncs.values():
            syncs.shutdown()
        for chores in self._chores.values():
            chores.shutdown()


def _logged(work: Callable[[str], object], path: str) -> None:
    try:
        work(path)
    except Exception:
        log.exception("background work on %s failed; it is tried again at the next interval", path)
