"""Records of a batch, by their size: a batch of large records would not fit in the memory that Spark is given."""

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from moldau.pipelines.topics import Cluster, ClusterError

if TYPE_CHECKING:
    from confluent_kafka import Consumer, TopicPartition

BATCH_BYTES = 128_000_000
"""Bytes of keys and values in a batch, about: with the default memory of 2 GB two queries at once can work with it."""
RECORDS_MIN = 100
LOOKED_AT = 20
"""Records of a partition whose size is looked at, at its beginning and as many at its end."""
PARTITIONS_MAX = 8
WAIT_S = 2.0

_log = logging.getLogger(__name__)


def records_of_batch(cluster: Cluster, partitions: Mapping[str, Sequence[int]], most: int) -> int:
    """The records that make a batch of moderate size, `most` at most; `most`, too, where the cluster does not tell."""
    from confluent_kafka import KafkaException

    try:
        sizes = _sizes(cluster, partitions)
    except (ClusterError, KafkaException) as error:  # who reads the records next will say so
        _log.debug("the size of records is not known: %s", error)
        return most
    return bounded(sizes, most)


def bounded(sizes: Sequence[int], most: int) -> int:
    """The number of records for such sizes."""
    if not sizes or not sum(sizes):
        return most
    return max(RECORDS_MIN, min(most, BATCH_BYTES * len(sizes) // sum(sizes)))


def _sizes(cluster: Cluster, partitions: Mapping[str, Sequence[int]]) -> list[int]:
    """The sizes of some records."""
    from confluent_kafka import TopicPartition

    read = [TopicPartition(topic, number) for topic, numbers in partitions.items() for number in numbers]
    read = read[:: max(1, len(read) // PARTITIONS_MAX)][:PARTITIONS_MAX]
    with cluster.consumer("moldau-sizes") as consumer:
        ends = [(place, *consumer.get_watermark_offsets(place, timeout=WAIT_S)) for place in read]
        there = [(place, low, high) for place, low, high in ends if low < high]
        first = [(place, low, min(high, low + LOOKED_AT)) for place, low, high in there]
        last = [(place, max(low + LOOKED_AT, high - LOOKED_AT), high) for place, low, high in there]
        return [*_read(consumer, first), *_read(consumer, [each for each in last if each[1] < each[2]])]


def _read(consumer: "Consumer", spans: "Sequence[tuple[TopicPartition, int, int]]") -> list[int]:
    from confluent_kafka import TopicPartition

    if not spans:
        return []
    consumer.assign([TopicPartition(place.topic, place.partition, begin) for place, begin, _ in spans])
    found = consumer.consume(sum(end - begin for _, begin, end in spans), WAIT_S)
    return [len(each.value() or b"") + len(each.key() or b"") for each in found if each.error() is None]
