"""Apache Kafka from its jars: a broker (KRaft, one node), and the tools and clients that load any broker."""

import base64
import re
import secrets
import subprocess
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its stubs hide NewTopic

from bench.process import Server, start
from moldau.testing.ports import free_ports

VERSION = "4.3.1"
TOOLS = Path(__file__).parents[1] / ".tools"
TOOL_TIMEOUT_S = 600.0
CONSUMER_READS = 3
COPIES = 2

# What Kafka's own start script gives its broker.
_BROKER_FLAGS = [
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
]


class ToolFailed(Exception):
    """One of Kafka's tools ended without its result."""


class Latency(NamedTuple):
    """Milliseconds from send to receipt."""

    average_ms: float
    p99_ms: float


def classpath() -> str:
    """The jars that `make tools` fetched."""
    jars = TOOLS / f"kafka-{VERSION}"
    if not (jars / ".fetched").exists():
        raise SystemExit("Apache Kafka's jars are not there: run `make tools` first")
    return f"{jars}/*"


def new_cluster_id() -> str:
    """At random, but never with a dash in front: StorageTool would take it for an option."""
    return base64.urlsafe_b64encode(b"M" + secrets.token_bytes(15)).decode().rstrip("=")


def start_kafka() -> Server:
    """A formatted, empty Apache Kafka. Formatting is not part of its start-up time."""
    return start("kafka", _kafka_command)


def _kafka_command(directory: Path, port: int) -> list[str]:
    properties = directory / "server.properties"
    properties.write_text(_properties(directory, port, *free_ports(1)))
    java("kafka.tools.StorageTool", "format", "-t", new_cluster_id(), "-c", str(properties))
    return ["java", *_BROKER_FLAGS, "-cp", classpath(), "kafka.Kafka", str(properties)]


def _properties(directory: Path, port: int, controller_port: int) -> str:
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": directory / "data",
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def create_topic(
    bootstrap: str,
    topic: str,
    partitions: int,
    replicas: int = 1,
    assigned: list[int] | None = None,
    **configs: str,
) -> None:
    """With the defaults but for `configs`, whose names have underscores for dots. `assigned` are the brokers of
    every partition, its preferred leader first, where that is not left to the cluster."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    settings = {name.replace("_", "."): value for name, value in configs.items()}
    placed = {"replication_factor": replicas} if assigned is None else {"replica_assignment": [assigned] * partitions}
    new = NewTopic(topic, partitions, config=settings, **placed)
    [created] = admin.create_topics([new], operation_timeout=30).values()
    created.result()


def produce(
    bootstrap: str, topic: str, count: int, size: int, properties: tuple[str, ...], transaction_ms: int = 0
) -> float:
    """Kafka's ProducerPerformance as fast as it goes, in transactions that long if so: records per second."""
    load = ["--topic", topic, "--num-records", str(count), "--record-size", str(size), "--throughput", "-1"]
    if transaction_ms:
        load += ["--transactional-id", topic, "--transaction-duration-ms", str(transaction_ms)]
    settings = ("--producer-props", f"bootstrap.servers={bootstrap}", *properties)
    output = java("org.apache.kafka.tools.ProducerPerformance", *load, *settings)
    *_, last = re.findall(rf"^{count} records sent, ([\d.]+) records/sec", output, re.MULTILINE) or [""]
    if not last:
        raise ToolFailed(f"ProducerPerformance on {bootstrap}: {output[-500:]}")
    return float(last)


def consume(bootstrap: str, topic: str, count: int, *properties: str) -> float:
    """The Java consumer over all partitions by `assign`, from the beginning: records per second.

    It reads everything `CONSUMER_READS` times in one JVM and the last time counts: the first warms the client up.
    """
    timeout_ms = str(int(TOOL_TIMEOUT_S * 1000))
    words = ("drain", topic, str(count), timeout_ms, f"bootstrap.servers={bootstrap}", *properties)
    output = java("ClientDriver", stdin=("\t".join(words) + "\n") * CONSUMER_READS)
    reads = re.findall(r"^(\d+)\t\d+\t(\d+)\nok$", output, re.MULTILINE)
    if len(reads) < CONSUMER_READS or any(int(records) < count for records, _ in reads):
        raise ToolFailed(f"the consumer on {bootstrap}: {output[-500:]}")
    records, nanoseconds = map(int, reads[-1])
    return records / nanoseconds * 1e9


def copy(bootstrap: str, source: str, target: str, count: int, per_transaction: int) -> float:
    """Consume, transform, produce by the Java clients, so many records in each transaction: records per second.

    It copies `COPIES` times in one JVM and the last time counts.
    """
    load = (source, target, str(count), str(per_transaction), str(COPIES))
    output = java("TransactionalCopy", bootstrap, *load)
    copies = re.findall(r"^(\d+) \d+ (\d+)$", output, re.MULTILINE)
    if len(copies) < COPIES or any(int(records) != count for records, _ in copies):
        raise ToolFailed(f"TransactionalCopy on {bootstrap}: {output[-500:]}")
    records, nanoseconds = map(int, copies[-1])
    return records / nanoseconds * 1e9


def latency(bootstrap: str, topic: str, count: int, size: int) -> Latency:
    """Kafka's EndToEndLatency with acks=all: one record at a time, sent and received."""
    where = ("--bootstrap-server", bootstrap, "--topic", topic)
    load = ("--num-records", str(count), "--record-size", str(size), "--producer-acks", "all")
    # Having printed its figures it commits, which a broker without consumer groups refuses.
    output = java("org.apache.kafka.tools.EndToEndLatency", *where, *load, may_fail=True)
    found = re.search(r"Avg latency: ([\d.]+) ms.*99th = ([\d.]+)", output, re.DOTALL)
    if not found:
        raise ToolFailed(f"EndToEndLatency on {bootstrap}: {output[-500:]}")
    # The tool rounds percentiles down to whole milliseconds: a zero means "under one".
    return Latency(float(found[1]), max(float(found[2]), 0.5))


def java(main_class: str, *arguments: str, stdin: str | None = None, may_fail: bool = False) -> str:
    """Run `main_class`; what it printed."""
    path = f"{TOOLS / f'driver-{VERSION}'}:{classpath()}"
    ended = subprocess.run(
        ["java", "-Xmx512m", "-cp", path, main_class, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=TOOL_TIMEOUT_S,
        check=False,
    )
    if ended.returncode != 0 and not may_fail:
        raise ToolFailed(f"{main_class} {' '.join(arguments)}: {(ended.stdout + ended.stderr)[-1000:]}")
    return ended.stdout
