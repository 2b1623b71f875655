"""Clusters of three on one machine: Apache Kafka's (KRaft, every node both broker and controller) and Moldau's.

A cluster is its processes and one temporary directory; it can lose a node by `kill -9` and get it back with its data.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.kafka import classpath, java, new_cluster_id
from bench.process import START_TIMEOUT_S, STOP_TIMEOUT_S, ServerDied, answers, cpu_s_of, resident_mb_of
from bench.report import KAFKA, MOLDAU
from moldau.testing.ports import free_ports

NODES = 3
LOOK_S = 0.005

# What Kafka's own start script gives its broker, with half the heap: three of them and their clients share a machine.
_KAFKA_FLAGS = (
    "-Xmx512m",
    "-Xms512m",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)


class Node:
    """One broker process; its data outlives it."""

    def __init__(self, name: str, directory: Path, port: int, command: Sequence[str]) -> None:
        self.bootstrap = f"127.0.0.1:{port}"
        self._name = name
        self._port = port
        self._log = directory / f"{name}.log"
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, start_new_session=True)

    def wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not answers(self._port):
            if self._pid is None or time.monotonic() > deadline:
                raise ServerDied(f"{self._name} did not come up:\n{self._log.read_text()[-2000:]}")
            time.sleep(LOOK_S)

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Cleanly, if it does so in time."""
        try:
            self._end(signal.SIGTERM)
        except subprocess.TimeoutExpired:
            self.kill()

    def cpu_s(self) -> float:
        return cpu_s_of(self._pid) if self._pid is not None else 0.0

    def resident_mb(self) -> float:
        return resident_mb_of(self._pid) if self._pid is not None else 0.0

    @property
    def _pid(self) -> int | None:
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None and self._pid is not None:
            os.killpg(self._process.pid, number)
            self._process.wait(STOP_TIMEOUT_S)


class Cluster:
    """Nodes by broker id. Leaving its context kills the nodes and removes their files."""

    def __init__(self, name: str, directory: Path, nodes: Mapping[int, Node]) -> None:
        self.name = name
        self.nodes = nodes
        self._directory = directory

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes.values())

    def start(self) -> float:
        """Seconds until every node answers."""
        begun = time.monotonic()
        for node in self.nodes.values():
            node.begin()
        for node in self.nodes.values():
            node.wait_until_it_answers()
        return time.monotonic() - begun

    def stop(self) -> None:
        for node in self.nodes.values():
            node.stop()

    def cpu_s(self) -> float:
        return sum(node.cpu_s() for node in self.nodes.values())

    def resident_mb(self) -> float:
        return sum(node.resident_mb() for node in self.nodes.values())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in self.nodes.values():
            node.kill()
        shutil.rmtree(self._directory, ignore_errors=True)


def kafka_cluster(more: Mapping[str, str] | None = None) -> Cluster:
    """Three nodes of Apache Kafka, formatted and not yet started."""
    directory = Path(tempfile.mkdtemp(prefix="kafka-cluster-"))
    ports = free_ports(2 * NODES)
    voters = ",".join(f"{number}@127.0.0.1:{ports[NODES + number - 1]}" for number in _ids())
    cluster_id = new_cluster_id()
    nodes = {}
    for number in _ids():
        port, controller = ports[number - 1], ports[NODES + number - 1]
        settings = {
            "process.roles": "broker,controller",
            "node.id": str(number),
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "controller.listener.names": "CONTROLLER",
            "transaction.state.log.replication.factor": str(NODES),
            **_common(directory, number),
            **(more or {}),
        }
        file = _write(directory, number, settings)
        java("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(file))
        nodes[number] = Node(
            f"kafka-{number}", directory, port, ["java", *_KAFKA_FLAGS, "-cp", classpath(), "kafka.Kafka", str(file)]
        )
    return Cluster(KAFKA, directory, nodes)


def moldau_cluster(more: Mapping[str, str] | None = None) -> Cluster:
    """Three brokers of ours over one embedded store, not yet started."""
    directory = Path(tempfile.mkdtemp(prefix="moldau-cluster-"))
    nodes = {}
    for number, port in zip(_ids(), free_ports(NODES), strict=True):
        settings = {
            "broker.id": str(number),
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "metadata.store.path": str(directory / "metadata.sqlite"),
            "log.flush.policy": "os",
            **_common(directory, number),
            **(more or {}),
        }
        file = _write(directory, number, settings)
        command = [sys.executable, "-m", "moldau", "serve", str(file), "--log-level", "warning"]
        nodes[number] = Node(f"moldau-{number}", directory, port, command)
    return Cluster(MOLDAU, directory, nodes)


def _ids() -> range:
    return range(1, NODES + 1)


def _common(directory: Path, number: int) -> dict[str, str]:
    return {
        "log.dirs": str(directory / f"data-{number}"),
        "offsets.topic.replication.factor": str(NODES),
        "min.insync.replicas": "2",
        "group.initial.rebalance.delay.ms": "0",
    }


def _write(directory: Path, number: int, settings: Mapping[str, str]) -> Path:
    file = directory / f"{number}.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return file
