"""From a frame to the handler of its API key and back to the chunks of an answer.

For each (key, version) that was used, what is needed is looked up once and kept: the decoder, the handler, the answer's
encoder. The handlers' modules are imported at first use, so a broker that nobody asks for quotas never loads them.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from moldau.broker.sender import Chunk
from moldau.handlers import registry
from moldau.handlers.context import RequestContext, Services
from moldau.protocol import codec
from moldau.protocol.apis import API_VERSIONS, find, request_type, response_type
from moldau.protocol.errors import ErrorCode, ProtocolError
from moldau.protocol.framing import Frame, frame_response, parse_request_header
from moldau.protocol.schema import Message

log = logging.getLogger(__name__)


class Peer:
    """Who is at the other end of a connection."""

    __slots__ = ("host", "listener", "port")

    def __init__(self, listener: str) -> None:
        self.listener = listener
        self.host = ""
        self.port = 0

    def __str__(self) -> str:
        return f"{self.host}:{self.port} ({self.listener})"


class Later:
    """An answer that is not ready yet."""

    __slots__ = ("_encode", "_future", "_then", "chunks", "failed")

    def __init__(self, future: "asyncio.Future[Message]", encode: Callable[[Message], list[Chunk]]) -> None:
        self._future = future
        self._encode = encode
        self._then: Callable[[Later], None] | None = None
        self.chunks: list[Chunk] | None = None
        self.failed = False
        future.add_done_callback(self._done)

    def when_done(self, then: Callable[["Later"], None]) -> None:
        self._then = then

    def cancel(self) -> None:
        """The client is gone: nobody wants the answer."""
        self._then = None
        self._future.cancel()

    def _done(self, future: "asyncio.Future[Message]") -> None:
        if future.cancelled():
            return
        try:
            self.chunks = self._encode(future.result())
        except Exception:
            log.exception("a request failed")
            self.failed = True
        if self._then is not None:
            self._then(self)


class Route(NamedTuple):
    """What one (key, version) needs."""

    decode: Callable[[Frame, int], tuple[Any, int]]
    handle: Callable[[Any, RequestContext], Message | Awaitable[Message] | None]


class Dispatcher:
    """Decodes, calls the handler, encodes."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._routes: dict[tuple[int, int], Route] = {}

    def dispatch(self, frame: Frame, peer: Peer) -> list[Chunk] | Later | None:
        """The answer to one request: at once, later, or none (acks=0)."""
        header = parse_request_header(frame)
        key, version, correlation_id = header.api_key, header.api_version, header.correlation_id
        route = self._routes.get((key, version)) or self._route(key, version)
        if route is None:
            return self._unsupported_api_versions(correlation_id)
        # Bytes behind the request are ignored, as Kafka does: librdkafka leaves some after an all-topics Metadata v13.
        request, _ = route.decode(frame, header.body_position)
        context = RequestContext(self._services, version, header.client_id, peer.listener, peer.host)
        try:
            answer = route.handle(request, context)
            if answer is None:
                return None
            if isinstance(answer, Message):
                return frame_response(key, version, correlation_id, answer)
        except ProtocolError:
            raise
        except Exception:
            log.exception("%s v%d of %s failed", _name(key), version, peer)
            return frame_response(key, version, correlation_id, _server_error(key))
        return Later(
            asyncio.ensure_future(answer), lambda message: frame_response(key, version, correlation_id, message)
        )

    def _route(self, key: int, version: int) -> Route | None:
        """Look up a route at its first use; None for a version of ApiVersions that we do not know."""
        served = registry.served_versions(key)
        if served is None:
            raise ProtocolError(f"api key {key} is not served here")
        if not served[0] <= version <= served[1]:
            if key == API_VERSIONS:
                return None
            raise ProtocolError(f"{_name(key)} v{version} is not served here, only {served[0]} to {served[1]}")
        route = Route(codec.decoder(request_type(key), version), registry.handler(key))
        self._routes[key, version] = route
        return route

    def _unsupported_api_versions(self, correlation_id: int) -> list[Chunk]:
        """KIP-511: a client newer than us learns our versions from a version 0 answer with error 35."""
        answer = registry.api_versions_answer(ErrorCode.UNSUPPORTED_VERSION)
        return frame_response(API_VERSIONS, 0, correlation_id, answer)


def _name(key: int) -> str:
    api = find(key)
    return api.name if api is not None else f"api key {key}"


def _server_error(key: int) -> Message:
    """What a client gets when a handler broke: the error code where the answer has one, else a closed connection."""
    answer: Any = response_type(key)
    if not hasattr(answer, "error_code"):
        raise ProtocolError("the request could not be answered because of an error of ours, see above")
    failure: Message = answer(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    return failure
