"""The group coordinator of a broker: a shard for each partition of `__consumer_offsets` that it leads."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from moldau.broker.shard_states import State
from moldau.cluster.image import ClusterImage
from moldau.cluster.placement import place_new_topic
from moldau.cluster.topic_names import OFFSETS_TOPIC
from moldau.coordinators.key_partition import partition_of
from moldau.coordinators.matching_allowance import MatchingAllowance
from moldau.handlers.context import Services
from moldau.handlers.offsets_topic import offsets_replication_factor, offsets_topic_configs
from moldau.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:  # imported by a thread behind the start, which is 40 ms shorter so
    from moldau.broker.shard_runtime import ShardRuntime
    from moldau.coordinators.group_shard import GroupShard
    from moldau.coordinators.outcome import Decision
    from moldau.coordinators.promise import Promise

log = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")


class GroupCoordinator:
    """Implements `handlers.groups_access.GroupsAccess`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, services: Services, new_uuid: Callable[[], bytes]) -> None:
        self._loop = loop
        self._services = services
        self._new_uuid = new_uuid
        self._hosts: dict[int, ShardRuntime] = {}
        self._to_load: deque[ShardRuntime] = deque()
        self._loading: asyncio.Task[None] | None = None
        self._matching = MatchingAllowance()

    # For handlers

    def answer(
        self, group_id: str, decide: "Callable[[GroupShard], Decision[T]]", refused: Callable[[ApiError], R]
    ) -> "T | R | Promise[T | R]":
        try:
            host = self._host_of(group_id)
        except ApiError as error:
            return refused(error)
        return host.answer(decide, refused)

    def read(self, group_id: str, query: "Callable[[GroupShard], T]") -> T:
        return query(self._host_of(group_id).shard)

    def shards(self) -> "Iterable[GroupShard]":
        return [_active(host).shard for host in self._hosts.values() if host.state is not State.FAILED]

    @property
    def has_topic(self) -> bool:
        return OFFSETS_TOPIC in self._services.metadata.image.topics

    async def coordinator_of(self, group_id: str) -> int:
        await self.ensure_topic()
        topic = self._services.metadata.image.topics[OFFSETS_TOPIC]
        return topic.partitions[partition_of(group_id, len(topic.partitions))].leader

    async def ensure_topic(self) -> None:
        """Make the topic of the offsets at its first use."""
        metadata, config = self._services.metadata, self._services.config
        if self.has_topic:
            return
        assignment = place_new_topic(
            metadata.image.brokers,
            config.int("offsets.topic.num.partitions"),
            offsets_replication_factor(self._services),
            {},
            default_partitions=1,
            default_replication_factor=1,
            random_below=self._services.random.randrange,
        )
        try:
            await metadata.create_topic(OFFSETS_TOPIC, assignment, offsets_topic_configs(config))
        except ApiError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:  # another request was faster
                raise

    def _host_of(self, group_id: str) -> "ShardRuntime":
        topic = self._services.metadata.image.topics.get(OFFSETS_TOPIC)
        host = None if topic is None else self._hosts.get(partition_of(group_id, len(topic.partitions)))
        if host is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR, f"group {group_id!r} is not coordinated here")
        return _active(host)

    # Which shards are ours

    def image_changed(self, old: ClusterImage, new: ClusterImage) -> None:
        """Called after the partitions themselves have followed the image."""
        if old.topics is new.topics:
            return
        if old.topics.get(OFFSETS_TOPIC) is not new.topics.get(OFFSETS_TOPIC):
            self._follow(new)
        deleted = {
            name: topic.topic_id
            for name, topic in old.topics.items()
            if name not in new.topics or new.topics[name].topic_id != topic.topic_id
        }
        if deleted:
            for host in self._active_hosts():
                host.apply_in_parts(host.shard.offsets.topics_deleted(deleted))

    def _follow(self, image: ClusterImage) -> None:
        topic = image.topics.get(OFFSETS_TOPIC)
        led = {each.topic_partition.partition: each for each in self._services.replicas.of_topic(OFFSETS_TOPIC)}
        states = () if topic is None else topic.partitions
        ours = {index for index, state in enumerate(states) if state.leader == self._services.broker_id}
        for index in list(self._hosts):
            if index not in ours or led.get(index) is not self._hosts[index].partition:
                self._hosts.pop(index).close()
        for index in sorted(ours & led.keys() - self._hosts.keys()):
            self._start(index)

    def _start(self, index: int, *, is_cautious: bool = False) -> None:
        partition = self._services.replicas.get(OFFSETS_TOPIC, index)
        from moldau.broker.shard_runtime import ShardRuntime  # see above

        failed = partial(self._failed, index)
        host = ShardRuntime(
            self._loop,
            self._services,
            self._new_uuid,
            partition,
            failed,
            is_cautious=is_cautious,
            matching=self._matching,
        )
        self._hosts[index] = host
        if partition.log.log_start_offset == partition.log.log_end_offset:
            for _ in host.load_steps():
                pass  # there is nothing to read
            return
        self._to_load.append(host)
        if self._loading is None:
            self._loading = self._loop.create_task(self._load_all())

    async def _load_all(self) -> None:
        while self._to_load:
            await self._to_load.popleft().load()
        self._loading = None

    def _failed(self, index: int, host: "ShardRuntime", was_active: bool) -> None:
        """What is in memory cannot be trusted: start over from the log, once."""
        if was_active and self._hosts.get(index) is host:
            log.warning("%s is loaded again", host.partition.topic_partition)
            self._start(index, is_cautious=True)

    def _active_hosts(self) -> "list[ShardRuntime]":
        return [host for host in self._hosts.values() if host.state is State.ACTIVE]

    # What is done now and then

    def expire_offsets(self) -> None:
        """Offsets past their retention, and groups that have nothing left."""
        for host in self._active_hosts():
            host.apply_in_parts(host.shard.offsets.expire())

    def close(self) -> None:
        """Answer everybody who waits."""
        if self._loading is not None:
            self._loading.cancel()
        for host in self._hosts.values():
            host.close()


def _active(host: "ShardRuntime") -> "ShardRuntime":
    if host.state is State.ACTIVE:
        return host
    if host.state is State.LOADING:
        raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{host.partition.topic_partition} is being read")
    raise ApiError(ErrorCode.NOT_COORDINATOR, f"{host.partition.topic_partition} cannot be read")
