"""Subscriptions of a consumer group: names and regular expressions, and the topics of the cluster that they match."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

from moldau.cluster.image import ClusterImage, TopicImage
from moldau.coordinators.consumer.member import ConsumerMember
from moldau.coordinators.consumer.topic_regex import TopicRegex

COMPILED_REGEXES_MAX = 50
"""Each takes a megabyte at most."""
SUBSCRIPTIONS_MAX = 1_000
"""Number of different subscriptions whose topics are remembered."""


class ResolvedRegex(NamedTuple):
    """The topics that a pattern matched when it was last looked at."""

    topics: frozenset[str]
    version: int = 0
    timestamp_ms: int = 0


Regexes = Mapping[str, ResolvedRegex]


@lru_cache(COMPILED_REGEXES_MAX)
def compiled(pattern: str) -> TopicRegex:
    """Raises INVALID_REGULAR_EXPRESSION."""
    return TopicRegex(pattern)


def names_of(member: ConsumerMember, regexes: Regexes) -> frozenset[str]:
    """A member's own names and those its pattern matched."""
    matched = regexes.get(member.subscribed_regex) if member.subscribed_regex else None
    return member.subscribed_names if matched is None else member.subscribed_names | matched.topics


def names_of_all(members: Iterable[ConsumerMember], regexes: Regexes) -> frozenset[str]:
    return frozenset().union(*(names_of(member, regexes) for member in members))


def patterns_of(members: Iterable[ConsumerMember]) -> frozenset[str]:
    return frozenset(member.subscribed_regex for member in members if member.subscribed_regex)


class Subscribed(NamedTuple):
    """Topics of a subscription that exist."""

    topic_ids: frozenset[bytes]
    partition_counts: Mapping[bytes, int]
    metadata_hash: int
    """Differs when a subscribed topic came, went or got more partitions: then the group needs a new assignment."""


class _Remembered:
    """Topics of subscriptions in one image, remembered: a thousand groups that join read the same few topics."""

    __slots__ = ("subscribed", "topics")

    def __init__(self, topics: Mapping[str, TopicImage]) -> None:
        self.topics = topics
        self.subscribed: dict[frozenset[str], Subscribed] = {}


_remembered = _Remembered({})


def subscribed(names: frozenset[str], image: ClusterImage) -> Subscribed:
    """The topics of these names that are there."""
    global _remembered  # holds for one image, and what is found in it is the same for everybody
    remembered = _remembered
    if remembered.topics is not image.topics or len(remembered.subscribed) >= SUBSCRIPTIONS_MAX:
        remembered = _remembered = _Remembered(image.topics)
    found = remembered.subscribed.get(names)
    if found is None:
        found = remembered.subscribed[names] = _subscribed(names, image.topics)
    return found


def _subscribed(names: frozenset[str], topics: Mapping[str, TopicImage]) -> Subscribed:
    found = [topics[name] for name in sorted(names) if name in topics]
    counts = {topic.topic_id: len(topic.partitions) for topic in found}
    return Subscribed(frozenset(counts), counts, _metadata_hash(found))


def _metadata_hash(topics: Sequence[TopicImage]) -> int:
    """Hash of the subscribed topics; 0 if there are none, as in Kafka. The value itself is ours: a group carried over
    from Kafka is assigned anew once. `topics` are in the order of their names."""
    if not topics:
        return 0
    digest = blake2b(digest_size=8)
    for topic in topics:
        digest.update(topic.topic_id + len(topic.partitions).to_bytes(4, "big") + topic.name.encode() + b"\0")
    return int.from_bytes(digest.digest(), "big", signed=True) or 1
