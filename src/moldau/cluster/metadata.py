"""The cluster's metadata: an image kept in step with the store, and the operations that change it.

Law: the store is the only truth and the point of serialisation. An operation is one atomic `multi` that names the
versions it builds on. Its effect is in the image when it returns, so that a broker sees its own writes: at once where a
version says which state is newer, by reading again where none does. Every changed path is read again sooner or later,
also a path that we wrote ourselves: another's write may hide behind the same notification. Nothing in the image goes
back.

Versions tell what has happened to a node, but not two nodes of one name apart: a topic that is deleted and made anew,
or a broker that is started anew, begins with version 0 again. So every deletion of a topic and every registration of a
broker also raises the version of one node (`znodes.SUCCESSIONS`), and an operation that relies on the meaning of a name
reads that version before, and names it in the `multi`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import NoReturn

from moldau.cluster import znodes
from moldau.cluster.admin_tree import AdminTree
from moldau.cluster.changes import (
    CHANGES_PER_MULTI_MAX,
    Change,
    StateChange,
    TopicChange,
    applied,
    chunks,
    operations,
    parents,
    partition_deletions,
    paths,
    topic_deletions,
    topic_of,
)
from moldau.cluster.config_checks import Configs, check_broker_configs, check_topic_configs
from moldau.cluster.controller import first_state
from moldau.cluster.features import NEWEST, Levels
from moldau.cluster.image import NO_TOPIC_ID, BrokerInfo, ClusterImage, PartitionImage, TopicImage
from moldau.cluster.image_listeners import ImageListener, ImageListeners
from moldau.cluster.loader import MetadataReader
from moldau.cluster.restorer import Restorer
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
    SessionLost,
    StoreUnavailable,
    ensure_paths,
    subtree,
)
from moldau.cluster.topic_names import colliding_topic, validate_topic_name
from moldau.core.clock import Clock
from moldau.core.invariants import invariant
from moldau.protocol.errors import ApiError, ErrorCode

Alteration = Callable[[Configs], Configs]

WATCHED_PATHS = ("/brokers", "/config", znodes.CONTROLLER, znodes.CONTROLLER_EPOCH, znodes.FEATURES)
PRODUCER_ID_BLOCK_SIZE = 1000
PRODUCER_ID_MAX = 2**63 - 1
NO_PRODUCER_IDS = Node(b"", 0, 0)
PARTITIONS_DELETED_AT_ONCE_MAX = 4000
"""Partitions in one transaction of a deletion, so that it stays below ZooKeeper's limit of 1 MiB."""
SUCCESSION = Put(znodes.SUCCESSIONS, b"")
NO_STARTS: Mapping[int, int] = {}
ATTEMPTS_MAX = 10
"""Attempts at a change when somebody else changes the same node first."""


class ListenerBehind(Exception):
    """Error: the image was read, and some listener could not follow it; it should be called again after a while."""


class Conflict(Exception):
    """Error: somebody else was first and nothing happened; the image shows the present state."""


class Metadata:
    """One broker's view of the cluster, and its operations on it. `load` comes first."""

    def __init__(
        self,
        store: MetadataStore,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
        on_stale: Callable[[], None] = lambda: None,
    ) -> None:
        """Make the metadata; `on_stale` is called when something has changed: then `catch_up` should run. It is called
        once until that has run."""
        self._store = store
        self._clock = clock
        self._random_bytes = random_bytes
        self._on_stale = on_stale
        self._image = ClusterImage()
        self._reader = MetadataReader(store)
        self._admin = AdminTree(store)
        self._restorer = Restorer(store, self._reread)
        self._reading = asyncio.Lock()
        self._stale: set[str] = set()
        self._is_reported = False
        self._listeners = ImageListeners()
        self._all_follow = True
        self._controller_version = -1
        self.images_taken = 0

    @property
    def image(self) -> ClusterImage:
        """The image as it is known now."""
        return self._image

    @property
    def admin(self) -> AdminTree:
        """Requests of tools that write to the store."""
        return self._admin

    @property
    def restorer(self) -> Restorer:
        """The restorer, which writes nodes again that cannot be understood."""
        return self._restorer

    def exists(self, topic: str, index: int) -> bool:
        """Whether the cluster has this partition, wherever it is."""
        return self._image.partition(topic, index) is not None

    def name_of(self, topic_id: bytes) -> str | None:
        """The name of the topic that has this id (KIP-516)."""
        return self._image.topic_names_by_id.get(topic_id)

    def subscribe(self, listener: ImageListener) -> Callable[[], None]:
        """Call `listener(old, new)` after every change of the image. Returns a function that ends this."""
        return self._listeners.subscribe(listener, self._image)

    async def load(self) -> None:
        """Make the tree where it is missing, watch it, read all of it."""
        await ensure_paths(self._store, znodes.PERSISTENT_PATHS)
        await self._ensure_cluster_id()
        await self._ensure_features()
        for path in WATCHED_PATHS:
            self._store.watch(path, self._note_change)
        await self.reload()

    async def reload(self) -> None:
        """Read everything, as at the start or after a lost session."""
        async with self._reading:
            stale, self._stale, self._is_reported = self._stale, set(), False
            with self._kept(stale):
                delta = await self._reader.read_all(self._image)
            self._publish(delta(self._image))

    async def refresh(self) -> None:
        """Read changed paths again; returns when every path that was stale at the call has been read."""
        async with self._reading:
            while self._stale:
                stale, self._stale, self._is_reported = self._stale, set(), False
                with self._kept(stale):
                    delta = await self._reader.read_changed(self._image, stale)
                self._publish(delta(self._image))

    async def catch_up(self) -> None:
        """Refresh, and call listeners again that could not follow the image before; raises ListenerBehind."""
        await self.refresh()
        if not self._all_follow:
            self._is_reported = False
            self._all_follow = self._listeners.bring_to(self._image)
            if not self._all_follow:
                raise ListenerBehind

    async def write(
        self,
        changes: Sequence[Change],
        guards: Sequence[Operation] = (),
        starts: Mapping[int, int] = NO_STARTS,
    ) -> None:
        """Write all of `changes` or none; `guards` are checked with them, and that each of the brokers `starts` is
        registered with its epoch. The image shows them before this returns.

        Raises Conflict, or SessionLost and StoreUnavailable: then nobody knows yet whether it happened.
        """
        registered = [Check(znodes.broker_path(broker)) for broker in sorted(starts)]
        touched = [*(guard.path for guard in (*guards, *registered)), *paths(changes)]

        async def prepare() -> list[Operation]:
            await self._check_topic_ids(changes)
            await self._check_starts(starts)
            made = await self._missing(parents(changes))
            written = operations(changes, self._image.controller_epoch)
            return [*guards, *registered, *map(Create, made), *written]

        try:
            with self._kept(touched):
                await self._fenced(prepare)
        except (BadVersion, NoNode, NodeExists, Conflict) as error:
            await self._reread(*touched)
            raise Conflict(str(error)) from None
        self._publish(applied(self._image, changes))

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
        partitions = tuple(znodes.NO_STATE._replace(replicas=tuple(replicas)) for replicas in assignment)
        topic = TopicImage(name, topic_id or self.new_id(), partitions, configs)
        path = znodes.topic_path(name)
        with self._reachable(path):
            try:
                await self._store.multi(
                    [
                        Create(path, znodes.topic_json(topic.topic_id, partitions)),
                        Create(znodes.partitions_path(name), znodes.topic_json(topic.topic_id, partitions)),
                        *self._create_partitions(topic, range(min(len(partitions), CHANGES_PER_MULTI_MAX))),
                        *await self._replace_config(znodes.topic_config_path(name), configs),
                    ]
                )
            except (NodeExists, BadVersion):
                await self._reread(path)
                raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} exists already") from None
            await self._reread(path)
            await self._complete_states(name, topic.topic_id)
        return self._topic(name)

    def check_new_topic(self, name: str, configs: Configs) -> None:
        """Make the first checks of `create_topic`; also for requests that only validate. Raises ApiError."""
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
        """Delete a topic and its configuration; raises ApiError. The brokers delete the logs."""
        topic = self._topic(name)
        path, config = znodes.topic_path(name), znodes.topic_config_path(name)
        with self._reachable(path):
            configs = [Delete(config)] if await self._store.get(config) is not None else []
            try:
                await self._check_topic_ids([TopicChange(topic)])
                if len(topic.partitions) > PARTITIONS_DELETED_AT_ONCE_MAX:
                    topic = await self._emptied(topic)
                await self._store.multi([SUCCESSION, *topic_deletions(topic), *configs])
            except Conflict:
                await self._conflict(path)
            except (NoNode, NotEmpty, BadVersion):  # the image is behind: look at what is there
                await self._delete_tree(path, configs)
            await self._reread(path)

    async def add_partitions(self, name: str, assignment: Sequence[Sequence[int]]) -> TopicImage:
        """Append partitions with these replicas; raises ApiError."""
        topic = self._topic(name)
        known = len(topic.partitions)
        added = (znodes.NO_STATE._replace(replicas=tuple(replicas)) for replicas in assignment)
        grown = topic._replace(partitions=(*topic.partitions, *added))
        last = min(len(grown.partitions), known + CHANGES_PER_MULTI_MAX)
        path = znodes.topic_path(name)
        with self._reachable(path):

            async def prepare() -> list[Operation]:
                await self._check_topic_ids([TopicChange(topic)])
                data = znodes.topic_json(topic.topic_id, grown.partitions)
                return [
                    Put(path, data, topic.version),
                    Put(znodes.partitions_path(name), data),
                    *self._create_partitions(grown, range(known, last)),
                ]

            try:
                await self._fenced(prepare)
            except (BadVersion, NoNode, NodeExists, Conflict):
                await self._conflict(path)
            await self._reread(path)
            await self._complete_states(name, topic.topic_id)
        return self._topic(name)

    async def give_topic_id(self, topic: TopicImage) -> None:
        """Complete the node of a topic that a tool from before KIP-516 wrote: with the topic's id, or with a new one if
        it never had any. As controller; raises as `write`."""
        path, beside = znodes.topic_path(topic.name), znodes.partitions_path(topic.name)
        topic_id = topic.topic_id if topic.topic_id != NO_TOPIC_ID else self.new_id()
        data = znodes.topic_json(topic_id, topic.partitions)
        try:
            with self._kept([path]):
                keep = Create(beside, data) if await self._missing([beside]) else Put(beside, data)
                await self._store.multi([self.controller_guard(), Put(path, data, topic.version), keep])
        except (BadVersion, NoNode, NodeExists) as error:
            await self._reread(path, znodes.CONTROLLER)
            raise Conflict(str(error)) from None
        await self._reread(path)

    async def keep_topics(self) -> None:
        """Write a copy of every topic beside its node, where it is missing: an earlier version wrote none."""
        topics = [topic for topic in self._image.topics.values() if topic.topic_id != NO_TOPIC_ID]
        for some in chunks(topics, CHANGES_PER_MULTI_MAX):
            nodes = await self._store.get_many([znodes.partitions_path(topic.name) for topic in some])
            for topic, node in zip(some, nodes, strict=True):
                if node is not None and znodes.parse_kept_topic(node.data) is None:
                    with suppress(BadVersion, NoNode):  # the topic goes, or another notes it
                        data = znodes.topic_json(topic.topic_id, topic.partitions)
                        await self._store.put(znodes.partitions_path(topic.name), data, node.version)

    async def update_partition(self, name: str, index: int, changed: PartitionImage) -> PartitionImage:
        """Replace a partition's leader and ISR, expecting `changed.partition_epoch`; returns it with the new one.

        Raises INVALID_UPDATE_VERSION if somebody else was first: the image then shows what they wrote.
        """
        with self._reachable(znodes.state_path(name, index)):
            try:
                await self.write([StateChange(name, self._topic(name).topic_id, index, changed)])
            except Conflict:
                raise ApiError(ErrorCode.INVALID_UPDATE_VERSION, f"{name}-{index} was changed by another") from None
        return changed._replace(partition_epoch=changed.partition_epoch + 1)

    async def set_topic_configs(self, name: str, configs: Configs) -> None:
        """Replace all of a topic's own configuration; raises ApiError."""
        await self.alter_topic_configs(name, lambda _old: configs)

    async def alter_topic_configs(self, name: str, alter: Alteration) -> None:
        """Replace a topic's configuration by the result of `alter`; it is called again when another change was
        first."""
        self._topic(name)
        await self._alter_config(
            znodes.topic_config_path(name), alter, check_topic_configs, Check(znodes.topic_path(name))
        )

    async def set_broker_configs(self, entity: str, configs: Configs) -> None:
        """Replace the dynamic configuration of a broker (its id as text) or of the whole cluster ("")."""
        await self.alter_broker_configs(entity, lambda _old: configs)

    async def alter_broker_configs(self, entity: str, alter: Alteration) -> None:
        """Replace a broker's dynamic configuration by the result of `alter`; raises INVALID_REQUEST for a setting that
        cannot change, as Kafka does."""
        await self._alter_config(
            znodes.broker_config_path(entity), alter, lambda configs: check_broker_configs(entity, configs), None
        )

    async def alter_group_configs(self, group: str, alter: Alteration) -> None:
        """Replace a group's configuration by the result of `alter`, which also checks: the limits are a broker's."""
        await self._alter_config(znodes.group_config_path(group), alter, lambda _configs: None, None)

    async def alter_client_metrics(self, name: str, alter: Alteration) -> None:
        """Replace a subscription to clients' metrics by the result of `alter`, which also checks."""
        await self._alter_config(znodes.client_metrics_config_path(name), alter, lambda _configs: None, None)

    async def alter_features(self, alter: Callable[[Levels], Levels]) -> None:
        """Replace the finalized features by what `alter` makes of them; called again when another was first."""
        with self._reachable(znodes.FEATURES):
            for _attempt in range(ATTEMPTS_MAX):
                node = await self._store.get(znodes.FEATURES)
                old = _features_at(node, self._image.features)
                new = alter(old)
                if new == old:
                    return None
                data = znodes.features_json(new)
                try:
                    if node is None:
                        await self._store.create(znodes.FEATURES, data)
                    else:
                        await self._store.put(znodes.FEATURES, data, node.version)
                except (BadVersion, NodeExists, NoNode):
                    continue
                return await self._reread(znodes.FEATURES)
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "the features are being changed by others all the time")

    async def register_broker(self, broker: BrokerInfo) -> BrokerInfo:
        """Register a broker as alive, for as long as the store's session lasts; returns it with its epoch."""
        path = znodes.broker_path(broker.id)
        try:
            data = znodes.broker_json(broker, self._clock.now_ms())
            await self._store.multi([SUCCESSION, Create(path, data, ephemeral=True)])
        except NodeExists:
            raise ApiError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, f"a broker {broker.id} is alive already") from None
        await self._reread(path)
        return self._image.brokers.get(broker.id, broker)

    async def update_registration(self, broker: BrokerInfo) -> None:
        """Change the registration of a broker; raises NoNode if it is not registered any more."""
        path = znodes.broker_path(broker.id)
        await self._store.put(path, znodes.broker_json(broker, self._clock.now_ms()))
        await self._reread(path)

    async def claim_controller(self, broker_id: int) -> bool:
        """Become the controller unless another is; a new controller has a new epoch."""
        epoch, owner = await self._store.get_many([znodes.CONTROLLER_EPOCH, znodes.CONTROLLER])
        try:
            is_ours = owner is not None and znodes.parse_controller(owner.data) == broker_id
        except znodes.MalformedNode:
            is_ours = False
        data = znodes.controller_json(broker_id, self._clock.now_ms())
        next_epoch = str(znodes.parse_controller_epoch(epoch.data) + 1 if epoch else 1).encode()
        claim = [
            Put(znodes.CONTROLLER, data) if is_ours else Create(znodes.CONTROLLER, data, ephemeral=True),
            Put(znodes.CONTROLLER_EPOCH, next_epoch, epoch.version)
            if epoch
            else Create(znodes.CONTROLLER_EPOCH, next_epoch),
        ]
        try:
            await self._store.multi(claim)
        except (NodeExists, BadVersion, NoNode):
            await self._reread(znodes.CONTROLLER)
            return False
        self._controller_version = epoch.version + 1 if epoch else 0
        await self._reread(znodes.CONTROLLER)
        return True

    def controller_guard(self) -> Check:
        """A check that refuses a write once there is a later controller than the one that we claimed to be."""
        return Check(znodes.CONTROLLER_EPOCH, self._controller_version)

    async def resign_controller(self) -> None:
        """Let another broker be the controller at once, rather than when our session ends."""
        try:
            await self._store.multi([self.controller_guard(), Delete(znodes.CONTROLLER)])
        except (BadVersion, NoNode):
            return  # another is, already

    async def topic_id_now(self, names: Sequence[str]) -> dict[str, bytes]:
        """The ids of the topics that exist, as the store has them now; the image shows them when this returns. A topic
        that was deleted and made anew has partitions of the same versions as before: only the id is different."""
        now, topics = await self._reader.topic_ids(names, self._image), self._image.topics
        known = {name: topics[name].topic_id for name in names if name in topics}
        if now != known:
            await self._reread(*(znodes.topic_path(name) for name in names if now.get(name) != known.get(name)))
        return now

    async def generate_broker_id(self, reserved_max: int) -> int:
        """A number above `reserved_max` that no broker has been given before."""
        return reserved_max + await self._store.put(znodes.BROKER_SEQUENCE, b"")

    async def next_producer_id_block(self, broker_id: int) -> range:
        """The next thousand producer ids, this broker's alone."""
        with self._reachable():
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
        """Give out no producer id below `next_id`: ids below it were given out before there was this store."""
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
            data = znodes.cluster_id_json(znodes.id_text(self.new_id()), znodes.id_text(self.new_id()))
            try:
                await self._store.create(znodes.CLUSTER_ID, data)
            except NodeExists:
                return  # another broker was quicker: its id is the cluster's

    async def _ensure_features(self) -> None:
        if await self._store.get(znodes.FEATURES) is None:
            with suppress(NodeExists):  # another broker was quicker
                await self._store.create(znodes.FEATURES, znodes.features_json(NEWEST))

    def _create_partitions(self, topic: TopicImage, indexes: Iterable[int]) -> list[Operation]:
        made: list[Operation] = []
        for index in indexes:
            state = first_state(self._image, topic.name, index, topic.partitions[index])
            data = znodes.state_json(state, self._image.controller_epoch)
            made.append(Create(znodes.partition_path(topic.name, index)))
            made.append(Create(znodes.state_path(topic.name, index), data))
        return made

    async def _complete_states(self, name: str, topic_id: bytes) -> None:
        """Give a state to the partitions that did not fit into the first `multi`, unless the controller is quicker."""
        for attempt in range(ATTEMPTS_MAX * ATTEMPTS_MAX):
            if attempt:
                await asyncio.sleep(0)  # the embedded store's writes are on the loop
            topic = self._image.topics.get(name)
            if topic is None or topic.topic_id != topic_id:
                return
            missing = [index for index, state in enumerate(topic.partitions) if state.partition_epoch < 0]
            if not missing:
                return
            changes = [
                StateChange(name, topic_id, index, first_state(self._image, name, index, topic.partitions[index]))
                for index in missing[:CHANGES_PER_MULTI_MAX]
            ]
            try:
                await self.write(changes)
            except Conflict:
                continue

    async def _check_topic_ids(self, changes: Iterable[Change]) -> None:
        planned_for = dict(map(topic_of, changes))
        if await self.topic_id_now(sorted(planned_for)) != planned_for:
            raise Conflict("a topic has been deleted since")

    async def _check_starts(self, starts: Mapping[int, int]) -> None:
        nodes = await self._store.get_many([znodes.broker_path(broker) for broker in starts]) if starts else []
        for node, (broker, epoch) in zip(nodes, starts.items(), strict=True):
            if node is None or node.created != epoch:
                raise Conflict(f"broker {broker} is not at epoch {epoch} any more")

    async def _fenced(self, prepare: Callable[[], Awaitable[Sequence[Operation]]]) -> None:
        """Run the operations of `prepare`, which reads the meaning of names, if it is still the same then; otherwise
        ask it again."""
        for _attempt in range(ATTEMPTS_MAX):
            before = await self._store.get(znodes.SUCCESSIONS)
            prepared = await prepare()
            try:
                fence = Check(znodes.SUCCESSIONS, before.version if before else None)
                await self._store.multi([fence, *prepared])
            except BadVersion as error:
                if error.path != znodes.SUCCESSIONS:
                    raise
            else:
                return
        raise Conflict("topics are deleted and brokers registered all the time")

    async def _missing(self, wanted: Sequence[str]) -> list[str]:
        nodes = await self._store.get_many(wanted) if wanted else []
        return [path for path, node in zip(wanted, nodes, strict=True) if node is None]

    async def _emptied(self, topic: TopicImage) -> TopicImage:
        """Remove the partitions of a topic that is too large for one step; first its list, or the controller would make
        their states anew."""
        empty = topic._replace(partitions=(), version=topic.version + 1)
        await self._store.put(znodes.topic_path(topic.name), znodes.topic_json(topic.topic_id, ()), topic.version)
        for some in chunks(partition_deletions(topic), 2 * CHANGES_PER_MULTI_MAX):
            await self._store.multi(some)
            await asyncio.sleep(0)
        return empty

    async def _delete_tree(self, path: str, configs: Sequence[Operation]) -> None:
        try:
            await self._store.multi([SUCCESSION, *map(Delete, await subtree(self._store, path)), *configs])
        except (NoNode, NotEmpty):
            await self._conflict(path)

    async def _alter_config(
        self, path: str, alter: Alteration, check: Callable[[Configs], None], guard: Operation | None
    ) -> None:
        with self._reachable(path):
            for _attempt in range(ATTEMPTS_MAX):
                node = await self._store.get(path)
                new = dict(alter(_settings_at(node)))
                check(new)
                data = znodes.config_json(new)
                change = Put(path, data, node.version) if node else Create(path, data)
                try:
                    await self._store.multi([guard, change] if guard else [change])
                except (BadVersion, NodeExists):
                    continue
                except NoNode:
                    raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) from None
                return await self._reread(path)
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"{path} is being changed by others all the time")

    async def _replace_config(self, path: str, configs: Configs) -> list[Operation]:
        """Operations that leave exactly `configs` at `path`: a topic's configuration may outlive it, or come before
        it."""
        node = await self._store.get(path)
        data = znodes.config_json(configs)
        return [Put(path, data, node.version) if node else Create(path, data)]

    def _note_change(self, path: str) -> None:
        self._stale.add(path)
        self._report_stale()

    def _report_stale(self) -> None:
        if not self._is_reported:
            self._is_reported = True
            self._on_stale()

    @contextmanager
    def _kept(self, touched: Iterable[str]) -> Iterator[None]:
        """Keep paths stale that could not be read, or that may or may not have been written."""
        try:
            yield
        except BaseException as error:
            self._stale.update(touched)
            if isinstance(error, StoreUnavailable):  # after a lost session everything is read anew
                self._report_stale()
            raise

    async def _reread(self, *stale: str) -> None:
        self._stale.update(stale)
        await self.refresh()

    @contextmanager
    def _reachable(self, *touched: str) -> Iterator[None]:
        """Turn errors of the store inside the block into one that a client may retry; `touched` shows whether the
        change happened."""
        try:
            with self._kept(touched):
                yield
        except (SessionLost, StoreUnavailable):
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "the metadata store cannot be reached") from None

    async def _conflict(self, path: str) -> NoReturn:
        """Catch up after somebody changed the topic first, and let the client try again if it is still there."""
        await self._reread(path)
        self._topic(path.removeprefix(f"{znodes.TOPICS}/"))
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"{path} was changed at the same time") from None

    def _topic(self, name: str) -> TopicImage:
        topic = self._image.topics.get(name)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        return topic

    def _publish(self, image: ClusterImage) -> None:
        old = self._image
        if old is not image and old != image:
            self._image = image
            self.images_taken += 1
            self._all_follow = self._listeners.bring_to(image)
            if not self._all_follow:
                self._report_stale()


def _settings_at(node: Node | None) -> Configs:
    """Settings of a node that is about to be replaced; none if it cannot be understood."""
    try:
        return znodes.parse_config(node.data) if node else {}
    except znodes.MalformedNode:
        return {}


def _features_at(node: Node | None, known: Levels) -> Levels:
    """Features of a node that is about to be replaced; what is known where it cannot be understood."""
    try:
        return znodes.parse_features(node.data) if node else {}
    except znodes.MalformedNode:
        return known
