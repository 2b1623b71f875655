"""Rows of a dump: each is a line in the words of Kafka's DumpLogSegments, and a value for programs."""

from typing import Any, NamedTuple, Protocol

from moldau.inspection.control_records import Control
from moldau.inspection.decoders import Shown, in_one_line
from moldau.records.batch import BatchHeader
from moldau.records.record import Record

TIMESTAMP_TYPES = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Row(Protocol):
    """A row of a dump."""

    def line(self) -> str: ...

    def value(self) -> dict[str, Any]: ...


class Text(NamedTuple):
    """A line that is about a whole file."""

    kind: str
    text: str
    fields: dict[str, Any]

    def line(self) -> str:
        return self.text

    def value(self) -> dict[str, Any]:
        return {"kind": self.kind, **self.fields}


class Pairs(NamedTuple):
    """A row of named values: `offset: 7 position: 4096`."""

    kind: str
    fields: dict[str, Any]

    def line(self) -> str:
        return " ".join(f"{name}: {_java(value)}" for name, value in self.fields.items())

    def value(self) -> dict[str, Any]:
        shown = {name: value.value if isinstance(value, OptionalLong) else value for name, value in self.fields.items()}
        return {"kind": self.kind, **shown}


class OptionalLong(NamedTuple):
    """A number that may be missing, in Java's words."""

    value: int | None

    def __str__(self) -> str:
        return "OptionalLong.empty" if self.value is None else f"OptionalLong[{self.value}]"


class BatchRow(NamedTuple):
    """A batch of format v2, or a message of an older one."""

    header: BatchHeader
    position: int
    is_valid: bool

    @property
    def timestamp_type(self) -> str:
        return timestamp_type(self.header)

    def line(self) -> str:
        header = self.header
        own = f"offset: {header.last_offset}"
        if header.magic >= 2:
            horizon = OptionalLong(header.base_timestamp if header.has_delete_horizon else None)
            own = (
                f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.record_count}"
                f" baseSequence: {header.base_sequence} lastSequence: {header.last_sequence}"
                f" producerId: {header.producer_id} producerEpoch: {header.producer_epoch}"
                f" partitionLeaderEpoch: {header.partition_leader_epoch}"
                f" isTransactional: {_java(header.is_transactional)} isControl: {_java(header.is_control)}"
                f" deleteHorizonMs: {horizon}"
            )
        return (
            f"{own} position: {self.position} {self.timestamp_type}: {header.max_timestamp} size: {header.size}"
            f" magic: {header.magic} compresscodec: {codec_name(header.codec)} crc: {header.crc}"
            f" isvalid: {_java(self.is_valid)}"
        )

    def value(self) -> dict[str, Any]:
        header = self.header
        told = {
            "kind": "batch",
            "baseOffset": header.base_offset,
            "lastOffset": header.last_offset,
            "count": header.record_count,
            "baseSequence": header.base_sequence,
            "lastSequence": header.last_sequence,
            "producerId": header.producer_id,
            "producerEpoch": header.producer_epoch,
            "partitionLeaderEpoch": header.partition_leader_epoch,
            "isTransactional": header.is_transactional,
            "isControl": header.is_control,
            "deleteHorizonMs": header.base_timestamp if header.has_delete_horizon else None,
        }
        if header.magic < 2:
            told = {"kind": "message", "offset": header.last_offset}
        return {
            **told,
            "position": self.position,
            "timestampType": self.timestamp_type,
            "maxTimestamp": header.max_timestamp,
            "size": header.size,
            "magic": header.magic,
            "codec": codec_name(header.codec),
            "crc": header.crc,
            "isValid": self.is_valid,
        }


class RecordRow(NamedTuple):
    """A record, with as much of it as was asked for."""

    record: Record
    timestamp_type: str
    sequence: int | None
    """None in a format that has none; so are the headers."""
    checksum: tuple[bool, int] | None
    """Whether it is right, and which; only messages of the old formats have one each."""
    control: Control | None
    shown: Shown | None
    has_metadata: bool

    def line(self) -> str:
        line = self._metadata() if self.has_metadata else ""
        if self.shown is not None:
            before = " " if self.has_metadata else "| "
            if self.shown.key is not None:
                line += f"{before}key: {in_one_line(self.shown.key)}"
                before = " "
            if self.shown.value is not None:
                line += f"{before}payload: {in_one_line(self.shown.value)}"
        return line

    def _metadata(self) -> str:
        record = self.record
        line = (
            f"| offset: {record.offset} {self.timestamp_type}: {record.timestamp}"
            f" keySize: {_size(record.key)} valueSize: {_size(record.value)}"
        )
        if self.sequence is not None:
            line += f" sequence: {self.sequence} headerKeys: [{','.join(_text(name) for name, _ in record.headers)}]"
        if self.checksum is not None:
            line += f" isValid: {_java(self.checksum[0])} crc: {self.checksum[1]}"
        if self.control is not None:
            line += f" {self.control.text}"
        return line

    def value(self) -> dict[str, Any]:
        record = self.record
        told: dict[str, Any] = {"kind": "record", "offset": record.offset}
        if self.has_metadata:
            told |= {"timestampType": self.timestamp_type, "timestamp": record.timestamp}
            told |= {"keySize": _size(record.key), "valueSize": _size(record.value)}
            told["headerKeys"] = [_text(name) for name, _ in record.headers]
            if self.sequence is not None:
                told["sequence"] = self.sequence
            if self.checksum is not None:
                told |= {"isValid": self.checksum[0], "crc": self.checksum[1]}
            told |= {} if self.control is None else self.control.value
        if self.shown is not None:
            told |= {"key": self.shown.key, "value": self.shown.value}
        return told


def timestamp_type(header: BatchHeader) -> str:
    """The name of what the timestamps of a batch say."""
    if header.magic == 0:
        return TIMESTAMP_TYPES[-1]
    return TIMESTAMP_TYPES[int(header.is_log_append_time)]


def codec_name(codec: int) -> str:
    return CODECS[codec] if codec < len(CODECS) else f"unknown({codec})"


def _java(value: object) -> object:
    """The value as Java prints it."""
    return str(value).lower() if isinstance(value, bool) else value


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _text(name: str) -> str:
    return name.encode(errors="surrogateescape").decode(errors="replace")
