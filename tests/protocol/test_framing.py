"""Headers of every kind, and frames however they are cut."""

import struct
import tracemalloc
from collections.abc import Iterator
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.protocol import apis
from moldau.protocol.codec import encode
from moldau.protocol.errors import ProtocolError
from moldau.protocol.framing import (
    COPY_BYTES_MAX,
    Backlog,
    Frame,
    FrameReader,
    parse_request_header,
    responder,
    response_prefix,
)
from moldau.protocol.messages import headers
from moldau.protocol.messages.k01_fetch import FetchableTopicResponse, FetchResponse, PartitionData
from moldau.protocol.messages.k12_heartbeat import HeartbeatResponse
from tests.protocol.sampling import region_of
from tests.selection import examples


def request_header(key: int, version: int, client_id: str | None, header_version: int) -> bytes:
    header = headers.RequestHeader(
        request_api_key=key, request_api_version=version, correlation_id=77, client_id=client_id
    )
    return encode(header, header_version)


# Request headers.


@pytest.mark.parametrize("client_id", [None, "", "rdkafka", "š"])
def test_the_header_of_every_known_version_is_read(client_id: str | None) -> None:
    for api in apis.APIS:
        for version in range(api.min_version, api.max_version + 1):
            if (api.key, version) == (apis.CONTROLLED_SHUTDOWN, 0):
                continue
            data = request_header(api.key, version, client_id, 2 if version >= api.flexible_from else 1)
            for frame in (data + b"body", memoryview(data + b"body")):
                assert parse_request_header(frame) == (api.key, version, 77, client_id, len(data))


def test_controlled_shutdown_0_has_no_client_id() -> None:
    header = parse_request_header(struct.pack(">hhi", 7, 0, 5) + b"\0\0\0\1")
    assert (header.correlation_id, header.client_id, header.body_position) == (5, None, 8)


@pytest.mark.parametrize(("key", "version"), [(18, 99), (18, -1), (999, 0), (-1, 0), (22, 6)])
def test_an_unknown_key_or_version_still_gives_its_correlation_id(key: int, version: int) -> None:
    header = parse_request_header(struct.pack(">hhi", key, version, 5))
    assert header == (key, version, 5, None, 8)


def test_tags_in_a_header_are_skipped() -> None:
    data = request_header(3, 12, "me", 2)[:-1] + bytes.fromhex("01 07 02 aabb")
    assert parse_request_header(data).body_position == len(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\3\0",
        struct.pack(">hhi", 3, 12, 1),
        struct.pack(">hhih", 3, 12, 1, 400) + b"short",
        struct.pack(">hhih", 3, 8, 1, 400) + b"short",
        struct.pack(">hhih", 3, 8, 1, 2) + b"\xff\xfe",
        struct.pack(">hhih", 3, 12, 1, -1),
        struct.pack(">hhih", 3, 12, 1, -1) + b"\1\0\x7f",
    ],
)
def test_a_broken_header_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="request header"):
        parse_request_header(data)


# Responses.


def test_the_response_header_of_api_versions_is_never_flexible() -> None:
    assert response_prefix(apis.API_VERSIONS, 4).pack(9) == b"\0\0\0\x09"
    assert response_prefix(apis.FETCH, 12).pack(9) == b"\0\0\0\x09\0"
    assert response_prefix(apis.FETCH, 11).pack(9) == b"\0\0\0\x09"


def test_response_prefixes_are_what_the_table_says() -> None:
    for api in apis.APIS:
        for version in range(api.min_version, api.max_version + 1):
            flexible = version >= api.flexible_from and api.key != apis.API_VERSIONS
            assert response_prefix(api.key, version).pack(-3) == encode(
                headers.ResponseHeader(correlation_id=-3), int(flexible)
            )


def test_a_response_is_framed_with_its_size() -> None:
    assert responder(12, 4)(9, HeartbeatResponse(error_code=27)) == [
        bytes.fromhex("0000000c 00000009 00 00000000 001b 00")
    ]


def test_the_size_counts_records_that_are_still_in_a_file() -> None:
    region = region_of(b"x" * 5000, 0, 5000)
    partition = PartitionData(partition_index=0, records=region)
    response = FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])])
    chunks = responder(1, 12)(9, response)
    assert chunks[1] is region
    assert isinstance(chunks[0], bytes)
    assert struct.unpack_from(">ii", chunks[0]) == (sum(map(len, chunks)) - 4, 9)


# Frames.


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


def fed(reader: FrameReader, data: memoryview) -> Iterator[Frame]:
    """The frames that `data` completes."""
    backlog = Backlog(reader)
    backlog.add(data)
    while (frame := backlog.take()) is not None:
        yield frame
    assert backlog.is_empty


@settings(max_examples=examples(150), deadline=None, database=None)
@given(st.lists(st.integers(0, 3 * COPY_BYTES_MAX), max_size=6), st.lists(st.integers(0, 20_000), max_size=12))
def test_frames_are_the_same_however_they_are_cut(sizes: list[int], cuts: list[int]) -> None:
    bodies = [Random(index).randbytes(size) for index, size in enumerate(sizes)]
    stream, reader, found = framed(*bodies), FrameReader(100_000), []
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    for start, stop in pairwise(edges):
        found += [bytes(frame) for frame in fed(reader, memoryview(stream)[start:stop])]
    assert found == bodies
    assert reader.buffered_bytes == 0


def test_a_whole_frame_is_found_where_it_is() -> None:
    reader, data = FrameReader(100), memoryview(framed(b"one", b"", b"three"))
    assert [reader.whole(data, position) for position in (0, 7, 11)] == [7, 11, 20]
    assert [reader.whole(data[:19], position) for position in (11, 16, 19)] == [0, 0, 0]
    with pytest.raises(ProtocolError, match="100 are allowed"):
        reader.whole(memoryview(struct.pack(">i", 101)), 0)


def test_a_frame_whose_rest_may_come_behind_it() -> None:
    reader, data = FrameReader(100), memoryview(framed(b"one", b"three"))
    assert [reader.lacks_some(data[:stop], 7, 9) for stop in (10, 11, 15, 16)] == [False, True, True, False]
    assert not reader.lacks_some(data[:15], 7, 8)
    reader.collect(data[:15], 7)
    assert not reader.lacks_some(data[:15], 7, 9)


def test_what_a_frame_in_pieces_lacks_is_no_frame() -> None:
    reader = FrameReader(100)
    assert list(fed(reader, memoryview(struct.pack(">i", 9) + b"12345"))) == []
    assert reader.whole(memoryview(framed(b"")), 0) == 0
    assert list(fed(reader, memoryview(framed(b"") + framed(b"next")))) == [b"12345" + framed(b""), b"next"]


def test_frames_that_arrive_byte_by_byte() -> None:
    reader = FrameReader(100)
    found = [bytes(frame) for byte in framed(b"", b"a", b"bcd") for frame in fed(reader, memoryview(bytes([byte])))]
    assert found == [b"", b"a", b"bcd"]


def test_a_small_frame_is_bytes() -> None:
    """They are decoded faster, and what it came in is not kept alive."""
    reader, data = FrameReader(100), memoryview(framed(b"abc", b"d"))
    assert [type(frame) for frame in (*fed(reader, data[:5]), *fed(reader, data[5:]))] == [bytes, bytes]


@pytest.mark.parametrize("size", [-1, -(2**31), 101, 2**31 - 1])
def test_a_size_outside_the_limit_is_refused_before_anything_is_kept(size: int) -> None:
    reader = FrameReader(100)
    with pytest.raises(ProtocolError, match="100 are allowed"):
        list(fed(reader, memoryview(struct.pack(">i", size) + b"some bytes")))
    assert reader.buffered_bytes == 0


def test_a_bad_size_is_refused_when_its_fourth_byte_comes() -> None:
    reader = FrameReader(100)
    assert list(fed(reader, memoryview(b"\x7f\xff\xff"))) == []
    with pytest.raises(ProtocolError):
        list(fed(reader, memoryview(b"\xff")))


def test_frames_before_a_bad_size_are_delivered() -> None:
    frames = iter(fed(FrameReader(100), memoryview(framed(b"good") + b"\xff\xff\xff\xff")))
    assert next(frames) == b"good"
    with pytest.raises(ProtocolError):
        next(frames)


def test_only_what_arrived_is_kept() -> None:
    reader = FrameReader(2**31 - 1)
    assert list(fed(reader, memoryview(struct.pack(">i", 2**30) + b"start"))) == []
    assert reader.buffered_bytes == 9


def test_a_large_frame_that_comes_in_pieces_is_copied_once() -> None:
    piece, reader = memoryview(bytes(64 * 1024)), FrameReader(1 << 24)
    tracemalloc.start()
    try:
        reader.collect(memoryview(struct.pack(">i", 100 * len(piece))), 0)
        for _ in range(100):
            reader.collect(piece, 0)
        assert len(reader.take()) == 100 * len(piece)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 1.5 * 100 * len(piece)


def test_what_comes_while_some_waits_is_taken_after_it() -> None:
    backlog = Backlog(FrameReader(100))
    assert backlog.is_empty
    backlog.add(memoryview(framed(b"one", b"two")))
    assert backlog.take() == b"one"
    assert not backlog.is_empty
    backlog.add(memoryview(framed(b"three")))
    assert [backlog.take(), backlog.take()] == [b"two", b"three"]
    assert backlog.is_empty
    backlog.add(memoryview(framed(b"four")))
    backlog.clear()
    assert backlog.take() is None
