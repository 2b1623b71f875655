"""What several handlers know about topics."""

from collections.abc import Sequence
from typing import Protocol

from moldau.cluster.image import ClusterImage
from moldau.cluster.placement import USE_DEFAULT, place_new_topic
from moldau.handlers.context import Services

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


def is_internal(topic: str) -> bool:
    return topic in INTERNAL_TOPICS


class NamesTopic(Protocol):
    """Part of a request that names a topic, or in newer versions gives its id (KIP-516)."""

    @property
    def name(self) -> str: ...
    @property
    def topic_id(self) -> bytes: ...


def topic_names_and_ids(
    topics: Sequence[NamesTopic], image: ClusterImage, *, by_id: bool
) -> list[tuple[str, bytes] | None]:
    """Name and id of each topic; None for those that do not exist."""
    names = [image.topic_names_by_id.get(topic.topic_id) if by_id else topic.name for topic in topics]
    known = [None if name is None else image.topics.get(name) for name in names]
    return [None if topic is None else (topic.name, topic.topic_id) for topic in known]


async def auto_create(topic: str, services: Services) -> None:
    """Create a topic that a client named, with the broker's defaults."""
    config, metadata = services.config, services.metadata
    assignment = place_new_topic(
        metadata.image.brokers,
        USE_DEFAULT,
        USE_DEFAULT,
        None,
        default_partitions=config.int("num.partitions"),
        default_replication_factor=config.int("default.replication.factor"),
        random_below=services.random.randrange,
    )
    await metadata.create_topic(topic, assignment)
