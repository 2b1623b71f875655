"""From a frame to the handler of its API key and back to the chunks of an answer.

For each (key, version) that was used, what is needed is looked up once and kept: the decoder, the handler, the
answer's encoder. The handlers' modules are imported at first use: what nobody asks for is never loaded.

An exception that is no ProtocolError is an error of ours, wherever it comes from: it is logged, and the client is told
UNKNOWN_SERVER_ERROR, or its connection is closed where the answer has no place for a code.
"""

import asyncio
import logging
import struct
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from moldau.broker.sender import Chunk
from moldau.coordinators.promise import Promise
from moldau.handlers import registry
from moldau.handlers.context import RequestContext, Services
from moldau.handlers.later import Later
from moldau.protocol import codec
from moldau.protocol.apis import API_VERSIONS, find, request_type, response_type
from moldau.protocol.errors import ErrorCode, ProtocolError
from moldau.protocol.framing import CORRELATION_ID_POSITION, REST_POSITION, Frame, parse_request_header, responder
from moldau.protocol.schema import Message
from moldau.replication.delayed import DelayedFetch

log = logging.getLogger(__name__)

INTRODUCTION_BYTES_MAX = 256
"""Longer headers are read each time: what is kept of a client is bounded by the number of API versions."""

ERROR_OF_OURS = "the request could not be answered because of an error of ours, see above"

_correlation_id = struct.Struct(">i").unpack_from


class Peer:
    """Who is at the other end of a connection."""

    __slots__ = ("host", "introductions", "listener", "port")

    def __init__(self, listener: str) -> None:
        self.listener = listener
        self.host = ""
        self.port = 0
        self.introductions: dict[bytes, Introduction] = {}

    def __str__(self) -> str:
        return f"{self.host}:{self.port} ({self.listener})"


class Awaited(Later):
    """The answer of a handler that waits."""

    __slots__ = ("_encode", "_future")

    def __init__(self, future: "asyncio.Future[Message]", encode: Callable[[Message], list[Chunk]]) -> None:
        super().__init__()
        self._future = future
        self._encode = encode
        future.add_done_callback(self._done)

    def cancel(self) -> None:
        super().cancel()
        self._future.cancel()

    def _done(self, future: "asyncio.Future[Message]") -> None:
        if not future.cancelled():
            self.complete_with(lambda: self._chunks(future.result()))

    def _chunks(self, answer: Message | None) -> list[Chunk]:
        return [] if answer is None else self._encode(answer)  # None: acks=0


class Undecided(Awaited):
    """The answer of a handler that is a coroutine: nothing has been decided when it is called."""

    __slots__ = ()
    is_undecided = True


class Promised(Later):
    """The answer of a state machine that waits; the promise is kept in a later turn of the loop."""

    __slots__ = ("_encode",)

    def __init__(self, promise: Promise[Message], encode: Callable[[Message], list[Chunk]]) -> None:
        super().__init__()
        self._encode = encode
        promise.then(self._done)

    def _done(self, answer: Message) -> None:
        self.complete_with(lambda: self._encode(answer))


class Delayed(Later):
    """The answer of a handler that is asked again when there is enough to say."""

    __slots__ = ("_delayed", "_encode")

    def __init__(self, delayed: DelayedFetch[Message], encode: Callable[[Message], list[Chunk]]) -> None:
        super().__init__()
        self._delayed = delayed
        self._encode = encode
        delayed.then(self._ready)

    def cancel(self) -> None:
        super().cancel()
        self._delayed.cancel()

    def _ready(self) -> None:
        self.complete_with(lambda: self._encode(self._delayed.answer()))


Answer = bytes | list[Chunk] | Later | None
"""All of it, in pieces, later, or none (acks=0)."""


def chunks_of(answer: bytes | list[Chunk]) -> list[Chunk]:
    """What is ready, in pieces."""
    return [answer] if isinstance(answer, bytes) else answer


class Route(NamedTuple):
    """What one (key, version) needs."""

    decode: Callable[[Frame, int], tuple[Any, int]]
    handle: registry.Handler
    respond: Callable[[int, Message], list[Chunk]]
    repeats: Callable[[RequestContext, registry.Respond], registry.Repeats | None] | None = None


class Introduction(NamedTuple):
    """What the header of a connection's requests of one key and version comes to.

    A client sends the same header over and over, the correlation id apart. So it is read once, and compared after.
    """

    rest: bytes  # of the header, behind the correlation id
    body_position: int
    route: Route
    context: RequestContext
    repeats: registry.Repeats | None


class Dispatcher:
    """Decodes, calls the handler, encodes."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._routes: dict[tuple[int, int], Route] = {}

    def dispatch(self, frame: Frame, peer: Peer, *, is_lent: bool = False) -> Answer:
        """The answer to one request. A frame that is lent may be overwritten after this; any other may be kept."""
        known = peer.introductions.get(bytes(frame[:CORRELATION_ID_POSITION]))
        try:
            if known is not None and known.repeats is not None:
                repeated = known.repeats.serve(frame)
                if repeated is not None:
                    return repeated
            if is_lent:
                frame = bytes(frame)
            if known is None or frame[REST_POSITION : known.body_position] != known.rest:
                known = self._introduce(frame, peer)
            return self._dispatch(frame, known)
        except ProtocolError:
            raise
        except Exception:
            key = parse_request_header(frame).api_key
            log.exception("%s of %s failed", _name(key), peer)
            if known is None:
                raise ProtocolError(ERROR_OF_OURS) from None
            (correlation_id,) = _correlation_id(frame, CORRELATION_ID_POSITION)
            return known.route.respond(correlation_id, _server_error(key))

    def _dispatch(self, frame: Frame, known: Introduction) -> Answer:
        _, body_position, route, context, repeats = known
        (correlation_id,) = _correlation_id(frame, CORRELATION_ID_POSITION)
        # Bytes behind the request are ignored, as Kafka does: librdkafka leaves some after an all-topics Metadata v13.
        request, _ = route.decode(frame, body_position)
        answer = route.handle(request, context)
        if answer is None:
            return None
        if isinstance(answer, Message):
            if repeats is not None and repeats.may_repeat(request):
                repeats.learn(frame, request, answer)
            return route.respond(correlation_id, answer)
        respond = partial(route.respond, correlation_id)
        if isinstance(answer, Promise):
            return Promised(answer, respond)
        if isinstance(answer, DelayedFetch):
            if repeats is not None and repeats.may_repeat(request):
                repeats.learn(frame, request, None)
            return Delayed(answer, respond)
        is_decided = isinstance(answer, asyncio.Future)
        future = asyncio.ensure_future(answer)
        if repeats is not None and repeats.may_repeat(request):
            future.add_done_callback(partial(_learn, repeats, frame, request))
        return Awaited(future, respond) if is_decided else Undecided(future, respond)

    def _introduce(self, frame: Frame, peer: Peer) -> Introduction:
        """Read a header that this connection did not send before."""
        header = parse_request_header(frame)
        key, version = header.api_key, header.api_version
        route = self._routes.get((key, version)) or self._route(key, version)
        context = RequestContext(self._services, version, header.client_id, peer.listener, peer.host)
        rest = bytes(frame[REST_POSITION : header.body_position])
        repeats = None if route.repeats is None else route.repeats(context, route.respond)
        known = Introduction(rest, header.body_position, route, context, repeats)
        if len(rest) <= INTRODUCTION_BYTES_MAX and route is not UNSUPPORTED_API_VERSIONS:
            peer.introductions[bytes(frame[:CORRELATION_ID_POSITION])] = known
        return known

    def _route(self, key: int, version: int) -> Route:
        """Look up a route at its first use."""
        served = registry.served_versions(key)
        if served is None:
            raise ProtocolError(f"api key {key} is not served here")
        if served[0] <= version <= served[1]:
            route = Route(
                codec.decoder(request_type(key), version),
                registry.handler(key),
                responder(key, version),
                registry.repeats(key),
            )
            self._routes[key, version] = route
            return route
        if key == API_VERSIONS:
            return UNSUPPORTED_API_VERSIONS
        raise ProtocolError(f"{_name(key)} v{version} is not served here, only {served[0]} to {served[1]}")


UNSUPPORTED_API_VERSIONS = Route(
    decode=lambda frame, _: (None, len(frame)),
    handle=lambda _request, _context: registry.api_versions_answer(ErrorCode.UNSUPPORTED_VERSION),
    respond=responder(API_VERSIONS, 0),
)
"""KIP-511: a client newer than us learns our versions from a version 0 answer with error 35."""


def _learn(repeats: registry.Repeats, frame: Frame, request: Any, done: "asyncio.Future[Message]") -> None:
    """As from an answer at once; a failure is told elsewhere."""
    if not done.cancelled() and done.exception() is None and done.result() is not None:
        repeats.learn(frame, request, done.result())


def _name(key: int) -> str:
    api = find(key)
    return api.name if api is not None else f"api key {key}"


def _server_error(key: int) -> Message:
    """What a client gets when a handler broke: the error code where the answer has one, else a closed connection."""
    answer: Any = response_type(key)
    if not hasattr(answer, "error_code"):
        raise ProtocolError(ERROR_OF_OURS)
    failure: Message = answer(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    return failure
