"""Whatever the bytes are, a decoder answers with a message or a `ProtocolError`, and takes no memory for promises."""

import tracemalloc
from random import Random

from moldau.protocol.codec import decode, decoder, encode
from moldau.protocol.errors import ProtocolError
from moldau.protocol.framing import parse_request_header
from moldau.protocol.messages.k00_produce import ProduceRequest
from moldau.protocol.messages.k01_fetch import FetchRequest
from moldau.protocol.messages.k03_metadata import MetadataRequest
from moldau.protocol.schema import Message
from tests.protocol.sampling import every_version, sample

NASTY = (
    b"\xff\xff\xff\xff\x07",  # 2^31-1 as a varint
    b"\xff\xff\xff\xff\x0f",  # 2^32-1 as a varint
    b"\xff\xff\xff\xff\xff\xff",  # a varint without end
    b"\x7f\xff\xff\xff",  # 2^31-1
    b"\x80\x00\x00\x00",  # -2^31
    b"\xff\xff",  # -1
    b"\x7f\xff",  # 2^15-1
    b"\xc3\x28",  # not UTF-8
    b"\x00",
)
MUTATIONS = 40
MEMORY_PER_BYTE_MAX = 50
"""The worst is a list of structs of two bytes each: a Python object and its place in the list."""


def mutate(data: bytes, random: Random) -> bytes:
    """One change somewhere: bytes replaced, inserted, removed, or the end cut off."""
    at = random.randrange(len(data) + 1)
    piece = random.choice((*NASTY, random.randbytes(random.randrange(1, 5))))
    return random.choice(
        (
            data[:at] + piece + data[at + len(piece) :],
            data[:at] + piece + data[at:],
            data[:at] + data[at + random.randrange(1, 5) :],
            data[:at],
        )
    )


def read(message_type: type[Message], version: int, data: bytes) -> bool:
    try:
        decode(message_type, version, data)
    except ProtocolError:
        return False
    return True


def test_mutated_messages_are_read_or_refused() -> None:
    for message_type, version in every_version():
        seed = f"{message_type.__name__} {version}"
        print("seed", seed)  # noqa: T201  # shown by pytest when the test fails
        random = Random(seed)
        data = encode(sample(message_type, version, random), version)
        for _ in range(MUTATIONS):
            mutated = mutate(data, random)
            read(message_type, version, mutated)
            read(message_type, version, mutate(mutated, random))


def test_random_bytes_are_read_or_refused() -> None:
    for message_type, version in every_version():
        seed = f"{message_type.__name__} {version} bytes"
        print("seed", seed)  # noqa: T201  # shown by pytest when the test fails
        random = Random(seed)
        for size in (0, 1, 5, 50, 500):
            read(message_type, version, random.randbytes(size))
            read(message_type, version, bytes(random.choices(b"\x00\x01\x02\x7f\x80\xff", k=size)))


def test_no_proper_prefix_of_a_message_is_a_message() -> None:
    for message_type, version in every_version():
        data = encode(sample(message_type, version, Random(f"{message_type.__name__} {version}")), version)
        for size in range(0, len(data), 1 + len(data) // 40):
            assert not read(message_type, version, data[:size])
        assert not data or not read(message_type, version, data[:-1])


def test_request_headers_are_read_or_refused() -> None:
    random = Random(11)
    headers = [b"\x00\x03\x00\x0c\x00\x00\x00\x01\x00\x02me\x00", b"\x00\x00\x00\x00\x00\x00\x00\x01\xff\xff"]
    for _ in range(3000):
        try:
            header = parse_request_header(mutate(random.choice(headers), random))
        except ProtocolError:
            continue
        assert header.body_position >= 8


def test_a_promised_count_takes_no_memory() -> None:
    cases: list[tuple[type[Message], int, bytes]] = [
        (MetadataRequest, 1, b"\x7f\xff\xff\xff"),
        (MetadataRequest, 12, b"\xff\xff\xff\xff\x07"),
        (FetchRequest, 4, bytes(17) + b"\x7f\xff\xff\xff"),
        (ProduceRequest, 9, b"\x00" + bytes(6) + b"\xff\xff\xff\xff\x07"),
    ]
    for message_type, version, data in cases:
        decoder(message_type, version)
        tracemalloc.start()
        assert not read(message_type, version, data + bytes(100))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 20_000, message_type.__name__


def test_memory_grows_only_with_the_bytes_received() -> None:
    size = 20_000
    for message_type, version in every_version():
        if version != message_type.versions[1]:
            continue
        decoder(message_type, version)
        for byte in (b"\x00", b"\x01", b"\x7f"):
            tracemalloc.start()
            read(message_type, version, byte * size)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak < size * MEMORY_PER_BYTE_MAX, message_type.__name__


def test_the_smallest_structs_take_a_bounded_multiple_of_their_bytes() -> None:
    count = 10_000
    data = count.to_bytes(4, "big") + b"\0\0" * count
    decoder(MetadataRequest, 1)
    tracemalloc.start()
    assert len(decode(MetadataRequest, 1, data).topics or ()) == count
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < len(data) * MEMORY_PER_BYTE_MAX
