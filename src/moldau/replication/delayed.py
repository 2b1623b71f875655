"""A fetch that waits: for enough bytes, or for its time to be up, whichever is first."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from moldau.replication.partition import Partition

Answer = TypeVar("Answer")


class DelayedFetch(Generic[Answer]):
    """Completes `future` with `answer()` once the partitions grew by `needed_bytes` or `max_wait_ms` passed.

    It counts what is appended instead of reading again on every append. Completion is put off to the end of the
    loop's turn, so that several appends of one wake-up go into one answer.
    """

    __slots__ = ("_answer", "_loop", "_needed_bytes", "_partitions", "_soon", "_timer", "future")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        partitions: Sequence[Partition],
        *,
        needed_bytes: int,
        max_wait_ms: int,
        answer: Callable[[], Answer],
    ) -> None:
        self._loop = loop
        self._partitions = tuple(partitions)
        self._needed_bytes = needed_bytes
        self._answer = answer
        self._soon = False
        self.future: asyncio.Future[Answer] = loop.create_future()
        self.future.add_done_callback(self._forget)
        self._timer = loop.call_later(max_wait_ms / 1000, self._complete)
        for partition in self._partitions:
            partition.waiters[self] = None

    def advanced(self, appended_bytes: int) -> None:
        self._needed_bytes -= appended_bytes
        if self._needed_bytes <= 0 and not self._soon:
            self._soon = True
            self._loop.call_soon(self._complete)

    def _complete(self) -> None:
        if self.future.done():
            return
        try:
            self.future.set_result(self._answer())
        except Exception as error:  # whoever awaits the answer gets it, not the loop
            self.future.set_exception(error)

    def _forget(self, _: "asyncio.Future[Answer]") -> None:
        self._timer.cancel()
        for partition in self._partitions:
            partition.waiters.pop(self, None)
