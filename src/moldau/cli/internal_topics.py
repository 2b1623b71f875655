"""Records of the coordinators' topics as lines of JSON, as Kafka's formatters of them write them."""

from collections.abc import Container
from typing import NamedTuple

from confluent_kafka import Message

from moldau.cli.payloads import BadPayload
from moldau.coordinators.groups.record_tables import (
    GROUP_RECORDS,
    GroupMetadataKey,
    LegacyOffsetCommitKey,
    OffsetCommitKey,
)
from moldau.coordinators.records import PREFIX_BYTES, RecordTypes
from moldau.coordinators.transactions.record_tables import TransactionLogKey
from moldau.inspection.decoders import TRANSACTION_RECORDS
from moldau.inspection.kafka_json import as_json, compact
from moldau.protocol.errors import ProtocolError


class CoordinatorFormatter(NamedTuple):
    """Formatter of the records of one topic whose type is `shown`; others make no line."""

    types: RecordTypes
    shown: Container[int]

    def line(self, message: Message) -> bytes:
        """The line for `message`, with its end. Raises BadPayload."""
        key, value = message.key(), message.value()
        try:
            decoded = None if key is None else self.types.decode(key, value)
        except (ProtocolError, ValueError) as error:
            raise BadPayload(f"no record of a coordinator: {error}") from None
        if decoded is None or decoded.key.record_type not in self.shown:
            return b""
        told = {"key": {"type": decoded.key.record_type, "data": as_json(decoded.key, 0)}, "value": None}
        if decoded.value is not None and value is not None:
            version = int.from_bytes(value[:PREFIX_BYTES], "big", signed=True)
            told["value"] = {"version": version, "data": as_json(decoded.value, version)}
        return compact(told).encode() + b"\n"


FORMATTERS = {
    "OffsetsMessageFormatter": CoordinatorFormatter(
        GROUP_RECORDS, (LegacyOffsetCommitKey.record_type, OffsetCommitKey.record_type)
    ),
    "GroupMetadataMessageFormatter": CoordinatorFormatter(GROUP_RECORDS, (GroupMetadataKey.record_type,)),
    "TransactionLogMessageFormatter": CoordinatorFormatter(TRANSACTION_RECORDS, (TransactionLogKey.record_type,)),
}
