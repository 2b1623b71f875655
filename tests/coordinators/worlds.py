"""A shard's surroundings for tests: the clock stands still, the cluster is made up."""

from itertools import count

from moldau.cluster.image import ClusterImage, PartitionImage, TopicImage
from moldau.coordinators.consumer.matching_allowance import MatchingAllowance
from moldau.coordinators.groups.world import World
from moldau.coordinators.timers import ManualTimers
from moldau.core.broker_config import BrokerConfig
from moldau.core.clock import ManualClock


def made_up_world(
    properties: dict[str, str] | None = None,
    topics: dict[str, int] | None = None,
    *,
    clock: ManualClock | None = None,
    timers: ManualTimers | None = None,
) -> World:
    """`topics`: name to number of partitions; a topic's id is its name, filled up with zeros."""
    config, _ = BrokerConfig.parse(properties or {})
    image = ClusterImage()
    for name, partitions in (topics or {}).items():
        states = tuple(PartitionImage(1, 0, (1,), (1,)) for _ in range(partitions))
        image = image.with_topic(TopicImage(name, topic_id(name), states, {}))
    numbers = count(1)
    return World(
        clock or ManualClock(),
        timers or ManualTimers(),
        lambda: config,
        lambda: image,
        lambda: next(numbers).to_bytes(16, "big"),
        MatchingAllowance(),
    )


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"\0")
