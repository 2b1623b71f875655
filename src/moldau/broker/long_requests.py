"""Requests and answers with very many elements: read, handled and written in turns with everybody else.

Law: while a long request is being worked on, those behind it on the same connection wait, as they would at Kafka's.
Only LONG_REQUESTS_MAX are worked on at a time, whoever sent them: that bounds what their elements take in memory.
"""

import asyncio
import gc
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, cast

from moldau.broker.sender import Chunk
from moldau.protocol import codec
from moldau.protocol.apis import request_type, response_type
from moldau.protocol.errors import ErrorCode, ProtocolError
from moldau.protocol.framing import Frame, respond_in_steps
from moldau.protocol.schema import Message, Struct
from moldau.requests import registry
from moldau.requests.context import RequestContext
from moldau.requests.pending import PendingAnswer
from moldau.requests.pieces import Pieces, refused
from moldau.requests.turns import Turns

log = logging.getLogger(__name__)

LONG_REQUESTS_MAX: Final = 4
FREED_AT_ONCE: Final = 200
COLLECTIONS_OFF_S_MAX: Final = 5.0
ERROR_OF_OURS: Final = "the request could not be answered because of an error of ours, see above"


class LongRequest(NamedTuple):
    """A long request, as it came."""

    api_key: int
    correlation_id: int
    frame: Frame
    body_position: int
    context: RequestContext
    handle: registry.Handler
    pieces: Pieces | None

    def __str__(self) -> str:
        client = self.context
        return f"{client.client_host} ({client.listener})"

    async def decoded(self, turns: Turns) -> Message:
        version = self.context.api_version
        return await turns.run(
            codec.decode_request_in_steps(request_type(self.api_key), version, self.frame, self.body_position)
        )

    async def encoded(self, turns: Turns, answer: Message) -> list[Chunk]:
        version = self.context.api_version
        return await turns.run(respond_in_steps(self.api_key, version, self.correlation_id, answer))


def _in_turns(work: Awaitable[list[Chunk] | None], *, holds_order: bool) -> PendingAnswer:
    """The answer to a long request, or a long answer to a short one. Without a result of `work` the connection is
    closed."""
    task = asyncio.ensure_future(work)
    pending = PendingAnswer(holds_order=holds_order, stop=task.cancel)

    def done(_: object) -> None:
        if task.cancelled():
            return
        if task.exception() is None and task.result() is None:
            pending.fail()
        else:
            pending.complete_with(lambda: task.result() or [])

    task.add_done_callback(done)
    return pending


class LongRequests:
    """Long requests that are worked on now."""

    def __init__(self, much_was_freed: Callable[[], None]) -> None:
        self._room = asyncio.Semaphore(LONG_REQUESTS_MAX)
        self._much_was_freed = much_was_freed

    def serve(self, long: LongRequest) -> PendingAnswer:
        return _in_turns(self._serve(long), holds_order=True)

    async def _serve(self, long: LongRequest) -> list[Chunk] | None:
        request: Message | None = None
        try:
            with without_collections() as collections:
                async with self._room:
                    turns = Turns()
                    request = await long.decoded(turns)
                    answer = await _handled(long, request, turns)
                    if isinstance(answer, PendingAnswer) and answer.holds_order:
                        answer = await _settled(answer)
                if not isinstance(answer, Message):
                    collections.resume()  # it may wait for long
                settled = await _settled(answer)
                return await _written(long, request, settled)
        except ProtocolError as error:
            log.warning("closing the connection of %s: %s", long, error)
            return None
        except Exception:
            log.exception("a request of %s with many elements failed", long)
            return await _written(long, request, server_error(long.api_key))
        finally:
            self._much_was_freed()


async def _written(long: LongRequest, request: Message | None, answer: Message | None) -> list[Chunk]:
    """The answer's bytes; then request and answer are freed, some of it at a time."""
    turns = Turns()
    chunks = [] if answer is None else await long.encoded(turns, answer)
    for message in (answer, request):
        if message is not None:
            await turns.run(taken_apart(message))
    return chunks


async def _handled(long: LongRequest, request: Message, turns: Turns) -> Message | PendingAnswer | None:
    """Answer of the handler. If it is to come, the caller waits for it, unless the request is cut."""
    pieces = long.pieces
    if pieces is None or not pieces.is_long(request):
        return long.handle(request, long.context)
    whole: Message | None = None
    for piece in pieces.cut(request):
        if piece is None:
            await turns.give_way()
            continue
        answer = await _settled(long.handle(piece, long.context))
        if answer is not None and refused(answer):
            return answer
        if whole is None:
            whole = answer
        elif answer is not None:
            pieces.join(whole, answer)
        await turns.give_way()
    return whole


async def _settled(answer: Message | PendingAnswer | None) -> Message | None:
    """A handler's answer, when it is there."""
    return cast(Message | None, await answer) if isinstance(answer, PendingAnswer) else answer


def long_answer(api_key: int, version: int, correlation_id: int, answer: Message) -> PendingAnswer:
    """Answer that is decided already and takes long to encode."""
    return _in_turns(Turns().run(respond_in_steps(api_key, version, correlation_id, answer)), holds_order=False)


def taken_apart(message: Any) -> codec.Steps[None]:
    """Empties the arrays of a message that nobody needs any more, some elements a step: to free a hundred thousand of
    them at once takes as long as thirty turns."""
    for name in message.__fields__:
        elements = getattr(message, name)
        if not isinstance(elements, list):
            continue
        while elements:
            for each in elements[-FREED_AT_ONCE:]:
                if isinstance(each, Struct):
                    yield from taken_apart(each)
            del elements[-FREED_AT_ONCE:]
            yield


class Collections:
    """The garbage collector, kept away while long requests are worked on: there are no cycles in what they are made of,
    and it is gone soon. Where they follow each other without end, the collector is let in after COLLECTIONS_OFF_S_MAX.
    """

    def __init__(self) -> None:
        self._at_work = 0
        self._since = 0.0

    def suspend(self) -> None:
        if self._at_work == 0:
            self._since = time.monotonic()
            gc.disable()
        elif time.monotonic() - self._since > COLLECTIONS_OFF_S_MAX:
            gc.enable()
        self._at_work += 1

    def resume(self) -> None:
        self._at_work -= 1
        if self._at_work == 0:
            gc.enable()


_collections = Collections()
"""Garbage collections of the process, which may have several brokers."""


class _Suspended:
    """One request's wish, which ends once."""

    def __init__(self) -> None:
        self._is_over = False
        _collections.suspend()

    def resume(self) -> None:
        if not self._is_over:
            self._is_over = True
            _collections.resume()


@contextmanager
def without_collections() -> Iterator[_Suspended]:
    suspended = _Suspended()
    try:
        yield suspended
    finally:
        suspended.resume()


def server_error(key: int) -> Message:
    """Answer to a client when a handler broke: with the error code if it has a place for one, else ProtocolError."""
    answer: Any = response_type(key)
    if not hasattr(answer, "error_code"):
        raise ProtocolError(ERROR_OF_OURS)
    failure: Message = answer(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    return failure
