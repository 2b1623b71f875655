"""Names, ids and automatic creation of topics, for several handlers."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from moldau.cluster.image import ClusterImage
from moldau.cluster.placement import USE_DEFAULT, place_new_topic
from moldau.cluster.topic_names import CLUSTER_METADATA_TOPIC
from moldau.coordinators.groups.offsets_topic import offsets_topic_settings
from moldau.coordinators.topic_settings import TopicSettings
from moldau.coordinators.transactions.transaction_topic import transaction_topic_settings
from moldau.core.broker_config import BrokerConfig
from moldau.core.internal_topics import INTERNAL_TOPICS, OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.requests.context import Services
from moldau.requests.coordinator_topics import have_topic

NOT_MADE_FOR_CLIENTS = INTERNAL_TOPICS | {CLUSTER_METADATA_TOPIC}
"""Coordinators make theirs. Share groups have none yet, so that their topic is not made at all."""

COORDINATED: Mapping[str, Callable[[BrokerConfig], TopicSettings]] = {
    OFFSETS_TOPIC: offsets_topic_settings,
    TRANSACTIONS_TOPIC: transaction_topic_settings,
}
"""Topics that have a coordinator here, and how it makes them."""


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


def may_auto_create(topic: str) -> bool:
    """Whether a topic of this name is made when a client asks for it and `auto.create.topics.enable` allows that."""
    return topic in COORDINATED or topic not in NOT_MADE_FOR_CLIENTS


async def auto_create(topic: str, services: Services) -> None:
    """Create a topic that a client named, with the broker's defaults; that of a coordinator as this makes it."""
    config, metadata = services.config, services.metadata
    if topic in COORDINATED:
        await _have_coordinators_topic_made(topic, services)
        return
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


async def _have_coordinators_topic_made(topic: str, services: Services) -> None:
    try:
        await have_topic(services.groups if topic == OFFSETS_TOPIC else services.transactions, services)
    except ApiError as error:
        if error.code != ErrorCode.COORDINATOR_NOT_AVAILABLE:
            raise
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, error.message) from error  # as Kafka tells it here
