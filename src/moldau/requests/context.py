"""What a handler is given: the broker's services, and who asks in which version."""

from collections.abc import Awaitable, Callable
from random import Random
from typing import NamedTuple

from moldau.cluster.metadata import Metadata
from moldau.core.broker_config import BrokerConfig
from moldau.core.clock import Clock
from moldau.core.ids import BrokerId
from moldau.log.manager import LogManager
from moldau.records.validate import Allowance
from moldau.replication.durability import Durability
from moldau.replication.replicas import Replicas
from moldau.replication.throttle import Throttle
from moldau.requests.authorization import (
    ANONYMOUS,
    CLUSTER,
    DESCRIBE,
    OPERATIONS,
    THE_CLUSTER,
    Authorizer,
    Operation,
    Principal,
    Resource,
    refused,
)
from moldau.requests.fetch_sessions import FetchSessions
from moldau.requests.groups_access import GroupsAccess
from moldau.requests.opener import InlineOpener, Opener
from moldau.requests.policy import RequestPolicy
from moldau.requests.producer_ids import ProducerIds
from moldau.requests.recent_brokers import RecentBrokers


class Services:
    """The parts of a running broker that handlers call."""

    def __init__(
        self,
        *,
        broker_id: BrokerId,
        config: BrokerConfig,
        clock: Clock,
        metadata: Metadata,
        replicas: Replicas,
        logs: LogManager,
        durability: Durability,
        random: Random,
    ) -> None:
        self.broker_id = broker_id
        self.config = config
        self.clock = clock
        self.metadata = metadata
        self.replicas = replicas
        self.durability = durability
        self.logs = logs
        self.random = random
        self.policy = RequestPolicy()
        self.connected = True
        """Whether the session with the metadata store is known to live: without it nobody changes an ISR."""
        self.leader_throttle = Throttle(clock, config.optional_int("leader.replication.throttled.rate"))
        self.follower_throttle = Throttle(clock, config.optional_int("follower.replication.throttled.rate"))
        self.fetch_sessions = FetchSessions(config.int("max.incremental.fetch.session.cache.slots"), random)
        self.recent_brokers = RecentBrokers(clock)
        metadata.subscribe(self.recent_brokers.note)
        metadata.subscribe(self.fetch_sessions.of_replicas.image_changed)
        self.opener: Opener = InlineOpener()  # the broker has a thread for it
        self.allowance = Allowance(clock)
        self.logs_made: Callable[[], Awaitable[None]] = _nothing_to_wait_for
        """Returns when every log that the image wants here is made: some wait for their turn."""
        self.groups: GroupsAccess  # set by the broker: it needs all the other services
        self.producer_ids = ProducerIds(lambda: metadata.next_producer_id_block(broker_id))

    @property
    def authorizer(self) -> Authorizer:
        return self.policy.authorizer


async def _nothing_to_wait_for() -> None:
    """For services without a cluster."""


class RequestContext(NamedTuple):
    """One request's circumstances."""

    services: Services
    api_version: int
    client_id: str | None
    listener: str
    client_host: str
    principal: Principal = ANONYMOUS

    def may(self, operation: Operation, resource: Resource, name: str = THE_CLUSTER) -> bool:
        """Whether the one who asks has this right."""
        return self.services.authorizer.may(self.principal, self.client_host, operation, resource, name)

    def may_on_any(self, operation: Operation, resource: Resource) -> bool:
        """Whether the one who asks may have this right on some resource of the type."""
        return self.services.authorizer.may_on_any(self.principal, self.client_host, operation, resource)

    def require(self, operation: Operation, resource: Resource, name: str = THE_CLUSTER) -> None:
        """Raise ApiError unless the one who asks has this right."""
        if not self.may(operation, resource, name):
            raise refused(resource)

    def cluster_rights(self) -> int:
        """The rights on the cluster; none is told to those who may not describe it."""
        return self.rights(CLUSTER) if self.may(DESCRIBE, CLUSTER) else 0

    def rights(self, resource: Resource, name: str = THE_CLUSTER) -> int:
        """The operations that the one who asks may do, as bits (KIP-430): bit n stands for operation n."""
        return sum(1 << each for each in OPERATIONS[resource] if self.may(each, resource, name))
