"""The parts of a running broker that its shell works with and its handlers see: listed here once, made by `broker/`."""

from dataclasses import dataclass
from random import Random

from moldau.cluster.metadata import Metadata
from moldau.core.broker_config import BrokerConfig
from moldau.core.clock import Clock
from moldau.core.dynamic_config import DynamicConfig
from moldau.core.ids import BrokerId
from moldau.core.scheduler import Scheduler
from moldau.log.manager import LogManager
from moldau.replication.durability import Durability
from moldau.replication.replicas import Replicas
from moldau.replication.throttle import Throttle
from moldau.requests.fetch_sessions import FetchSessions
from moldau.requests.producer_ids import ProducerIds
from moldau.requests.recent_brokers import RecentBrokers
from moldau.requests.telemetry import Telemetry
from moldau.requests.topic_clients import TopicClients


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Objects that several modules share. A module that needs one or two of these takes them alone."""

    broker_id: BrokerId
    dynamic_config: DynamicConfig
    clock: Clock
    scheduler: Scheduler
    metadata: Metadata
    replicas: Replicas
    logs: LogManager
    durability: Durability
    random: Random
    leader_throttle: Throttle
    follower_throttle: Throttle
    fetch_sessions: FetchSessions
    recent_brokers: RecentBrokers
    producer_ids: ProducerIds
    topic_clients: TopicClients
    telemetry: Telemetry

    @property
    def config(self) -> BrokerConfig:
        """The configuration as it is now."""
        return self.dynamic_config.now
