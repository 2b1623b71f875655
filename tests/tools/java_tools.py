"""Apache Kafka's own tools, each run as its main class in a JVM of its own; and Apache Kafka itself."""

import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from bench.kafka import new_cluster_id
from bench.process import Server
from moldau.testing.ports import free_ports
from tests.clients.java_client import SHARED

TOOL_TIMEOUT_S = 300.0
GROUPS_TIMEOUT_MS = 60_000
"""By itself the tool for groups waits 5 s for an answer; on a busy machine Java alone may need as long."""


class Ended(NamedTuple):
    """How a tool ended, and what it printed on both streams."""

    code: int
    output: str


class JavaTools:
    """The tools of the jars in `classpath`, for the broker at `bootstrap`."""

    def __init__(self, classpath: str, bootstrap: str = "") -> None:
        self._classpath = classpath
        self.bootstrap = bootstrap

    def run(self, main_class: str, *arguments: object, stdin: str = "") -> Ended:
        """Run a main class as it is."""
        patience = ("--timeout", str(GROUPS_TIMEOUT_MS)) if main_class.endswith(".ConsumerGroupCommand") else ()
        ended = subprocess.run(
            ["java", "-Xmx256m", *SHARED, "-cp", self._classpath, main_class, *map(str, arguments), *patience],
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TOOL_TIMEOUT_S,
            check=False,
        )
        return Ended(ended.returncode, ended.stdout)

    def succeed(self, main_class: str, *arguments: object, stdin: str = "") -> str:
        """What a run printed that has to end well."""
        code, output = self.run(main_class, *arguments, stdin=stdin)
        assert code == 0, f"{main_class} {' '.join(map(str, arguments))} ended with {code}:\n{output}"
        return output

    def tool(self, name: str, *arguments: object, stdin: str = "") -> str:
        """A tool of org.apache.kafka.tools against the broker; it has to end well."""
        return self.succeed(_class_of(name), "--bootstrap-server", self.bootstrap, *arguments, stdin=stdin)

    def refused(self, name: str, *arguments: object) -> str:
        """What a tool printed that has to end with an error."""
        code, output = self.run(_class_of(name), "--bootstrap-server", self.bootstrap, *arguments)
        assert code != 0, f"{name} {' '.join(map(str, arguments))} should have failed:\n{output}"
        return output

    def dump(self, files: list[Path], *options: str) -> str:
        """DumpLogSegments over files."""
        assert files
        return self.succeed(_class_of("DumpLogSegments"), "--files", ",".join(map(str, files)), *options)

    def measure(self, topic: str, count: int, size: int, *properties: str) -> None:
        """ProducerPerformance: `count` records of `size` bytes; it has to send them all."""
        load = ("--topic", topic, "--num-records", count, "--record-size", size, "--throughput", "-1")
        settings = ("--producer-props", f"bootstrap.servers={self.bootstrap}", *properties)
        output = self.succeed(_class_of("ProducerPerformance"), *load, *settings)
        assert f"{count} records sent" in output, output


def _class_of(name: str) -> str:
    return "kafka.admin.ConfigCommand" if name == "ConfigCommand" else f"org.apache.kafka.tools.{name}"


class ApacheKafka(Server):
    """Apache Kafka, one node, on a data directory that outlives it. `stop()` is a clean stop."""

    def __init__(self, classpath: str, directory: Path, properties: Mapping[str, str]) -> None:
        self._data = directory / "data"
        work = directory / f"run-{len(list(directory.iterdir())) if directory.exists() else 0}"
        work.mkdir(parents=True)
        port, controller = free_ports(2)
        settings = work / "server.properties"
        settings.write_text(_settings(self._data, port, controller, properties))
        if not self._data.exists():
            cluster_id = new_cluster_id()
            JavaTools(classpath).succeed("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", settings)
        command = ["java", "-Xmx512m", *SHARED, "-cp", classpath, "kafka.Kafka", str(settings)]
        super().__init__("kafka", work, port, command)

    @property
    def data(self) -> Path:
        """Where Kafka keeps its files; not removed with the server."""
        return self._data

    def kill(self) -> None:
        """kill -9."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def _settings(data: Path, port: int, controller_port: int, properties: Mapping[str, str]) -> str:
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(data),
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        **properties,
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())
