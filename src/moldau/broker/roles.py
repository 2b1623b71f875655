"""Keeps what the broker has in step with the image: partitions it leads or follows, their logs, their configuration.

Law: a change of role happens within one turn of the loop, and first of all the old role ends: fetching is stopped
before a log is led, and a partition resigns before its log is fetched into. Nothing here waits. A state with a lower
leader epoch than ours is old news and changes nothing.

One partition's error is its own: the others follow the image, and that one is tried again. A partition that broke a
promise of ours is stopped: it has no usable log here from then on, and another replica leads.
"""

import logging
from collections.abc import Callable, Iterable
from functools import partial

from moldau.broker import state_changes
from moldau.broker.fetchers import Fetchers
from moldau.broker.log_maker import LogMaker
from moldau.cluster.image import NO_LEADER, NO_TOPIC_ID, ClusterImage, PartitionImage, TopicImage
from moldau.core.ids import TopicPartition
from moldau.core.invariants import InvariantError
from moldau.core.topic_config import TopicConfig
from moldau.log.log import Log
from moldau.log.manager import RefusedForNow
from moldau.protocol.errors import ApiError
from moldau.replication.follower import FollowedPartition
from moldau.replication.partition import IsrChanges, Partition
from moldau.replication.replica import Replica
from moldau.requests.parts import Parts

log = logging.getLogger(__name__)

WHOLE_CLUSTER = ""
NO_STATE_YET = -1


class NotFollowed(Exception):
    """Some partitions could not be brought to what the image says."""


class Roles:
    """Listens to the image."""

    def __init__(
        self,
        parts: Parts,
        fetchers: Fetchers | None = None,
        isr_changes: IsrChanges | None = None,
        on_offline: Callable[[list[TopicPartition]], None] = lambda _: None,
        on_late: Callable[[TopicPartition], None] = lambda _: None,
    ) -> None:
        """`on_offline` is told of partitions that have no usable log here, `on_late` of those whose turn to be
        made, or deleted, came after their image. Without `fetchers` nothing is fetched."""
        self._parts = parts
        self._fetchers = fetchers
        self._isr_changes = isr_changes
        self._on_offline = on_offline
        self._on_late = on_late
        self._offline: set[TopicPartition] = set()
        self._failed: set[TopicPartition] = set()
        self._log_maker = LogMaker(self._settle)
        self.may_lead = True

    async def made(self) -> None:
        """Returns when every log that the image wants here is made."""
        await self._log_maker.made()

    def image_changed(self, old: ClusterImage, new: ClusterImage) -> None:
        """Apply the difference, and what could not be applied before; raises NotFollowed, when all else is done."""
        is_configured = old.broker_configs is new.broker_configs or self._broker_configs_changed(new)
        if old.topics is new.topics and not self._failed and is_configured:
            return
        before, failed = frozenset(self._offline), self._failed
        self._failed = set()
        self._log_maker.begin()
        for name, topic in old.topics.items():
            if not topic.is_still(new.topics.get(name)):
                self._topic_gone(topic)
        for name, topic in new.topics.items():
            known = old.topics.get(name)
            if known is not topic:
                self._topic_changed(topic, known)
        for topic_partition in failed - self._failed:
            self._try_again(new, topic_partition)
        self._tell_offline(before)
        if self._failed or not is_configured:
            raise NotFollowed(f"{len(self._failed)} partitions")

    def apply_all(self, image: ClusterImage) -> None:
        """Take up every partition as the image says, whatever was done before."""
        before = frozenset(self._offline)
        self._log_maker.begin()
        for topic in image.topics.values():
            self._topic_changed(topic, None)
        self._tell_offline(before)

    def resign_all(self) -> None:
        """Lead nothing from now on, until `may_lead` is set again: others may lead already."""
        self.may_lead = False
        for led in self._parts.replicas.led():
            self._begin_to_follow(
                FollowedPartition(led.topic_id, led.log, NO_LEADER, led.leader_epoch, led.high_watermark)
            )

    def directory_failed(self, partitions: Iterable[TopicPartition]) -> None:
        """Take partitions offline whose logs cannot be used any more."""
        before = frozenset(self._offline)
        for topic_partition in partitions:
            self._take_offline(topic_partition)
        self._tell_offline(before)

    def back_online(self, image: ClusterImage, partitions: Iterable[TopicPartition]) -> None:
        """Take partitions up again that may have logs here; missing logs are made."""
        for topic_partition in partitions:
            self._offline.discard(topic_partition)
            self._try_again(image, topic_partition)

    # Configuration

    def _broker_configs_changed(self, image: ClusterImage) -> bool:
        """Whether this broker could take its new configuration."""
        try:
            self._configure_broker(image)
        except Exception:
            log.exception("the new configuration of the broker could not be applied; it is tried again")
            return False
        return True

    def _configure_broker(self, image: ClusterImage) -> None:
        parts = self._parts
        default = image.broker_configs.get(WHOLE_CLUSTER, {})
        own = image.broker_configs.get(str(parts.broker_id), {})
        parts.dynamic_config.take(default, own)
        parts.leader_throttle.configure(parts.config.optional_int("leader.replication.throttled.rate"))
        parts.follower_throttle.configure(parts.config.optional_int("follower.replication.throttled.rate"))
        for topic in image.topics.values():
            self._configure(topic)

    def _configure(self, topic: TopicImage) -> None:
        config = TopicConfig.of(self._parts.config, topic.configs)
        for index in range(len(topic.partitions)):
            replica = self._parts.replicas.replica(topic.name, index)
            if replica is not None:
                self._apart(TopicPartition(topic.name, index), partial(replica.configure, config))

    # One partition's error is its own

    def _apart(self, topic_partition: TopicPartition, work: Callable[[], None]) -> None:
        try:
            work()
        except InvariantError as error:
            there = self._parts.logs.get(topic_partition)
            if there is not None:
                there.stop(error)
            self._take_offline(topic_partition)
        except RefusedForNow as error:
            log.warning("%s; it is tried again", error.message)
            self._failed.add(topic_partition)
        except Exception:
            log.exception("%s could not apply its new state; it is tried again", topic_partition)
            self._failed.add(topic_partition)

    def _try_again(self, image: ClusterImage, topic_partition: TopicPartition) -> None:
        name, index = topic_partition
        topic = image.topics.get(name)
        if topic is not None and index < len(topic.partitions):
            self._apart(topic_partition, partial(self._apply, topic, index, topic.partitions[index]))
            self._configure(topic)

    # Topics

    def _topic_gone(self, topic: TopicImage) -> None:
        for index in range(len(topic.partitions)):
            topic_partition = TopicPartition(topic.name, index)
            there = self._parts.logs.get(topic_partition)
            if there is None or there.topic_id in (None, topic.topic_id):  # not of a topic that came in its place
                delete = self._delete if there is None or self._log_maker.is_now(topic_partition) else self._let_go
                self._apart(topic_partition, partial(delete, topic_partition))

    def _topic_changed(self, topic: TopicImage, before: TopicImage | None) -> None:
        known = before.partitions if before is not None and before.topic_id == topic.topic_id else ()
        for index, state in enumerate(topic.partitions):
            if index >= len(known) or known[index] is not state:
                self._apart(TopicPartition(topic.name, index), partial(self._apply, topic, index, state))
        if before is None or before.configs is not topic.configs or len(known) != len(topic.partitions):
            self._configure(topic)

    def _apply(self, topic: TopicImage, index: int, state: PartitionImage) -> None:
        parts, topic_partition = self._parts, TopicPartition(topic.name, index)
        if parts.broker_id not in state.replicas:
            self._delete(topic_partition)
            return
        replica = parts.replicas.replica(topic.name, index)
        if state.leader_epoch == NO_STATE_YET or (replica is not None and state.leader_epoch < replica.leader_epoch):
            return
        if not self._is_ready(topic, topic_partition):
            return
        opened = self._log_of(topic, topic_partition)
        if opened is None:
            self._take_offline(topic_partition)
        elif state.leader == parts.broker_id and self.may_lead:
            self._lead(topic, opened, state, replica)
        else:
            self._follow(topic, opened, state, replica)

    def _is_ready(self, topic: TopicImage, topic_partition: TopicPartition) -> bool:
        """Whether its log is there, or may be made now; not one that waits to be deleted."""
        there = self._parts.logs.get(topic_partition)
        if there is not None and topic_partition in self._log_maker and not _may_be_of(topic, there):
            self._delete(topic_partition)
            there = None
        return there is not None or self._log_maker.is_now(topic_partition)

    def _settle(self, topic_partition: TopicPartition) -> None:
        """Do what the image says of a partition that had to wait."""
        image, before = self._parts.metadata.image, frozenset(self._offline)
        name, index = topic_partition
        topic = image.topics.get(name)
        there = self._parts.logs.get(topic_partition)
        if topic is None or index >= len(topic.partitions) or (there and not _may_be_of(topic, there)):
            self._apart(topic_partition, partial(self._delete, topic_partition))
        if topic is not None and index < len(topic.partitions):
            self._apart(topic_partition, partial(self._apply, topic, index, topic.partitions[index]))
        self._tell_offline(before)
        self._apart(topic_partition, partial(self._on_late, topic_partition))

    # Roles

    def _lead(self, topic: TopicImage, opened: Log, state: PartitionImage, replica: Replica | None) -> None:
        is_same = replica is not None and replica.topic_id == topic.topic_id
        if is_same and isinstance(replica, Partition) and replica.leader_epoch == state.leader_epoch:
            replica.update(state.isr, state.replicas, state.partition_epoch)
            return
        self._stop_fetching(opened.topic_partition)
        partition = Partition(
            topic.topic_id,
            opened,
            state.leader_epoch,
            state.isr,
            broker_id=self._parts.broker_id,
            replicas=state.replicas,
            partition_epoch=state.partition_epoch,
            high_watermark=self._high_watermark(opened.topic_partition, replica),
            isr_changes=self._isr_changes,
            clock=self._parts.clock,
        )
        self._parts.replicas.lead(partition)
        state_changes.leads(self._parts.broker_id, opened.topic_partition, state.leader_epoch)

    def _follow(self, topic: TopicImage, opened: Log, state: PartitionImage, replica: Replica | None) -> None:
        leader = NO_LEADER if state.leader == self._parts.broker_id else state.leader
        if not (
            isinstance(replica, FollowedPartition)
            and replica.topic_id == topic.topic_id
            and replica.leader_id == leader
            and replica.leader_epoch == state.leader_epoch
        ):
            high_watermark = self._high_watermark(opened.topic_partition, replica)
            followed = FollowedPartition(topic.topic_id, opened, leader, state.leader_epoch, high_watermark)
            self._begin_to_follow(followed)

    def _begin_to_follow(self, followed: FollowedPartition) -> None:
        self._stop_fetching(followed.topic_partition)
        self._parts.replicas.follow(followed)
        broker_id, partition = self._parts.broker_id, followed.topic_partition
        state_changes.follows(broker_id, partition, followed.leader_id, followed.leader_epoch)
        if self._fetchers is not None and followed.leader_id != NO_LEADER:
            self._fetchers.follow(followed)

    def _high_watermark(self, topic_partition: TopicPartition, replica: Replica | None) -> int:
        """High watermark that this broker knew last; the checkpoint is only for the first role after a start."""
        if replica is not None:
            return replica.high_watermark
        return self._parts.logs.checkpointed_high_watermark(topic_partition)

    def _stop_fetching(self, topic_partition: TopicPartition) -> None:
        if self._fetchers is not None:
            self._fetchers.stop(topic_partition)

    # Logs

    def _log_of(self, topic: TopicImage, topic_partition: TopicPartition) -> Log | None:
        """Log of a partition; None if it cannot be used."""
        if topic_partition in self._offline:
            return None
        try:
            opened = self._parts.logs.get_or_create(topic_partition, topic.topic_id)
        except RefusedForNow:
            raise  # it is tried again
        except ApiError as error:
            log.error("%s cannot be used: %s", topic_partition, error.message)
            return None
        return opened if opened.failure is None else None

    def _delete(self, topic_partition: TopicPartition) -> None:
        if self._parts.logs.get(topic_partition) is not None:
            self._stop_fetching(topic_partition)
            self._parts.replicas.remove(*topic_partition)
            self._parts.logs.delete(topic_partition)
        self._offline.discard(topic_partition)

    def _let_go(self, topic_partition: TopicPartition) -> None:
        """Lead and follow a partition no more; its log is deleted later."""
        self._stop_fetching(topic_partition)
        self._parts.replicas.remove(*topic_partition)

    def _take_offline(self, topic_partition: TopicPartition) -> None:
        self._stop_fetching(topic_partition)
        self._parts.replicas.remove(*topic_partition)
        self._offline.add(topic_partition)

    def _tell_offline(self, before: frozenset[TopicPartition]) -> None:
        lost = self._offline - before
        if lost:
            self._on_offline(sorted(lost))


def _may_be_of(topic: TopicImage, there: Log) -> bool:
    """Whether a log may be of a topic: it is, or was made when the topic had no id."""
    return there.topic_id in (None, NO_TOPIC_ID, topic.topic_id)
