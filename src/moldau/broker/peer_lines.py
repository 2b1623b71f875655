"""Lines to other brokers, over each of which one request is under way at a time.

What comes up meanwhile waits, and goes together in the next one: however much there is to ask, a broker has one request
of a kind under way to each other one.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from moldau.broker.peer import PeerClient, decode_answer
from moldau.cluster.image import NO_LEADER, Endpoint
from moldau.core.invariants import invariant
from moldau.protocol.errors import ProtocolError
from moldau.protocol.schema import Message
from moldau.requests.parts import Parts

log = logging.getLogger(__name__)

FRAME_BYTES_MAX = 16 * 1024 * 1024

A = TypeVar("A", bound=Message)


class PeerLine:
    """One broker, at the endpoint that it had when it was last looked for."""

    def __init__(self, loop: asyncio.AbstractEventLoop, parts: Parts, purpose: str) -> None:
        """`purpose`: the end of the client id, by which the other broker tells lines apart."""
        self._loop = loop
        self._parts = parts
        self._client_id = f"broker-{parts.broker_id}-{purpose}"
        self._client: PeerClient | None = None
        self._is_under_way = False
        self.endpoint: Endpoint

    def _request(self, request: Message, version: int, answer_type: type[A], then: Callable[[A | None], None]) -> None:
        """Send a request; `then` gets the answer, or None if none came that makes sense."""
        invariant(not self._is_under_way, "a second request is sent before the first is answered")
        self._is_under_way = True

        def answered(frame: memoryview | None) -> None:
            self._is_under_way = False
            then(None if frame is None else _decoded(request, version, answer_type, frame))

        self._connected().send(request, version, self._parts.config.int("request.timeout.ms"), answered)

    def _connected(self) -> PeerClient:
        if self._client is None or self._client.endpoint != self.endpoint:
            self._disconnect()
            self._client = PeerClient(self._loop, self.endpoint, self._client_id, frame_bytes_max=FRAME_BYTES_MAX)
        return self._client

    def close(self) -> None:
        """Close the connection: whoever waits for an answer gets none."""
        self._disconnect()

    def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()


def _decoded(request: Message, version: int, answer_type: type[A], frame: memoryview) -> A | None:
    try:
        answer = decode_answer(request.api_key, version, frame)
    except ProtocolError as error:
        log.warning("the answer to %s makes no sense: %s", type(request).__name__, error)
        return None
    return answer if isinstance(answer, answer_type) else None


L = TypeVar("L", bound=PeerLine)


class PeerLines(Generic[L]):
    """The lines of one kind, by broker: made when a broker is asked for the first time."""

    def __init__(self, parts: Parts, make: Callable[[], L]) -> None:
        self._parts = parts
        self._make = make
        self._lines: dict[int, L] = {}

    def find(self, broker_id: int) -> L | None:
        """The line to a broker of the image; None if nobody is there."""
        broker = None if broker_id == NO_LEADER else self._parts.metadata.image.brokers.get(broker_id)
        endpoint = None if broker is None else broker.endpoint(self._parts.config.inter_broker_listener)
        if endpoint is None:
            return None
        line = self._lines.get(broker_id)
        if line is None:
            line = self._lines[broker_id] = self._make()
        line.endpoint = endpoint
        return line

    def __iter__(self) -> Iterator[L]:
        return iter(list(self._lines.values()))

    def close(self) -> None:
        for line in self:
            line.close()
