"""The cluster's metadata: an image kept in step with the store, and the operations that change it.

Law: the store is the only truth and the point of serialisation. An operation is one atomic `multi` that names the
versions it builds on; when it has happened, its outcome is put into the image at once, so that a broker sees its
own writes. What others change comes as watched paths, which are read again in `refresh`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from moldau.cluster import znodes
from moldau.cluster.image import NO_LEADER, BrokerInfo, ClusterImage, PartitionImage, TopicImage
from moldau.cluster.loader import MetadataReader
from moldau.cluster.store import (
    BadVersion,
    Check,
    Create,
    Delete,
    MetadataStore,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Put,
    StoreError,
    ensure_paths,
    subtree,
)
from moldau.cluster.topic_names import colliding_topic, validate_topic_name
from moldau.core.broker_config import validate_dynamic
from moldau.core.clock import Clock
from moldau.core.config import ConfigError
from moldau.core.invariants import invariant
from moldau.core.topic_config import validate_overrides
from moldau.protocol.errors import ApiError, ErrorCode

ImageListener = Callable[[ClusterImage, ClusterImage], None]
Configs = Mapping[str, str]
Alteration = Callable[[Configs], Configs]

PRODUCER_ID_BLOCK_SIZE = 1000
PRODUCER_ID_MAX = 2**63 - 1
NO_PRODUCER_IDS = Node(b"", 0, 0)
ATTEMPTS_MAX = 10
"""How often a change is tried again because somebody else changed the same node first."""


class Metadata:
    """One broker's view of the cluster and its hand on it. `load` comes first."""

    def __init__(
        self,
        store: MetadataStore,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
        on_stale: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_stale` is called when something changed behind our back: somebody should then run `refresh`."""
        self._store = store
        self._clock = clock
        self._random_bytes = random_bytes
        self._on_stale = on_stale
        self._image = ClusterImage()
        self._reader = MetadataReader(store)
        self._stale: set[str] = set()
        self._own_writes = 0
        self._listeners: list[ImageListener] = []
        self._controller_epoch = 0

    @property
    def image(self) -> ClusterImage:
        """What is known now."""
        return self._image

    def subscribe(self, listener: ImageListener) -> Callable[[], None]:
        """Call `listener(old, new)` after every change of the image. Returns what ends it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def load(self) -> None:
        """Make the tree where it is missing, watch it, read all of it."""
        await ensure_paths(self._store, znodes.PERSISTENT_PATHS)
        await self._ensure_cluster_id()
        for path in ("/brokers", "/config", znodes.CONTROLLER):
            self._store.watch(path, self._note_change)
        self._publish(await self._reader.read_all())
        self._controller_epoch = await self._reader.read_controller_epoch()

    async def refresh(self) -> None:
        """Read again what others have changed."""
        while self._stale:
            stale, self._stale = self._stale, set()
            self._publish(await self._reader.read_changed(self._image, stale))

    async def create_topic(
        self,
        name: str,
        assignment: Sequence[Sequence[int]],
        configs: Configs | None = None,
        topic_id: bytes | None = None,
    ) -> TopicImage:
        """Create a topic with the replicas of each partition as assigned; raises ApiError."""
        configs = dict(configs or {})
        self.check_new_topic(name, configs)
        partitions = tuple(self._first_state(replicas) for replicas in assignment)
        topic = TopicImage(name, topic_id or self.new_id(), partitions, configs)
        operations: list[Operation] = [
            Create(znodes.topic_path(name), znodes.topic_json(topic.topic_id, assignment)),
            Create(f"{znodes.topic_path(name)}/partitions"),
            *self._create_partitions(name, 0, partitions),
            *await self._replace_config(znodes.topic_config_path(name), configs),
        ]
        try:
            await self._write(operations)
        except NodeExists:
            await self._reread(znodes.topic_path(name))
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} exists already") from None
        self._reader.note_topic(name, 0)
        self._publish(self._image.with_topic(topic))
        return topic

    def check_new_topic(self, name: str, configs: Configs) -> None:
        """What `create_topic` checks first; also for requests that only want to know. Raises ApiError."""
        validate_topic_name(name)
        if name in self._image.topics:
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} exists already")
        other = colliding_topic(name, self._image.topics)
        if other is not None:
            raise ApiError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r} and the existing {other!r} look the same in metrics"
            )
        check_topic_configs(configs)

    async def delete_topic(self, name: str) -> None:
        """Forget a topic and its configuration; raises ApiError. The logs are the brokers' to delete."""
        self._topic(name)
        try:
            paths = await subtree(self._store, znodes.topic_path(name))
            config = znodes.topic_config_path(name)
            has_config = await self._store.get(config) is not None
            await self._write([*map(Delete, paths), *([Delete(config)] if has_config else [])])
        except (NoNode, NotEmpty):
            await self._conflict(znodes.topic_path(name))
        self._reader.forget_topic(name)
        self._publish(self._image.without_topic(name))

    async def add_partitions(self, name: str, assignment: Sequence[Sequence[int]]) -> TopicImage:
        """Append partitions with these replicas; raises ApiError."""
        topic = self._topic(name)
        added = tuple(self._first_state(replicas) for replicas in assignment)
        replicas = [*(partition.replicas for partition in topic.partitions), *assignment]
        path, version = znodes.topic_path(name), self._reader.topic_version(name)
        operations = [
            Put(path, znodes.topic_json(topic.topic_id, replicas), version),
            *self._create_partitions(name, len(topic.partitions), added),
        ]
        try:
            await self._write(operations)
        except StoreError:
            await self._conflict(path)
        self._reader.note_topic(name, version + 1)
        return self._publish_topic(name, lambda now: now._replace(partitions=(*now.partitions, *added)))

    async def update_partition(self, name: str, index: int, changed: PartitionImage) -> PartitionImage:
        """Replace a partition's leader and ISR, expecting `changed.partition_epoch`; returns it with the new one.

        Raises INVALID_UPDATE_VERSION if somebody else was first: the image then shows what they wrote.
        """
        path = znodes.state_path(name, index)
        data = znodes.state_json(changed, self._controller_epoch)
        try:
            await self._write([Put(path, data, changed.partition_epoch)])
        except (BadVersion, NoNode):
            await self._reread(znodes.topic_path(name))
            raise ApiError(ErrorCode.INVALID_UPDATE_VERSION, f"{name}-{index} was changed by another") from None
        written = changed._replace(partition_epoch=changed.partition_epoch + 1)
        self._publish_topic(name, lambda now: now.with_partition(index, written))
        return written

    async def set_topic_configs(self, name: str, configs: Configs) -> None:
        """Replace all of a topic's own configuration; raises ApiError."""
        await self.alter_topic_configs(name, lambda _old: configs)

    async def alter_topic_configs(self, name: str, alter: Alteration) -> None:
        """Replace a topic's configuration by what `alter` makes of it; called again when another was first."""
        self._topic(name)
        path = znodes.topic_config_path(name)
        new = await self._alter_config(path, alter, check_topic_configs, Check(znodes.topic_path(name)))
        self._publish_topic(name, lambda now: now._replace(configs=new))

    async def set_broker_configs(self, entity: str, configs: Configs) -> None:
        """Replace the dynamic configuration of a broker (its id as text) or of the whole cluster ("")."""
        await self.alter_broker_configs(entity, lambda _old: configs)

    async def alter_broker_configs(self, entity: str, alter: Alteration) -> None:
        """As `alter_topic_configs`; raises ApiError INVALID_REQUEST for what cannot change, as Kafka does."""
        path = znodes.broker_config_path(entity)
        new = await self._alter_config(path, alter, lambda configs: check_broker_configs(entity, configs), None)
        self._publish(self._image.with_broker_configs(entity, new))

    async def register_broker(self, broker: BrokerInfo) -> BrokerInfo:
        """Say that a broker is alive, for as long as the store's session lasts; returns it with its epoch."""
        path = znodes.broker_path(broker.id)
        try:
            await self._write([Create(path, znodes.broker_json(broker, self._clock.now_ms()), ephemeral=True)])
        except NodeExists:
            raise ApiError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, f"a broker {broker.id} is alive already") from None
        node = await self._store.get(path)
        registered = broker._replace(epoch=node.created if node else -1)
        self._publish(self._image.with_broker(registered))
        return registered

    async def claim_controller(self, broker_id: int) -> bool:
        """Become the controller unless there is one; a new controller has a new epoch."""
        path = znodes.CONTROLLER_EPOCH
        node = await self._store.get(path)
        epoch = int(node.data) + 1 if node else 1
        data = str(epoch).encode()
        claim = Create(znodes.CONTROLLER, znodes.controller_json(broker_id, self._clock.now_ms()), ephemeral=True)
        try:
            await self._write([claim, Put(path, data, node.version) if node else Create(path, data)])
        except (NodeExists, BadVersion):
            await self._reread(znodes.CONTROLLER)
            return False
        self._controller_epoch = epoch
        self._publish(self._image._replace(controller_id=broker_id))
        return True

    async def generate_broker_id(self, reserved_max: int) -> int:
        """A number above `reserved_max` that no broker has been given before."""
        return reserved_max + await self._store.put(znodes.BROKER_SEQUENCE, b"")

    async def next_producer_id_block(self, broker_id: int) -> range:
        """The next thousand producer ids, this broker's alone."""
        for _attempt in range(ATTEMPTS_MAX):
            node = await self._store.get(znodes.PRODUCER_IDS) or NO_PRODUCER_IDS
            start = znodes.parse_producer_ids(node.data).stop
            invariant(start <= PRODUCER_ID_MAX - PRODUCER_ID_BLOCK_SIZE, "all producer ids have been given out")
            block = range(start, start + PRODUCER_ID_BLOCK_SIZE)
            try:
                await self._store.put(znodes.PRODUCER_IDS, znodes.producer_ids_json(broker_id, block), node.version)
            except BadVersion:
                continue
            return block
        raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "too many brokers want producer ids at once")

    async def skip_producer_ids(self, broker_id: int, next_id: int) -> None:
        """Give out no producer id below `next_id`, because somebody else did before there was this store."""
        if next_id > 0:
            end = -(-next_id // PRODUCER_ID_BLOCK_SIZE) * PRODUCER_ID_BLOCK_SIZE
            await self._store.put(znodes.PRODUCER_IDS, znodes.producer_ids_json(broker_id, range(end)))

    def new_id(self) -> bytes:
        """A random version-4 UUID whose text does not begin with '-': tools would take it for an option."""
        while True:
            raw = bytearray(self._random_bytes(16))
            raw[6] = raw[6] & 0x0F | 0x40
            raw[8] = raw[8] & 0x3F | 0x80
            if not znodes.id_text(bytes(raw)).startswith("-"):
                return bytes(raw)

    async def _ensure_cluster_id(self) -> None:
        if await self._store.get(znodes.CLUSTER_ID) is None:
            data = znodes.cluster_id_json(znodes.id_text(self.new_id()))
            try:
                await self._store.create(znodes.CLUSTER_ID, data)
            except NodeExists:
                return  # another broker was quicker: its id is the cluster's

    def _first_state(self, replicas: Sequence[int]) -> PartitionImage:
        """A new partition is led by the first replica that is alive; those that are not are out of sync."""
        alive = tuple(broker for broker in replicas if broker in self._image.brokers)
        leader = alive[0] if alive else NO_LEADER
        return PartitionImage(leader, 0, alive or tuple(replicas), tuple(replicas), 0)

    def _create_partitions(self, name: str, first: int, partitions: Sequence[PartitionImage]) -> list[Operation]:
        operations: list[Operation] = []
        for index, partition in enumerate(partitions, first):
            state = znodes.state_json(partition, self._controller_epoch)
            operations.append(Create(znodes.partition_path(name, index)))
            operations.append(Create(znodes.state_path(name, index), state))
        return operations

    async def _alter_config(
        self, path: str, alter: Alteration, check: Callable[[Configs], None], guard: Operation | None
    ) -> dict[str, str]:
        for _attempt in range(ATTEMPTS_MAX):
            node = await self._store.get(path)
            new = dict(alter(znodes.parse_config(node.data) if node else {}))
            check(new)
            data = znodes.config_json(new)
            change = Put(path, data, node.version) if node else Create(path, data)
            try:
                await self._write([guard, change] if guard else [change])
            except (BadVersion, NodeExists):
                continue
            except NoNode:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) from None
            return new
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"{path} is being changed by others all the time")

    async def _replace_config(self, path: str, configs: Configs) -> list[Operation]:
        """What leaves exactly `configs` at `path`: a topic's configuration may outlive it, or come before it."""
        node = await self._store.get(path)
        data = znodes.config_json(configs)
        return [Put(path, data, node.version) if node else Create(path, data)]

    async def _write(self, operations: Sequence[Operation]) -> None:
        """`multi`, without being told of our own changes as if they were somebody else's."""
        self._own_writes += 1
        try:
            await self._store.multi(operations)
            self._stale.difference_update(operation.path for operation in operations)
        finally:
            self._own_writes -= 1
            if self._stale and not self._own_writes:
                self._on_stale()

    def _note_change(self, path: str) -> None:
        self._stale.add(path)
        if not self._own_writes:
            self._on_stale()

    async def _reread(self, path: str) -> None:
        self._stale.add(path)
        await self.refresh()

    async def _conflict(self, path: str) -> NoReturn:
        """Somebody changed the topic first: catch up, and let the client try again if it is still there."""
        await self._reread(path)
        self._topic(path.removeprefix(f"{znodes.TOPICS}/"))
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"{path} was changed at the same time") from None

    def _topic(self, name: str) -> TopicImage:
        topic = self._image.topics.get(name)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        return topic

    def _publish_topic(self, name: str, change: Callable[[TopicImage], TopicImage]) -> TopicImage:
        """Change a topic in the image as it is now, which may be newer than when the operation began."""
        topic = change(self._topic(name))
        self._publish(self._image.with_topic(topic))
        return topic

    def _publish(self, image: ClusterImage) -> None:
        old, self._image = self._image, image
        if old != image:
            for listener in tuple(self._listeners):
                listener(old, image)


def check_topic_configs(configs: Configs) -> None:
    """Raise INVALID_CONFIG unless a topic can have this configuration."""
    try:
        validate_overrides(configs)
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None


def check_broker_configs(entity: str, configs: Configs) -> None:
    """Raise INVALID_REQUEST (Kafka's choice here) unless these can change at run time."""
    try:
        validate_dynamic(configs, for_one_broker=bool(entity))
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from None
