"""Codecs made from the message tables: source text per message and version, compiled on first use and kept.

The law of the decoder: nothing is allocated on the word of a length. A slice cannot be longer than the frame, a count
is compared with the bytes that are left before its loop starts, and whatever the bytes are, only `ProtocolError` comes
out.
"""

import struct
from collections.abc import Callable
from typing import Any, TypeVar

from moldau.core.files import FileRegion
from moldau.protocol import reader, writer
from moldau.protocol.errors import ProtocolError
from moldau.protocol.schema import Message, RecordData

Buffer = bytes | bytearray | memoryview
M = TypeVar("M", bound=Message)

_UNWRITABLE = (struct.error, AttributeError, TypeError)
"""What a value of the wrong type or size comes to in a generated writer."""


def decoder(message_type: type[M], version: int) -> Callable[[Buffer, int], tuple[M, int]]:
    """The function that reads a message at a position and returns it with the position after it."""
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


def encode_chunks(message: Message, version: int, prefix: bytes = b"") -> list[RecordData]:
    """The message after `prefix`, as chunks to be sent in order. The first is bytes; records are never copied."""
    write = message.__encoders__.get(version) or _encoder(type(message), version)
    chunks: list[RecordData] = []
    try:
        rest = write(message, [prefix], chunks)
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
        rest: list[bytes] = write(message, [prefix], chunks)
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


def _known(message_type: type[Message], version: int) -> int:
    first, last = message_type.versions
    if not first <= version <= last:
        raise ValueError(f"{message_type.__name__} has no version {version}: {first} to {last} are known")
    return version
