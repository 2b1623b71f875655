"""A broker without sockets: real metadata, real logs in memory, and requests that go through the codec both ways."""

import asyncio
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any, TypeVar

import pytest

from moldau.broker.group_coordinator import GroupCoordinator
from moldau.broker.parts import make_parts, make_services
from moldau.broker.roles import Roles
from moldau.broker.transaction_coordinator import TransactionCoordinator
from moldau.cluster.embedded.store import EmbeddedStore
from moldau.cluster.image import BrokerInfo, ClusterImage, Endpoint
from moldau.cluster.metadata import Metadata
from moldau.core.broker_config import BrokerConfig
from moldau.core.clock import ManualClock
from moldau.core.dynamic_config import DynamicConfig
from moldau.core.ids import BrokerId, TopicPartition
from moldau.core.memory_files import MemoryFiles
from moldau.core.scheduler import Scheduler
from moldau.core.topic_config import TopicConfig
from moldau.log.log import Log
from moldau.log.manager import LogManager
from moldau.protocol import codec
from moldau.protocol.apis import find, response_type
from moldau.protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from moldau.protocol.schema import Message
from moldau.records.batch import Record, build_batch
from moldau.replication.durability import Durability
from moldau.replication.replicas import Replicas
from moldau.requests import registry
from moldau.requests.context import RequestContext
from moldau.requests.opener import InlineOpener
from moldau.requests.pending import PendingAnswer
from moldau.requests.transaction_verification import NoVerifier
from tests.committers import NothingToCommit

T = TypeVar("T")

BROKER_ID = BrokerId(1)
NEWEST_PRODUCE = 13

FEW_PARTITIONS = {"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "3"}
"""Partitions of the coordinators' topics: to make Kafka's 50 of each is most of a test that needs one."""
KAFKAS_PARTITIONS = {name: str(BrokerConfig.parse({})[0].int(name)) for name in FEW_PARTITIONS}


class World:
    """One broker with an empty cluster of its own."""

    def __init__(
        self,
        properties: Mapping[str, str],
        directories: Sequence[str] = ("/data",),
        scheduler: Scheduler | None = None,
    ) -> None:
        """Without a `scheduler` what waits does so in real time."""
        self.runner = asyncio.Runner()
        self.clock = ManualClock()
        self.files = MemoryFiles()
        self.store = EmbeddedStore(":memory:")
        random = Random(7)
        self.metadata = Metadata(self.store, self.clock, random.randbytes)
        config, _unknown = BrokerConfig.parse({"log.flush.policy": "os", **FEW_PARTITIONS, **properties})
        logs = LogManager(
            self.files, self.clock, directories, config_of=self._topic_config, new_uuid=lambda: random.randbytes(16)
        )
        self.parts = make_parts(
            broker_id=BROKER_ID,
            dynamic_config=DynamicConfig(config),
            clock=self.clock,
            scheduler=scheduler or self.runner.get_loop(),
            metadata=self.metadata,
            replicas=Replicas(self.metadata),
            logs=logs,
            durability=Durability("os", NothingToCommit()),
            random=random,
        )
        self.groups = GroupCoordinator(self.runner.get_loop(), self.parts, lambda: random.randbytes(16))
        self.transactions = TransactionCoordinator(self.runner.get_loop(), self.parts, lambda: 2)
        self.roles = Roles(self.parts, on_late=self._taken_up_late)
        self.services = make_services(
            self.parts,
            groups=self.groups,
            transactions=self.transactions,
            verifier=NoVerifier(),
            opener=InlineOpener(),
            logs_made=self.roles.made,
        )
        self.run(self._start())

    async def _start(self) -> None:
        await self.metadata.load()
        self.services.logs.lock()
        self.services.logs.claim(BROKER_ID, self.metadata.image.cluster_id)
        endpoints = (Endpoint("PLAINTEXT", "inside", 9092, "PLAINTEXT"), Endpoint("OUT", "outside", 443, "SSL"))
        await self.metadata.register_broker(BrokerInfo(BROKER_ID, "r1", endpoints))
        await self.metadata.claim_controller(BROKER_ID)
        listeners = (
            self.parts.recent_brokers.note,
            self.parts.fetch_sessions.of_replicas.image_changed,
            self.roles.image_changed,
            self.groups.image_changed,
            self.transactions.image_changed,
        )
        for listener in listeners:
            self.metadata.subscribe(listener)

    def _taken_up_late(self, topic_partition: TopicPartition) -> None:
        for each in (self.groups, self.transactions):
            each.taken_up(topic_partition)

    def replace(self, **parts: Any) -> None:
        """Let handlers see other services from now on."""
        self.services = replace(self.services, **parts)

    def _topic_config(self, topic: str) -> TopicConfig:
        return TopicConfig.of(self.parts.config, self.image.topics[topic].configs)

    @property
    def image(self) -> ClusterImage:
        return self.metadata.image

    def run(self, awaitable: Awaitable[T]) -> T:
        """The result of `awaitable`. The runner's own `run` sets a handler of signals each time, and takes it back, and
        both make a text of the task and of what it answered: a sixth of all that these tests cost."""

        async def wait() -> T:
            return await awaitable

        return self.runner.get_loop().run_until_complete(wait())

    def ask(self, request: Message, version: int | None = None, *, listener: str = "PLAINTEXT") -> Any:
        """The answer as a client of this version (the newest by default) would read it."""
        api = find(request.api_key)
        assert api is not None
        version = api.max_version if version is None else version
        received = codec.decode(type(request), version, codec.encode(request, version))
        context = RequestContext(self.services, version, "test", listener, "127.0.0.1")

        async def answer() -> Any:
            given = registry.handler(request.api_key)(received, context)
            return await given if isinstance(given, PendingAnswer) else given

        return codec.decode(response_type(request.api_key), version, codec.encode(self.run(answer()), version))

    def create(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> bytes:
        """A topic; its id."""
        given = [CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()]
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=given)
        (result,) = self.ask(CreateTopicsRequest(topics=[topic])).topics
        assert result.error_code == 0, result.error_message
        topic_id: bytes = result.topic_id
        return topic_id

    def produce(self, topic: str, count: int, *, partition: int = 0, producer_id: int = -1) -> None:
        """One batch of records without much in them."""
        now_ms = self.clock.now_ms()
        records = [Record(offset, now_ms, None, b"x", ()) for offset in range(count)]
        is_idempotent = producer_id >= 0
        batch = build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=0 if is_idempotent else -1,
            base_sequence=0 if is_idempotent else -1,
        )
        leader = self.services.replicas.get(topic, partition)
        leader.append(batch, produce_version=NEWEST_PRODUCE, acks=1, now_ms=now_ms)

    def log_of(self, topic: str, partition: int = 0) -> Log:
        return self.services.replicas.get(topic, partition).log

    def close(self) -> None:
        self.groups.close()
        self.transactions.close()
        self.services.logs.close()
        self.run(self.store.close())
        self.runner.close()


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """`@pytest.mark.moldau({...})` sets the broker's properties."""
    marker = request.node.get_closest_marker("moldau")
    made = World(marker.args[0] if marker is not None else {})
    yield made
    made.close()
