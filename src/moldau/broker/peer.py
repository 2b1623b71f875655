"""A client of another broker: requests out, answers in, over one connection that is made when it is needed.

Bytes are received straight into a buffer that is kept and used again: an answer of a megabyte is not copied, and no
memory is mapped and faulted in for it. So the frame that a callback of `send` is given is only good until that
callback returns, or until `resume` if it called `pause`.
"""

import asyncio
import logging
import socket
import struct
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from moldau.cluster.image import Endpoint
from moldau.protocol import codec
from moldau.protocol.apis import find, response_type
from moldau.protocol.errors import ProtocolError
from moldau.protocol.framing import SIZE_BYTES, response_prefix
from moldau.protocol.schema import Message

log = logging.getLogger(__name__)

BUFFER_BYTES_MIN = 64 * 1024
SMALL_ANSWERS_MAX = 128
"""Answers in a row that fill less than an eighth of the buffer; after them it is given back."""

CORRELATION_IDS = 1 << 31

_size = struct.Struct(">i")
_fixed = struct.Struct(">ihhi")
_client_id = struct.Struct(">h")

Then = Callable[[memoryview | None], None]
"""Gets the answer's frame, correlation id first, or None: the peer is gone."""


class PeerGone(Exception):
    """The other broker did not answer: it refused, closed the connection, sent nonsense or took too long."""


class PeerClient:
    """Speaks to one broker. After a failure the next request makes a new connection."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        endpoint: Endpoint,
        client_id: str,
        *,
        frame_bytes_max: int,
        connect_timeout_ms: int = 10_000,
        receive_buffer_bytes: int | None = None,
    ) -> None:
        self._loop = loop
        self.endpoint = endpoint
        self._client_id = _client_id.pack(len(client_id.encode())) + client_id.encode()
        self._frame_bytes_max = frame_bytes_max
        self._connect_timeout_ms = connect_timeout_ms
        self._receive_buffer_bytes = receive_buffer_bytes
        self._correlation_id = 0
        self._link: _Link | None = None

    async def request(self, message: Message, version: int, timeout_ms: int) -> Message:
        """The answer to a request; PeerGone if there is none."""
        future: asyncio.Future[bytes | None] = self._loop.create_future()

        def done(frame: memoryview | None) -> None:
            if not future.done():
                future.set_result(None if frame is None else bytes(frame))

        self.send(message, version, timeout_ms, done)
        frame = await future
        if frame is None:
            raise PeerGone(f"{self.endpoint.host}:{self.endpoint.port}")
        try:
            return decode_answer(message.api_key, version, frame)
        except ProtocolError as error:
            self.close()
            raise PeerGone(str(error)) from error

    def send(self, message: Message, version: int, timeout_ms: int, then: Then) -> None:
        """Send a request; `then` is called once, never before this returns."""
        body = codec.encode(message, version)
        self.send_encoded(message.api_key, version, body, timeout_ms, then)

    def send_encoded(self, api_key: int, version: int, body: bytes, timeout_ms: int, then: Then) -> None:
        """Send a request that is encoded already."""
        link = self._link
        if link is None or link.is_closed:
            link = self._link = _Link(self._loop, self._frame_bytes_max, str(self))
            link.connect(self.endpoint, min(timeout_ms, self._connect_timeout_ms), self._receive_buffer_bytes)
        self._correlation_id = correlation_id = (self._correlation_id + 1) % CORRELATION_IDS
        rest = self._client_id + b"\0" if _is_flexible(api_key, version) else self._client_id
        size = _fixed.size - SIZE_BYTES + len(rest) + len(body)
        frame = b"".join((_fixed.pack(size, api_key, version, correlation_id), rest, body))
        link.send(frame, correlation_id, timeout_ms, then)

    def pause(self) -> None:
        """Deliver nothing and leave the frame alone until `resume`."""
        if self._link is not None:
            self._link.pause()

    def resume(self) -> None:
        if self._link is not None:
            self._link.resume()

    @property
    def buffer_bytes(self) -> int:
        """Memory that is held for answers."""
        return 0 if self._link is None else self._link.buffer_bytes

    def close(self) -> None:
        """Close the connection: whoever waits is told that the peer is gone."""
        link, self._link = self._link, None
        if link is not None:
            link.close("closed")

    def __str__(self) -> str:
        return f"{self.endpoint.host}:{self.endpoint.port}"


def decode_answer(api_key: int, version: int, frame: bytes | memoryview) -> Message:
    """The message in an answer's frame."""
    return codec.decode(response_type(api_key), version, frame, answer_position(api_key, version))


def answer_position(api_key: int, version: int) -> int:
    """Position of the message in an answer's frame: behind the correlation id, and the tags where there are any."""
    return response_prefix(api_key, version).size


def _is_flexible(api_key: int, version: int) -> bool:
    api = find(api_key)
    return api is not None and version >= api.flexible_from


class _Link(asyncio.BufferedProtocol):
    """One connection, from being made to its end."""

    __slots__ = (
        "_buffer",
        "_connecting",
        "_filled",
        "_frame_bytes_max",
        "_loop",
        "_name",
        "_paused",
        "_small_answers",
        "_start",
        "_timer",
        "_transport",
        "_unsent",
        "_waiting",
        "is_closed",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, frame_bytes_max: int, name: str) -> None:
        self._loop = loop
        self._frame_bytes_max = frame_bytes_max
        self._name = name
        self._buffer = memoryview(bytearray(BUFFER_BYTES_MIN))
        self._start = 0  # of what is not delivered yet
        self._filled = 0
        self._small_answers = 0
        self._paused = False
        self._transport: asyncio.Transport | None = None
        self._connecting: asyncio.Task[Any] | None = None
        self._unsent: list[bytes] = []
        self._waiting: dict[int, tuple[float, Then]] = {}  # by correlation id, in the order of the requests
        self._timer: asyncio.TimerHandle | None = None
        self.is_closed = False

    def connect(self, endpoint: Endpoint, timeout_ms: int, receive_buffer_bytes: int | None) -> None:
        self._connecting = self._loop.create_task(self._connect(endpoint, timeout_ms, receive_buffer_bytes))

    async def _connect(self, endpoint: Endpoint, timeout_ms: int, receive_buffer_bytes: int | None) -> None:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._loop.create_connection(lambda: self, endpoint.host, endpoint.port)
        except (OSError, TimeoutError) as error:
            self.close(str(error) or "no connection in time")
            return
        if self._transport is not None and receive_buffer_bytes is not None and receive_buffer_bytes > 0:
            own = self._transport.get_extra_info("socket")
            own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's looks like one and is none
        if self.is_closed:
            self._transport.abort()
        elif self._unsent:
            self._transport.write(b"".join(self._unsent))
            self._unsent.clear()

    def connection_lost(self, error: Exception | None) -> None:
        self.close(str(error) if error else "the peer closed the connection")

    def send(self, frame: bytes, correlation_id: int, timeout_ms: int, then: Then) -> None:
        timeout_s = timeout_ms / 1000
        self._waiting[correlation_id] = (self._loop.time() + timeout_s, then)
        if self._timer is None:
            self._timer = self._loop.call_later(timeout_s, self._check_time)
        if self._transport is None:
            self._unsent.append(frame)
        else:
            self._transport.write(frame)

    def _check_time(self) -> None:
        """One timer for all requests: it looks at the oldest, and is set anew only when it fires."""
        self._timer = None
        if not self._waiting or self.is_closed:
            return
        deadline, _ = next(iter(self._waiting.values()))
        left_s = deadline - self._loop.time()
        if left_s <= 0 and not self._paused:
            self.close("no answer in time")
        else:
            self._timer = self._loop.call_later(max(left_s, 0.1), self._check_time)

    # Receiving

    @property
    def buffer_bytes(self) -> int:
        return len(self._buffer)

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint  # always -1
        if self._filled == len(self._buffer):
            self._make_room()
        return self._buffer[self._filled :]

    def _make_room(self) -> None:
        """The buffer ends inside a frame: move that to the front of this one, or of one that it fits in."""
        held = self._buffer[self._start : self._filled]
        needed = BUFFER_BYTES_MIN
        if len(held) >= SIZE_BYTES:
            needed = max(needed, SIZE_BYTES + _size.unpack_from(held)[0])
        if needed > len(self._buffer):
            larger = memoryview(bytearray(needed + needed // 4))  # the next one may be a little larger
            larger[: len(held)] = held
            self._buffer = larger
        else:
            self._buffer[: len(held)] = bytes(held)
        self._start, self._filled = 0, len(held)

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        if not self._paused:
            self._deliver()

    def _deliver(self) -> None:
        """Hand out the frames that are complete."""
        while self._filled - self._start >= SIZE_BYTES and not self._paused and not self.is_closed:
            start = self._start + SIZE_BYTES
            (size,) = _size.unpack_from(self._buffer, self._start)
            if not SIZE_BYTES <= size <= self._frame_bytes_max:
                self.close(f"an answer of {size} bytes")
                return
            if start + size > self._filled:
                break
            self._start = start + size
            self._answer(self._buffer[start : start + size])
        if self._start == self._filled and not self._paused:
            self._shrink_if_idle(self._filled)
            self._start = self._filled = 0

    def _shrink_if_idle(self, used: int) -> None:
        self._small_answers = self._small_answers + 1 if used < len(self._buffer) >> 3 else 0
        if self._small_answers > SMALL_ANSWERS_MAX and len(self._buffer) > BUFFER_BYTES_MIN:
            self._buffer = memoryview(bytearray(BUFFER_BYTES_MIN))
            self._small_answers = 0

    def _answer(self, frame: memoryview) -> None:
        (correlation_id,) = _size.unpack_from(frame)
        found = self._waiting.pop(correlation_id, None)
        if found is None:
            self.close(f"an answer to request {correlation_id}, which was not sent")
        else:
            found[1](frame)

    def pause(self) -> None:
        if not self._paused and self._transport is not None and not self.is_closed:
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._paused:
            self._paused = False
            if self._transport is not None and not self.is_closed:
                self._transport.resume_reading()
                self._deliver()

    def close(self, reason: str) -> None:
        """The end. Those who wait are told in a later turn: a caller of `send` is never called back inside it."""
        if self.is_closed:
            return
        self.is_closed = True
        if self._waiting:
            log.debug("requests to %s failed: %s", self._name, reason)
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        elif self._connecting is not None and not self._connecting.done():
            self._connecting.cancel()
        waiting, self._waiting = self._waiting, {}
        for _, then in waiting.values():
            self._loop.call_soon(partial(then, None))
