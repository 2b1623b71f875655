"""The coordinator of an internal topic on this broker: a shard for each partition that the broker leads.

It knows nothing of what is coordinated: that is in the shards. A second internal topic is a second type of shard.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Generic, TypeVar

from moldau.broker.shard_runtime import ShardRuntime, State
from moldau.cluster.image import ClusterImage, PartitionImage, TopicImage
from moldau.cluster.placement import place_new_topic
from moldau.coordinators.key_partition import partition_of
from moldau.coordinators.outcome import Decision
from moldau.coordinators.promise import Promise
from moldau.coordinators.shard import CoordinatorShard
from moldau.coordinators.timers import Timers
from moldau.coordinators.topic_settings import TopicSettings
from moldau.core.broker_config import BrokerConfig
from moldau.core.ids import TopicPartition
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.replication.partition import Partition
from moldau.requests.groups_access import TransactionalProducer, TransactionMarker
from moldau.requests.parts import Parts

log = logging.getLogger(__name__)

S = TypeVar("S", bound=CoordinatorShard)
T = TypeVar("T")
R = TypeVar("R")


class Coordinator(Generic[S]):
    """Finds the shard of a key, loads the shards that are ours, and lets them decide."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        parts: Parts,
        topic: str,
        settings: Callable[[BrokerConfig], TopicSettings],
        make_shard: Callable[[Timers], S],
    ) -> None:
        self._loop = loop
        self._parts = parts
        self._topic = topic
        self._settings_of = settings
        self._make_shard = make_shard
        self._settings_made = (parts.config, settings(parts.config))
        self._count_changed: str | None = None
        """Says that the topic has another number of partitions than when this broker began to coordinate."""
        self._shards: dict[int, ShardRuntime[S]] = {}
        self._to_load: deque[ShardRuntime[S]] = deque()
        self._loading: asyncio.Task[None] | None = None

    # For handlers

    def answer(
        self, key: str, decide: Callable[[S], Decision[T]], refused: Callable[[ApiError], R]
    ) -> T | R | Promise[T | R]:
        """Decide in the key's shard now, append, replay; the answer, at once or to come. `refused` makes one of an
        error, also of NOT_COORDINATOR and COORDINATOR_LOAD_IN_PROGRESS: this raises none.

        A decision without records is answered after all that was written to the shard before it is durable.
        """
        try:
            shard = self._shard_of(key)
        except ApiError as error:
            return refused(error)
        return shard.answer(decide, refused)

    def partition(self, key: str) -> Partition:
        """The partition that the key's shard is kept in. Raises ApiError."""
        return self._shard_of(key).partition

    def answer_in_transaction(
        self,
        key: str,
        producer: TransactionalProducer,
        decide: Callable[[S], Decision[T]],
        refused: Callable[[ApiError], R],
    ) -> T | R | Promise[T | R]:
        """Answer like `answer`, for records that count when the producer's transaction is committed."""
        try:
            shard = self._shard_of(key)
        except ApiError as error:
            return refused(error)
        return shard.answer_in_transaction(producer, decide, refused)

    def end_transaction(self, index: int, marker: TransactionMarker) -> int | Promise[int]:
        """Write a marker into a partition of the topic, and end the transaction in its shard; the error's code, 0 once
        the marker is durable."""
        shard = self._shards.get(index)
        if shard is None:
            topic = self._parts.metadata.image.topics.get(self._topic)
            is_there = topic is not None and 0 <= index < len(topic.partitions)
            return ErrorCode.NOT_COORDINATOR if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        try:
            return _active(shard).end_transaction(marker)
        except ApiError as error:
            return error.code

    def read(self, key: str, query: Callable[[S], T]) -> T:
        """Ask the key's shard at once: what is read may be a sync away from being durable. Raises ApiError."""
        return query(self._shard_of(key).shard)

    def shards(self) -> Iterable[S]:
        """All shards of this broker; raises COORDINATOR_LOAD_IN_PROGRESS while one is loading."""
        return [_active(shard).shard for shard in self._shards.values() if shard.state is not State.FAILED]

    def loaded_shards(self) -> list[S]:
        """The shards of this broker that are loaded."""
        return [each.shard for each in self._active_shards()]

    @property
    def has_topic(self) -> bool:
        """Whether the coordinator's topic exists."""
        return self._topic in self._parts.metadata.image.topics

    async def coordinator_of(self, key: str) -> int:
        """The id of the broker that coordinates the key; makes the coordinator's topic where it is missing."""
        await self.ensure_topic()
        self._check_count()
        topic = self._parts.metadata.image.topics[self._topic]
        return topic.partitions[partition_of(key, len(topic.partitions))].leader

    async def ensure_topic(self) -> None:
        """Make the coordinator's topic at its first use."""
        if self.has_topic:
            return
        metadata, settings = self._parts.metadata, self.settings()
        assignment = place_new_topic(
            metadata.image.brokers,
            settings.partitions,
            settings.replicas_among(metadata.image.brokers),
            {},
            default_partitions=1,
            default_replication_factor=1,
            random_below=self._parts.random.randrange,
        )
        try:
            await metadata.create_topic(self._topic, assignment, settings.configs)
        except ApiError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:  # another request was faster
                raise

    def settings(self) -> TopicSettings:
        """The settings of the topic as the broker is configured now."""
        config, settings = self._settings_made
        if config is not self._parts.config:
            config = self._parts.config
            settings = self._settings_of(config)
            self._settings_made = (config, settings)
        return settings

    def _check_count(self) -> None:
        if self._count_changed is not None:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, self._count_changed)

    def _shard_of(self, key: str) -> ShardRuntime[S]:
        self._check_count()
        topic = self._parts.metadata.image.topics.get(self._topic)
        index = -1 if topic is None else partition_of(key, len(topic.partitions))
        shard = self._shards.get(index)
        if shard is not None:
            return _active(shard)
        if topic is not None and self._is_to_come(index, topic.partitions[index]):
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{self._topic}-{index} is being made")
        raise ApiError(ErrorCode.NOT_COORDINATOR, f"{key!r} of {self._topic} is not coordinated here")

    def _is_to_come(self, index: int, state: PartitionImage) -> bool:
        """Whether a partition is to be led here, and its log is still to be made. Who would be sent to look for another
        coordinator would find none, and some clients look only once a minute."""
        is_made = self._parts.logs.get(TopicPartition(self._topic, index)) is not None
        return state.leader == self._parts.broker_id and not is_made

    # Which shards are ours

    def image_changed(self, old: ClusterImage, new: ClusterImage) -> None:
        """Called after the partitions themselves have followed the image."""
        if old.topics is new.topics:
            return
        before, now = old.topics.get(self._topic), new.topics.get(self._topic)
        if before is not now:
            self._compare_counts(before, now)
            self._take_over(new)
        deleted = {
            name: topic.topic_id for name, topic in old.topics.items() if not topic.is_still(new.topics.get(name))
        }
        if deleted:
            for each in self._active_shards():
                each.apply_in_parts(each.shard.topics_deleted(deleted))

    def taken_up(self, topic_partition: TopicPartition) -> None:
        """Start the shard of a partition whose log was made after the image had come that names us its leader."""
        if topic_partition.topic == self._topic:
            self._take_over(self._parts.metadata.image)

    def _compare_counts(self, before: TopicImage | None, now: TopicImage | None) -> None:
        """Coordinate nothing more once the topic has got more partitions: most keys would belong to another one, where
        nothing is known of them. Kafka goes on with the old number, until some broker starts and takes the new one."""
        if before is None or now is None or not before.is_still(now):
            self._count_changed = None
        elif len(before.partitions) != len(now.partitions):
            counts = f"{len(before.partitions)} to {len(now.partitions)} partitions"
            self._count_changed = f"{self._topic} went from {counts}: its keys have other partitions now"
            log.error("coordinator stopped: %s", self._count_changed)

    def _take_over(self, image: ClusterImage) -> None:
        """Close the shards that are ours no more, start those that became ours."""
        topic = None if self._count_changed is not None else image.topics.get(self._topic)
        led = {each.topic_partition.partition: each for each in self._parts.replicas.of_topic(self._topic)}
        states = () if topic is None else topic.partitions
        ours = {index for index, state in enumerate(states) if state.leader == self._parts.broker_id}
        for index in list(self._shards):
            if index not in ours or led.get(index) is not self._shards[index].partition:
                self._shards.pop(index).close()
        for index in sorted(ours & led.keys() - self._shards.keys()):
            self._start(index)

    def _start(self, index: int, *, is_cautious: bool = False) -> None:
        partition = self._parts.replicas.get(self._topic, index)
        shard = self._shards[index] = ShardRuntime(
            self._loop,
            self._parts.clock,
            self._parts.durability,
            self.settings,
            self._make_shard,
            partition,
            partial(self._failed, index),
            is_cautious=is_cautious,
        )
        if partition.log.log_start_offset == partition.log.log_end_offset:
            for _ in shard.load_steps():
                pass  # there is nothing to read
            return
        self._to_load.append(shard)
        if self._loading is None:
            self._loading = self._loop.create_task(self._load_all())

    async def _load_all(self) -> None:
        while self._to_load:
            await self._to_load.popleft().load()
        self._loading = None

    def _failed(self, index: int, shard: ShardRuntime[S], was_active: bool) -> None:
        """Load a shard again from its log, once: its state in memory cannot be trusted. Of a partition that is led here
        no more, as its directory failed in the same turn of the loop, the image will say so."""
        if not was_active or self._shards.get(index) is not shard:
            return
        if self._parts.replicas.find(self._topic, index) is None:
            del self._shards[index]
            return
        log.warning("%s: coordinator is loaded again from its log", shard.partition.topic_partition)
        self._start(index, is_cautious=True)

    def _active_shards(self) -> list[ShardRuntime[S]]:
        return [shard for shard in self._shards.values() if shard.state is State.ACTIVE]

    # What is done now and then

    def clean_up(self) -> None:
        """Let every shard do its background work."""
        for each in self._active_shards():
            each.apply_in_parts(each.shard.clean_up())

    def close(self) -> None:
        """Answer everybody who waits."""
        if self._loading is not None:
            self._loading.cancel()
        for shard in self._shards.values():
            shard.close()


def _active(shard: ShardRuntime[S]) -> ShardRuntime[S]:
    if shard.state is State.ACTIVE:
        return shard
    if shard.state is State.LOADING:
        raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{shard.partition.topic_partition} is being read")
    raise ApiError(ErrorCode.NOT_COORDINATOR, f"{shard.partition.topic_partition} cannot be read")
