"""Threads of each data directory: what is done for one never waits for the disk of another."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import TypeVar

from moldau.core.files import FileRegion

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


class DirectoryThreads:
    """For each directory some that sync what is waited for, and one for all that is done now and then."""

    def __init__(self, paths: Iterable[str]) -> None:
        self.syncs = {path: ThreadPoolExecutor(SYNC_THREADS, "moldau-sync") for path in paths}
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
        """Until all that was begun is done."""
        if self._running:
            await asyncio.wait(self._running.values())

    def shutdown(self) -> None:
        for threads in (*self.syncs.values(), *self._chores.values()):
            threads.shutdown()


def _logged(work: Callable[[str], object], path: str) -> None:
    try:
        work(path)
    except Exception:
        log.exception("background work on %s failed; it is tried again at the next interval", path)
