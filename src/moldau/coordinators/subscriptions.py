"""What a consumer group subscribes to: names, regular expressions, and what they come to in the cluster as it is."""

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

from moldau.cluster.image import ClusterImage, TopicImage
from moldau.coordinators.consumer_member import ConsumerMember
from moldau.coordinators.topic_regex import TopicRegex

COMPILED_REGEXES_MAX = 1_000


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


def resolve(pattern: str, image: ClusterImage) -> frozenset[str]:
    """The topics whose whole name matches."""
    matches = compiled(pattern).matches
    return frozenset(name for name in image.topics if matches(name))


def names_of(member: ConsumerMember, regexes: Regexes) -> frozenset[str]:
    """A member's own names and those its pattern matched."""
    matched = regexes.get(member.subscribed_regex) if member.subscribed_regex else None
    return member.subscribed_names if matched is None else member.subscribed_names | matched.topics


def names_of_all(members: Iterable[ConsumerMember], regexes: Regexes) -> frozenset[str]:
    return frozenset().union(*(names_of(member, regexes) for member in members))


def existing(names: Collection[str], image: ClusterImage) -> dict[bytes, TopicImage]:
    """The topics of these names that are there, by id."""
    found = (image.topics.get(name) for name in names)
    return {topic.topic_id: topic for topic in found if topic is not None}


def patterns_of(members: Iterable[ConsumerMember]) -> frozenset[str]:
    return frozenset(member.subscribed_regex for member in members if member.subscribed_regex)


def metadata_hash(names: Collection[str], image: ClusterImage) -> int:
    """Differs when a subscribed topic came, went or got more partitions: then the group needs a new assignment.

    As in Kafka 0 means that nothing is there. The value itself is ours: a group carried over from Kafka is assigned
    anew once.
    """
    topics = sorted(existing(names, image).values(), key=lambda topic: topic.name)
    if not topics:
        return 0
    digest = blake2b(digest_size=8)
    for topic in topics:
        digest.update(topic.topic_id + len(topic.partitions).to_bytes(4, "big") + topic.name.encode() + b"\0")
    return int.from_bytes(digest.digest(), "big", signed=True) or 1
