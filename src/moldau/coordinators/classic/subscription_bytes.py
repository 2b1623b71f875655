"""Subscriptions and assignments that consumers of a classic group exchange as opaque bytes in joins and syncs.

A coordinator reads a subscription only to know the topics of a group (which offsets must not expire, which may not be
deleted) and to migrate members to the consumer protocol. Later versions only add fields at the end.
"""

from typing import TypeVar

from moldau.protocol.codec import decoder, encode
from moldau.protocol.errors import ProtocolError, TooManyElements
from moldau.protocol.schema import BYTES, INT32, STRING, Message, Struct, array, field

CONSUMER_PROTOCOL_TYPE = "consumer"
ELEMENTS_MAX = 50_000
"""Topics and partitions in one member's bytes: they are read on the event loop, 10 ms at most."""

_VERSION_BYTES = 2
M = TypeVar("M", bound=Message)


class ConsumerPartitions(Struct):
    topic: str = field(STRING)
    partitions: list[int] = field(array(INT32))


class ConsumerSubscription(Message, versions=(0, 3)):
    """Owned partitions are KIP-429's, the generation KIP-792's, the rack KIP-881's."""

    topics: list[str] = field(array(STRING))
    user_data: bytes | None = field(BYTES, nullable="0+", default=None)
    owned_partitions: list[ConsumerPartitions] = field(array(ConsumerPartitions), "1+", ignorable=True)
    generation_id: int = field(INT32, "2+", default=-1, ignorable=True)
    rack_id: str | None = field(STRING, "3+", nullable="3+", default=None, ignorable=True)


class ConsumerAssignment(Message, versions=(0, 3)):
    assigned_partitions: list[ConsumerPartitions] = field(array(ConsumerPartitions))
    user_data: bytes | None = field(BYTES, nullable="0+", default=None)


def parse_subscription(data: bytes) -> ConsumerSubscription:
    """ProtocolError: these are not the bytes of a consumer."""
    version = _version(data, ConsumerSubscription)
    return _parse(ConsumerSubscription, version, data)


def parse_assignment(data: bytes) -> ConsumerAssignment:
    """ProtocolError: these are not the bytes of a consumer. No bytes at all are no partitions."""
    if not data:
        return ConsumerAssignment()
    return _parse(ConsumerAssignment, _version(data, ConsumerAssignment), data)


def _parse(message_type: type[M], version: int, data: bytes) -> M:
    try:
        return decoder(message_type, version)(data, _VERSION_BYTES, ELEMENTS_MAX)[0]
    except TooManyElements:
        raise ProtocolError(f"more than {ELEMENTS_MAX} topics and partitions of one member") from None


def serialize_subscription(subscription: ConsumerSubscription, version: int) -> bytes:
    return version.to_bytes(_VERSION_BYTES, "big") + encode(subscription, version)


def serialize_assignment(assignment: ConsumerAssignment, version: int) -> bytes:
    return version.to_bytes(_VERSION_BYTES, "big") + encode(assignment, version)


def _version(data: bytes, message: type[Message]) -> int:
    if len(data) < _VERSION_BYTES:
        raise ProtocolError(f"{len(data)} bytes have no version")
    version = int.from_bytes(data[:_VERSION_BYTES], "big", signed=True)
    if version < 0:
        raise ProtocolError(f"version {version} of the consumer protocol")
    return min(version, message.versions[1])
