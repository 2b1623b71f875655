import gzip
import random
import sys
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import cramjam
import lz4.frame  # type: ignore[import-untyped]  # the package has no type information
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from moldau.protocol.errors import ApiError, ErrorCode
from moldau.records.compression import (
    CODECS_BY_NAME,
    Codec,
    DecompressedTooLargeError,
    DecompressionError,
    compress,
    compress_lz4_v0,
    decompress,
    decompress_lz4_v0,
)

COMPRESSING = [codec for codec in Codec if codec != Codec.NONE]
MIB = 1024 * 1024
XERIAL_HEADER = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"


def payload(size: int, seed: int = 1) -> bytes:
    """Half of it can be compressed, and it does not end where a block of any codec ends."""
    generator = random.Random(seed)
    return b"".join(generator.randbytes(50) * 2 for _ in range(size // 100)) + b"end"


@given(st.sampled_from(list(Codec)), st.binary(max_size=1000))
def test_what_was_compressed_comes_back(codec: Codec, data: bytes) -> None:
    assert decompress(codec, compress(codec, data)) == data


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("size", [32 * 1024, 64 * 1024, 300_000, 3 * MIB])
def test_data_of_several_blocks_comes_back(codec: Codec, size: int) -> None:
    data = payload(size)
    assert decompress(codec, memoryview(bytes(compress(codec, bytearray(data))))) == data


@pytest.mark.parametrize("codec", Codec)
def test_the_limit_is_exact(codec: Codec) -> None:
    data = payload(200_000)
    compressed = compress(codec, data)
    assert decompress(codec, compressed, limit=len(data)) == data
    with pytest.raises(DecompressedTooLargeError) as error:
        decompress(codec, compressed, limit=len(data) - 1)
    assert error.value.code == ErrorCode.MESSAGE_TOO_LARGE


def zeros(compressor: Any, mebibytes: int) -> bytes:
    """Made piece by piece: the peak of memory must not come from making the bomb."""
    return b"".join(compressor.compress(b"\0" * MIB) for _ in range(mebibytes)) + bytes(compressor.flush())


def gzip_bomb(mebibytes: int) -> bytes:
    return zeros(zlib.compressobj(wbits=31), mebibytes)


def snappy_bomb(mebibytes: int) -> bytes:
    block = bytes(cramjam.snappy.compress_raw(b"\0" * MIB))
    return XERIAL_HEADER + (len(block).to_bytes(4, "big") + block) * mebibytes


def snappy_liar(mebibytes: int) -> bytes:
    """A bare block that claims a size and has nothing to show for it."""
    size = mebibytes * MIB
    claim = bytearray()
    while size > 0x7F:
        claim.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes(claim) + bytes((size,)) + b"\0\0"


def lz4_bomb(mebibytes: int) -> bytes:
    compressor = lz4.frame.LZ4FrameCompressor(block_linked=False)
    return bytes(compressor.begin()) + zeros(compressor, mebibytes)


def zstd_bomb(mebibytes: int) -> bytes:
    return zeros(zstandard.ZstdCompressor().compressobj(), mebibytes)


def peak_kib() -> int:
    """The most memory since the peak was last forgotten."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1])


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux forgets a peak when asked")
@pytest.mark.parametrize(
    ("codec", "bomb"),
    [
        (Codec.GZIP, gzip_bomb),
        (Codec.SNAPPY, snappy_bomb),
        (Codec.SNAPPY, snappy_liar),
        (Codec.LZ4, lz4_bomb),
        (Codec.ZSTD, zstd_bomb),
    ],
)
def test_a_bomb_takes_no_more_memory_than_the_limit(codec: Codec, bomb: Callable[[int], bytes]) -> None:
    data = bomb(128)
    Path("/proc/self/clear_refs").write_text("5")
    before_kib = peak_kib()
    with pytest.raises(DecompressedTooLargeError):
        decompress(codec, data, limit=8 * MIB)
    assert peak_kib() - before_kib < 32 * 1024


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_a_stream_that_is_cut_off_is_refused(codec: Codec) -> None:
    compressed = bytes(compress(codec, payload(100_000)))
    for size in (1, 7, 20, len(compressed) // 2, len(compressed) - 1):
        with pytest.raises(DecompressionError) as error:
            decompress(codec, compressed[:size])
        assert error.value.code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", COMPRESSING)
def test_damaged_streams_are_never_more_than_an_expected_failure(codec: Codec) -> None:
    compressed = bytes(compress(codec, payload(5_000)))
    for seed in range(300):
        generator = random.Random(seed)
        damaged = bytearray(compressed)
        for _ in range(generator.randrange(1, 4)):
            damaged[generator.randrange(len(damaged))] = generator.randrange(256)
        with suppress(ApiError):
            decompress(codec, damaged, limit=MIB)


@given(st.sampled_from(COMPRESSING), st.binary(max_size=100))
def test_random_bytes_are_never_more_than_an_expected_failure(codec: Codec, data: bytes) -> None:
    with suppress(ApiError):
        decompress(codec, data, limit=MIB)


def test_an_unknown_codec_is_refused() -> None:
    for call in (compress, decompress):
        with pytest.raises(ApiError) as error:
            call(5, b"")
        assert error.value.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_the_names_are_those_of_compression_type() -> None:
    assert set(CODECS_BY_NAME) == {"none", "uncompressed", "gzip", "snappy", "lz4", "zstd"}


def test_gzip_streams_may_be_concatenated_but_not_without_end() -> None:
    member = gzip.compress(b"moldau")
    assert decompress(Codec.GZIP, member * 3) == b"moldau" * 3
    with pytest.raises(DecompressionError):
        decompress(Codec.GZIP, member * 1000)


def test_snappy_is_written_in_blocks_behind_the_header_of_snappy_java() -> None:
    data = payload(100_000)
    compressed = bytes(compress(Codec.SNAPPY, data))
    size = int.from_bytes(compressed[16:20], "big")
    assert compressed[:16] == XERIAL_HEADER
    assert bytes(cramjam.snappy.decompress_raw(compressed[20 : 20 + size])) == data[: 32 * 1024]
    assert decompress(Codec.SNAPPY, compressed * 2) == data * 2


def test_a_bare_snappy_block_is_read() -> None:
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(b"moldau" * 100))) == b"moldau" * 100


def test_lz4_frames_are_what_kafkas_reader_accepts() -> None:
    info = lz4.frame.get_frame_info(bytes(compress(Codec.LZ4, payload(200_000))))
    assert (info["block_linked"], info["content_checksum"], info["block_size"]) == (False, False, 64 * 1024)


def test_lz4_of_message_format_v0_has_the_wrong_descriptor_checksum() -> None:
    data = payload(200_000)
    right, wrong = bytes(compress(Codec.LZ4, data)), compress_lz4_v0(data)
    assert wrong[:6] == right[:6]
    assert (right[6], wrong[6]) == (0x82, 0x1A)  # both as Kafka writes them
    assert wrong[7:] == right[7:]
    assert decompress_lz4_v0(wrong) == decompress_lz4_v0(right) == data
    with pytest.raises(DecompressionError):
        decompress(Codec.LZ4, wrong)


@pytest.mark.parametrize("options", [{"store_size": True}, {"store_size": True, "content_checksum": True}])
def test_lz4_descriptors_of_any_length_are_mended(options: dict[str, bool]) -> None:
    frame = bytearray(lz4.frame.compress(b"moldau" * 100, **options))
    frame[14] ^= 0xFF  # behind flags, block size and content size
    assert decompress_lz4_v0(frame) == b"moldau" * 100


@pytest.mark.parametrize("data", [b"", b"\x04\x22\x4d\x18", b"\x04\x22\x4d\x18\x68\x40\x00", b"moldau is a river"])
def test_what_is_no_lz4_frame_is_refused(data: bytes) -> None:
    with pytest.raises(DecompressionError):
        decompress_lz4_v0(data)


def test_zstd_frames_may_have_no_content_size_and_several_frames() -> None:
    frame = zstandard.ZstdCompressor(write_content_size=False).compress(b"moldau" * 100)
    assert decompress(Codec.ZSTD, frame * 2) == b"moldau" * 200
