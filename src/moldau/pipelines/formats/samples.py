"""Values from the beginning of a source's topics."""

import re
from typing import TYPE_CHECKING

from moldau.pipelines.file.problems import PipelineError, Problem
from moldau.pipelines.file.spec import SourceSpec
from moldau.pipelines.kinds import Context
from moldau.pipelines.topics import Cluster, ClusterError, cluster_of

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

LOOKED_AT = 20
"""Records of each partition of a table that are looked at for keys."""
QUIET_MAX_S = 10.0
"""Seconds after which a partition that gives nothing, although it has records, is an error."""


def sample_values(source: SourceSpec, context: Context) -> list[bytes | None]:
    """Values from the start of the topics, `samples` at most, as many from each partition."""
    cluster = cluster_of(context.pipeline, source.options)
    try:
        partitions = _partitions(cluster, source)
        share = -(-source.options["samples"] // max(1, len(partitions)))
        found = [message.value() for message in _read(cluster, partitions, share)]
    except ClusterError as error:
        raise PipelineError([Problem(source.place, f"source {source.name!r}: {error}")]) from None
    return found[: source.options["samples"]]


def lacks_keys(cluster: Cluster, source: SourceSpec) -> bool:
    """Whether the source has records, and the first ones of all partitions have no key."""
    found = _read(cluster, _partitions(cluster, source), LOOKED_AT)
    return bool(found) and all(message.key() is None for message in found)


def _partitions(cluster: Cluster, source: SourceSpec) -> list[tuple[str, int]]:
    topics = source.options.get("topic")
    named = (topics,) if isinstance(topics, str) else tuple(topics or ())
    pattern = source.options.get("pattern")
    return [
        (topic, partition)
        for topic, numbers in sorted(cluster.topics().items())
        if topic in named or (pattern and re.fullmatch(pattern, topic))
        for partition in numbers
    ]


def _read(cluster: Cluster, partitions: list[tuple[str, int]], share: int) -> "list[Message]":
    with cluster.consumer("moldau-samples") as consumer:
        return [found for topic, number in partitions for found in _from_one(consumer, topic, number, share)]


def _from_one(consumer: "Consumer", topic: str, number: int, share: int) -> "list[Message]":
    from confluent_kafka import KafkaException, TopicPartition

    low, high = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=QUIET_MAX_S)
    consumer.assign([TopicPartition(topic, number, low)])
    found: list[Message] = []
    position = low
    while len(found) < share and position < high:
        messages = consumer.consume(min(share - len(found), 1000), QUIET_MAX_S if not found else 0.5)
        for message in messages:
            error = message.error()
            if error is not None:
                raise KafkaException(error)
            found.append(message)
        # where the tail is compacted or aborted no record brings the last offset: the position does
        position = max(position, consumer.position([TopicPartition(topic, number)])[0].offset)
        if not messages:
            break
    return found
