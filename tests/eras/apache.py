"""A broker of Apache Kafka 0.10.2.0, to compare answers with."""

import json
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kazoo.client import KazooClient  # type: ignore[import-untyped]  # no type information

from moldau.testing.ports import HOST, free_ports
from tests.eras.era import JAVA, LAST, TOOLS

READY_TIMEOUT_S = 90.0


@contextmanager
def running_kafka(zookeeper: str, directory: Path, message_format: str) -> Iterator[str]:
    """What clients take as `bootstrap.servers`. The broker is killed afterwards, its files are not looked at."""
    _give_cluster_id(zookeeper)
    (port,) = free_ports(1)
    properties = {
        "broker.id": "0",
        "listeners": f"PLAINTEXT://{HOST}:{port}",
        "log.dirs": str(directory / "kafka-logs"),
        "zookeeper.connect": zookeeper,
        "log.message.format.version": message_format,
        "log.cleaner.enable": "false",
    }
    path = directory / "server.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    with open(directory / "output", "wb") as output:
        process = subprocess.Popen(
            [*JAVA, "-cp", f"{TOOLS}/kafka-{LAST}/*", "kafka.Kafka", str(path)], stdout=output, stderr=output
        )
        try:
            _wait_until_it_listens(process, port)
            yield f"{HOST}:{port}"
        finally:
            process.kill()
            process.wait()


def _give_cluster_id(zookeeper: str) -> None:
    """A broker of that time makes its id with a class that Java has lost since; it takes one that is there."""
    hosts, _, chroot = zookeeper.partition("/")
    client = KazooClient(hosts=hosts)
    client.start()
    try:
        data = json.dumps({"version": "1", "id": "AAAAAAAAAAAAAAAAAAAAAA"}).encode()
        client.create(f"/{chroot}/cluster/id", data, makepath=True)
    finally:
        client.stop()
        client.close()


def _wait_until_it_listens(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection((HOST, port), 1.0).close()
            return
        except ConnectionRefusedError:
            time.sleep(0.05)
    raise RuntimeError("Apache Kafka does not start")
