"""Whatever is written into the metadata tree, by tools of any era or by mistake, acknowledged records stay readable.

While brokers run, nodes are overwritten with forms that Kafka's tools write and with what nobody understands, and
brokers are stopped, killed and started again. While all brokers are down, a node of a partition, that of its topic or
both are lost. Only a topic that is deleted on purpose goes.
"""

import asyncio
import json
import os
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its stubs hide some

from moldau.cluster.embedded.store import EmbeddedStore
from moldau.cluster.image import NO_LEADER, ClusterImage
from moldau.cluster.store import MetadataStore, NodeExists, NoNode
from moldau.cluster.zookeeper.store import ZooKeeperStore
from moldau.testing.clusters import STORE_FILE, ClusterInThread
from tests.seeds import seed_of
from tests.zookeeper_ensemble import Ensemble

ROUNDS = int(os.environ.get("MOLDAU_WRITES_ROUNDS", "1"))
STEPS = 14
SESSION_TIMEOUT_MS = 2000
TOPIC = "t"
PATH = f"/brokers/topics/{TOPIC}"
MALFORMED = (b"", b"null", b"[]", b"{", b"\xff", b'{"version":1}', b'{"partitions":7}', b'{"leader":1}')
PROPERTIES = {"auto.create.topics.enable": "false", "replica.fetch.wait.max.ms": "50", "min.insync.replicas": "1"}
REQUESTS = ("/admin/preferred_replica_election", "/admin/reassign_partitions")


class Tree:
    """A cluster, its tree as a tool reaches it, and what was acknowledged."""

    def __init__(self, directory: Path, brokers: int, seed: int, zookeeper: str = "") -> None:
        """`zookeeper`: an address with a path of its own; without one the store is embedded."""
        self.rng = random.Random(seed)
        in_zookeeper = {
            "zookeeper.connect": zookeeper,
            "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
            "metadata.store.path": "",
        }
        self.cluster = ClusterInThread(directory, brokers, {**PROPERTIES, **(in_zookeeper if zookeeper else {})})
        self._path = str(directory / STORE_FILE)
        self._zookeeper = zookeeper
        self._partitions = 2
        self.acknowledged: list[str] = []

    @property
    def ids(self) -> list[int]:
        return list(self.cluster.brokers)

    def start(self) -> None:
        for number in self.ids:
            self.cluster.start(number)
        self.cluster.wait(lambda image: len(image.brokers) == len(self.ids) and image.controller_id != -1)
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap, "log_level": 0})
        for name in (TOPIC, "other"):
            admin.create_topics([NewTopic(name, self._partitions, len(self.ids))])[name].result(20)

    def close(self) -> None:
        for number in self.cluster.running:
            self.cluster.kill(number)

    # What tools write

    def _with_store(self, work: Callable[[MetadataStore], Awaitable[None]]) -> None:
        async def session() -> None:
            store: MetadataStore = (
                ZooKeeperStore(self._zookeeper, SESSION_TIMEOUT_MS)
                if self._zookeeper
                else EmbeddedStore(self._path, durable=False)
            )
            try:
                await work(store)
            finally:
                await store.close()

        asyncio.run(session())

    def put(self, path: str, data: bytes) -> None:
        async def work(store: MetadataStore) -> None:
            while True:
                with suppress(NoNode):
                    await store.put(path, data)
                    return
                with suppress(NodeExists):
                    await store.create(path, data)
                    return

        self._with_store(work)

    def state_path(self) -> str:
        return f"{PATH}/partitions/{self.rng.randrange(2)}/state"

    def old_form(self) -> None:
        """As tools from before 2.8 add partitions; or with replicas that are nowhere."""
        wanted = self.rng.randrange(1, 5)
        self._partitions = max(self._partitions, wanted)
        replicas = {str(index): self.rng.sample(self.ids, len(self.ids)) for index in range(wanted)}
        self.put(PATH, json.dumps({"version": 1, "partitions": replicas}).encode())

    def malformed_topic(self) -> None:
        self.put(PATH, self.rng.choice(MALFORMED))

    def malformed_state(self) -> None:
        self.put(self.state_path(), self.rng.choice(MALFORMED))

    def settings(self) -> None:
        settings = (b'{"version":1,"config":{"segment.bytes":100000,"strange":7}}', *MALFORMED)
        self.put(f"/config/topics/{TOPIC}", self.rng.choice(settings))

    def request(self) -> None:
        """An election, or a move that only changes the order of the replicas."""
        entries = [
            {"topic": TOPIC, "partition": index, "replicas": self.rng.sample(self.ids, len(self.ids))}
            for index in range(2)
        ]
        data = json.dumps({"version": 1, "partitions": entries}).encode()
        self.put(self.rng.choice(REQUESTS), self.rng.choice((data, data, *MALFORMED)))

    def deletion(self) -> None:
        self.put(f"/admin/delete_topics/{self.rng.choice(('other', 'nothing'))}", b"")

    def strange_nodes(self) -> None:
        path = self.rng.choice((f"{PATH}/partitions/x", "/brokers/topics/?", "/config/brokers/x", "/kafka-acl", "/x"))
        self.put(path, self.rng.choice(MALFORMED))

    # What happens to brokers

    def _stop(self, number: int) -> None:
        (self.cluster.stop if self.rng.randrange(2) else self.cluster.kill)(number)

    def restart(self) -> None:
        number = self.rng.choice(self.ids)
        if len(self.ids) == 1:
            self.led()
        self._stop(number)
        if self.rng.randrange(2):
            self.rng.choice((self.old_form, self.malformed_topic, self.malformed_state))()
        self.cluster.start(number)

    def lose_a_node_while_all_are_down(self) -> None:
        if len(self.ids) == 1:
            self.led()
        for number in self.rng.sample(self.ids, len(self.ids)):
            self._stop(number)
        for lose in self.rng.sample(
            (self.old_form, self.malformed_topic, self.malformed_state), self.rng.randint(1, 2)
        ):
            lose()
        for number in self.rng.sample(self.ids, len(self.ids)):
            self.cluster.start(number)

    # Records

    def led(self) -> ClusterImage:
        """Every partition has a leader, and every node is understood."""

        def is_led(image: ClusterImage) -> bool:
            topic = image.topics.get(TOPIC)
            return (
                topic is not None
                and not topic.lacks_id
                and not image.overwritten_states
                and all(state.leader != NO_LEADER for state in topic.partitions)
            )

        return self.cluster.wait(is_led)

    def produce(self) -> None:
        self.led()
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap, "acks": "all", "log_level": 0})

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self.acknowledged.append((message.value() or b"").decode())

        for number in range(20):
            value = f"{len(self.acknowledged)} {number}".encode()
            producer.produce(TOPIC, value, partition=self.rng.randrange(2), on_delivery=delivered)
        assert producer.flush(60) == 0

    def read(self) -> set[str]:
        image = self.led()
        places = [
            TopicPartition(TOPIC, index, OFFSET_BEGINNING) for index in range(len(image.topics[TOPIC].partitions))
        ]
        consumer = Consumer(
            {"bootstrap.servers": self.cluster.bootstrap, "group.id": "x", "enable.partition.eof": True, "log_level": 0}
        )
        consumer.assign(places)
        found: set[str] = set()
        ended = 0
        while ended < len(places):
            message = consumer.poll(30)
            assert message is not None, "a partition cannot be read"
            if message.error():
                ended += 1
            else:
                found.add((message.value() or b"").decode())
        consumer.close()
        return found


def any_writes(tree: Tree, count: int) -> None:
    steps = [
        *(tree.old_form, tree.malformed_topic, tree.malformed_state, tree.malformed_state, tree.settings),
        *(tree.request, tree.deletion, tree.strange_nodes, tree.produce, tree.restart),
        tree.lose_a_node_while_all_are_down,
    ]
    try:
        tree.start()
        tree.produce()
        for _ in range(count):
            tree.rng.choice(steps)()
        tree.lose_a_node_while_all_are_down()
        tree.produce()
        assert set(tree.acknowledged) <= tree.read()
    finally:
        tree.close()


@pytest.mark.parametrize("brokers", [1, 3])
def test_every_acknowledged_record_stays_readable(brokers: int, tmp_path: Path) -> None:
    for round_ in range(ROUNDS):
        any_writes(Tree(tmp_path / str(round_), brokers, seed_of(f"{brokers} {round_}")), STEPS)


@pytest.mark.foreign
def test_every_acknowledged_record_stays_readable_through_zookeeper(tmp_path: Path, zookeeper: Ensemble) -> None:
    for round_ in range(ROUNDS):
        address = f"{zookeeper.connect}/writes-{tmp_path.name}-{round_}"
        any_writes(Tree(tmp_path / str(round_), 3, seed_of(f"zookeeper {round_}"), address), STEPS // 2)
