"""The record code of kafka-python and aiokafka, as functions on our own `Record`."""

from collections.abc import Sequence

from aiokafka.record.default_records import (  # type: ignore[import-untyped]  # the package has no py.typed
    DefaultRecordBatchBuilder,
)
from aiokafka.record.memory_records import (  # type: ignore[import-untyped]  # as above
    MemoryRecords as AiokafkaRecords,
)
from kafka.record.memory_records import (  # type: ignore[import-untyped]  # as above
    MemoryRecords as KafkaPythonRecords,
)
from kafka.record.memory_records import MemoryRecordsBuilder

from moldau.records.batch import Record

ROOM = 1 << 24


def written_by_kafka_python(records: Sequence[Record], *, magic: int, codec: int) -> bytes:
    builder = MemoryRecordsBuilder(magic=magic, compression_type=codec, batch_size=ROOM, offset=records[0].offset)
    for record in records:
        builder.append(record.timestamp, record.key, record.value, list(record.headers))
    builder.close()
    return bytes(builder.buffer())


def read_by_kafka_python(data: bytes) -> list[Record]:
    return [_record(record) for batch in KafkaPythonRecords(data) for record in batch]


def written_by_aiokafka(records: Sequence[Record], *, codec: int) -> bytes:
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, ROOM)
    for record in records:
        builder.append(record.offset, record.timestamp, record.key, record.value, list(record.headers))
    return bytes(builder.build())


def read_by_aiokafka(data: bytes) -> list[Record]:
    batches = AiokafkaRecords(data)
    records = []
    while batches.has_next():
        batch = batches.next_batch()
        if not batch.validate_crc():
            raise ValueError("checksum")
        records += [_record(record) for record in batch]
    return records


def _record(record: object) -> Record:
    offset, timestamp, key, value, headers = (
        getattr(record, name) for name in ("offset", "timestamp", "key", "value", "headers")
    )
    timestamp = -1 if timestamp is None else timestamp
    return Record(offset, timestamp, _bytes(key), _bytes(value), tuple((k, _bytes(v)) for k, v in headers))


def _bytes(value: object) -> bytes | None:
    return None if value is None else bytes(memoryview(value))  # type: ignore[arg-type]  # bytes or a view of them
