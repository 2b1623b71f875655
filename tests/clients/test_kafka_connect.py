"""Kafka Connect 4.3.1: exactly-once source connectors on workers that are killed, and files in and out with one worker.

Exactly-once source support (KIP-618) is for distributed workers: a standalone one keeps its offsets in a file.
"""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from moldau.testing.ports import HOST, free_ports
from moldau.testing.processes import ClusterOfProcesses, processes
from tests.clients.java_client import NEWEST, classpath_of
from tests.tools.running_tools import RunningTool
from tests.transaction_servers import SERVERS, server, until

TIMEOUT_S = 120.0
TASKS = 2
NUMBERS = 1000
PER_TRANSACTION, ABORTED_OF = 25, 5
"""As in CountingSource.java."""
BOUNDARIES = ("poll", "interval", "connector")
LINES = [f"line {number}" for number in range(300)]

BROKER = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}
STRINGS = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
}
DISTRIBUTED = {
    **STRINGS,
    "exactly.once.source.support": "enabled",
    "group.id": "workers",
    "config.storage.topic": "connect-configs",
    "offset.storage.topic": "connect-offsets",
    "offset.storage.partitions": "3",
    "status.storage.topic": "connect-status",
    "status.storage.partitions": "1",
    "session.timeout.ms": "3000",
    "heartbeat.interval.ms": "500",
    "scheduled.rebalance.max.delay.ms": "0",
    "offset.flush.interval.ms": "1000",
}


class Worker(RunningTool):
    """A worker of Connect, and its REST interface."""

    def __init__(self, mode: str, directory: Path, settings: Mapping[str, str], *connectors: Path) -> None:
        directory.mkdir()
        (port,) = free_ports(1)
        self.url = f"http://{HOST}:{port}"
        file = directory / "worker.properties"
        write_properties(file, {"listeners": self.url, **settings})
        classpath = classpath_of(f"kafka-connect-{NEWEST}", "CountingSource")
        super().__init__(classpath, f"org.apache.kafka.connect.cli.Connect{mode}", file, *connectors)

    def until_started(self) -> None:
        self.wait(lambda lines: any(line.endswith("Kafka Connect started") for line in lines), TIMEOUT_S)

    def ask(self, method: str, path: str, body: Mapping[str, str] | None = None) -> object:
        """Ask the REST interface; a worker that has no leader yet, or a new one, is asked again."""
        answers: list[object] = []

        def is_answered() -> bool:
            data = None if body is None else json.dumps(body).encode()
            request = urllib.request.Request(
                f"{self.url}{path}", data, {"Content-Type": "application/json"}, method=method
            )
            try:
                with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                    answers.append(json.loads(answer.read() or b"null"))
            except urllib.error.HTTPError as error:
                if error.code not in (404, 409, 500, 503):
                    raise
            return bool(answers)

        until(is_answered, TIMEOUT_S)
        return answers[0]


def write_properties(path: Path, settings: Mapping[str, str]) -> Path:
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return path


class Readers:
    """What a reader of committed records has seen of each partition."""

    def __init__(self, consumer: Consumer, topics: Mapping[str, int]) -> None:
        self._consumer = consumer
        places = [TopicPartition(topic, number, 0) for topic, count in topics.items() for number in range(count)]
        self.seen: dict[tuple[str, int], list[str]] = {(place.topic, place.partition): [] for place in places}
        consumer.assign(places)

    def wait(self, expected: Mapping[tuple[str, int], Sequence[str]], *, at_least: int | None = None) -> None:
        """Until each partition has all that is expected, or the first `at_least` of it, and nothing else."""

        def is_there() -> bool:
            message = self._consumer.poll(0.5)
            if message is not None and message.error() is None:
                place = (str(message.topic()), int(message.partition() or 0))
                self.seen[place].append((message.value() or b"").decode())
                number = len(self.seen[place])
                assert self.seen[place][-1:] == list(expected[place][number - 1 : number]), (
                    place,
                    self.seen[place][-5:],
                )
            return all(len(self.seen[place]) >= (at_least or len(values)) for place, values in expected.items())

        try:
            until(is_there, TIMEOUT_S)
        except AssertionError as error:
            error.add_note(f"seen so far: { {place: len(values) for place, values in self.seen.items()} }")
            raise


@contextmanager
def reading(bootstrap: str, topics: Mapping[str, int]) -> Iterator[Readers]:
    settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed"}
    with closing(Consumer({**settings, "log_level": 0})) as consumer:
        yield Readers(consumer, topics)


def counting(boundary: str) -> dict[str, str]:
    """The settings of a connector that counts."""
    return {
        "connector.class": "CountingSource",
        "tasks.max": str(TASKS),
        "exactly.once.support": "required",
        "topic": boundary,
        "last": str(NUMBERS),
        "pace.ms": "10",
        "transaction.boundary": boundary,
        **({"transaction.boundary.interval.ms": "200"} if boundary == "interval" else {}),
    }


def numbers(boundary: str, task: int) -> list[str]:
    """What readers of committed records see of a task."""
    return [
        f"{task}:{number}"
        for number in range(NUMBERS)
        if boundary != "connector" or number // PER_TRANSACTION % ABORTED_OF != ABORTED_OF - 1
    ]


def has_lines(path: Path, lines: list[str]) -> bool:
    return path.exists() and path.read_text().splitlines() == lines


def create(bootstrap: str, topics: Mapping[str, int], replicas: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(name, count, replicas) for name, count in topics.items()]).values():
        made.result(TIMEOUT_S)


@pytest.mark.parametrize("kind", SERVERS)
def test_source_connectors_write_each_record_once_though_a_worker_and_a_broker_are_killed(
    kind: str, kafka_classpath: str, tmp_path: Path
) -> None:
    topics = {**dict.fromkeys(BOUNDARIES, TASKS), "lines": 1}
    expected = {(boundary, task): numbers(boundary, task) for boundary in BOUNDARIES for task in range(TASKS)}
    with ExitStack() as stack:
        brokers: ClusterOfProcesses | None = None
        if kind == "moldau":  # Apache Kafka shows what is right; one broker is enough for that
            brokers = stack.enter_context(processes(tmp_path / "cluster", 3, BROKER))
            bootstrap, replicas = brokers.bootstrap, 3
        else:
            bootstrap, replicas = stack.enter_context(server(kind, kafka_classpath, tmp_path / "server", BROKER)), 1
        create(bootstrap, topics, replicas)
        readers = stack.enter_context(reading(bootstrap, topics))
        lines = tmp_path / "lines.txt"
        lines.write_text("".join(f"{line}\n" for line in LINES))
        settings = {
            **DISTRIBUTED,
            "bootstrap.servers": bootstrap,
            **{f"{name}.storage.replication.factor": str(replicas) for name in ("config", "offset", "status")},
        }
        first, second = (
            stack.enter_context(Worker("Distributed", tmp_path / name, settings)) for name in ("first", "second")
        )
        for worker in (first, second):
            worker.until_started()
        for boundary in BOUNDARIES:
            first.ask("PUT", f"/connectors/{boundary}/config", counting(boundary))
        file_source = {"connector.class": "FileStreamSource", "file": str(lines), "topic": "lines"}
        first.ask("PUT", "/connectors/lines/config", {**file_source, "exactly.once.support": "required"})
        readers.wait({**expected, ("lines", 0): LINES}, at_least=50)
        first.kill()
        if brokers is not None:
            brokers[2].kill9()
        with lines.open("a") as more:
            more.write("".join(f"{line}\n" for line in LINES))
        readers.wait({**expected, ("lines", 0): LINES * 2})
        # Offsets are forgotten by a transaction too, after the tasks' producers are fenced (KIP-875).
        second.ask("PUT", "/connectors/poll/stop")
        second.ask("DELETE", "/connectors/poll/offsets")
        second.ask("PUT", "/connectors/poll/resume")
        again = {(topic, task): values * (2 if topic == "poll" else 1) for (topic, task), values in expected.items()}
        readers.wait({**again, ("lines", 0): LINES * 2})


@pytest.mark.parametrize("kind", SERVERS)
def test_a_standalone_worker_carries_lines_from_a_file_to_a_file(
    kind: str, kafka_classpath: str, tmp_path: Path
) -> None:
    source, sink = tmp_path / "source.txt", tmp_path / "sink.txt"
    source.write_text("".join(f"{line}\n" for line in LINES))
    connectors = (
        {"name": "in", "connector.class": "FileStreamSource", "file": str(source), "topic": "lines"},
        {"name": "out", "connector.class": "FileStreamSink", "file": str(sink), "topics": "lines"},
    )
    files = [write_properties(tmp_path / f"{each['name']}.properties", each) for each in connectors]
    with server(kind, kafka_classpath, tmp_path / "server", BROKER) as bootstrap:
        settings = {
            **STRINGS,
            "bootstrap.servers": bootstrap,
            "offset.storage.file.filename": str(tmp_path / "offsets"),
            "offset.flush.interval.ms": "200",
        }
        for turn in (1, 2):
            with Worker("Standalone", tmp_path / f"worker-{turn}", settings, *files) as worker:
                until(partial(has_lines, sink, LINES * turn), TIMEOUT_S)
                worker.stop()
            with source.open("a") as more:
                more.write("".join(f"{line}\n" for line in LINES))
