"""Requests of `bench.ab` as the bytes that its driver sends, and where in them and in their answers it looks."""

import os
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from moldau.protocol.codec import encode
from moldau.protocol.layouts import fetch_position
from moldau.protocol.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.schema import Message
from moldau.records.batch import Record, build_batch
from moldau.records.compression import Codec

PRODUCE_VERSION, FETCH_VERSION = 12, 17
KIB = 1024
TIMESTAMP_MS = 1_700_000_000_000
FETCH_WAIT_MS = 500
_header = Struct(">hhihx").pack  # key, version, correlation id, an empty client id, no tagged fields
_ANSWER_HEADER_BYTES = 5  # correlation id, no tagged fields
_FETCH_ERROR_AT = _ANSWER_HEADER_BYTES + 4 + 2 + 4 + 1 + 16 + 1 + 4  # throttle, error, session, count, id, count, index
_INDEX_AND_EPOCH_BYTES = 8
_END_OF_FETCH_BYTES = 5


class Script(NamedTuple):
    """What the driver is told: see `raw_driver.c`."""

    frame: Path
    error_at: int
    rises_at: int = 0
    step: int = 0
    times: int = 0

    @property
    def words(self) -> tuple[object, ...]:
        return (self.error_at, self.rises_at, self.step, self.times, self.frame)


def batch_of(kib: int, codec: Codec) -> bytes:
    """A batch of records of 1 KiB that no codec makes smaller, or, if there is one, that it makes half as long."""
    random_bytes = KIB - 12 if codec is Codec.NONE else KIB // 2
    values = (os.urandom(random_bytes) + bytes(KIB - 12 - random_bytes) for _ in range(kib))
    return build_batch([Record(n, TIMESTAMP_MS, None, value) for n, value in enumerate(values)], codec=codec)


def produce(path: Path, topic: str, partitions: int, batch: bytes) -> Script:
    """One batch into each partition."""
    data = [PartitionProduceData(index=index, records=batch) for index in range(partitions)]
    topics = [TopicProduceData(name=topic, partition_data=data)]
    _write(path, ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics), PRODUCE_VERSION)
    return Script(path, _ANSWER_HEADER_BYTES + 1 + 1 + len(topic) + 1 + 4)  # count, name, count, index


def fetch(path: Path, topic_id: bytes, limit_bytes: int, batch: bytes, records: int, stored: int) -> Script:
    """A consumer's walk through a partition that has `stored` such batches of so many records, and from its end back to
    its beginning."""
    where = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=limit_bytes)
    topics = [FetchTopic(topic_id=topic_id, partitions=[where])]
    request = FetchRequest(max_wait_ms=FETCH_WAIT_MS, min_bytes=1, max_bytes=limit_bytes, topics=topics)
    size = _write(path, request, FETCH_VERSION)
    position = size - _END_OF_FETCH_BYTES - fetch_position.size
    batches = limit_bytes // len(batch)
    return Script(path, _FETCH_ERROR_AT, position + _INDEX_AND_EPOCH_BYTES, batches * records, stored // batches)


def _write(path: Path, request: Message, version: int) -> int:
    """Put the request into a file, its size first; the bytes of the file."""
    encoded = encode(request, version, _header(request.api_key, version, 0, 0))
    return path.write_bytes(len(encoded).to_bytes(4, "big") + encoded)
