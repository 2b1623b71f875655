"""Keys and values of records in words: text, or what a coordinator's topic means by them (Kafka's decoders)."""

import base64
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from moldau.coordinators.classic.subscription_bytes import (
    CONSUMER_PROTOCOL_TYPE,
    ConsumerAssignment,
    ConsumerSubscription,
)
from moldau.coordinators.groups.record_tables import GROUP_RECORDS, GroupMetadataValue
from moldau.coordinators.records import PREFIX_BYTES, CoordinatorRecord, RecordTypes
from moldau.coordinators.transactions.record_tables import TransactionLogKey, TransactionLogValue
from moldau.inspection.kafka_json import as_json, compact
from moldau.protocol.codec import decode
from moldau.protocol.errors import ProtocolError
from moldau.protocol.schema import Message
from moldau.records.record import Record

TOMBSTONE = "<DELETE>"
TRANSACTION_RECORDS = RecordTypes({TransactionLogKey: TransactionLogValue})
"""Every state is shown here, also one that no coordinator of ours would load."""


class Shown(NamedTuple):
    """Key and value of a record; None where there is none. Texts, or JSON values for programs."""

    key: Any
    value: Any


Decoder = Callable[[Record], Shown]


def text(record: Record) -> Shown:
    """Key and value as UTF-8."""
    return Shown(_text(record.key), _text(record.value))


def group_record(record: Record) -> Shown:
    """A record of `__consumer_offsets`."""
    return _coordinator_record(record, GROUP_RECORDS)


def transaction_record(record: Record) -> Shown:
    """A record of `__transaction_state`."""
    return _coordinator_record(record, TRANSACTION_RECORDS)


def in_one_line(value: Any) -> str:
    """A decoded key or value as Kafka's tool prints it."""
    return value if isinstance(value, str) else compact(value)


def _text(data: bytes | None) -> str | None:
    return None if data is None else bytes(data).decode(errors="replace")


def _coordinator_record(record: Record, types: RecordTypes) -> Shown:
    if record.key is None:
        return Shown(f"Error at offset {record.offset}, skipping. The record has no key.", None)
    try:
        decoded = types.decode(record.key, record.value)
    except (ProtocolError, ValueError) as error:
        return Shown(f"Error at offset {record.offset}, skipping. {error}", None)
    if decoded is None:
        number = int.from_bytes(record.key[:PREFIX_BYTES], "big", signed=True)
        return Shown(f"Unknown record type {number} at offset {record.offset}, skipping.", None)
    key = {"type": str(decoded.key.record_type), "data": as_json(decoded.key, 0)}
    return Shown(key, TOMBSTONE if record.value is None else _coordinator_value(decoded, record.value))


def _coordinator_value(decoded: CoordinatorRecord, data: bytes) -> Mapping[str, Any] | str:
    if decoded.value is None:
        return TOMBSTONE
    version = int.from_bytes(data[:PREFIX_BYTES], "big", signed=True)
    shown = as_json(decoded.value, version)
    if isinstance(decoded.value, GroupMetadataValue) and decoded.value.protocol_type == CONSUMER_PROTOCOL_TYPE:
        for member in shown["members"]:
            member["subscription"] = _opened(member["subscription"], ConsumerSubscription)
            member["assignment"] = _opened(member["assignment"], ConsumerAssignment)
    return {"version": str(version), "data": shown}


def _opened(encoded: str, table: type[Message]) -> Any:
    """The bytes that consumers exchange, opened; as they are where they cannot be read."""
    data = base64.b64decode(encoded)
    version = int.from_bytes(data[:PREFIX_BYTES], "big", signed=True)
    if len(data) < PREFIX_BYTES or not table.versions[0] <= version:
        return encoded
    try:
        return as_json(decode(table, min(version, table.versions[1]), data, PREFIX_BYTES), version)
    except (ProtocolError, ValueError):
        return encoded
