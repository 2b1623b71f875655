"""What several handlers know about topics."""

from moldau.cluster.placement import USE_DEFAULT, place_new_topic
from moldau.handlers.context import Services

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


def is_internal(topic: str) -> bool:
    return topic in INTERNAL_TOPICS


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
