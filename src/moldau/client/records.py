"""Records as a program sees them: one that was read, and the place of one that was sent."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar, cast

from moldau.client.errors import SerdeError
from moldau.client.message_headers import NO_UTF8, header_name, read_headers

if TYPE_CHECKING:
    from confluent_kafka import Message

K = TypeVar("K")
V = TypeVar("V")

Headers = list[tuple[str, bytes | None]]
HeadersIn = dict[str, str | bytes | None] | list[tuple[str, str | bytes | None]]
"""Headers that a program may give: by name, or in their order. Text is UTF-8."""


class Place(NamedTuple):
    """Place of a record, or of a next one."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} offset {self.offset}"


class Sent(NamedTuple):
    """Place of a record that was sent, and the time that it has there. With `acks=0` nobody knows the offset: -1."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Record(Generic[K, V]):
    """A record that was read. `value` is None for a tombstone."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: K | None
    value: V | None
    headers: Headers

    @property
    def time(self) -> datetime:
        """The record's time, in UTC."""
        return datetime.fromtimestamp(self.timestamp_ms / 1000, UTC)

    @property
    def place(self) -> Place:
        return Place(self.topic, self.partition, self.offset)

    def header(self, name: str) -> bytes | None:
        """The last header of this name; None if there is none."""
        return next((value for each, value in reversed(self.headers) if each == name), None)


def place_of(message: "Message") -> Place:
    return Place(message.topic() or "", cast(int, message.partition()), cast(int, message.offset()))


def headers_of(message: "Message") -> Headers:
    """Headers of a message. Raises SerdeError."""
    headers = read_headers(message)
    if headers is None:
        raise SerdeError(NO_UTF8)
    return headers


def in_order(headers: HeadersIn | None) -> Headers | None:
    """Headers for librdkafka, all in bytes. Raises TypeError and ValueError."""
    if headers is None:
        return None
    pairs = headers.items() if isinstance(headers, dict) else headers
    return [(header_name(name), value.encode() if isinstance(value, str) else value) for name, value in pairs]


def milliseconds(when: datetime | float) -> int:
    """Milliseconds since 1970 of a time: a datetime (without a zone: of this machine), or already milliseconds."""
    return int(when.timestamp() * 1000) if isinstance(when, datetime) else int(when)
