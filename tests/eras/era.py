"""Kafka's own programs of the ZooKeeper era: each main class in a JVM of its own."""

import subprocess
from pathlib import Path
from typing import NamedTuple

TOOLS = Path(__file__).parents[2] / ".tools"
FIRST, LAST = "0.8.0", "0.10.2.0"
ALL = (FIRST, "0.8.1.1", "0.8.2.2", "0.9.0.1", LAST)
TIMEOUT_S = 180.0

# Snappy of 2012 wants to reach into Java's class loader, and the tools of that time say what is wrong on both streams.
JAVA = (
    *("java", "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    *("--add-opens", "java.base/java.lang=ALL-UNNAMED"),
)


class Ended(NamedTuple):
    """How a program ended, and its lines on both streams."""

    code: int
    output: str

    def lines(self, part: str) -> list[str]:
        """Lines that have `part` in them."""
        return [line for line in self.output.splitlines() if part in line]


class Era:
    """The programs of one version, for one cluster."""

    def __init__(self, version: str, zookeeper: str, brokers: str) -> None:
        self.version = version
        self.zookeeper = zookeeper
        self.brokers = brokers
        self._jars = TOOLS / f"kafka-{version}"
        if not (self._jars / ".fetched").exists():
            raise RuntimeError(
                f"Kafka {version} is not in .tools: run `make eras-tools` once (it needs Java and Maven)"
            )

    @property
    def is_first(self) -> bool:
        return self.version == FIRST

    def command(self, main_class: str, *arguments: object) -> list[str]:
        return [*JAVA, "-cp", f"{self._jars}/*", main_class, *map(str, arguments)]

    def run(self, main_class: str, *arguments: object, stdin: str = "", timeout_s: float = TIMEOUT_S) -> Ended:
        ended = subprocess.run(
            self.command(main_class, *arguments),
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        return Ended(ended.returncode, ended.stdout)

    def by_zookeeper(self, main_class: str, *arguments: object) -> Ended:
        return self.run(main_class, "--zookeeper", self.zookeeper, *arguments)

    # Topics

    def create(self, topic: str, partitions: int, replicas: int) -> Ended:
        if self.is_first:
            wanted = ("--topic", topic, "--partition", partitions, "--replica", replicas)
            return self.by_zookeeper("kafka.admin.CreateTopicCommand", *wanted)
        wanted = ("--topic", topic, "--partitions", partitions, "--replication-factor", replicas)
        return self.by_zookeeper("kafka.admin.TopicCommand", "--create", *wanted)

    def add_partitions(self, topic: str, before: int, after: int) -> Ended:
        if self.is_first:
            more = ("--topic", topic, "--partition", after - before)
            return self.by_zookeeper("kafka.admin.AddPartitionsCommand", *more)
        return self.by_zookeeper("kafka.admin.TopicCommand", "--alter", "--topic", topic, "--partitions", after)

    def delete(self, topic: str) -> Ended:
        """Delete a topic; TopicCommand can do it since 0.8.2."""
        if self.version in ALL[:2]:
            return self.by_zookeeper("kafka.admin.DeleteTopicCommand", "--topic", topic)
        return self.by_zookeeper("kafka.admin.TopicCommand", "--delete", "--topic", topic)

    def listed(self) -> str:
        if self.is_first:
            return self.by_zookeeper("kafka.admin.ListTopicCommand").output
        return self.by_zookeeper("kafka.admin.TopicCommand", "--list").output

    # Records

    def produce(self, topic: str, lines: list[str], codec: str = "none") -> None:
        """Send lines by the old producer; 0.8.0 can choose gzip or nothing."""
        where = ("--broker-list", self.brokers, "--topic", topic, "--request-required-acks", -1, "--batch-size", 100)
        text = "".join(f"{line}\n" for line in lines)
        if self.version in ALL[:2]:
            main = "kafka.producer.ConsoleProducer"
            chosen: tuple[str, ...] = ("--compress",) if codec == "gzip" else ()
        else:
            main = "kafka.tools.ConsoleProducer"
            chosen = ("--compression-codec", codec)
            if self.version in ALL[3:]:
                chosen = ("--old-producer", *chosen)
        ended = self.run(main, *where, *chosen, stdin=text)
        assert ended.code == 0, ended.output
        assert "Exception" not in ended.output, ended.output

    def simple_consume(self, topic: str, partition: int, fetch_size: int = 1024 * 1024) -> Ended:
        """Everything in a partition, by SimpleConsumer."""
        where = ("--broker-list", self.brokers, "--topic", topic, "--partition", partition, "--fetchsize", fetch_size)
        return self.run("kafka.tools.SimpleConsumerShell", *where, "--offset", -2, "--no-wait-at-logend")

    def consume(self, topic: str, group: str, count: int) -> Ended:
        """`count` messages, by the consumer that keeps its offsets in ZooKeeper."""
        package = "consumer" if self.version in ALL[:2] else "tools"
        what = ("--topic", topic, "--from-beginning", "--max-messages", count)
        named = ("--group", group) if self.version in ALL[:2] else ()
        return self.by_zookeeper(f"kafka.{package}.ConsoleConsumer", *what, *named)
