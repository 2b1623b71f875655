"""A cluster without sockets, threads and time of its own: all that happens is drawn from one seed.

Real: logs over files in memory, `Roles`, `Fetchers`, `IsrProposals`, the handlers of Produce, Fetch and ListOffsets,
the codec both ways, and the controller's decisions. Simulated: the event loop and its time, connections, and the store,
which is an image that changes at once and that brokers hear of late.
"""

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from random import Random
from typing import Any, cast

from moldau.broker import leader_fetcher
from moldau.broker.dispatch import Answer, Dispatcher, Peer
from moldau.broker.fetchers import Fetchers
from moldau.broker.isr_changes import IsrProposals
from moldau.broker.parts import make_parts, make_services
from moldau.broker.roles import Roles
from moldau.cluster.changes import Change, StateChange, applied
from moldau.cluster.controller import plan_return, reconcile
from moldau.cluster.image import BrokerInfo, ClusterImage, Endpoint, PartitionImage, TopicImage
from moldau.cluster.metadata import NO_STARTS, Conflict, Metadata
from moldau.cluster.store import SessionLost
from moldau.core.broker_config import BrokerConfig
from moldau.core.dynamic_config import DynamicConfig
from moldau.core.files import FileRegion
from moldau.core.ids import BrokerId, TopicPartition
from moldau.core.memory_files import MemoryFiles
from moldau.core.topic_config import TopicConfig
from moldau.log.log import Log
from moldau.log.manager import LogManager
from moldau.protocol import codec
from moldau.protocol.apis import request_type
from moldau.protocol.framing import SIZE_BYTES
from moldau.protocol.schema import Message
from moldau.replication.durability import Durability, OnSynced
from moldau.replication.replicas import Replicas
from moldau.requests import registry
from moldau.requests.context import RequestContext, Services
from moldau.requests.groups_access import GroupsAccess
from moldau.requests.opener import InlineOpener
from moldau.requests.parts import Parts
from moldau.requests.pending import PendingAnswer
from moldau.requests.transaction_verification import NoVerifier
from moldau.requests.transactions_access import TransactionsAccess
from moldau.testing.virtual_loop import VirtualLoop, virtual_loop

TOPIC = "t"
TOPIC_ID = b"0123456789abcdef"
LAG_MS = 3000
PROPERTIES = {
    "log.flush.policy": "os",
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": str(LAG_MS),
    "log.segment.bytes": "3000",
    "replica.fetch.max.bytes": "1500",
    "replica.fetch.response.max.bytes": "2500",
}

Then = Callable[[memoryview | None], None]


class LoopClock:
    """The loop's time."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        return 1_700_000_000_000 + self.monotonic_ms()

    def monotonic_ms(self) -> int:
        return int(self._loop.time() * 1000)


class Link:
    """One connection from a broker to another: bytes in order, answers in the order of the requests."""

    def __init__(self, cluster: "Cluster", source: int, target: int) -> None:
        self._cluster = cluster
        self.source, self.target = source, target
        self.is_open = True
        self._waiting: dict[int, Then] = {}
        self._answers: deque[Answer] = deque()
        self._dispatcher = Dispatcher(cluster.nodes[target].services)
        self._peer = Peer("PLAINTEXT")
        self._number = 0
        self._there_at = self._back_at = 0.0

    def send(self, key: int, version: int, body: bytes, then: Then) -> None:
        self._number += 1
        self._waiting[self._number] = then
        delay = self._cluster.delay()
        self._there_at = max(self._there_at, self._cluster.loop.time() + delay)
        self._cluster.loop.call_at(self._there_at, self._arrive, key, version, body, self._number)

    def _arrive(self, key: int, version: int, body: bytes, number: int) -> None:
        if not self.is_open:
            return
        if not self._cluster.can_talk(self.source, self.target):
            self.close()
            return
        answer = self._dispatcher.dispatch(memoryview(_header(key, version, number) + body), self._peer)
        self._answers.append(answer)
        if isinstance(answer, PendingAnswer):
            answer.when_done(lambda _: self._send_ready())
        self._send_ready()

    def _send_ready(self) -> None:
        while self._answers:
            answer = self._answers[0]
            chunks = answer.chunks if isinstance(answer, PendingAnswer) else answer
            if chunks is None:
                return
            self._answers.popleft()
            pieces = [chunks] if isinstance(chunks, bytes) else chunks
            frame = b"".join(each.read() if isinstance(each, FileRegion) else each for each in pieces)
            self._back_at = max(self._back_at, self._cluster.loop.time() + self._cluster.delay())
            self._cluster.loop.call_at(self._back_at, self._come_back, frame[SIZE_BYTES:])

    def _come_back(self, frame: bytes) -> None:
        if not self.is_open:
            return
        if not self._cluster.can_talk(self.source, self.target):
            self.close()
            return
        then = self._waiting.pop(int.from_bytes(frame[:4], "big"))
        then(memoryview(frame))

    def close(self) -> None:
        self.is_open = False
        self._cluster.links.discard(self)
        for answer in self._answers:
            if isinstance(answer, PendingAnswer):
                answer.cancel()
        self._answers.clear()
        waiting, self._waiting = self._waiting, {}
        for then in waiting.values():
            self._cluster.loop.call_soon(then, None)


def _header(key: int, version: int, number: int) -> bytes:
    """Of a request of a flexible version."""
    return struct.pack(">hhih", key, version, number, 3) + b"sim" + b"\0"


class SimulatedPeer:
    """Stands in for `PeerClient`."""

    cluster: "Cluster"

    def __init__(self, _loop: Any, endpoint: Endpoint, client_id: str, **_: Any) -> None:
        self.endpoint = endpoint
        self._source = int(client_id.split("-")[1])
        self._link: Link | None = None
        self._held: list[Callable[[], None]] | None = None

    def send(self, message: Message, version: int, timeout_ms: int, then: Then) -> None:
        self.send_encoded(message.api_key, version, codec.encode(message, version), timeout_ms, then)

    def send_encoded(self, api_key: int, version: int, body: bytes, _timeout_ms: int, then: Then) -> None:
        if self._link is None or not self._link.is_open:
            self._link = Link(self.cluster, self._source, self.endpoint.port)
            self.cluster.links.add(self._link)
        self._link.send(api_key, version, body, lambda frame: self._deliver(then, frame))

    def _deliver(self, then: Then, frame: memoryview | None) -> None:
        if self._held is None or frame is None:
            then(frame)
        else:
            self._held.append(lambda: then(frame))

    def pause(self) -> None:
        self._held = []

    def resume(self) -> None:
        held, self._held = self._held or [], None
        for deliver in held:
            deliver()

    def close(self) -> None:
        if self._link is not None:
            self._link.close()


class Store:
    """The truth. Everybody hears of a change, sooner or later."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self.image = ClusterImage(cluster_id="c")
        self.leaders: dict[tuple[TopicPartition, int], int] = {}
        self._sessions = 0

    def write(self, changes: Sequence[Change], starts: Mapping[int, int] = NO_STARTS) -> None:
        registered = {each: broker.epoch for each, broker in self.image.brokers.items()}
        if any(registered.get(broker) != epoch for broker, epoch in starts.items()):
            raise Conflict("a broker was started anew")
        for change in changes:
            assert isinstance(change, StateChange)
            if self.image.topics[change.topic].partitions[change.index].partition_epoch != change.state.partition_epoch:
                raise Conflict(change.topic)
        self._set(applied(self.image, changes))

    def register(self, broker_id: int) -> None:
        self._sessions += 1
        endpoints = (Endpoint("PLAINTEXT", "sim", broker_id, "PLAINTEXT"),)
        self._set(self.image.with_broker(BrokerInfo(broker_id, None, endpoints, self._sessions)))

    def expire(self, broker_id: int, epoch: int) -> None:
        """The session that had this epoch ends."""
        broker = self.image.brokers.get(broker_id)
        if broker is not None and broker.epoch == epoch:
            self._set(self.image.without_broker(broker_id))

    def create_topic(self, partitions: int, replicas: Sequence[int]) -> None:
        orders = [(*replicas[each % len(replicas) :], *replicas[: each % len(replicas)]) for each in range(partitions)]
        states = tuple(PartitionImage(order[0], 0, order, order, 0) for order in orders)
        self._set(self.image.with_topic(TopicImage(TOPIC, TOPIC_ID, states, {})))

    def _set(self, image: ClusterImage) -> None:
        self.image = image
        for topic in image.topics.values():
            for index, state in enumerate(topic.partitions):
                if state.leader >= 0:
                    key = TopicPartition(topic.name, index), state.leader_epoch
                    assert self.leaders.setdefault(key, state.leader) == state.leader, f"two leaders of {key}"
        self._cluster.store_changed()


class NodeMetadata:
    """A broker's view of the store, which is always a little old."""

    def __init__(self, node: "Node", image: ClusterImage) -> None:
        self._node = node
        self._listeners: list[Callable[[ClusterImage, ClusterImage], None]] = []
        self.image = image

    def subscribe(self, listener: Callable[[ClusterImage, ClusterImage], None]) -> None:
        self._listeners.append(listener)

    def publish(self, image: ClusterImage) -> None:
        old, self.image = self.image, image
        for listener in self._listeners:
            listener(old, image)

    async def write(self, changes: Sequence[Change], *, starts: Mapping[int, int]) -> None:
        cluster = self._node.cluster
        await cluster.sleep(cluster.store_delay())
        fate = cluster.random.random() if cluster.troubled else 1.0
        if not self._node.is_connected or fate < 0.1:
            raise SessionLost("before it was written")
        try:
            cluster.store.write(changes, starts)
        except Conflict:
            self.publish(cluster.store.image)
            raise
        await cluster.sleep(cluster.store_delay())
        if fate < 0.3:
            raise SessionLost("after it was written")
        if self._node.is_up:
            self.publish(applied(self.image, changes))

    async def topic_id_now(self, names: Sequence[str]) -> dict[str, bytes]:
        await self._node.cluster.sleep(0.0001)
        return dict.fromkeys(names, TOPIC_ID)


class Lookup:
    """What the image has."""

    def __init__(self, metadata: NodeMetadata) -> None:
        self._metadata = metadata

    def exists(self, topic: str, index: int) -> bool:
        return topic == TOPIC and index < len(self._metadata.image.topics[TOPIC].partitions)

    def name_of(self, topic_id: bytes) -> str | None:
        return self._metadata.image.topic_names_by_id.get(topic_id)


def _nothing_may_stop(partitions: list[TopicPartition]) -> None:
    raise AssertionError(f"{partitions} were stopped: disks do not fail here, so a promise of ours was broken")


class SlowDisk:
    """Syncs logs one after the other, each after a while."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self._free_at = 0.0
        self.has_power = True

    def commit(self, logs: Sequence[Log], then: OnSynced) -> None:
        loop = self._node.cluster.loop
        self._free_at = max(self._free_at, loop.time()) + self._node.cluster.delay()
        loop.call_at(self._free_at, self._sync, tuple(logs), then)

    def is_last(self, log: Log, then: OnSynced) -> bool:  # noqa: ARG002  each sync is of one write
        return False

    def _sync(self, logs: Sequence[Log], then: OnSynced) -> None:
        if self.has_power:
            for log in logs:
                log.sync()
            then(frozenset())


class Node:
    """One broker, over many starts."""

    def __init__(self, cluster: "Cluster", broker_id: int) -> None:
        self.cluster = cluster
        self.id = BrokerId(broker_id)
        self.files = MemoryFiles()
        self.is_up = False
        self.is_connected = False
        self._tasks: set[asyncio.Task[Any]] = set()
        self.services: Services
        self.parts: Parts
        self.metadata: NodeMetadata
        self.roles: Roles
        self.fetchers: Fetchers
        self.isr_changes: IsrProposals
        self.disk: SlowDisk
        self.is_wiped = False

    def start(self) -> None:
        cluster = self.cluster
        self.disk = SlowDisk(self)
        self.is_up = self.is_connected = True
        self.metadata = NodeMetadata(self, cluster.store.image)
        config, _ = BrokerConfig.parse(PROPERTIES)
        topic_config = TopicConfig.of(config, {})
        logs = LogManager(
            self.files,
            cluster.clock,
            ["/data"],
            config_of=lambda _: topic_config,
            new_uuid=lambda: cluster.random.randbytes(16),
        )
        self.parts = make_parts(
            broker_id=self.id,
            dynamic_config=DynamicConfig(config),
            clock=cluster.clock,
            scheduler=cluster.loop,
            metadata=cast(Metadata, self.metadata),
            replicas=Replicas(Lookup(self.metadata)),
            logs=logs,
            durability=Durability(cluster.policy, self.disk),
            random=Random(cluster.random.random()),
        )
        logs.lock()
        logs.claim(self.id, "c")
        logs.load()
        self.fetchers = Fetchers(cluster.loop, self.parts)
        self.isr_changes = IsrProposals(cluster.loop, self.parts)
        self.roles = Roles(self.parts, self.fetchers, self.isr_changes, _nothing_may_stop)
        self.services = make_services(
            self.parts,
            groups=cast(GroupsAccess, None),
            transactions=cast(TransactionsAccess, None),
            verifier=NoVerifier(),
            opener=InlineOpener(),
            logs_made=self.roles.made,
        )
        if not logs.was_clean:
            missing = [TopicPartition(TOPIC, index) for index in cluster.partitions]
            lost = [each for each in missing if self.is_wiped and logs.get(each) is None]
            cluster.store.write(plan_return(cluster.store.image, self.id, lost=lost))
            states = cluster.store.image.topics[TOPIC].partitions
            assert all(states[each.partition].isr != (self.id,) for each in lost), "it would be elected with nothing"
        cluster.store.register(self.id)
        self.metadata.image = ClusterImage()
        listeners = (
            self.parts.recent_brokers.note,
            self.parts.fetch_sessions.of_replicas.image_changed,
            self.roles.image_changed,
            self.isr_changes.image_changed,
            self.fetchers.image_changed,
        )
        for listener in listeners:
            self.metadata.subscribe(listener)
        self.metadata.publish(cluster.store.image)

    @property
    def session_epoch(self) -> int:
        broker = self.cluster.store.image.brokers.get(self.id)
        return -1 if broker is None else broker.epoch

    def catch_up(self) -> None:
        if self.is_up and self.is_connected and self.metadata.image is not self.cluster.store.image:
            self.metadata.publish(self.cluster.store.image)

    def end(self, *, clean: bool) -> None:
        """`kill -9`, or a stop; either way others hear of it later."""
        logs = self.services.logs
        self._end_roles()
        if clean:
            logs.close({each.topic_partition: each.high_watermark for each in self.services.replicas})
        else:
            for directory in logs.directories:
                directory.release()
        epoch = self.session_epoch
        self.cluster.loop.call_later(self.cluster.random.uniform(0, 1), self.cluster.store.expire, self.id, epoch)

    def lose_power(self, *, torn_bytes: int, wiped: bool) -> None:
        """What was not synced is gone, with `wiped` the disk too, and so are all sessions: it is one machine."""
        if self.is_up:
            self.end(clean=False)
        self.cluster.store.expire(self.id, self.session_epoch)
        self.disk.has_power, self.is_wiped = False, wiped
        if wiped:
            self.files = MemoryFiles()
        else:
            self.files.power_loss(torn_bytes)

    def _end_roles(self) -> None:
        self.is_up = self.is_connected = False
        self.cluster.drop_links(self.id)
        for task in self._tasks:
            task.cancel()
        self.cluster.run(self.fetchers.close())
        self.cluster.run(self.isr_changes.close())

    def lose_session(self) -> None:
        """The store may have given us up; it is about to."""
        if not self.is_connected:
            return
        self.is_connected = False
        self.isr_changes.session_changed(False)
        self.roles.resign_all()
        epoch = self.session_epoch
        self.cluster.loop.call_later(self.cluster.random.uniform(0, 0.5), self.cluster.store.expire, self.id, epoch)

    def regain_session(self) -> None:
        if not self.is_up or self.is_connected:
            return
        if self.session_epoch >= 0:
            self.cluster.store.expire(self.id, self.session_epoch)
        self.cluster.store.register(self.id)
        self.is_connected = True
        self.metadata.publish(self.cluster.store.image)
        self.roles.may_lead = True
        self.roles.apply_all(self.metadata.image)
        self.isr_changes.session_changed(True)

    def serve(self, key: int, version: int, body: bytes, then: Callable[[Any], object]) -> None:
        """Answer a request, unless the broker ends before."""
        if not self.is_up:
            return
        request = codec.decode(request_type(key), version, body)
        context = RequestContext(self.services, version, "sim", "PLAINTEXT", "sim")
        given = registry.handler(key)(request, context)
        if not isinstance(given, PendingAnswer):
            then(given)
            return

        async def wait(answer: PendingAnswer) -> None:
            then(await answer)

        task = self.cluster.loop.create_task(wait(given))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def log_of(self, index: int) -> Log:
        """The log as this broker has it, or had when it ended."""
        found = self.services.logs.get(TopicPartition(TOPIC, index))
        assert found is not None
        return found


class Cluster:
    """Three brokers and one topic."""

    def __init__(self, seed: int, partitions: int, monkeypatch: Any, policy: str = "os") -> None:
        """`policy` is `log.flush.policy`."""
        self.random = Random(seed)
        self.policy = policy
        self.loop = virtual_loop()
        self.clock = LoopClock(self.loop)
        self.troubled = False
        self.links: set[Link] = set()
        self.cuts: set[frozenset[int]] = set()
        self.delay_max = 0.005
        self.store = Store(self)
        self.nodes: dict[int, Node] = {}
        self.partitions = range(partitions)
        self._controller_is_due = False
        SimulatedPeer.cluster = self
        monkeypatch.setattr(leader_fetcher, "PeerClient", SimulatedPeer)
        for broker_id in (1, 2, 3):
            self.nodes[broker_id] = Node(self, broker_id)
        self.store.create_topic(partitions, [1, 2, 3])
        for node in self.nodes.values():
            node.start()
        self.loop.call_later(1, self._check_lag)

    def delay(self) -> float:
        return self.random.uniform(0.0001, self.delay_max)

    def store_delay(self) -> float:
        """Now and then it takes long to hear from the store."""
        return min(1.0, self.delay() * self.random.choice((1, 1, 1, 50)))

    async def sleep(self, delay: float) -> None:
        future = self.loop.create_future()
        timer = self.loop.call_later(delay, future.set_result, None)
        try:
            await future
        finally:
            timer.cancel()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self.loop.create_task(coroutine)

    def can_talk(self, one: int, other: int) -> bool:
        up = self.nodes[one].is_up and self.nodes[other].is_up
        return up and frozenset((one, other)) not in self.cuts

    def cut(self, one: int, other: int) -> None:
        self.cuts.add(frozenset((one, other)))

    def heal(self) -> None:
        self.cuts.clear()

    def drop_links(self, broker_id: int) -> None:
        for link in sorted(self.links, key=lambda each: (each.source, each.target)):
            if broker_id in (link.source, link.target):
                link.close()

    def store_changed(self) -> None:
        for node in self.nodes.values():
            self.loop.call_later(self.store_delay(), node.catch_up)
        if not self._controller_is_due:
            self._controller_is_due = True
            self.loop.call_later(self.delay(), self._control)

    def _control(self) -> None:
        self._controller_is_due = False
        changes = reconcile(self.store.image, self.store.image.topics.values(), lambda _: False)
        if changes:
            self.store.write(changes)

    def _check_lag(self) -> None:
        for node in self.nodes.values():
            if node.is_up and node.is_connected:
                node.isr_changes.check_lag()
        self.loop.call_later(1, self._check_lag)
