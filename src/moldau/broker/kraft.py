"""Metadata of a KRaft broker of Apache Kafka: `__cluster_metadata-0`, read once when its data directory is adopted.

The partition's directory holds a log and perhaps snapshots (`*.checkpoint`), both made of record batches. A value is
a frame version, a record type and a version, each an unsigned varint, and then the record.
"""

from collections import defaultdict
from collections.abc import Iterator

from moldau.core.files import Files
from moldau.protocol import codec
from moldau.protocol.schema import INT8, INT32, INT64, STRING, UUID, Message, field
from moldau.records.batch import iter_records, split_batches

METADATA_DIRECTORY = "__cluster_metadata-0"
TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4


class TopicRecord(Message, versions=(0, 0), flexible=0):
    name: str = field(STRING)
    topic_id: bytes = field(UUID)


class ConfigRecord(Message, versions=(0, 0), flexible=0):
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    name: str = field(STRING)
    value: str | None = field(STRING, nullable="0+")


class RemoveTopicRecord(Message, versions=(0, 0), flexible=0):
    topic_id: bytes = field(UUID)


class ProducerIdsRecord(Message, versions=(0, 0), flexible=0):
    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64)
    next_producer_id: int = field(INT64)


RECORD_TYPES: dict[int, type[Message]] = {
    2: TopicRecord,
    4: ConfigRecord,
    9: RemoveTopicRecord,
    15: ProducerIdsRecord,
}


class KraftMetadata:
    """The part of it that we take over."""

    def __init__(self) -> None:
        self._configs: dict[tuple[int, str], dict[str, str]] = defaultdict(dict)
        self._names: dict[bytes, str] = {}
        self.next_producer_id = 0

    @classmethod
    def read(cls, files: Files, data_directory: str) -> "KraftMetadata | None":
        """Replay the newest snapshot and then the log; None if there is no such directory."""
        directory = f"{data_directory}/{METADATA_DIRECTORY}"
        if not files.is_directory(directory):
            return None
        metadata = cls()
        names = files.list(directory)
        snapshots = [name for name in names if name.endswith(".checkpoint")]
        for name in snapshots[-1:] + [name for name in names if name.endswith(".log")]:
            for record in _records(files.read(f"{directory}/{name}")):
                metadata.replay(record)
        return metadata

    def topic_configs(self, topic: str) -> dict[str, str]:
        return self._configs.get((TOPIC_RESOURCE, topic), {})

    def broker_configs(self, entity: str) -> dict[str, str]:
        """Configuration of a broker by its id as text, or of the whole cluster ("")."""
        return self._configs.get((BROKER_RESOURCE, entity), {})

    def replay(self, record: Message) -> None:
        if isinstance(record, ConfigRecord):
            configs = self._configs[record.resource_type, record.resource_name]
            if record.value is None:
                configs.pop(record.name, None)
            else:
                configs[record.name] = record.value
        elif isinstance(record, TopicRecord):
            self._names[record.topic_id] = record.name
        elif isinstance(record, RemoveTopicRecord):
            self._configs.pop((TOPIC_RESOURCE, self._names.pop(record.topic_id, "")), None)
        elif isinstance(record, ProducerIdsRecord):
            self.next_producer_id = record.next_producer_id


def _records(data: bytes) -> Iterator[Message]:
    for header, batch in split_batches(data, partial_end=True):
        for record in () if header.is_control else iter_records(batch):
            decoded = _decode(record.value or b"")
            if decoded is not None:
                yield decoded


def _decode(value: bytes) -> Message | None:
    """The record, None if it is of a type or version that says nothing to us."""
    position, numbers = 0, []
    for _ in range(3):
        number, position = _unsigned_varint(value, position)
        numbers.append(number)
    record_type = RECORD_TYPES.get(numbers[1])
    if record_type is None or numbers[2] > record_type.versions[1]:
        return None
    return codec.decode(record_type, numbers[2], value, position)


def _unsigned_varint(data: bytes, position: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, position
        shift += 7
