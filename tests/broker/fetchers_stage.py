"""Fetchers with logs in memory, and a leader for tests to play."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import uvloop

from moldau.broker.fetchers import Fetchers
from moldau.cluster.image import BrokerInfo, ClusterImage, Endpoint, PartitionImage, TopicImage
from moldau.core.broker_config import BrokerConfig
from moldau.core.clock import SystemClock
from moldau.core.ids import TopicPartition
from moldau.core.memory_files import MemoryFiles
from moldau.core.topic_config import TopicConfig
from moldau.log.log import Log
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.messages.k01_fetch import PartitionData
from moldau.replication.durability import Durability, OnSynced
from moldau.replication.follower import FollowedPartition
from moldau.replication.throttle import Throttle
from moldau.requests.parts import Parts
from tests.broker.fake_leader import PATIENCE_S, FakeLeader
from tests.log.helpers import append, batch

OWN_ID = 1
LEADER_ID = 2
TOPIC = "events"
TOPIC_ID = bytes(range(16))
PARTITIONS = 50
EVERY_BYTE = 1 << 30

Story = Callable[["Stage"], Coroutine[Any, Any, None]]


async def until(condition: Callable[[], object]) -> None:
    """Let the loop go on until it is so."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "it did not come to that"
        await asyncio.sleep(0.001)


async def turns() -> None:
    """Long enough for whatever does not wait for a clock, over a socket and back."""
    for _ in range(100):
        await asyncio.sleep(0)


class ManualCommitter:
    """Syncs when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Sequence[Log], OnSynced]] = []

    def commit(self, logs: Sequence[Log], then: OnSynced) -> None:
        self.waiting.append((tuple(logs), then))

    def is_last(self, log: Log, then: OnSynced) -> bool:
        return bool(self.waiting) and self.waiting[-1] == ((log,), then)

    def sync(self, number: int = 0) -> None:
        """Those logs of a wait that can be synced are."""
        logs, then = self.waiting.pop(number)
        failed = []
        for log in logs:
            try:
                log.sync()
            except ApiError:
                failed.append(log)
        then(frozenset(failed))

    def refuse(self) -> None:
        """No descriptor is left for the oldest wait, say; the logs are as they were."""
        logs, then = self.waiting.pop(0)
        then(frozenset(logs))


class Stage:
    """Fetchers with logs in memory, and a leader to play."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.leader = FakeLeader()
        self._properties = properties
        self.files = MemoryFiles()
        self.committer = ManualCommitter()
        self.leader_logs: dict[int, Log] = {}

    async def enter(self) -> None:
        port = await self.leader.start()
        defaults = {"replica.fetch.backoff.ms": "80", "log.flush.policy": "os"}
        config, unknown = BrokerConfig.parse({**defaults, **self._properties})
        assert not unknown
        clock = SystemClock()
        brokers = {OWN_ID: broker(OWN_ID, 1, epoch=5), LEADER_ID: broker(LEADER_ID, port, epoch=6)}
        image = ClusterImage(brokers=brokers).with_topic(topic_image((LEADER_ID, OWN_ID), ""))
        self.parts = cast(
            Parts,
            SimpleNamespace(
                broker_id=OWN_ID,
                config=config,
                clock=clock,
                metadata=SimpleNamespace(image=image),
                follower_throttle=Throttle(clock, config.optional_int("follower.replication.throttled.rate")),
                durability=Durability(config.string("log.flush.policy"), self.committer),
            ),
        )
        self.fetchers = Fetchers(asyncio.get_running_loop(), self.parts)

    async def leave(self) -> None:
        await self.fetchers.close()
        await self.leader.stop()

    @property
    def image(self) -> ClusterImage:
        return self.parts.metadata.image

    def add_topic(self, isr: tuple[int, ...], throttled: str = "") -> None:
        """Our partitions as the cluster knows them."""
        self.publish(self.image.with_topic(topic_image(isr, throttled)))

    def publish(self, image: ClusterImage) -> None:
        old, self.parts.metadata.image = self.image, image  # type: ignore[misc]  # not the real one
        self.fetchers.image_changed(old, image)

    def partition(
        self, index: int = 0, *, epoch: int = 3, log: Log | None = None, directory: str = "/data"
    ) -> FollowedPartition:
        name = TopicPartition(TOPIC, index)
        opened = log or Log.open(self.files, SystemClock(), f"{directory}/{name}", name, TopicConfig())
        return FollowedPartition(TOPIC_ID, opened, LEADER_ID, epoch, 0)

    def follow(
        self, index: int = 0, *, epoch: int = 3, log: Log | None = None, directory: str = "/data"
    ) -> FollowedPartition:
        followed = self.partition(index, epoch=epoch, log=log, directory=directory)
        self.fetchers.follow(followed)
        return followed

    async def established(self, *indexes: int) -> list[FollowedPartition]:
        """Partitions whose first, empty answer has come; the next request is on its way."""
        followed = [self.follow(index) for index in indexes or (0,)]
        first = await self.leader.asked()
        first.answer_fetch(TOPIC_ID)
        return followed


def broker(broker_id: int, port: int, epoch: int) -> BrokerInfo:
    return BrokerInfo(broker_id, None, (Endpoint("PLAINTEXT", "127.0.0.1", port, "PLAINTEXT"),), epoch)


def play(story: Story, **properties: str) -> None:
    named = {name.replace("_", "."): value for name, value in properties.items()}

    async def run() -> None:
        stage = Stage(named)
        await stage.enter()
        try:
            await story(stage)
        finally:
            await stage.leave()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def written(*values: bytes, first_offset: int = 0, epoch: int = 0) -> bytes:
    """Batches of one record each, as a leader sends them."""
    log = Log.open(MemoryFiles(), SystemClock(), "/data/x-0", TopicPartition("x", 0), TopicConfig())
    if first_offset:
        log.truncate_fully_and_start_at(first_offset)
    for value in values:
        append(log, batch(value), epoch)
    region = log.read(first_offset, EVERY_BYTE, log.log_end_offset)
    assert region is not None
    return region.read()


def data(
    records: bytes = b"", index: int = 0, high_watermark: int = 0, error: ErrorCode = ErrorCode.NONE
) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=error,
        high_watermark=high_watermark,
        log_start_offset=0,
        records=records,
    )


# The course of things


def topic_image(isr: tuple[int, ...], throttled: str) -> TopicImage:
    states = (PartitionImage(LEADER_ID, 3, isr, (LEADER_ID, OWN_ID)),) * PARTITIONS
    return TopicImage(TOPIC, TOPIC_ID, states, {"follower.replication.throttled.replicas": throttled})
