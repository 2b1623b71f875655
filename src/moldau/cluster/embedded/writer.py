"""Transactions of a store, in a thread of their own, as a commit waits for the disk.

Law: the event loop never waits for a sync. Writes go to the one writing thread, in the order of the calls and with a
connection of its own; reads stay on the loop with another one. In SQLite's write-ahead log a reader waits neither
for a writer nor for a checkpoint, and a checkpoint is part of some commit, so it happens in the thread, too.
Where nothing is synced (a tree in memory, and tests) work is done in place, with one connection.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from moldau.cluster.embedded.tree import Tree

T = TypeVar("T")


class Writer:
    """Runner of work on `tree` that may wait for the disk."""

    def __init__(self, tree: Tree, *, in_thread: bool) -> None:
        self.tree = tree
        self._thread = ThreadPoolExecutor(1, "metadata-store") if in_thread else None

    async def do(self, work: Callable[[Tree], T], then: Callable[[T], None] = lambda _: None) -> T:
        """The result of `work`. `then` is called with it on the loop, even if the caller has gone away meanwhile, as
        the commit stands."""
        if self._thread is None:
            result = work(self.tree)
            then(result)
            return result
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def hand_over(done: Future[T]) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(_resolve, done, then, answer)

        self._thread.submit(work, self.tree).add_done_callback(hand_over)
        return await answer

    def close(self) -> None:
        """Close after all pending work is done."""
        if self._thread is not None:
            self._thread.shutdown(wait=False)


def _resolve(done: "Future[T]", then: Callable[[T], None], answer: "asyncio.Future[T]") -> None:
    error = done.exception()
    if not answer.done():  # else its caller was cancelled
        if error is None:
            answer.set_result(done.result())
        else:
            answer.set_exception(error)
    if error is None:
        then(done.result())  # the caller goes on in the next turn of the loop only
