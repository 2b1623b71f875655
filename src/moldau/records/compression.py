"""The five codecs, in the framings that Kafka's Java client and librdkafka read and write.

The law: decompression takes a limit and never holds much more than that, however small the input that claims to be
large. The libraries are imported at first use: most brokers never open a batch.
"""

import zlib
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import TypeVar

from moldau.core.files import Buffer
from moldau.protocol.errors import ApiError, ErrorCode

# A producer limits what it puts into one batch before compression (max.request.size, 1 MiB unless set): this is far
# past it, and what opening one batch may cost a broker at most.
DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024
OPENED_BYTES_MAX = 16 * 1024 * 1024
OPENED_RATIO_MAX = 4

_T = TypeVar("_T")
_MASK = 0xFFFFFFFF
_CHUNK_BYTES = 1024 * 1024  # the libraries allocate what a call may return before it returns
_ZSTD_LEVEL = 3
_GZIP_WINDOW_BITS = 31  # 15, and 16 for the gzip wrapper
_GZIP_MEMBERS_MAX = 64  # gzip streams may be concatenated; each one costs a copy of the rest
_LZ4_FRAME_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_DESCRIPTOR_START = len(_LZ4_FRAME_MAGIC)
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"  # version, lowest version that can read it
_XERIAL_BLOCK_BYTES = 32 * 1024


class Codec(IntEnum):
    """Codecs, by the number in the low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


CODECS_BY_NAME = {codec.name.lower(): codec for codec in Codec} | {"uncompressed": Codec.NONE}
"""The values of `compression.type`, without `producer`."""


class DecompressionError(ApiError):
    """Error: the bytes are not what the codec writes. The checksum was right, so a retry would not help:
    INVALID_RECORD."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)


class DecompressedTooLargeError(ApiError):
    """Error: the data is larger than we are ready to hold. MESSAGE_TOO_LARGE, on which a producer splits its batch."""

    def __init__(self, limit: int) -> None:
        super().__init__(ErrorCode.MESSAGE_TOO_LARGE, f"decompressed records are larger than {limit} bytes")


def opened_bytes_max(size: int) -> int:
    """The number of bytes that a batch of this size may make a broker hold for a request; twice that while the pieces
    are joined.

    For small batches any rate of compression is allowed. A configuration that lets larger batches in lets them be
    larger inside, too.
    """
    return min(DECOMPRESSED_BYTES_MAX, max(OPENED_BYTES_MAX, OPENED_RATIO_MAX * size))


def compress(codec: int, data: Buffer) -> Buffer:
    """`data` as Kafka's producer would compress it, at default levels."""
    return _known(_COMPRESSORS, codec)(data)


def decompress(codec: int, data: Buffer, *, limit: int = DECOMPRESSED_BYTES_MAX) -> Buffer:
    """The decompressed `data`, up to `limit` bytes."""
    return _known(_DECOMPRESSORS, codec)(data, limit)


def compress_lz4_v0(data: Buffer) -> bytes:
    """LZ4 as message format v0 has it: the checksum of the frame descriptor is wrong (KIP-31, KAFKA-3160)."""
    frame = bytearray(_compress_lz4(data))
    end = _descriptor_end(frame)
    frame[end] = _descriptor_checksum(frame[:end])
    return bytes(frame)


def decompress_lz4_v0(data: Buffer, *, limit: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """The content of frames whose descriptor checksum is wrong, or right."""
    frame = bytearray(data)
    end = _descriptor_end(frame)
    frame[end] = _descriptor_checksum(frame[_LZ4_DESCRIPTOR_START:end])
    return _decompress_lz4(frame, limit)


def _known(table: dict[int, _T], codec: int) -> _T:
    try:
        return table[codec]
    except KeyError:
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"{codec} is no compression codec") from None


def _same(data: Buffer) -> Buffer:
    return data


def _same_within(data: Buffer, limit: int) -> Buffer:
    if len(data) > limit:
        raise DecompressedTooLargeError(limit)
    return data


def _compress_gzip(data: Buffer) -> bytes:
    compressor = zlib.compressobj(wbits=_GZIP_WINDOW_BITS)
    return compressor.compress(data) + compressor.flush()


def _decompress_gzip(data: Buffer, limit: int) -> bytes:
    out = []
    left = limit
    for _ in range(_GZIP_MEMBERS_MAX):
        part, data = _gzip_member(data, left + 1)
        left -= len(part)
        if left < 0:
            raise DecompressedTooLargeError(limit)
        out.append(part)
        if not data:
            return b"".join(out)
    raise DecompressionError(f"more than {_GZIP_MEMBERS_MAX} gzip streams in one batch")


def _gzip_member(data: Buffer, limit: int) -> tuple[bytes, bytes]:
    decompressor = zlib.decompressobj(wbits=_GZIP_WINDOW_BITS)
    try:
        part = decompressor.decompress(data, limit)
    except zlib.error as error:
        raise DecompressionError(f"gzip: {error}") from error
    if not decompressor.eof and len(part) < limit:
        raise DecompressionError("gzip: the stream is cut off")
    return part, decompressor.unused_data


def _compress_snappy(data: Buffer) -> bytes:
    """The blocks behind the header of the snappy-java library: Kafka writes them, and every client reads them."""
    from cramjam import snappy

    out: list[bytes] = [_XERIAL_HEADER]
    view = memoryview(data)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        out += (len(block).to_bytes(4, "big"), block)
    return b"".join(out)


def _decompress_snappy(data: Buffer, limit: int) -> bytes:
    """The content of blocks behind the snappy-java header, or of one bare block as librdkafka writes it."""
    view = memoryview(data)
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _snappy_block(view, limit, limit)
    out = []
    left = limit
    for block in _xerial_blocks(view):
        part = _snappy_block(block, left, limit)
        left -= len(part)
        out.append(part)
    return b"".join(out)


def _xerial_blocks(view: memoryview) -> Iterator[memoryview]:
    position = 0
    while position < len(view):
        if view[position : position + len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:  # streams may be concatenated
            position += len(_XERIAL_HEADER)
            continue
        size = int.from_bytes(view[position : position + 4], "big")
        position += 4
        if not 0 < size <= len(view) - position:
            raise DecompressionError(f"snappy: a block of {size} bytes, {len(view) - position} are left")
        yield view[position : position + size]
        position += size


def _snappy_block(block: memoryview, left: int, limit: int) -> bytes:
    from cramjam import DecompressionError as SnappyError
    from cramjam import snappy

    try:
        if snappy.decompress_raw_len(block) > left:
            raise DecompressedTooLargeError(limit)
        return bytes(snappy.decompress_raw(block))
    except SnappyError as error:
        raise DecompressionError(f"snappy: {error}") from error


def _compress_lz4(data: Buffer) -> bytes:
    # Kafka's Java reader refuses blocks that refer to earlier ones.
    import lz4.frame  # type: ignore[import-untyped]  # the package has no type information

    frame: bytes = lz4.frame.compress(
        data, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False, store_size=False
    )
    return frame


def _decompress_lz4(data: Buffer, limit: int) -> bytes:
    """The content of one frame; bytes behind it are ignored, as Kafka does."""
    import lz4.frame

    decompressor = lz4.frame.LZ4FrameDecompressor()
    out = []
    left = limit
    try:
        while not decompressor.eof:
            part = decompressor.decompress(data, max_length=min(left + 1, _CHUNK_BYTES))
            data = b""
            if not part and decompressor.needs_input and not decompressor.eof:
                raise DecompressionError("lz4: the frame is cut off")
            left -= len(part)
            if left < 0:
                raise DecompressedTooLargeError(limit)
            out.append(part)
    except RuntimeError as error:
        raise DecompressionError(f"lz4: {error}") from error
    return b"".join(out)


def _descriptor_end(frame: Buffer) -> int:
    """The position of the descriptor's checksum: behind the two flag bytes, the content size and the dictionary id."""
    if len(frame) < _LZ4_DESCRIPTOR_START + 3 or frame[:_LZ4_DESCRIPTOR_START] != _LZ4_FRAME_MAGIC:
        raise DecompressionError("lz4: no frame starts here")
    flags = frame[_LZ4_DESCRIPTOR_START]
    end = _LZ4_DESCRIPTOR_START + 2 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
    if end >= len(frame):
        raise DecompressionError("lz4: the frame is cut off")
    return end


def _descriptor_checksum(descriptor: Buffer) -> int:
    """The second byte of xxHash-32, which for fewer than 16 bytes has no striped part."""
    value = (0x165667B1 + len(descriptor)) & _MASK
    aligned = len(descriptor) & ~3
    for start in range(0, aligned, 4):
        value = (value + int.from_bytes(descriptor[start : start + 4], "little") * 0xC2B2AE3D) & _MASK
        value = _rotate_left(value, 17) * 0x27D4EB2F & _MASK
    for byte in descriptor[aligned:]:
        value = _rotate_left((value + byte * 0x165667B1) & _MASK, 11) * 0x9E3779B1 & _MASK
    value = (value ^ value >> 15) * 0x85EBCA77 & _MASK
    value = (value ^ value >> 13) * 0xC2B2AE3D & _MASK
    return ((value ^ value >> 16) >> 8) & 0xFF


def _rotate_left(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & _MASK


def _compress_zstd(data: Buffer) -> bytes:
    from zstandard import ZstdCompressor

    return ZstdCompressor(level=_ZSTD_LEVEL, write_content_size=False).compress(data)


def _decompress_zstd(data: Buffer, limit: int) -> bytes:
    # Kafka's frames carry no content size, so the one-shot call refuses them. A frame that is cut off reads short
    # here without an error; the count of records tells.
    from zstandard import ZstdDecompressor, ZstdError

    out = []
    left = limit
    try:
        with ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
            while part := reader.read(min(left + 1, _CHUNK_BYTES)):
                left -= len(part)
                if left < 0:
                    raise DecompressedTooLargeError(limit)
                out.append(part)
    except ZstdError as error:
        raise DecompressionError(f"zstd: {error}") from error
    return b"".join(out)


_COMPRESSORS: dict[int, Callable[[Buffer], Buffer]] = {
    Codec.NONE: _same,
    Codec.GZIP: _compress_gzip,
    Codec.SNAPPY: _compress_snappy,
    Codec.LZ4: _compress_lz4,
    Codec.ZSTD: _compress_zstd,
}
_DECOMPRESSORS: dict[int, Callable[[Buffer, int], Buffer]] = {
    Codec.NONE: _same_within,
    Codec.GZIP: _decompress_gzip,
    Codec.SNAPPY: _decompress_snappy,
    Codec.LZ4: _decompress_lz4,
    Codec.ZSTD: _decompress_zstd,
}
