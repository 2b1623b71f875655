"""Times of records by offset. A log has an index from times to offsets and none back, so that a record is read for it.

The reader is a consumer that is in no group: it is given partitions and positions, takes one record of each and commits
nothing. Where the offset's record is gone (by retention or compaction), the next one that is left tells the time.
"""

import argparse
import time
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from moldau.cli.common import REQUEST_TIMEOUT_S, client_settings
from moldau.cli.partition_queries import Partition

READER = "moldau-reads-times"
FETCH_BYTES_MAX = 64 * 1024
"""Bytes of a partition to ask for at once; one whole batch comes in any case."""
POLL_S = 0.5

_SETTINGS = {
    "group.id": READER,
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",
    "isolation.level": "read_uncommitted",
    "max.partition.fetch.bytes": FETCH_BYTES_MAX,
    "fetch.wait.max.ms": 100,
}


def times_ms(
    options: argparse.Namespace, positions: Mapping[Partition, int], timeout_s: float = REQUEST_TIMEOUT_S
) -> dict[Partition, int]:
    """The time of the record at each position; none where the log ends there, or nothing came in time."""
    if not positions:
        return {}
    consumer = Consumer(client_settings(options, _SETTINGS))
    try:
        return _read(consumer, positions, time.monotonic() + timeout_s)
    finally:
        consumer.close()


def _read(consumer: Consumer, positions: Mapping[Partition, int], deadline: float) -> dict[Partition, int]:
    consumer.assign([TopicPartition(topic, index, offset) for (topic, index), offset in positions.items()])
    waiting = set(positions)
    found: dict[Partition, int] = {}
    while waiting and time.monotonic() < deadline:
        message = consumer.poll(POLL_S)
        if message is None:
            continue
        partition = (message.topic() or "", message.partition() or 0)
        error = message.error()
        if error is None:
            found.setdefault(partition, message.timestamp()[1])
        elif error.code() != KafkaError._PARTITION_EOF and (error.fatal() or partition not in waiting):
            raise KafkaException(error)
        if partition in waiting:
            waiting.discard(partition)
            consumer.incremental_unassign([TopicPartition(*partition)])
    return {each: at for each, at in found.items() if at >= 0}
