"""Frames and headers around the messages on a connection.

A frame is four bytes of size and as many bytes. A request begins with a header whose layout depends on key and version;
a response begins with the correlation id of its request.
"""

import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from moldau.protocol.apis import API_VERSIONS, CONTROLLED_SHUTDOWN, find
from moldau.protocol.codec import UNLIMITED, Steps, encode_chunks, encode_chunks_in_steps
from moldau.protocol.errors import ProtocolError
from moldau.protocol.schema import Message, RecordData
from moldau.protocol.source import skip_tags

Frame = bytes | memoryview

SIZE_BYTES: Final = 4
CORRELATION_ID_POSITION: Final = 4
REST_POSITION: Final = 8
"""Position in a request's frame behind the correlation id."""

COPY_BYTES_MAX: Final = 4096
"""Size up to which a frame is copied: that costs 0.1 us, `bytes` are decoded faster, and the input is not kept
alive."""

CLIENT_ID_POSITION: Final = 10

_NO_DATA: Final = memoryview(b"")
_size = struct.Struct(">i")
_unpack_size = _size.unpack_from
_fixed = struct.Struct(">hhi")
_client_id_length = struct.Struct(">h")
_prefix = struct.Struct(">i")
_flexible_prefix = struct.Struct(">ix")


class RequestHeader(NamedTuple):
    """Header of a request. If the key or version is not known, only the first three fields are read."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int
    """Position at which the request itself begins in its frame."""


def parse_request_header(frame: Frame) -> RequestHeader:
    """The header in front of a request."""
    try:
        key, version, correlation_id = _fixed.unpack_from(frame)
        api = find(key)
        if api is None or not api.min_version <= version <= api.max_version:
            return RequestHeader(key, version, correlation_id, None, _fixed.size)
        if key == CONTROLLED_SHUTDOWN and version == 0:
            return RequestHeader(key, version, correlation_id, None, _fixed.size)  # the one user of header version 0
        client_id, position = _client_id(frame)
        if version >= api.flexible_from:
            # The client id keeps its old length prefix here: a broker must find it whatever the version (KIP-511).
            position = position + 1 if frame[position] == 0 else skip_tags(frame, position)[1]
    except (struct.error, IndexError, UnicodeDecodeError) as cause:
        raise ProtocolError(f"request header: {cause}") from cause
    if position > len(frame):
        raise ProtocolError("request header: it ends too early")
    return RequestHeader(key, version, correlation_id, client_id, position)


def _client_id(frame: Frame) -> tuple[str | None, int]:
    (length,) = _client_id_length.unpack_from(frame, _fixed.size)
    if length < 0:
        return None, CLIENT_ID_POSITION
    stop = CLIENT_ID_POSITION + length
    return str(frame[CLIENT_ID_POSITION:stop], "utf-8"), stop


def response_prefix(api_key: int, version: int) -> struct.Struct:
    """The header of a response. That of ApiVersions is never flexible: its reader may not know our versions yet."""
    api = find(api_key)
    if api is not None and version >= api.flexible_from and api_key != API_VERSIONS:
        return _flexible_prefix
    return _prefix


def responder(api_key: int, version: int, elements_max: int = UNLIMITED) -> Callable[[int, Message], list[RecordData]]:
    """A function from correlation ids and messages to whole responses, size and header included: chunks to be sent in
    order. It raises TooManyElements for messages with more than `elements_max`."""
    prefix = response_prefix(api_key, version).pack

    def respond(correlation_id: int, message: Message) -> list[RecordData]:
        return _with_size(encode_chunks(message, version, prefix(correlation_id), elements_max))

    return respond


def respond_in_steps(api_key: int, version: int, correlation_id: int, message: Message) -> Steps[list[RecordData]]:
    """The chunks of a response, for a message with very many elements."""
    prefix = response_prefix(api_key, version).pack(correlation_id)
    chunks = yield from encode_chunks_in_steps(message, version, prefix)
    return _with_size(chunks)


def _with_size(chunks: list[RecordData]) -> list[RecordData]:
    first = chunks[0]
    size = len(first) if len(chunks) == 1 else sum(map(len, chunks))
    chunks[0] = _size.pack(size) + first  # type: ignore[operator]  # the first chunk is always bytes
    return chunks


class FrameReader:
    """Cutter of a connection's input into frames.

    A frame that lies in one piece of input is found in its place. One that is spread over several is collected:
    memory grows with the bytes that have arrived, not with the size that was announced, and each byte is copied once.
    (Pieces that were joined at the end held up the loop: 30 to 100 ms for 10 MB where memory is slow to be had.)
    """

    __slots__ = ("_collected", "_frame_bytes_max", "_missing")

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._collected = bytearray()  # of the frame that is not complete; its size comes first
        self._missing: int | None = None  # bytes that it lacks, once its size is known

    @property
    def buffered_bytes(self) -> int:
        """The number of bytes held of a frame that is not complete."""
        return len(self._collected)

    def whole(self, data: memoryview, position: int) -> int:
        """The end of the frame that starts at `position`, if all of it is there; 0: `collect` it."""
        end = len(data)
        body_position = position + SIZE_BYTES
        if self._collected or body_position > end:
            return 0
        size: int = _unpack_size(data, position)[0]
        if not 0 <= size <= self._frame_bytes_max:
            raise self._bad_size(size)
        stop = body_position + size
        return stop if stop <= end else 0

    def lacks_some(self, data: memoryview, position: int, bytes_max: int) -> bool:
        """Whether `data` ends inside the frame that starts at `position`, and that is no longer than `bytes_max`."""
        there = len(data) - position
        if self._collected or there < SIZE_BYTES:
            return False
        return there < SIZE_BYTES + self._size_at(data, position) <= bytes_max

    def collect(self, data: memoryview, position: int) -> int:
        """Keep bytes of `data` for the frame that is not complete; returns the position after them."""
        collected = self._collected
        if self._missing is None:
            stop = position + SIZE_BYTES - len(collected)
            collected += data[position:stop]
            if len(collected) < SIZE_BYTES:
                return len(data)
            position = stop
            self._missing = self._size_at(collected, 0)
        stop = min(position + self._missing, len(data))
        self._missing -= stop - position
        collected += data[position:stop]
        return stop

    @property
    def is_collecting(self) -> bool:
        return bool(self._collected)

    @property
    def is_complete(self) -> bool:
        """Whether the bytes that were collected are a frame."""
        return self._missing == 0

    def take(self) -> Frame:
        """The frame that was collected."""
        whole = memoryview(self._collected).toreadonly()[SIZE_BYTES:]
        self._collected = bytearray()
        self._missing = None
        return whole if len(whole) > COPY_BYTES_MAX else bytes(whole)

    def _size_at(self, data: bytearray | memoryview, position: int) -> int:
        size: int = _unpack_size(data, position)[0]
        if not 0 <= size <= self._frame_bytes_max:
            raise self._bad_size(size)
        return size

    def _bad_size(self, size: int) -> ProtocolError:
        return ProtocolError(f"a frame of {size} bytes; {self._frame_bytes_max} are allowed")


class Backlog:
    """Input that waits for its turn. It is cut into frames one by one, as they are taken: a megabyte can hold 260,000,
    and to cut them all takes longer than a loop may be held."""

    __slots__ = ("_data", "_position", "_reader", "is_empty")

    def __init__(self, reader: FrameReader) -> None:
        self._reader = reader
        self._data = _NO_DATA
        self._position = 0
        self.is_empty = True

    def add(self, data: memoryview) -> None:
        """Keep a copy behind what waits already."""
        self._data = memoryview(b"".join((self._data[self._position :], data)))
        self._position = 0
        self.is_empty = not self._data

    def take(self) -> Frame | None:
        """The next frame; None if there is no whole one: then the reader has what came of it, and nothing waits. Raises
        ProtocolError."""
        data, reader, position = self._data, self._reader, self._position
        while position < len(data):
            stop = reader.whole(data, position)
            if stop:
                self._move(stop)
                frame = data[position + SIZE_BYTES : stop]
                return frame if len(frame) > COPY_BYTES_MAX else bytes(frame)
            position = reader.collect(data, position)
            if reader.is_complete:
                self._move(position)
                return reader.take()
        self.clear()
        return None

    def _move(self, position: int) -> None:
        if position == len(self._data):
            self.clear()
        else:
            self._position = position

    def clear(self) -> None:
        """Forget what waits."""
        self._data, self._position = _NO_DATA, 0
        self.is_empty = True
