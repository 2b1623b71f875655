"""Way from a frame to the handler of its API key, and back to the chunks of an answer.

For each (key, version) that was used, what is needed is looked up once and kept: the decoder, the handler, the
answer's encoder. The handlers' modules are imported at first use, or soon after the start (`background_imports.py`).

An exception that is no ProtocolError is an error of ours, wherever it comes from: it is logged, and the client is told
UNKNOWN_SERVER_ERROR, or its connection is closed where the answer has no place for a code.
"""

import logging
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from moldau.broker.long_requests import ERROR_OF_OURS, LongRequest, LongRequests, long_answer, server_error
from moldau.broker.sender import Chunk
from moldau.fastpath.repeats import Repeats, repeats
from moldau.protocol import codec
from moldau.protocol.apis import API_VERSIONS, find, request_type
from moldau.protocol.errors import ErrorCode, ProtocolError, TooManyElements
from moldau.protocol.framing import CORRELATION_ID_POSITION, REST_POSITION, Frame, parse_request_header, responder
from moldau.protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from moldau.protocol.schema import Message
from moldau.requests import registry
from moldau.requests.authorization import ANONYMOUS, Principal
from moldau.requests.context import RequestContext, Services
from moldau.requests.pending import LastAnswer, PendingAnswer
from moldau.requests.pieces import Pieces
from moldau.requests.policy import Observer

log = logging.getLogger(__name__)

INTRODUCTION_BYTES_MAX = 256
"""Longer headers are read each time: what is kept of a client is bounded by the number of API versions."""


_key_and_version = struct.Struct(">hh").unpack_from
_correlation_id = struct.Struct(">i").unpack_from


class Software(NamedTuple):
    """A client's library, as it introduces itself (KIP-511)."""

    name: str
    version: str


UNKNOWN_SOFTWARE = Software("unknown", "unknown")
SOFTWARE_CHARACTERS_MAX = 64


class Peer:
    """Client or broker at the other end of a connection."""

    __slots__ = ("host", "introductions", "last_answer", "listener", "port", "principal", "software")

    def __init__(self, listener: str) -> None:
        self.listener = listener
        self.host = ""
        self.port = 0
        self.principal = ANONYMOUS
        self.software = UNKNOWN_SOFTWARE
        self.introductions: dict[tuple[int, int], Introduction] = {}  # by key and version
        self.last_answer = LastAnswer()

    def authenticated(self, principal: Principal) -> None:
        """Take the principal of a successful authentication, and forget what was learnt of the one before."""
        self.principal = principal
        self.introductions.clear()

    def __str__(self) -> str:
        return f"{self.host}:{self.port} ({self.listener})"


Answer = bytes | list[Chunk] | PendingAnswer | None
"""All of it, in pieces, later, or none (acks=0). Empty bytes: it is part of the answer before it, which is to come."""


def chunks_of(answer: bytes | list[Chunk]) -> list[Chunk]:
    """Answer that is ready, in pieces."""
    return [answer] if isinstance(answer, bytes) else answer


class Route(NamedTuple):
    """Functions that serve one (key, version)."""

    key: int
    decode: Callable[[Frame, int, int], tuple[Any, int]]
    handle: registry.Handler
    respond: Callable[[int, Message], list[Chunk]]
    respond_at_any_length: Callable[[int, Message], list[Chunk]]
    long_answer: Callable[[int, Message], PendingAnswer]
    pieces: Pieces | None = None
    elements_at_once: int = codec.ELEMENTS_AT_ONCE_MAX
    """A request with more of them is a long one."""


@dataclass(slots=True, frozen=True)
class Introduction:
    """Meaning of the header that a connection's requests of one key and version have.

    A client sends the same header over and over, the correlation id apart. So it is read once, and compared after. (The
    attributes of a class with slots are read faster than those of a tuple.)
    """

    rest: bytes  # of the header, behind the correlation id
    body_position: int
    route: Route
    context: RequestContext
    repeats: Repeats | None
    gate_version: int
    """The version of the gate under which this was made and its fast path has learnt."""


class Dispatcher:
    """Decodes, calls the handler, encodes."""

    def __init__(self, services: Services, much_was_freed: Callable[[], None] = lambda: None) -> None:
        """`much_was_freed` is called after requests that took much memory for a moment."""
        self._services = services
        self._policy = services.policy
        self._gate = services.policy.gate
        self._routes: dict[tuple[int, int], Route] = {}
        self._long_requests = LongRequests(much_was_freed)
        self._peer: Peer | None = None  # whose request came last
        self._known: Introduction | None = None

    def dispatch(self, frame: Frame, peer: Peer, is_lent: bool = False) -> Answer:
        """The answer to one request. A frame that is lent may be overwritten after this; any other may be kept."""
        known = peer.introductions.get(_key_and_version(frame)) if len(frame) >= CORRELATION_ID_POSITION else None
        if known is not None and known.gate_version != self._gate.version:
            known = None
        self._peer = peer
        self._known = known
        try:
            if known is not None and (fast_path := known.repeats) is not None:
                repeated = fast_path.serve(frame)
                if repeated is not None:
                    return repeated
            if is_lent:
                frame = bytes(frame)
            if known is None or frame[REST_POSITION : known.body_position] != known.rest:
                known = self._known = self._introduce(frame, peer)
            observer = self._policy.observer
            return self._dispatch(frame, known) if observer is None else self._observed(observer, frame, known)
        except ProtocolError:
            raise
        except Exception:
            key = parse_request_header(frame).api_key
            log.exception("%s of %s failed", _name(key), peer)
            if known is None:
                raise ProtocolError(ERROR_OF_OURS) from None
            (correlation_id,) = _correlation_id(frame, CORRELATION_ID_POSITION)
            return known.route.respond(correlation_id, server_error(key))

    def request_at_work(self) -> str:
        """The request that came last, by its key, version and client. May be asked in any thread."""
        peer, known = self._peer, self._known
        if known is None:
            return f"a first request of {peer}"
        context = known.context
        return f"{_name(known.route.key)} v{context.api_version} of client {context.client_id!r} at {peer}"

    def _observed(self, observer: Observer, frame: Frame, known: Introduction) -> Answer:
        key, context = known.route.key, known.context
        observer.request_begins(key, context)
        answer: Answer = None
        try:
            answer = self._dispatch(frame, known)
        finally:
            if isinstance(answer, PendingAnswer):
                answer.when_ended(lambda: observer.request_ends(key, context))
            else:
                observer.request_ends(key, context)
        return answer

    def _dispatch(self, frame: Frame, known: Introduction) -> Answer:
        body_position, route, context, fast_path = known.body_position, known.route, known.context, known.repeats
        (correlation_id,) = _correlation_id(frame, CORRELATION_ID_POSITION)
        # Bytes behind the request are ignored, as Kafka does: librdkafka leaves some after an all-topics Metadata v13.
        try:
            request, _ = route.decode(frame, body_position, route.elements_at_once)
        except TooManyElements:
            return self._long_requests.serve(
                LongRequest(route.key, correlation_id, frame, body_position, context, route.handle, route.pieces)
            )
        answer = route.handle(request, context)
        if answer is None:
            return None
        learns = fast_path is not None and fast_path.may_repeat(request)
        learn = partial(fast_path.learn, frame, request) if fast_path is not None and learns else None
        if isinstance(answer, Message):
            return _encoded(route, correlation_id, learn, answer)
        answer.encode_by(partial(_encoded, route, correlation_id, learn))
        return answer

    def _introduce(self, frame: Frame, peer: Peer) -> Introduction:
        """Read a header that this connection did not send before."""
        header = parse_request_header(frame)
        key, version = header.api_key, header.api_version
        route = self._routes.get((key, version)) or self._route(key, version)
        context = RequestContext(
            self._services,
            version,
            header.client_id,
            peer.listener,
            peer.host,
            peer.principal,
            peer.port,
            peer.software,
        )
        rest = bytes(frame[REST_POSITION : header.body_position])
        gate = self._gate
        fast_path = repeats(key, context, route.respond_at_any_length, peer.last_answer) if gate.is_open else None
        known = Introduction(rest, header.body_position, route, context, fast_path, gate.version)
        if len(rest) <= INTRODUCTION_BYTES_MAX and route is not UNSUPPORTED_API_VERSIONS:
            peer.introductions[key, version] = known
        return known

    def _route(self, key: int, version: int) -> Route:
        """Look up a route at its first use."""
        served = registry.served_versions(key)
        if served is None:
            raise ProtocolError(f"api key {key} is not served here")
        if served[0] <= version <= served[1]:
            route = _new_route(key, version)
            if key == API_VERSIONS:
                route = route._replace(handle=partial(self._meet, route.handle))
            self._routes[key, version] = route
            return route
        if key == API_VERSIONS:
            return UNSUPPORTED_API_VERSIONS
        raise ProtocolError(f"{_name(key)} v{version} is not served here, only {served[0]} to {served[1]}")

    def _meet(
        self, handle: registry.Handler, request: ApiVersionsRequest, context: RequestContext
    ) -> Message | PendingAnswer | None:
        """Answer ApiVersions, and note whose software asks; an error leaves it unknown."""
        answer = handle(request, context)
        is_named = isinstance(answer, ApiVersionsResponse) and answer.error_code == ErrorCode.NONE
        if is_named and request.client_software_name and self._peer is not None:
            named = (request.client_software_name, request.client_software_version)
            self._peer.software = Software(*(text[:SOFTWARE_CHARACTERS_MAX] for text in named))
        return answer


def _new_route(key: int, version: int) -> Route:
    pieces = registry.pieces(key, version)
    return Route(
        key,
        codec.decoder(request_type(key), version),
        registry.handler(key),
        responder(key, version, codec.ELEMENTS_AT_ONCE_MAX),
        responder(key, version),
        partial(long_answer, key, version),
        pieces,
        codec.ELEMENTS_AT_ONCE_MAX if pieces is None else pieces.elements_max,
    )


UNSUPPORTED_API_VERSIONS = Route(
    API_VERSIONS,
    decode=lambda frame, _position, _elements_max: (None, len(frame)),
    handle=lambda _request, _context: registry.api_versions_answer(ErrorCode.UNSUPPORTED_VERSION),
    respond=responder(API_VERSIONS, 0),
    respond_at_any_length=responder(API_VERSIONS, 0),
    long_answer=partial(long_answer, API_VERSIONS, 0),
)
"""KIP-511: a client newer than us learns our versions from a version 0 answer with error 35."""


def _encoded(
    route: Route, correlation_id: int, learn: Callable[[Message], None] | None, answer: Message
) -> list[Chunk] | PendingAnswer:
    """The chunks of a handler's answer; of one with very many elements they are to come, too."""
    if learn is not None:
        learn(answer)
    try:
        return route.respond(correlation_id, answer)
    except TooManyElements:
        return route.long_answer(correlation_id, answer)


def _name(key: int) -> str:
    api = find(key)
    return api.name if api is not None else f"api key {key}"
