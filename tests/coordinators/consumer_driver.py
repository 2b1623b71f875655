"""A consumer group in virtual time, and clients that do what consumers do between heartbeats."""

from collections.abc import Mapping

from moldau.cluster.image import ClusterImage, PartitionImage, TopicImage
from moldau.coordinators.consumer.group import ConsumerGroup
from moldau.coordinators.consumer.matching_allowance import MatchingAllowance
from moldau.coordinators.groups.group import Caller
from moldau.coordinators.groups.world import World
from moldau.coordinators.outcome import Outcome
from moldau.coordinators.records import CoordinatorRecord
from moldau.coordinators.timers import ManualTimers
from moldau.core.broker_config import BrokerConfig
from moldau.core.clock import ManualClock
from moldau.protocol.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

GROUP = "group"


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"\0")


def topic(name: str, partitions: int) -> TopicImage:
    return TopicImage(name, topic_id(name), (PartitionImage(1, 0, (1,), (1,)),) * partitions, {})


class ConsumerDriver:
    """`log` is what a broker would have on disk."""

    def __init__(self, topics: Mapping[str, int], properties: Mapping[str, str] | None = None) -> None:
        self.image = ClusterImage()
        self.set_topics(topics)
        self.clock = ManualClock()
        self.clock.advance(1_000_000)
        self.timers = ManualTimers(self.apply)
        self.config, _ = BrokerConfig.parse(dict(properties or {}))
        self.ids = 0
        self.log: list[CoordinatorRecord] = []
        self.group = ConsumerGroup(GROUP, self.world())

    def world(self) -> World:
        return World(
            self.clock, self.timers, lambda: self.config, lambda: self.image, self._new_uuid, MatchingAllowance()
        )

    def _new_uuid(self) -> bytes:
        self.ids += 1
        return self.ids.to_bytes(16, "big")

    def set_topics(self, topics: Mapping[str, int]) -> None:
        for name, partitions in topics.items():
            self.image = self.image.with_topic(topic(name, partitions))

    def apply(self, outcome: Outcome) -> None:
        for record in outcome.records:
            self.log.append(record)
            self.group.replay(record)
        outcome.committed(0)

    def send(self, version: int = 1, **fields: object) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest(group_id=GROUP, **fields)  # type: ignore[arg-type]  # as given
        outcome, promise = self.group.consumer_heartbeat(request, Caller(version, "client", "/host"))
        self.apply(outcome)
        return promise.value

    def pass_time(self, ms: int) -> None:
        self.clock.advance(ms)
        self.timers.advance(ms)

    def restart(self) -> None:
        """A new coordinator reads the log."""
        self.timers = ManualTimers(self.apply)
        self.group = ConsumerGroup(GROUP, self.world())
        for record in self.log:
            self.group.replay(record)
        self.group.on_loaded()

    def owners(self) -> dict[str, set[tuple[str, int]]]:
        names = self.image.topic_names_by_id
        return {
            member_id: {(names[each], partition) for each, partition in member.holds}
            for member_id, member in self.group.state.members.items()
        }


class Consumer:
    """A client that reconciles at once: it owns what it was told last."""

    def __init__(self, driver: ConsumerDriver, member_id: str, *topics: str, **fields: object) -> None:
        self.driver = driver
        self.member_id = member_id
        self.names: list[str] | None = list(topics)
        self.fields = fields
        self.epoch = 0
        self.owned: dict[bytes, list[int]] = {}

    def join(self) -> ConsumerGroupHeartbeatResponse:
        self.epoch, self.owned = 0, {}
        return self._sent(subscribed_topic_names=self.names, rebalance_timeout_ms=30_000, topic_partitions=[])

    def beat(self, **fields: object) -> ConsumerGroupHeartbeatResponse:
        owned = [TopicPartitions(topic_id=each, partitions=partitions) for each, partitions in self.owned.items()]
        return self._sent(**{"topic_partitions": owned, **fields})

    def leave(self, epoch: int = -1) -> ConsumerGroupHeartbeatResponse:
        self.epoch = epoch
        return self._sent()

    def _sent(self, **fields: object) -> ConsumerGroupHeartbeatResponse:
        sent = {"member_id": self.member_id, "member_epoch": self.epoch, **self.fields, **fields}
        response = self.driver.send(**sent)  # type: ignore[arg-type]  # fields of the request
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.owned = {each.topic_id: each.partitions for each in response.assignment.topic_partitions}
        return response

    @property
    def partitions(self) -> set[tuple[str, int]]:
        names = self.driver.image.topic_names_by_id
        return {(names[each], partition) for each, partitions in self.owned.items() for partition in partitions}


def settle(driver: ConsumerDriver, *consumers: Consumer, rounds: int = 6) -> None:
    """Heartbeats at their interval until nothing changes any more."""
    for _ in range(rounds):
        driver.pass_time(5_000)
        for consumer in consumers:
            consumer.beat()
