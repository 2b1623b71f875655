"""Power cuts of a machine with three brokers under load: nothing that acks=all acknowledged may be missing afterwards.

    python -m tests.faults.power_cuts --rounds 100 --wiped 20      cuts, then cuts after which one disk is empty
    python -m tests.faults.power_cuts --seed 7                     the same choices again

At a random moment the machine stands still. Of each data directory stays what was synced, and of what was not, what
chance leaves (`recorded_disk`). The metadata store stays whole: SQLite shows a transaction to nobody before it is
synced (`synchronous=FULL`), so what a cut takes from it nobody had seen. Some brokers are killed or stopped before.
"""

import argparse
import json
import logging
import random
import shutil
import socket
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its stubs hide NewTopic

from moldau.cluster.image import PartitionImage
from moldau.core.ids import TopicPartition
from moldau.log.log import Log
from moldau.protocol.messages.k00_produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from moldau.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from moldau.records.batch import Record, build_batch, iter_records, split_batches
from moldau.testing.clusters import STORE_FILE, ClusterInThread
from tests.broker.raw import RawClient
from tests.faults.recorded_disk import RecordedDisk

BROKERS = 3
PARTITIONS = 4
SENDERS = 4
ROUNDS_PER_CLUSTER = 10
RECORDS_MAX = 5
LOAD_S_MIN, LOAD_S_MAX = 0.1, 0.7
RECOVERY_S = 60.0
LOOK_S = 0.01
COMPLAINTS_SHOWN_MAX = 20
PRODUCE, METADATA = 0, 3
PRODUCE_VERSION, METADATA_VERSION = 9, 9
ACKS_ALL = -1
SOLID, THIN = "solid", "thin"
TOPICS = {SOLID: "2", THIN: "1"}
"""Topics and their min.insync.replicas."""
PROPERTIES = {
    "log.flush.policy": "group",
    "log.segment.bytes": "20000",  # segments end and begin all the time
    "replica.fetch.wait.max.ms": "200",
    "replica.lag.time.max.ms": "1000",
    "replica.high.watermark.checkpoint.interval.ms": "300",
    "log.flush.offset.checkpoint.interval.ms": "400",
    "log.cleaner.enable": "false",
    "auto.create.topics.enable": "false",
    "controlled.shutdown.enable": "true",
}


class Acknowledged(NamedTuple):
    """A record, and its offset by the acknowledgement."""

    partition: TopicPartition
    offset: int
    value: bytes


class Ledger:
    """Records that were acknowledged until the power went."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_closed = False
        self.entries: list[Acknowledged] = []

    def add(self, entries: list[Acknowledged]) -> None:
        with self._lock:
            if not self._is_closed:
                self.entries += entries

    def close(self) -> None:
        with self._lock:
            self._is_closed = True

    def open(self) -> None:
        with self._lock:
            self._is_closed = False


class Sender:
    """Sender of batches one after the other, each once; nobody cares for batches without an answer."""

    def __init__(self, name: str, bootstrap: str, ledger: Ledger, seed: int) -> None:
        self._name = name
        self._bootstrap = bootstrap.split(",")
        self._ledger = ledger
        self._chance = random.Random(seed)
        self._stopping = threading.Event()
        self._leaders: dict[TopicPartition, str] = {}
        self._connections: dict[str, RawClient] = {}
        self._number = 0
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def abandon(self) -> None:
        """Give up the connections, which are dead."""
        self._stopping.set()
        for connection in list(self._connections.values()):
            with suppress(OSError):
                connection.socket.shutdown(socket.SHUT_RDWR)

    def _work(self) -> None:
        while not self._stopping.is_set():
            try:
                self._send()
            except (OSError, LookupError, ValueError):
                self._leaders.clear()
                self._close()
                self._stopping.wait(LOOK_S)
        self._close()

    def _close(self) -> None:
        for connection in list(self._connections.values()):
            connection.socket.close()
        self._connections.clear()

    def _send(self) -> None:
        if not self._leaders:
            self._leaders = self._ask_for_leaders()
        partition = self._chance.choice(sorted(self._leaders))
        values = [f"{self._name}/{self._number + n}".encode() for n in range(self._chance.randint(1, RECORDS_MAX))]
        self._number += len(values)
        batch = build_batch([Record(n, 1, None, value.ljust(100)) for n, value in enumerate(values)])
        data = [PartitionProduceData(index=partition.partition, records=batch)]
        request = ProduceRequest(
            acks=ACKS_ALL,
            timeout_ms=5000,
            topic_data=[TopicProduceData(name=partition.topic, partition_data=data)],
        )
        connection = self._connection(self._leaders[partition])
        answer = connection.ask(PRODUCE, PRODUCE_VERSION, request, ProduceResponse)
        (result,) = answer.responses[0].partition_responses
        if result.error_code:
            raise LookupError(result.error_code)
        self._ledger.add([Acknowledged(partition, result.base_offset + n, value) for n, value in enumerate(values)])

    def _ask_for_leaders(self) -> dict[TopicPartition, str]:
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in TOPICS], allow_auto_topic_creation=False
        )
        connection = self._connection(self._chance.choice(self._bootstrap))
        answer = connection.ask(METADATA, METADATA_VERSION, request, MetadataResponse)
        brokers = {broker.node_id: f"{broker.host}:{broker.port}" for broker in answer.brokers}
        found = {
            TopicPartition(topic.name or "", each.partition_index): brokers[each.leader_id]
            for topic in answer.topics
            for each in topic.partitions
            if each.leader_id in brokers
        }
        if not found:
            raise LookupError("nobody leads")
        return found

    def _connection(self, address: str) -> RawClient:
        if address not in self._connections:
            self._connections[address] = RawClient(address)
        return self._connections[address]


class Machine:
    """Three brokers and their disks."""

    def __init__(self, root: Path, chance: random.Random, engine: str) -> None:
        self._root = root / "now"
        self._left = root / "left"
        self._root.mkdir(parents=True)
        self._chance = chance
        self._disk = RecordedDisk(self._root, chance.randrange(2**32))
        self._ledger = Ledger()
        self._cluster = ClusterInThread(
            self._root, BROKERS, {**PROPERTIES, "log.flush.engine": engine}, files=self._disk
        )
        self._names = [TopicPartition(topic, index) for topic in TOPICS for index in range(PARTITIONS)]
        self._rounds = 0
        self.disks_lost = 0
        self.leaders_lost = 0

    @property
    def acknowledged(self) -> int:
        return len(self._ledger.entries)

    def start(self) -> None:
        self._start_brokers()
        self._cluster.wait(lambda image: len(image.brokers) == BROKERS and image.controller_id != -1)
        admin = AdminClient({"bootstrap.servers": self._cluster.bootstrap, "log_level": 0})
        topics = [NewTopic(name, PARTITIONS, BROKERS, config={"min.insync.replicas": n}) for name, n in TOPICS.items()]
        for made in admin.create_topics(topics).values():
            made.result(RECOVERY_S)
        self._wait(self._is_whole, "the first in-sync replicas")

    def stop(self) -> None:
        for number in self._cluster.running:
            self._cluster.kill(number)

    def round(self, *, wipe: bool) -> list[str]:
        """Run one round: load, trouble, cut, return; returns the violations."""
        self._rounds += 1
        self._ledger.open()
        senders = [
            Sender(f"{self._rounds}.{number}", self._addresses, self._ledger, self._chance.randrange(2**32))
            for number in range(SENDERS)
        ]
        for sender in senders:
            sender.start()
        time.sleep(self._chance.uniform(LOAD_S_MIN, LOAD_S_MAX))
        self._trouble()
        self._cut(senders)
        self._replace_disks(self._disk_to_lose() if wipe else None)
        self._start_brokers()
        missing = self._wait(self._is_whole, "that every partition is led and every replica in sync")
        return missing or self._check()

    @property
    def _addresses(self) -> str:
        return self._cluster.bootstrap

    def _trouble(self) -> None:
        """Hurt a broker now and then, shortly before the power goes; it may be back by then."""
        if self._chance.random() < 0.5:
            return
        number = self._chance.randint(1, BROKERS)
        go = self._cluster.kill if self._chance.random() < 0.6 else self._cluster.stop
        go(number)
        time.sleep(self._chance.choice((0.0, 0.05, 0.3)))
        if self._chance.random() < 0.5:
            self._cluster.start(number)
            time.sleep(self._chance.choice((0.0, 0.05, 0.3)))

    def _cut(self, senders: list[Sender]) -> None:
        with self._disk.power:  # nothing is written or synced from here on
            self._ledger.close()
            self._left.mkdir()
            for number in self._cluster.brokers:
                name = f"broker-{number}"
                self._disk.what_is_left(name, self._left / name, self._chance)
            copy_store(self._root / STORE_FILE, self._left / STORE_FILE)
        for sender in senders:
            sender.abandon()
        for number in self._cluster.running:
            self._cluster.kill(number)
        for sender in senders:
            sender.stop()

    def _disk_to_lose(self) -> int | None:
        """A broker that is nowhere the only one in sync: records that only one disk has are gone with it."""
        with closing(sqlite3.connect(self._left / STORE_FILE)) as store:
            rows = store.execute("SELECT data FROM node WHERE path LIKE '/brokers/topics/%/state'").fetchall()
        states = [json.loads(data) for (data,) in rows]
        needed = {state["isr"][0] for state in states if len(state["isr"]) == 1}
        spare = sorted(set(self._cluster.brokers) - needed)
        if not spare:
            return None
        led = {number: sum(state["leader"] == number for state in states) for number in spare}
        lost = max(spare, key=lambda number: led[number]) if self._chance.random() < 0.5 else self._chance.choice(spare)
        self.disks_lost += 1
        self.leaders_lost += led[lost]
        return lost

    def _replace_disks(self, wiped: int | None) -> None:
        shutil.rmtree(self._root)
        self._left.rename(self._root)
        if wiped is not None:
            shutil.rmtree(self._root / f"broker-{wiped}")
        self._disk.is_as_found()

    def _start_brokers(self) -> None:
        numbers = list(self._cluster.brokers)
        self._chance.shuffle(numbers)
        starting = [threading.Thread(target=self._cluster.start, args=(number,)) for number in numbers]
        for thread in starting:
            thread.start()
            time.sleep(self._chance.choice((0.0, 0.02, 0.2)))
        for thread in starting:
            thread.join()

    # Afterwards

    def _log(self, number: int, name: TopicPartition) -> Log | None:
        return self._cluster.brokers[number].broker.services.logs.get(name)

    def _state(self, name: TopicPartition) -> PartitionImage | None:
        return self._cluster.brokers[1].image.partition(*name)

    def _is_whole(self) -> list[str]:
        """Partitions without a leader or with a replica out of sync, one line each."""
        return [complaint for name in self._names for complaint in self._not_whole(name)]

    def _not_whole(self, name: TopicPartition) -> Iterator[str]:
        state = self._state(name)
        if state is None or state.leader < 0 or len(state.isr) < BROKERS:
            yield f"{name}: {state}"
            return
        led = self._cluster.brokers[state.leader].broker.services.replicas.replica(*name)
        ends = [log.log_end_offset if (log := self._log(n, name)) is not None else -1 for n in self._cluster.brokers]
        if led is None or set(ends) != {led.high_watermark}:
            yield f"{name}: ends {ends}, led {led}"

    def _wait(self, missing: Callable[[], list[str]], what: str) -> list[str]:
        deadline = time.monotonic() + RECOVERY_S
        while found := missing():
            if time.monotonic() > deadline:
                return [f"waited in vain for {what}: {complaint}" for complaint in found]
            time.sleep(LOOK_S)
        return []

    def _check(self) -> list[str]:
        complaints: list[str] = []
        kept = {name: self._records(name, complaints) for name in self._names}
        for name, offset, value in self._ledger.entries:
            found = kept[name].get(offset)
            if found != value:
                complaints.append(f"{name} has {found!r} at {offset}, acknowledged was {value!r}")
        for name, records in kept.items():
            if len(set(records.values())) != len(records):
                complaints.append(f"{name} has a record twice")
        return complaints

    def _records(self, name: TopicPartition, complaints: list[str]) -> dict[int, bytes]:
        copies = [_records_of(log) for n in self._cluster.brokers if (log := self._log(n, name)) is not None]
        if any(copy != copies[0] for copy in copies):
            complaints.append(f"the replicas of {name} differ")
        return copies[0]


def _records_of(log: Log) -> dict[int, bytes]:
    """Values by offset."""
    found: dict[int, bytes] = {}
    offset, end = log.log_start_offset, log.log_end_offset
    while offset < end:
        region = log.read(offset, 1 << 20, end)
        if region is None:
            break
        for header, batch in split_batches(region.read()):
            found.update((record.offset, (record.value or b"").rstrip()) for record in iter_records(batch))
            offset = header.next_offset
    return found


def copy_store(source: Path, target: Path) -> None:
    """Copy the store as the last transaction left it."""
    with closing(sqlite3.connect(source)) as database, closing(sqlite3.connect(target)) as copy:
        database.backup(copy)


@contextmanager
def machine(chance: random.Random, engine: str) -> Iterator[Machine]:
    root = Path(tempfile.mkdtemp(prefix="moldau-power-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        made = Machine(root, chance, engine)
        stack.callback(made.stop)
        made.start()
        yield made


def run(
    seed: int, cuts: int, wiped: int, say: Callable[[str], None] = lambda _: None, *, engine: str = "auto"
) -> list[str]:
    """Make so many cuts, then so many with a disk that is empty afterwards; returns the violations of the first that
    failed."""
    chance = random.Random(seed)
    kinds = [False] * cuts + [True] * wiped
    acknowledged, disks, leaders = 0, 0, 0
    for start in range(0, len(kinds), ROUNDS_PER_CLUSTER):
        with machine(chance, engine) as running:
            for number, wipe in enumerate(kinds[start : start + ROUNDS_PER_CLUSTER], start + 1):
                complaints = running.round(wipe=wipe)
                if complaints:
                    return [f"round {number} of seed {seed}{', one disk empty' if wipe else ''}", *complaints]
                say(f"round {number}{' (one disk empty)' if wipe else ''}: {running.acknowledged} acknowledged so far")
            acknowledged += running.acknowledged
            disks, leaders = disks + running.disks_lost, leaders + running.leaders_lost
    say(f"seed {seed}: {len(kinds)} cuts, {disks} disks lost with {leaders} leaders, {acknowledged} records, all there")
    return []


def main() -> int:
    parser = argparse.ArgumentParser(description="power cuts of three brokers under load")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--wiped", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--engine", choices=("auto", "thread", "aio"), default="auto")
    arguments = parser.parse_args()
    logging.disable(logging.ERROR)
    _say(f"seed {arguments.seed}")
    complaints = run(arguments.seed, arguments.rounds, arguments.wiped, _say, engine=arguments.engine)
    for complaint in complaints[:COMPLAINTS_SHOWN_MAX]:
        _say(complaint)
    if len(complaints) > COMPLAINTS_SHOWN_MAX:
        _say(f"... {len(complaints)} in all")
    return 1 if complaints else 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
