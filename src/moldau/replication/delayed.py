"""Requests that wait: a fetch for enough bytes, a write for the high watermark, both until their time is up."""

from asyncio import Future
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from moldau.core.scheduler import Scheduler
from moldau.protocol.errors import ErrorCode
from moldau.replication.partition import Partition
from moldau.replication.replica import Replica

Answer = TypeVar("Answer")


class DelayedFetch(Generic[Answer]):
    """Calls back once the partitions grew by `needed_bytes` or `max_wait_ms` passed; `answer` is to be called then.

    It counts what is appended instead of reading again on every append. The call back is put off to the end of the
    loop's turn, so that several appends of one wake-up go into one answer.
    """

    __slots__ = ("_needed_bytes", "_partitions", "_scheduler", "_soon", "_then", "_timer", "answer")

    def __init__(
        self,
        scheduler: Scheduler,
        partitions: Sequence[Replica],
        *,
        needed_bytes: int,
        max_wait_ms: int,
        answer: Callable[[], Answer],
        committed: bool = False,
    ) -> None:
        """`committed`: the fetch reads up to the last stable offset, and so counts what that one passes."""
        self._scheduler = scheduler
        self._partitions = tuple(partitions)
        self._needed_bytes = needed_bytes
        self.answer = answer
        self._soon = False
        self._then: Callable[[], None] | None = None
        self._timer = scheduler.call_later(max_wait_ms / 1000, self._ready)
        for partition in self._partitions:
            partition.wait(self, committed=committed)

    def then(self, callback: Callable[[], None]) -> None:
        """Call back once, never before this returns."""
        self._then = callback

    def advanced(self, appended_bytes: int) -> None:
        self._needed_bytes -= appended_bytes
        if self._needed_bytes <= 0 and not self._soon:
            self._soon = True
            self._scheduler.call_soon(self._ready)

    def cancel(self) -> None:
        """Nobody waits any more."""
        self._then = None
        self._timer.cancel()
        for partition in self._partitions:
            partition.stop_waiting(self)

    def _ready(self) -> None:
        then = self._then
        if then is not None:
            self.cancel()
            then()


Failures = dict[Partition, ErrorCode]


class DelayedCommit(Generic[Answer]):
    """Completes `future` with `answer(what failed)` once every part is committed or cannot be, or the time is up."""

    __slots__ = ("_answer", "_failed", "_timer", "_waiting", "future")

    def __init__(
        self,
        scheduler: Scheduler,
        parts: Sequence[tuple[Partition, int]],
        timeout_ms: int,
        answer: Callable[[Failures], Answer],
    ) -> None:
        """Each part is a partition and the offset that its high watermark has to reach."""
        self.future: Future[Answer] = scheduler.create_future()
        self._answer = answer
        self._failed: Failures = {}
        self._waiting: dict[Partition, int] = {}
        for partition, next_offset in parts:
            self._waiting[partition] = max(next_offset, self._waiting.get(partition, 0))
        self._timer = scheduler.call_later(timeout_ms / 1000, self._time_is_up)
        self.future.add_done_callback(self._forget)
        for partition, next_offset in tuple(self._waiting.items()):
            partition.wait_for_commit(next_offset, self)

    def committed(self, partition: Partition, error: ErrorCode) -> None:
        self._waiting.pop(partition, None)
        if error is not ErrorCode.NONE:
            self._failed[partition] = error
        if not self._waiting:
            self._complete()

    def _time_is_up(self) -> None:
        self._failed.update(dict.fromkeys(self._waiting, ErrorCode.REQUEST_TIMED_OUT))
        self._complete()

    def _complete(self) -> None:
        if self.future.done():
            return
        try:
            self.future.set_result(self._answer(self._failed))
        except Exception as error:  # whoever awaits the answer gets it, not whoever committed
            self.future.set_exception(error)

    def _forget(self, _: "Future[Answer]") -> None:
        self._timer.cancel()
        for partition in self._waiting:
            partition.forget(self)
        self._waiting.clear()


def when_committed(
    scheduler: Scheduler, parts: Sequence[tuple[Partition, int]], timeout_ms: int
) -> "Future[Failures] | None":
    """Future of the parts that failed; None: all are committed already."""
    waiting = [part for part in parts if part[0].high_watermark < part[1]]
    return DelayedCommit(scheduler, waiting, timeout_ms, lambda failed: failed).future if waiting else None
