"""Messages that Kafka's own Java classes (3.9.2 or 4.3.1) read and wrote again without a change.

They cover the versions that no Python library knows: the oldest ones, the newest ones, and the keys of the ZooKeeper
era. A line of `java_vectors.txt` is the API key, `request` or `response`, the version and the message in hex.
"""

from pathlib import Path
from typing import NamedTuple

from moldau.protocol import apis
from moldau.protocol.codec import decode, encode
from moldau.protocol.schema import Message


class Vector(NamedTuple):
    message_type: type[Message]
    version: int
    data: bytes


def read_vectors() -> list[Vector]:
    lines = (Path(__file__).parent / "java_vectors.txt").read_text().splitlines()
    return [_vector(*line.split()) for line in lines]


def _vector(key: str, kind: str, version: str, data: str) -> Vector:
    table = apis.request_type if kind == "request" else apis.response_type
    return Vector(table(int(key)), int(version), bytes.fromhex(data))


def test_what_java_wrote_is_read_and_written_again() -> None:
    for message_type, version, data in read_vectors():
        message = decode(message_type, version, data)
        assert message != message_type(), f"{message_type.__name__} v{version} says nothing"
        assert encode(message, version) == data, f"{message_type.__name__} v{version}"
