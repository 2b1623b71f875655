"""A standalone Spark cluster on loopback, from the PySpark that is installed."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from moldau.pipelines.spark.jars import cache_directory
from moldau.pipelines.spark.java import home_for_spark, java_home

HOME = Path(pyspark.__file__).parent
START_TIMEOUT_S = 90.0
LOOPBACK = "127.0.0.1"
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"


@contextmanager
def standalone(directory: Path, cores: int) -> Iterator[str]:
    """The URL of a master that has one worker."""
    ports = ("--host", LOOPBACK, "--port", "0", "--webui-port", "0")
    with _running(directory / "master", MASTER, *ports) as master:
        url = master.says(r"Starting Spark master at (spark://\S+)")
        resources = ("--cores", str(cores), "--memory", "1g", "--work-dir", str(directory / "work"))
        with _running(directory / "worker", WORKER, *ports, *resources, url) as worker:
            worker.says(r"(Successfully registered) with master")
            yield url


class _Server:
    """A process and its output."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self._process = process
        self._log = log

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
def _running(directory: Path, *arguments: str) -> Iterator[_Server]:
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
        yield _Server(process, log)
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()
