"""Notices when the event loop stood still, and says because of what.

A thread looks now and then (LOOK_S) at the processor time of the loop's thread. If the loop has worked since the last
look, the thread asks it to call back; until it does, the thread looks at the loop's stack, more often. So a request
costs nothing extra, and an idle broker a look without a switch to the loop. The figures are never too high, and too low
by one look at most.

A loop that waits for a processor, or for a disk, stands still as well, but not because of what it was asked to do. So
both times are told: how long it took, and how long the loop's thread was at work in it. Only work is a warning.

Law: while a stack is looked at, the thread that it belongs to does not run. The interpreter lock sees to that, unless
something in between lets go of it: a finalizer that closes a file, say. So no garbage is collected meanwhile. Only the
code of calls is looked at, never their variables: to ask a running frame for these was seen to end the process. Which
request it is, the dispatcher has noted.
"""

import asyncio
import gc
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Final, NamedTuple

from moldau.broker.dispatch import Dispatcher

log = logging.getLogger(__name__)

STALL_MS_MAX: Final = 50
"""No request and no task may hold the event loop for longer."""

LOOK_S: Final = 0.05
"""Time between two looks. At 10 ms they took a tenth of what a busy broker needs, as each makes it change threads."""
LOOK_CLOSER_S: Final = 0.02
BUSY_S: Final = 0.001
"""A loop that worked less than this since the last look is not asked."""

STALLS_KEPT_MAX: Final = 100
CALLS_NAMED_MAX: Final = 8

_looking = threading.Lock()
"""Collection is switched off and on for the whole process, in which there may be several brokers."""


class Stall(NamedTuple):
    """One time that the loop stood still."""

    elapsed_ms: float
    worked_ms: float
    cause: str


class Watchdog:
    """Watches the loop in whose thread `start` is called."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        request_at_work: Callable[[], str] = str,
        stall_ms_max: float = STALL_MS_MAX,
        look_s: float = LOOK_S,
    ) -> None:
        """`request_at_work` names the request that was dispatched last; it is called in another thread."""
        self._loop = loop
        self._request_at_work = request_at_work
        self._stall_ms_max = stall_ms_max
        self._look_s = look_s
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._answered = True
        self._answered_at = 0.0
        self._worked = 0.0
        self._asked_at: tuple[float, float] | None = None  # and the processor time of the loop's thread then
        self._seen = ""
        self._below: CodeType | None = None  # what runs the loop, at the bottom of its thread's stack
        self._stalls: deque[Stall] = deque(maxlen=STALLS_KEPT_MAX)
        self.longest_work_ms = 0.0

    @property
    def stalls(self) -> list[Stall]:
        """The last ones in which the loop's thread was at work for longer than it may."""
        return list(self._stalls)

    def start(self) -> None:
        self._loop_thread = threading.get_ident()
        self._clock = time.pthread_getcpuclockid(self._loop_thread)
        self._thread = threading.Thread(target=self._watch, name="moldau-watchdog", daemon=True)
        self._ask(time.thread_time())
        self._thread.start()

    def stop(self) -> None:
        """Called in the thread of the loop, before it ends."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _watch(self) -> None:
        worked_before = 0.0
        while not self._stopped.wait(self._look_s if self._answered else min(self._look_s, LOOK_CLOSER_S)):
            worked = time.clock_gettime(self._clock)
            if not self._answered:
                self._look()
                continue
            self._judge()
            if worked - worked_before > BUSY_S or self._is_inside():
                self._ask(worked)
            worked_before = worked

    def _is_inside(self) -> bool:
        """Whether the loop is in a function of ours although it did not work: it waits for a file, say."""
        with stack_of(self._loop_thread) as frame:
            return frame is not None and frame.f_code is not self._below and _is_ours(frame)

    def _ask(self, worked: float) -> None:
        self._answered, self._seen = False, ""
        self._asked_at = (time.monotonic(), worked)
        try:
            self._loop.call_soon_threadsafe(self._answer)
        except RuntimeError:  # the loop is closed
            self._stopped.set()

    def _answer(self) -> None:
        """Note the time; called in the loop."""
        self._answered_at, self._worked = time.monotonic(), time.thread_time()
        self._answered = True
        if self._below is None:
            caller = sys._getframe().f_back
            self._below = None if caller is None else caller.f_code

    def _look(self) -> None:
        with stack_of(self._loop_thread) as frame:
            if frame is not None and not self._answered:
                self._seen = cause_of(frame, self._below, self._request_at_work) or self._seen

    def _judge(self) -> None:
        """Report the last answer if it took too long; once for each."""
        if self._asked_at is None:
            return
        (asked_at, worked_before), self._asked_at = self._asked_at, None
        elapsed_ms, worked_ms = 1000 * (self._answered_at - asked_at), 1000 * (self._worked - worked_before)
        self.longest_work_ms = max(self.longest_work_ms, worked_ms)
        if elapsed_ms <= self._stall_ms_max:
            return
        cause = self._seen or "code that let no other thread look"
        if worked_ms > self._stall_ms_max:
            self._stalls.append(Stall(elapsed_ms, worked_ms, cause))
            log.warning("the event loop stood still for %.0f ms, %.0f ms at work: %s", elapsed_ms, worked_ms, cause)
        else:
            log.info("the event loop waited for %.0f ms, %.0f ms at work: %s", elapsed_ms, worked_ms, cause)


@contextmanager
def stack_of(thread: int) -> Iterator[FrameType | None]:
    """The innermost call of a thread, to be looked at in this block only."""
    with _looking:
        is_collected = gc.isenabled()
        gc.disable()
        try:
            yield sys._current_frames().get(thread)
        finally:
            if is_collected:
                gc.enable()


def cause_of(frame: FrameType, below: CodeType | None, request_at_work: Callable[[], str]) -> str:
    """Says what a thread is doing: the request, where one is being dispatched, and the functions of ours, the outermost
    first; those that are not above `below` do not count."""
    calls: list[str] = []
    request = ""
    outer: FrameType | None = frame
    while outer is not None and outer.f_code is not below:
        if _is_ours(outer):
            calls.append(_call(outer))
        if outer.f_code is Dispatcher.dispatch.__code__:
            request = request_at_work()
        outer = outer.f_back
    chain = " > ".join(calls[: CALLS_NAMED_MAX - 1][::-1])
    if len(calls) >= CALLS_NAMED_MAX:
        chain = f"{calls[-1]} > ... > {chain}"
    return f"{request} in {chain}" if request else chain


def _is_ours(frame: FrameType) -> bool:
    module: str = frame.f_globals.get("__name__", "")
    return module.startswith("moldau.") or frame.f_code.co_filename.startswith("<")


def _call(frame: FrameType) -> str:
    code = frame.f_code
    if code.co_filename.startswith("<"):  # a codec that was generated: "<read MetadataRequest v12>"
        return code.co_filename
    module: str = frame.f_globals.get("__name__", "")
    return f"{module.rpartition('.')[2]}.{code.co_qualname}:{frame.f_lineno}"
