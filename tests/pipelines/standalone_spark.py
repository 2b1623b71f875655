"""A standalone Spark cluster and a Spark Connect server on loopback, from the PySpark that is installed."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from moldau.pipelines.spark.jars import cache_directory, connector_jars
from moldau.pipelines.spark.java import home_for_spark, java_home

HOME = Path(pyspark.__file__).parent
START_TIMEOUT_S = 90.0
LOOPBACK = "127.0.0.1"
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
SUBMIT = "org.apache.spark.deploy.SparkSubmit"
CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"


@dataclass(frozen=True, slots=True)
class Standalone:
    """A master and its workers."""

    url: str
    workers: "list[Server]"


@contextmanager
def standalone(directory: Path, cores: int, workers: int = 1) -> Iterator[Standalone]:
    """A master that has so many workers, with so many cores each."""
    ports = ("--host", LOOPBACK, "--port", "0", "--webui-port", "0")
    with ExitStack() as running:
        master = running.enter_context(_running(directory / "master", MASTER, *ports))
        url = master.says(r"Starting Spark master at (spark://\S+)")
        resources = ("--cores", str(cores), "--memory", "1g", "--work-dir", str(directory / "work"))
        made = [
            running.enter_context(_running(directory / f"worker-{number}", WORKER, *ports, *resources, url))
            for number in range(workers)
        ]
        for worker in made:
            worker.says(r"(Successfully registered) with master")
        yield Standalone(url, made)


@contextmanager
def connect_server(directory: Path) -> Iterator[str]:
    """The address of a Spark Connect server, started as docs/pipelines.md says."""
    settings = {"spark.connect.grpc.binding.address": LOOPBACK, "spark.connect.grpc.binding.port": "0"}
    settings |= {"spark.master": "local[2]", "spark.ui.enabled": "false", "spark.driver.host": LOOPBACK}
    given = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    jars = ("--jars", ",".join(map(str, connector_jars())))
    with _running(directory, SUBMIT, "--class", CONNECT, *given, *jars, "spark-internal") as server:
        yield f"sc://{LOOPBACK}:{server.says(r'Connect server started at: .*:([0-9]+)')}"


class Server:
    """A process, those that it starts, and its output."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self._process = process
        self._log = log

    def kill9(self) -> None:
        """Kill it with all that it has started: a worker with its executors."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def says(self, pattern: str) -> str:
        """Wait until the output has the pattern; returns the text in its brackets."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            said = self._log.read_text(errors="replace")
            found = re.search(pattern, said)
            if found is not None:
                return found[1]
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"it did not say {pattern!r}, but:\n{said[-3000:]}")
            time.sleep(0.05)


@contextmanager
def _running(directory: Path, *arguments: str) -> Iterator[Server]:
    directory.mkdir()
    log = directory / "output.log"
    home = home_for_spark(java_home(), cache_directory())
    environment = os.environ | {
        "JAVA_HOME": str(home),
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_DIRS": str(directory),
        "PYSPARK_PYTHON": sys.executable,
    }
    command = (str(HOME / "bin" / "spark-class"), *arguments)
    with log.open("wb") as written:
        process = subprocess.Popen(
            command, cwd=directory, env=environment, stdout=written, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        yield Server(process, log)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
