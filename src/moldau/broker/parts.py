"""Makes the parts of a running broker that most of the shell works with, and what handlers see of them.

Law: nothing is made below this layer, and nothing here is assigned later: what needs the parts gets them whole.
"""

from collections.abc import Awaitable, Callable
from dataclasses import fields
from random import Random

from moldau.cluster.metadata import Metadata
from moldau.core.clock import Clock
from moldau.core.dynamic_config import DynamicConfig
from moldau.core.ids import BrokerId
from moldau.core.scheduler import Scheduler
from moldau.log.manager import LogManager
from moldau.records.validate import Allowance
from moldau.replication.durability import Durability
from moldau.replication.replicas import Replicas
from moldau.replication.throttle import Throttle
from moldau.requests.context import Services
from moldau.requests.fetch_sessions import FetchSessions
from moldau.requests.groups_access import GroupsAccess
from moldau.requests.opener import Opener
from moldau.requests.parts import Parts
from moldau.requests.policy import RequestPolicy
from moldau.requests.producer_ids import ProducerIds
from moldau.requests.recent_brokers import RecentBrokers
from moldau.requests.telemetry import Telemetry
from moldau.requests.topic_clients import TopicClients
from moldau.requests.transaction_verification import TransactionVerifier
from moldau.requests.transactions_access import TransactionsAccess


def make_parts(
    *,
    broker_id: BrokerId,
    dynamic_config: DynamicConfig,
    clock: Clock,
    scheduler: Scheduler,
    metadata: Metadata,
    replicas: Replicas,
    logs: LogManager,
    durability: Durability,
    random: Random,
) -> Parts:
    """The parts of a broker; `dynamic_config` knows already what the cluster says of it."""
    config = dynamic_config.now
    return Parts(
        broker_id=broker_id,
        dynamic_config=dynamic_config,
        clock=clock,
        scheduler=scheduler,
        metadata=metadata,
        replicas=replicas,
        logs=logs,
        durability=durability,
        random=random,
        leader_throttle=Throttle(clock, config.optional_int("leader.replication.throttled.rate")),
        follower_throttle=Throttle(clock, config.optional_int("follower.replication.throttled.rate")),
        fetch_sessions=FetchSessions(config.int("max.incremental.fetch.session.cache.slots"), random, scheduler),
        recent_brokers=RecentBrokers(clock),
        producer_ids=ProducerIds(lambda: metadata.next_producer_id_block(broker_id)),
        topic_clients=TopicClients(),
        telemetry=Telemetry(lambda: random.randbytes(16)),
    )


def make_services(
    parts: Parts,
    *,
    groups: GroupsAccess,
    transactions: TransactionsAccess,
    verifier: TransactionVerifier,
    opener: Opener,
    logs_made: Callable[[], Awaitable[None]],
) -> Services:
    """Services for handlers, made of the parts and of the objects that stand on them."""
    shared = {field.name: getattr(parts, field.name) for field in fields(parts)}
    return Services(
        **shared,
        policy=RequestPolicy(),
        allowance=Allowance(parts.clock),
        groups=groups,
        transactions=transactions,
        opener=opener,
        logs_made=logs_made,
        verifier=verifier,
    )
