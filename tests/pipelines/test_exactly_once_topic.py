"""kill -9 of a run at random points, and a batch that Spark does again: what a topic holds for its readers in the end.

Topic to topic, once with one task and once with several, and beside them a sink that is at least once. A reader with
`read_committed` follows the topics all the while. `make faults` runs it with 300,000 records and three kills.
"""

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from moldau.pipelines.sinks.topic_batches import LaidDown, unfinished
from tests.pipelines.clusters import Cluster, Record
from tests.pipelines.conftest import WITH_TRANSACTIONS
from tests.pipelines.test_exactly_once import Runs, forget_the_last_commit
from tests.seeds import seed_of

RECORDS = int(os.environ.get("MOLDAU_LEDGER_RECORDS", "20000"))
KILLS = int(os.environ.get("MOLDAU_LEDGER_KILLS", "1"))
BATCHES = 6
SENT_AT_ONCE = 20_000
PARTITIONS = 4
READ_S = 0.1
QUIET_S = 60.0
KINDS = ("whole", "parts", "repeated")

PIPELINE = """
name: {topic}
bootstrap: {bootstrap}
storage: state
sources:
  events: {{topic: {topic}, format: raw, max_per_batch: {batch}}}
sinks:
  whole: {{from: events, topic: {whole}, format: raw, key: _key, delivery: exactly once}}
  parts: {{from: events, topic: {parts}, format: raw, key: _key, delivery: exactly once, tasks: 3}}
  repeated: {{from: events, topic: {repeated}, format: raw, key: _key}}
"""


class Reader:
    """What a reader with `read_committed` has seen so far of each topic, by partition and in its order."""

    def __init__(self, cluster: Cluster, topics: list[str]) -> None:
        self.seen: dict[str, list[list[int]]] = {topic: [[] for _ in range(PARTITIONS)] for topic in topics}
        self._settings = {**cluster.settings, "group.id": "reader", "isolation.level": "read_committed"}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read, args=(topics,))

    @contextmanager
    def reading(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join()

    def count(self, topic: str) -> int:
        return sum(map(len, self.seen[topic]))

    def _read(self, topics: list[str]) -> None:
        consumer = Consumer({**self._settings, "enable.auto.commit": False})
        consumer.assign([TopicPartition(topic, number, 0) for topic in topics for number in range(PARTITIONS)])
        while not self._stop.is_set():
            for message in consumer.consume(10_000, READ_S):
                seen = self.seen[str(message.topic())]
                seen[message.partition() or 0].append(int(message.value() or b""))
        consumer.close()

    def await_all(self, topic: str) -> None:
        """Until it has as many as there are, and some time more in which others may come."""
        deadline = time.monotonic() + QUIET_S
        while self.count(topic) < RECORDS and time.monotonic() < deadline:
            self._stop.wait(READ_S)


@pytest.mark.parametrize("cluster", WITH_TRANSACTIONS, indirect=True, scope="session")
def test_killed_runs_and_replayed_batches_leave_every_record_once(cluster: Cluster, tmp_path: Path) -> None:
    seed = seed_of(__name__)
    topic = cluster.new_topic("exactly", PARTITIONS)
    outgoing = {kind: cluster.new_topic(f"{topic}-{kind}", PARTITIONS) for kind in KINDS}
    for first in range(0, RECORDS, SENT_AT_ONCE):
        numbers = range(first, first + SENT_AT_ONCE)
        cluster.send(topic, [Record(b"%d" % n, b"%d" % (n % 97), partition=n % 97 % PARTITIONS) for n in numbers])
    text = PIPELINE.format(bootstrap=cluster.bootstrap, topic=topic, batch=RECORDS // BATCHES, **outgoing)
    (tmp_path / "pipeline.yaml").write_text(text)
    runs, reader = Runs(tmp_path), Reader(cluster, list(outgoing.values()))
    with reader.reading():
        for written in sorted(random.Random(seed).sample(range(1, RECORDS * 9 // 10), KILLS)):
            watched = outgoing[random.Random(seed + written).choice(("whole", "parts"))]
            runs.kill_when(lambda topic=watched, written=written: reader.count(topic) >= written)  # type: ignore[misc]
            say(f"killed after {written}: {', '.join(cut_off(tmp_path / 'state' / 'checkpoints'))}")
        runs.to_the_end()
        check(cluster, reader, outgoing)
        for kind in KINDS:
            forget_the_last_commit(tmp_path / "state" / "checkpoints" / kind / "commits")
        runs.to_the_end()
        check(cluster, reader, outgoing)
    repeats = len(cluster.read(outgoing["repeated"])) - RECORDS
    say(f"at least once: {repeats} records twice")
    assert repeats > 0, "the sink that is at least once repeated nothing: the batches were not done again"


def say(line: str) -> None:
    print(line)  # noqa: T201  a failure must be reproducible, and a run tell what it has met


def cut_off(checkpoints: Path) -> Iterator[str]:
    """The batch of each sink that the kill has met, and whether its rows were laid down."""
    for kind in KINDS:
        number = unfinished(checkpoints / kind)
        laid_down = LaidDown.find(checkpoints / kind / "transactions" / f"batch-{number}") is not None
        yield (
            f"{kind} in batch {number}{', laid down' if laid_down else ''}" if number is not None else f"{kind} between"
        )


def check(cluster: Cluster, reader: Reader, outgoing: dict[str, str]) -> None:
    """Each record once, those of a key in their order; for who reads now and for who has read all the while."""
    every = Counter(range(RECORDS))
    for kind in ("whole", "parts"):
        reader.await_all(outgoing[kind])
        found = [int(record.value or b"") for record in cluster.read(outgoing[kind])]
        assert Counter(found) == every
        assert sorted(found) == sorted(number for seen in reader.seen[outgoing[kind]] for number in seen)
        for seen in reader.seen[outgoing[kind]]:
            by_key: dict[int, int] = {}
            for number in seen:
                assert by_key.get(number % 97, -1) < number, f"{number} after {by_key[number % 97]} in {kind}"
                by_key[number % 97] = number
