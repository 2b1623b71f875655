"""Rows of a test as records and files that a source decodes, and records of a topic as rows again."""

import base64
import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from moldau.pipelines.file.spec import SinkSpec, SourceSpec
from moldau.pipelines.formats import ddl
from moldau.pipelines.run.dead_letters import PREFIX
from moldau.pipelines.topics import Cluster

TIMEOUT_S = 30.0

Row = Mapping[str, Any] | str | bytes
OF_RECORDS = ("_key", "_headers", "_timestamp", "_partition", "_deleted")


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a topic."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int = 0
    timestamp_ms: int = 0


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter: what was read, from which source, and why it could not be decoded."""

    source: str
    value: bytes | None
    reason: str

    @classmethod
    def of(cls, record: Record) -> "Letter":
        said = {name.removeprefix(PREFIX): (value or b"").decode() for name, value in record.headers}
        return cls(said["source"], record.value, said["reason"])


# --- rows to bytes


def as_record(row: Row, source: SourceSpec) -> Record:
    if not isinstance(row, Mapping):
        return Record(_bytes(row))
    fields = {name: value for name, value in row.items() if name not in OF_RECORDS}
    at = row.get("_timestamp")
    return Record(
        None if row.get("_deleted") else _value(fields, source),
        None if row.get("_key") is None else _bytes(row["_key"]),
        tuple((str(name), _bytes(value)) for name, value in (row.get("_headers") or {}).items()),
        int(row.get("_partition", -1)),
        0 if at is None else _milliseconds(at),
    )


def as_file(rows: Sequence[Row], source: SourceSpec) -> bytes:
    """The content of a file with these rows."""
    lines = [_value(row, source) if isinstance(row, Mapping) else _bytes(row) for row in rows]
    if source.options["format"] == "csv" and source.options["header"]:
        lines.insert(0, _csv(_columns(source), source))
    return b"".join(line + b"\n" for line in lines)


def _value(row: Mapping[str, Any], source: SourceSpec) -> bytes:
    kind = source.options["format"]
    if kind == "json":
        return json.dumps(dict(row), default=_json).encode()
    if kind == "csv":
        columns = _columns(source)
        for name in row:
            if name not in columns:
                raise ValueError(f"source {source.name!r} has no column {name!r}: {', '.join(columns)}")
        return _csv([row.get(name) for name in columns], source)
    if set(row) != {"value"}:
        raise ValueError(f"a row of source {source.name!r}, which is {kind}, has the column 'value' only")
    return _bytes(row["value"])


def _columns(source: SourceSpec) -> list[str]:
    return [field.name for field in ddl.fields(source.options["schema"])]


def _csv(cells: Iterable[Any], source: SourceSpec) -> bytes:
    line = io.StringIO()
    options = source.options
    writer = csv.writer(line, delimiter=options["separator"], quotechar=options["quote"], lineterminator="")
    null = options["null"] or ""
    writer.writerow([null if cell is None else cell if isinstance(cell, str) else _json_text(cell) for cell in cells])
    return line.getvalue().encode(options.get("encoding") or "utf-8")


def _json_text(cell: Any) -> str:
    written = json.dumps(cell, default=_json)
    return written[1:-1] if written.startswith('"') else written


def _json(value: Any) -> Any:
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(f"{value!r} ({type(value).__name__}) is nothing that JSON has")


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _milliseconds(at: Any) -> int:
    moment = datetime.fromisoformat(at) if isinstance(at, str) else at
    if isinstance(moment, int):
        return moment
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


# --- records to rows


def of_record(records: Sequence[Record], sink: SinkSpec) -> list[dict[str, Any]]:
    """The rows in the records of a topic; of one that is compacted, the newest of each key that is not deleted."""
    create = sink.options["create"]
    compacted = create is not None and "compact" in create.configs.get("cleanup.policy", "")
    if compacted:
        newest = {record.key: record for record in records}
        records = [newest[key] for key in sorted(newest, key=lambda key: key or b"")]
        records = [record for record in records if record.value is not None]
    return [_row(record, sink) for record in records]


def _row(record: Record, sink: SinkSpec) -> dict[str, Any]:
    if record.value is None:
        return {"_key": None if record.key is None else record.key.decode(), "_deleted": True}
    if sink.options["format"] == "json":
        row: dict[str, Any] = json.loads(record.value)
        return row
    return {"value": record.value if sink.options["format"] == "raw" else record.value.decode()}


class Topics:
    """The topics of a test's broker."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def make(self, topic: str) -> None:
        Cluster(self._bootstrap, ()).create(topic, -1, -1, {"retention.ms": "-1"})  # a test may write of 1970

    def send(self, topic: str, records: Sequence[Record]) -> None:
        """Write the records and wait until they are there."""
        self.make(topic)
        producer = Producer({"bootstrap.servers": self._bootstrap, "log_level": 0})
        refused: list[Any] = []
        for record in records:
            producer.produce(
                topic,
                record.value,
                record.key,
                record.partition,
                on_delivery=lambda error, _: refused.append(error) if error else None,
                timestamp=record.timestamp_ms,
                headers=list(record.headers),
            )
            producer.poll(0)
        if producer.flush(TIMEOUT_S) or refused:
            raise RuntimeError(f"{topic} did not take all records: {refused[0] if refused else 'no answer'}")

    def read(self, topic: str) -> list[Record]:
        """All records, partition by partition; none if there is no such topic."""
        cluster = Cluster(self._bootstrap, ())
        found = []
        for partition in cluster.topics().get(topic, ()):
            found.extend(self._drain(topic, partition))
        return found

    def _drain(self, topic: str, partition: int) -> list[Record]:
        settings = {"bootstrap.servers": self._bootstrap, "group.id": "moldau-testing", "log_level": 0}
        consumer = Consumer({**settings, "enable.auto.commit": False, "enable.partition.eof": True})
        place = TopicPartition(topic, partition, 0)
        records: list[Record] = []
        try:
            consumer.assign([place])
            while True:
                message = consumer.poll(TIMEOUT_S)
                if message is None:
                    raise TimeoutError(f"{topic}-{partition} did not come to its end in {TIMEOUT_S:g} s")
                if message.error() is None:
                    records.append(_record(message))
                elif message.error().code() == KafkaError._PARTITION_EOF:  # type: ignore[union-attr]  # stubs
                    return records
                else:
                    raise KafkaException(message.error())
        finally:
            consumer.close()


def _record(message: Message) -> Record:
    headers: Any = message.headers() or []
    key: Any = message.key()
    value: Any = message.value()
    return Record(value, key, tuple(headers), message.partition() or 0, message.timestamp()[1])
