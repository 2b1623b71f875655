"""World of a shard's state machines: time, settings, the cluster, names for new things."""

from collections.abc import Callable
from typing import NamedTuple

from moldau.cluster.image import ClusterImage
from moldau.coordinators.consumer.matching_allowance import MatchingAllowance
from moldau.coordinators.timers import Timers
from moldau.core.broker_config import BrokerConfig
from moldau.core.clock import Clock


class World(NamedTuple):
    """`Groups(world)` and `Offsets(world, groups)` are made with it. Nothing in it may be cached: configurations and
    the image change, so they are asked for when needed."""

    clock: Clock
    timers: Timers
    config: Callable[[], BrokerConfig]
    """Settings by name: `world.config().int("group.initial.rebalance.delay.ms")`."""
    image: Callable[[], ClusterImage]
    new_uuid: Callable[[], bytes]
    """16 random bytes."""
    matching: MatchingAllowance
    """One for all shards of a broker."""
