"""The worst frames that can be made of one megabyte, for each API key and version, from the tables of the messages.

A frame is named after what it does: which array it fills, and with what. `smallest` are as many elements as there are
bytes for, most of them more than a request may have; `distinct` are as many as it may have, no two alike; `existing`
are as many, all of them asking for what is there.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from moldau.protocol import codec
from moldau.protocol.apis import find, request_type
from moldau.protocol.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.messages.k02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from moldau.protocol.schema import BYTES, RECORDS, STRING, UUID, Array, Field, Message, Primitive, Struct
from moldau.records.batch import Record, build_batch
from moldau.records.compression import Codec
from moldau.records.legacy import build_message_set
from moldau.requests import registry
from tests.broker.raw import request_frame

FRAME_BYTES_MAX = 1 << 20
MARGIN_BYTES = 1024
SAMPLE = 100
TOPIC, DOOMED, COMPACTED, GROUP = "the-victim", "the-doomed", "compacted", "the-group"
RECORDS_IN_A_BATCH = 100_000
LOOK_UPS = 20
PRODUCE, FETCH, LIST_OFFSETS, DELETE_TOPICS = 0, 1, 2, 20

SHORT_TEXT_BYTES_MAX = (1 << 15) - 1
LIST_PROPERTY = "leader.replication.throttled.replicas"

KINDS = ("smallest", "distinct", "existing")


class Hostile(NamedTuple):
    """One frame, size and header included."""

    key: int
    version: int
    title: str
    data: bytes

    def __str__(self) -> str:
        api = find(self.key)
        return f"{api.name if api else self.key} v{self.version}, {self.title}"


class World(NamedTuple):
    """What the broker has."""

    topic_id: bytes
    partitions: int
    frame_bytes: int = FRAME_BYTES_MAX


def served() -> list[tuple[int, int]]:
    """Every key and version."""
    ranges = ((key, registry.served_versions(key)) for key in registry.modules())
    return [(key, version) for key, found in ranges if found for version in range(found[0], found[1] + 1)]


def frames(key: int, version: int, world: World, kinds: Sequence[str] = KINDS) -> Iterator[Hostile]:
    """All that is hostile of one version."""
    message_type = request_type(key)
    for path in _array_paths(message_type, version):
        for kind in kinds:
            made = _Filling(key, version, world, kind).request(message_type, path)
            yield Hostile(key, version, f"{kind} {'.'.join(path)}", _frame(key, version, made))
    yield from _lies(key, version, message_type, world.frame_bytes)


def long_texts(key: int, version: int, world: World) -> Iterator[Hostile]:
    """In each field of its own a text, or bytes, as long as there is place for."""
    message_type = request_type(key)
    for path in _text_paths(message_type, version):
        for title, character in (("letters", "x"), ("commas", ",")):
            made = _Filling(key, version, world, "existing").with_text(message_type, path, character)
            yield Hostile(key, version, f"{title} in {'.'.join(path)}", _frame(key, version, made))


def harmless(key: int, version: int) -> Hostile:
    """An empty request."""
    return Hostile(key, version, "empty", _frame(key, version, request_type(key)()))


def _frame(key: int, version: int, request: Message) -> bytes:
    return request_frame(key, version, codec.encode(request, version))


def _array_paths(struct_type: type[Struct], version: int) -> Iterator[tuple[str, ...]]:
    """Every array at any depth, by the names of the fields that lead to it."""
    for name, row in struct_type.__fields__.items():
        if row.is_in(version) and isinstance(row.wire, Array):
            yield (name,)
            element = row.wire.element
            if not isinstance(element, Primitive):
                yield from ((name, *rest) for rest in _array_paths(element, version))


def _text_paths(struct_type: type[Struct], version: int) -> Iterator[tuple[str, ...]]:
    """Every text and every bytes at any depth, by the names of the fields that lead to it."""
    for name, row in struct_type.__fields__.items():
        wire = row.wire.element if isinstance(row.wire, Array) else row.wire
        if row.is_in(version) and isinstance(wire, Primitive):
            if wire in (STRING, BYTES):
                yield (name,)
        elif row.is_in(version) and isinstance(row.wire, Array) and not isinstance(wire, Primitive):
            yield from ((name, *rest) for rest in _text_paths(wire, version))


class _Filling:
    """Makes a request in which one array is as long as can be."""

    def __init__(self, key: int, version: int, world: World, kind: str) -> None:
        self._key = key
        self._version = version
        self._world = world
        self._kind = kind
        self._first: list[dict[str, Any]] = []

    def request(self, message_type: type[Message], path: tuple[str, ...]) -> Message:
        few = self._elements(message_type, path, SAMPLE)
        base, more = (len(codec.encode(each, self._version)) for each in (self._elements(message_type, path, 0), few))
        size = max(1.0, (more - base) / SAMPLE)
        count = int((self._world.frame_bytes - MARGIN_BYTES - base) / size)
        if self._kind != "smallest":
            count = min(count, codec.request_elements_max(self._world.frame_bytes) - len(path))
        made: Message = self._elements(message_type, path, count)
        return made

    def with_text(self, struct_type: type[Any], path: tuple[str, ...], character: str) -> Any:
        """A request with one element in each array, and a long text in one field."""
        values = self._values(struct_type)
        if "value" in struct_type.__fields__:
            values["name"] = LIST_PROPERTY
        for name, row in struct_type.__fields__.items():
            if _is_array(row, self._version):
                element, rest = row.wire.element, path[1:] if path[:1] == (name,) else ()
                is_plain = isinstance(element, Primitive)
                values[name] = [
                    self._element(name, element, 0) if is_plain else self.with_text(element, rest, character)
                ]
        if len(path) == 1:
            wire, is_array = struct_type.__fields__[path[0]].wire, isinstance(values.get(path[0]), list)
            text = self._long(character, wire.element if is_array else wire)
            values[path[0]] = [text] if is_array else text
        return struct_type(**values)

    def _long(self, character: str, wire: Primitive) -> str | bytes:
        api = find(self._key)
        is_flexible = api is not None and self._version >= api.flexible_from
        size_max = self._world.frame_bytes - MARGIN_BYTES
        if wire is BYTES:
            return character.encode() * size_max
        return character * (size_max if is_flexible else SHORT_TEXT_BYTES_MAX)

    def _elements(self, struct_type: type[Any], path: tuple[str, ...], count: int) -> Any:
        values = self._values(struct_type)
        row = struct_type.__fields__[path[0]]
        element = row.wire.element
        if len(path) > 1:
            values[path[0]] = [self._elements(element, path[1:], count)]
        else:
            values[path[0]] = [self._element(path[0], element, number) for number in range(count)]
        return struct_type(**values)

    def _values(self, struct_type: type[Struct], number: int = 0) -> dict[str, Any]:
        return {
            name: self._value(name, row, number)
            for name, row in struct_type.__fields__.items()
            if row.is_in(self._version) and row.tag < 0 and not isinstance(row.wire, Array)
        }

    def _element(self, name: str, element: Any, number: int) -> Any:
        if isinstance(element, Primitive):
            return self._primitive(name, element, number, nullable=False)
        if self._kind == "smallest":
            return element(**{each: [] for each, row in element.__fields__.items() if _is_array(row, self._version)})
        if number < 2:  # the first show which fields differ
            self._first.append(self._values(element, number))
            return element(**self._first[-1])
        first, second = self._first[-2:]
        different = {each: element.__fields__[each] for each in first if first[each] != second[each]}
        return element(**{**first, **{each: self._value(each, row, number) for each, row in different.items()}})

    def _value(self, name: str, row: Field, number: int) -> Any:
        if not isinstance(row.wire, Primitive):
            return None if row.is_nullable_in(self._version) else row.default
        return self._primitive(name, row.wire, number, nullable=row.is_nullable_in(self._version), default=row.default)

    def _primitive(self, name: str, wire: Primitive, number: int, *, nullable: bool, default: Any = None) -> Any:
        if wire is STRING:
            return self._string(name, number)
        if wire is UUID:
            return self._world.topic_id if self._kind == "existing" else number.to_bytes(16, "big")
        if wire is RECORDS or wire.name == "bytes":
            return None if nullable else b""
        if name in ("resource_type", "acks"):
            return 2 if name == "resource_type" else 1
        if name in ("partition_index", "partition", "partition_indexes", "index", "partitions", "partition_id"):
            return number % self._world.partitions if self._kind == "existing" else number
        return wire.default if default is None else default

    def _string(self, name: str, number: int) -> str:
        if self._kind == "smallest":
            return ""
        if self._kind == "distinct" and number:
            return f"{number:05x}"
        if "group" in name:
            return GROUP
        return DOOMED if self._key == DELETE_TOPICS else TOPIC


def _is_array(row: Field, version: int) -> bool:
    return row.is_in(version) and isinstance(row.wire, Array)


def _lies(key: int, version: int, message_type: type[Message], frame_bytes: int) -> Iterator[Hostile]:
    """What the tables do not describe: wrong counts, cut ends, masses of tagged fields."""
    body = codec.encode(message_type(), version)
    yield Hostile(key, version, "cut off in the middle", request_frame(key, version, body[: len(body) // 2]))
    filler = b"\x01" * (frame_bytes - MARGIN_BYTES)
    yield Hostile(key, version, "ones", request_frame(key, version, filler))
    yield Hostile(key, version, "zeroes", request_frame(key, version, b"\0" * len(filler)))
    yield Hostile(key, version, "huge counts", request_frame(key, version, b"\x00\x0f\xff\xff" * (len(filler) // 4)))
    api = find(key)
    if api is not None and version >= api.flexible_from:
        header = struct.pack(">hhihs", key, version, 7, 1, b"x") + b"\xff\xff\x0f" + b"\x01\x00" * (len(filler) // 2)
        yield Hostile(key, version, "tags in the header", struct.pack(">i", len(header)) + header)
        yield Hostile(key, version, "tags behind it", request_frame(key, version, body[:-1] + b"\xff\xff\x0f" + filler))


def with_records() -> Iterator[Hostile]:
    """Very many records in few bytes: produced, looked up by time, and fetched in an old format, in this order."""
    record = Record(offset=0, timestamp=1, key=b"k", value=b"", headers=())
    records = [record._replace(offset=offset) for offset in range(RECORDS_IN_A_BATCH)]
    batch = build_batch(records, codec=Codec.ZSTD)
    old = build_message_set(records[: RECORDS_IN_A_BATCH // 4], magic=1, codec=Codec.GZIP)
    for topic, title in ((TOPIC, "a batch"), (COMPACTED, "a batch for a compacted topic")):
        yield Hostile(PRODUCE, 9, title, _produce(9, topic, batch))
        yield Hostile(PRODUCE, 2, f"{title} in an old format", _produce(2, topic, old))
    asked = [ListOffsetsPartition(partition_index=0, timestamp=2, max_num_offsets=1)]
    by_time = ListOffsetsRequest(topics=[ListOffsetsTopic(name=TOPIC, partitions=asked * LOOK_UPS)])
    yield Hostile(LIST_OFFSETS, 5, "look-ups by time", _frame(LIST_OFFSETS, 5, by_time))
    wanted = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)]
    fetch = FetchRequest(max_bytes=1 << 20, topics=[FetchTopic(topic=TOPIC, partitions=wanted)])
    for version in (1, 3):
        yield Hostile(FETCH, version, "in an old format", _frame(FETCH, version, fetch))


def _produce(version: int, topic: str, records: bytes) -> bytes:
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])
    return _frame(PRODUCE, version, ProduceRequest(acks=1, timeout_ms=1000, topic_data=[data]))
