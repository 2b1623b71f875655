"""Codecs made from the message tables: source text per message and version, compiled on first use and kept.

The law of the decoder: nothing is allocated on the word of a length. A slice cannot be longer than the frame, a count
is compared with the number of bytes that are left before its loop starts, and whatever the bytes are, only
`ProtocolError` comes out. Elements are counted, nested ones too: a small message is read at once, a large one in steps,
and one that is larger than an honest request of its size is refused.
"""

import struct
from collections.abc import Callable, Generator
from functools import cache
from typing import Any, Final, TypeVar, cast

from moldau.core.files import FileRegion
from moldau.protocol import reader, writer
from moldau.protocol.errors import ProtocolError, TooManyElements
from moldau.protocol.schema import Message, RecordData

Buffer = bytes | bytearray | memoryview
M = TypeVar("M", bound=Message)
T = TypeVar("T")
Steps = Generator[None, None, T]
"""Work that yields now and then, so that its runner may do something else, and returns its result."""

_UNWRITABLE = (struct.error, AttributeError, TypeError)
"""Errors that a value of the wrong type or size raises in a generated writer."""


ELEMENTS_AT_ONCE_MAX: Final = 1000
"""Elements that a broker reads or writes at once: about 1 ms (measured, 3.11). More are read or written in steps."""

REQUEST_BYTES_PER_ELEMENT: Final = 10
REQUEST_ELEMENTS_MIN: Final = 50_000
REQUEST_ELEMENTS_MAX: Final = 250_000
"""Elements in all arrays of a request, at most: one for each ten bytes, within these bounds. An element becomes objects
of 100 to 500 bytes, its answer included, and may be two bytes in the frame. Honest ones are longer: 100,000 names of
topics, or 10,000 partitions with three replicas each, are within."""

UNLIMITED: Final = 1 << 31


def request_elements_max(frame_bytes: int) -> int:
    """The number of elements that a request of this size may have."""
    return min(max(frame_bytes // REQUEST_BYTES_PER_ELEMENT, REQUEST_ELEMENTS_MIN), REQUEST_ELEMENTS_MAX)


def decoder(message_type: type[M], version: int) -> Callable[..., tuple[M, int]]:
    """The function that reads (buffer, position) and returns the message with the position after it. A third argument
    is the number of elements beyond which it raises TooManyElements."""
    found = message_type.__decoders__.get(version)
    if found is None:
        found = message_type.__decoders__[version] = reader.generate(message_type, _known(message_type, version))
    return found


def decode(message_type: type[M], version: int, buffer: Buffer, position: int = 0) -> M:
    """The message that fills `buffer` from `position` to its end."""
    message, end = decoder(message_type, version)(buffer, position)
    if end != len(buffer):
        raise ProtocolError(f"{message_type.__name__} v{version}: {len(buffer) - end} bytes after its end")
    return message


def decode_request_in_steps(message_type: type[M], version: int, frame: Buffer, position: int) -> Steps[M]:
    """Read a request with very many elements; raises ProtocolError if it has more than its size allows."""
    elements_max = request_elements_max(len(frame))
    try:
        message, _ = yield from _stepping_reader(message_type, version)(frame, position, elements_max)
    except TooManyElements:
        raise ProtocolError(
            f"{message_type.__name__} v{version}: more than {elements_max} elements in {len(frame)} bytes"
        ) from None
    return cast(M, message)


def encode_chunks(
    message: Message, version: int, prefix: bytes = b"", elements_max: int = UNLIMITED
) -> list[RecordData]:
    """The message after `prefix`, as chunks to be sent in order. The first is bytes; records are never copied. Raises
    TooManyElements beyond `elements_max`."""
    write = message.__encoders__.get(version) or _encoder(type(message), version)
    chunks: list[RecordData] = []
    try:
        rest = write(message, [prefix], chunks, elements_max)
    except _UNWRITABLE as cause:
        raise _unwritable(message, version, cause) from cause
    if rest:
        chunks.append(b"".join(rest))
    return chunks


def encode_chunks_in_steps(message: Message, version: int, prefix: bytes = b"") -> Steps[list[RecordData]]:
    """The chunks of `encode_chunks`, for a message with very many elements."""
    chunks: list[RecordData] = []
    try:
        rest = yield from _stepping_writer(type(message), version)(message, [prefix], chunks, UNLIMITED)
    except _UNWRITABLE as cause:
        raise _unwritable(message, version, cause) from cause
    if rest:
        chunks.append(b"".join(rest))
    return chunks


def encode(message: Message, version: int, prefix: bytes = b"") -> bytes:
    """The message after `prefix`, as one piece."""
    write = message.__encoders__.get(version) or _encoder(type(message), version)
    chunks: list[RecordData] = []
    try:
        rest: list[bytes] = write(message, [prefix], chunks, UNLIMITED)
    except _UNWRITABLE as cause:
        raise _unwritable(message, version, cause) from cause
    return b"".join((*map(_bytes_of, chunks), *rest) if chunks else rest)


def _bytes_of(chunk: RecordData) -> bytes | memoryview:
    return chunk.read() if isinstance(chunk, FileRegion) else chunk


def _unwritable(message: Message, version: int, cause: Exception) -> ValueError:
    return ValueError(f"{message!r} cannot be written as version {version}: {cause}")


def _encoder(message_type: type[Message], version: int) -> Callable[..., Any]:
    write = message_type.__encoders__[version] = writer.generate(message_type, _known(message_type, version))
    return write


@cache
def _stepping_reader(message_type: type[Message], version: int) -> Callable[..., Any]:
    return reader.generate(message_type, _known(message_type, version), in_steps=True)


@cache
def _stepping_writer(message_type: type[Message], version: int) -> Callable[..., Any]:
    return writer.generate(message_type, _known(message_type, version), in_steps=True)


def _known(message_type: type[Message], version: int) -> int:
    first, last = message_type.versions
    if not first <= version <= last:
        raise ValueError(f"{message_type.__name__} has no version {version}: {first} to {last} are known")
    return version
