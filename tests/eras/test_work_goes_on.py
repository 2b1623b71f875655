"""While producers and consumers of three eras work, tools of 0.10.2 change the topic under them: nothing is lost.

A record may be stored twice where its producer asked for it: those of 2013 send again what was not answered. The
idempotent producer of today stores nothing twice.
"""

import json
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer

from tests.eras.conftest import Brokers, only_all_eras
from tests.eras.era import FIRST, LAST
from tests.eras.test_eras import describe, read_all, wait_until

REPEATED_SHARE = 10
"""A consumer that comes anew for partitions that are added may read again what it had not committed, and no more."""
PAUSE_S = 0.01
"""Between two messages of a producer."""


class Worker:
    """A producer, or a consumer: a thread that works until it is told to stop."""

    def __init__(self, work: "Callable[[Worker], None]") -> None:
        self.lines: list[str] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=work, args=(self,), daemon=True)
        self._thread.start()

    @property
    def goes_on(self) -> bool:
        return not self._stopped.is_set()

    def stop(self) -> list[str]:
        """Its lines: those that it sent, or that it read."""
        self._stopped.set()
        self._thread.join(120)
        assert not self._thread.is_alive()
        return self.lines


def numbered(worker: Worker, who: str) -> Iterator[str]:
    while worker.goes_on:
        yield f"{who} {len(worker.lines)}"
        time.sleep(PAUSE_S)


def console_producer(command: list[str], who: str) -> Callable[[Worker], None]:
    def work(worker: Worker) -> None:
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as run:
            assert run.stdin is not None
            for line in numbered(worker, who):
                run.stdin.write(f"{line}\n".encode())
                run.stdin.flush()
                worker.lines.append(line)
            run.communicate()

    return work


def producer_of_today(bootstrap: str, topic: str, who: str) -> Callable[[Worker], None]:
    def work(worker: Worker) -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
        for line in numbered(worker, who):
            producer.produce(topic, line.encode())
            producer.poll(0)
            worker.lines.append(line)
        producer.flush(60)

    return work


@contextmanager
def console_consumer(command: list[str]) -> Iterator[list[str]]:
    """Lines as they are read."""
    found: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
        assert run.stdout is not None
        lines = run.stdout
        reading = threading.Thread(target=lambda: found.extend(line.rstrip("\n") for line in lines), daemon=True)
        reading.start()
        try:
            yield found
        finally:
            run.terminate()
            reading.join(60)


def consumer_of_today(bootstrap: str, topic: str) -> Callable[[Worker], None]:
    def work(worker: Worker) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"today-{topic}",
                "auto.offset.reset": "earliest",
                "topic.metadata.refresh.interval.ms": 1000,
            }
        )
        consumer.subscribe([topic])
        while worker.goes_on:
            message: Message | None = consumer.poll(0.2)
            error: KafkaError | None = message.error() if message else None
            if message is not None and error is None:
                worker.lines.append((message.value() or b"").decode())
        consumer.close()

    return work


def change_everything(brokers: Brokers, topic: str, other: str, directory: Path) -> None:
    """Add partitions, move all, let the preferred replicas lead, delete another topic."""
    era = brokers.era(LAST)
    assert "succeeded" in era.add_partitions(topic, 3, 5).output
    wait_until(lambda: len(describe(brokers.bootstrap, topic)) == 5)
    before = describe(brokers.bootstrap, topic)
    moved = [
        {"topic": topic, "partition": index, "replicas": [({0, 1, 2} - set(replicas)).pop(), replicas[0]]}
        for index, (_, replicas) in before.items()
    ]
    plan = directory / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": moved}))
    command = ("kafka.admin.ReassignPartitionsCommand", "--reassignment-json-file", plan)
    assert "uccessfully started" in era.by_zookeeper(*command, "--execute", "--throttle", 1_000_000).output
    wait_until(lambda: era.by_zookeeper(*command, "--verify").output.count("completed successfully") == len(moved))
    elected = era.by_zookeeper("kafka.admin.PreferredReplicaLeaderElectionCommand")
    assert elected.code == 0, elected.output
    assert era.delete(other).code == 0
    wait_until(lambda: other not in era.listed())
    preferred = [entry["replicas"] for entry in moved]
    assert [replicas for _, replicas in describe(brokers.bootstrap, topic).values()] == preferred


@only_all_eras
def test_tools_change_a_topic_while_clients_of_three_eras_use_it(brokers: Brokers, topic: str, tmp_path: Path) -> None:
    first, last = brokers.era(FIRST), brokers.era(LAST)
    other = f"{topic}-other"
    assert last.create(topic, 3, 2).code == 0
    assert last.create(other, 2, 2).code == 0
    old = ("--broker-list", brokers.bootstrap, "--topic", topic, "--request-required-acks", -1)
    patient = ("--message-send-max-retries", 200, "--retry-backoff-ms", 200)
    from_zookeeper = ("--zookeeper", brokers.zookeeper, "--topic", topic, "--from-beginning")
    from_brokers = ("--bootstrap-server", brokers.bootstrap, "--topic", topic, "--from-beginning", "--new-consumer")
    with ExitStack() as stack:
        consumed = {
            FIRST: stack.enter_context(
                console_consumer(first.command("kafka.consumer.ConsoleConsumer", *from_zookeeper, "--group", topic))
            ),
            LAST: stack.enter_context(console_consumer(last.command("kafka.tools.ConsoleConsumer", *from_brokers))),
        }
        today = Worker(consumer_of_today(brokers.bootstrap, topic))
        producers = [
            Worker(console_producer(first.command("kafka.producer.ConsoleProducer", *old, *patient, "--sync"), FIRST)),
            Worker(console_producer(last.command("kafka.tools.ConsoleProducer", *old, *patient), LAST)),
            Worker(producer_of_today(brokers.bootstrap, topic, "today")),
        ]
        wait_until(lambda: all(any(FIRST in line for line in found) for found in (*consumed.values(), today.lines)))
        change_everything(brokers, topic, other, tmp_path)
        sent = {line for producer in producers for line in producer.stop()}
        stored = Counter(read_all(brokers.bootstrap, topic, range(5)))
        assert set(stored) == sent
        assert all(times == 1 for line, times in stored.items() if line.startswith("today"))
        wait_until(lambda: all(sent <= set(found) for found in (*consumed.values(), today.lines)))
        today.stop()
    for name, found in {**consumed, "today": today.lines}.items():
        read = Counter(line for line in found if line in sent)
        again = sum((read - stored).values())
        assert again <= len(sent) // REPEATED_SHARE, f"{name} read {again} of {len(sent)} again"
