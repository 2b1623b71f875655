"""Answers that are not there yet.

A handler returns a message, a `PendingAnswer`, or nothing. Whoever makes something that takes time (a promise, a task,
a delayed fetch) makes a pending answer of it with one of the functions below; so nobody else has to know what is
waited for.

The law (ADR 6): a pending answer that `holds_order` has decided nothing yet, and its connection takes up no other
request before it is done. Any other is decided, and only its answer is missing.
"""

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, ParamSpec, TypeVar

from moldau.coordinators.promise import Promise
from moldau.protocol.errors import ProtocolError
from moldau.protocol.schema import Message, RecordData
from moldau.replication.delayed import DelayedFetch

log = logging.getLogger(__name__)

P = ParamSpec("P")
M = TypeVar("M", bound=Message)

Result = Callable[[], Message | None]
"""Returns the message, or raises why there is none. None: the client wants no answer."""


class PendingAnswer:
    """One request's answer to come. Whoever makes it ends it once: by `tell` with a message, by `complete` with chunks,
    or by `fail`; never before the function that returns it has returned."""

    __slots__ = (
        "_ended",
        "_stop",
        "_take",
        "_then",
        "_told",
        "began",
        "chunks",
        "failed",
        "holds_order",
        "throttle_ms",
    )

    def __init__(self, *, holds_order: bool = False, stop: Callable[[], object] | None = None) -> None:
        """`stop` ends what is waited for, when nobody wants the answer any more."""
        self.holds_order = holds_order
        self.throttle_ms = 0
        """Time for which the client is to send nothing after the answer (KIP-219)."""
        self.began = 0.0
        """Time at which the request was read, by the loop's clock; the connection notes it."""
        self.chunks: list[RecordData] | None = None
        self.failed = False
        self._then: Callable[[PendingAnswer], None] | None = None
        self._stop = stop
        self._take: Callable[[Result], None] | None = None
        self._told: Result | None = None
        self._ended: Callable[[], None] | None = None

    # For whoever makes it

    def tell(self, result: Result) -> None:
        """Let the message, which can be had now, become the answer."""
        if self._take is None:
            self._told = result
        else:
            self._take(result)

    def complete(self, chunks: list[RecordData]) -> None:
        self.chunks = chunks
        self._end()

    def complete_with(self, make: "Callable[[], list[RecordData] | PendingAnswer]") -> None:
        """Complete with what `make` gives; if it raises, that is logged, and there will be no answer."""
        try:
            chunks = make()
        except ProtocolError as error:
            log.warning("closing a connection: %s", error)
            self.fail()
        except Exception:
            log.exception("a request failed")
            self.fail()
        else:
            if isinstance(chunks, PendingAnswer):
                self._stop = chunks.cancel
                chunks.when_done(self._complete_as)
            else:
                self.complete(chunks)

    def fail(self) -> None:
        """End without an answer: the connection is closed."""
        self.failed = True
        self._end()

    def _end(self) -> None:
        """Tell who waits, and let go of everything: what refers to this answer, and through it to the whole request,
        would keep both in memory until the collector comes, which is rarely."""
        then, ended = self._then, self._ended
        self._then = self._stop = self._take = self._told = self._ended = None
        if ended is not None:
            ended()
        if then is not None:
            then(self)

    def _complete_as(self, other: "PendingAnswer") -> None:
        if other.failed or other.chunks is None:
            self.fail()
        else:
            self.complete(other.chunks)

    # For whoever sends it

    def encode_by(self, encode: "Callable[[Message], list[RecordData] | PendingAnswer]") -> None:
        """Say how the message becomes chunks."""
        self._take_by(lambda result: self.complete_with(lambda: _encoded(encode, result())))

    def when_done(self, then: "Callable[[PendingAnswer], None]") -> None:
        self._then = then

    def when_ended(self, ended: Callable[[], None]) -> None:
        """Tell one who watches, once, that the answer is there, or that there will be none."""
        self._ended = ended

    def cancel(self) -> None:
        """End what is waited for: the client is gone, nobody wants the answer."""
        stop, ended = self._stop, self._ended
        self._then = self._stop = self._take = self._told = self._ended = None
        if stop is not None:
            stop()
        if ended is not None:
            ended()

    def __await__(self) -> Generator[Any, None, Any]:
        """The message, for one that can wait."""
        future: asyncio.Future[Message | None] = asyncio.get_running_loop().create_future()
        self._take_by(lambda result: _settle(future, result))
        try:
            return (yield from future)
        except asyncio.CancelledError:
            self.cancel()
            raise

    def _take_by(self, take: Callable[[Result], None]) -> None:
        self._take = take
        if self._told is not None:
            take(self._told)


class LastAnswer:
    """The pending answer that a connection owes last, if it does: no other answer is to come behind it."""

    __slots__ = ("pending",)

    def __init__(self) -> None:
        self.pending: PendingAnswer | None = None


def _encoded(
    encode: Callable[[Message], list[RecordData] | PendingAnswer], message: Message | None
) -> list[RecordData] | PendingAnswer:
    return [] if message is None else encode(message)


def _settle(future: "asyncio.Future[Message | None]", result: Result) -> None:
    if future.done():
        return
    try:
        future.set_result(result())
    except Exception as error:
        future.set_exception(error)


def promised(answer: M | Promise[M]) -> M | PendingAnswer:
    """The answer of a state machine: it is decided, and is there or to come."""
    if not isinstance(answer, Promise):
        return answer
    if answer.done:
        return answer.value
    pending = PendingAnswer()
    answer.then(lambda message: pending.tell(lambda: message))
    return pending


def fetched(delayed: DelayedFetch[M]) -> PendingAnswer:
    """The answer that is asked for again when there is enough to say."""
    pending = PendingAnswer(stop=delayed.cancel)
    delayed.then(lambda: pending.tell(delayed.answer))
    return pending


def awaited(answer: "asyncio.Future[M]") -> PendingAnswer:
    """The answer to a request that is decided."""
    return _of_future(answer, PendingAnswer(stop=answer.cancel))


def undecided(handling: Awaitable[Message | None]) -> PendingAnswer:
    """The answer to a request whose handling has yet to begin: it holds the order."""
    task = asyncio.ensure_future(handling)
    return _of_future(task, PendingAnswer(holds_order=True, stop=task.cancel))


def _of_future(future: "asyncio.Future[Any]", pending: PendingAnswer) -> PendingAnswer:
    def done(_: object) -> None:
        if not future.cancelled():
            pending.tell(future.result)

    future.add_done_callback(done)
    return pending


def holds_order(handle: Callable[P, Coroutine[Any, Any, Message | None]]) -> Callable[P, PendingAnswer]:
    """A handler that is a coroutine, as one that returns a pending answer."""

    @functools.wraps(handle)
    def pending(*args: P.args, **kwargs: P.kwargs) -> PendingAnswer:
        return undecided(handle(*args, **kwargs))

    return pending
