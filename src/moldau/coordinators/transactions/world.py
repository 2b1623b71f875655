"""The world of a shard of transactions: time, settings, producer ids, the way to other brokers."""

from collections.abc import Callable
from typing import NamedTuple

from moldau.coordinators.timers import Timers
from moldau.coordinators.transactions.markers import Markers
from moldau.coordinators.transactions.transaction import Numbering
from moldau.core.broker_config import BrokerConfig
from moldau.core.clock import Clock


class World(NamedTuple):
    """Sources of values that change, such as the configuration and the version: ask when needed, cache nothing."""

    clock: Clock
    timers: Timers
    config: Callable[[], BrokerConfig]
    transaction_version: Callable[[], int]
    """The cluster's feature `transaction.version`."""
    numbering: Numbering
    markers: Markers
