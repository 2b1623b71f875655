"""What every client can do, so that one test runs over all of them."""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, Protocol

Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]
Acks = Literal[0, 1, "all"]
ALL_CODECS: tuple[Codec, ...] = ("none", "gzip", "snappy", "lz4", "zstd")


class Record(NamedTuple):
    """A record to send, or one that was read (then with its offset and timestamp)."""

    value: bytes | None
    key: bytes | None = None
    timestamp_ms: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    offset: int = -1


class AtTimestamp(NamedTuple):
    """Where to start reading: at the first record that is not older than this."""

    timestamp_ms: int


Start = int | AtTimestamp | Literal["earliest", "latest"]


class ClientError(Exception):
    """The client gave up; the message is the client's own."""


class Client(Protocol):
    """One client library, talking to one cluster."""

    name: str
    codecs: tuple[Codec, ...]
    has_idempotence: bool
    has_headers: bool

    def produce(
        self,
        topic: str,
        partition: int,
        records: Sequence[Record],
        *,
        codec: Codec = "none",
        acks: Acks = "all",
        idempotent: bool = False,
    ) -> list[int]:
        """Send all, wait for all; the offset of each (-1 with acks=0). Raises `ClientError`."""
        ...

    def read(self, topic: str, partition: int, start: Start, count: int, *, timeout_s: float = 20.0) -> list[Record]:
        """Assign, seek, and read up to `count` records; fewer if the time runs out. Raises `ClientError`."""
        ...

    def close(self) -> None: ...


def numbered(count: int, *, prefix: str = "", start: int = 0, timestamp_ms: int | None = None) -> list[Record]:
    """`count` records that tell their number: key k7, value v7; timestamps one millisecond apart."""
    return [
        Record(
            value=f"{prefix}v{number}".encode(),
            key=f"{prefix}k{number}".encode(),
            timestamp_ms=None if timestamp_ms is None else timestamp_ms + number,
        )
        for number in range(start, start + count)
    ]


def values(records: Iterable[Record]) -> list[bytes | None]:
    """The values alone: what most tests compare."""
    return [record.value for record in records]
