"""Apicurio Registry, which speaks Confluent's HTTP API, from the files that `make tools` fetched."""

import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from moldau.testing.ports import free_ports

VERSION = "3.0.9"
DIRECTORY = Path(__file__).parents[2] / ".tools" / f"apicurio-registry-{VERSION}"
START_TIMEOUT_S = 90.0
FLAGS = ("-Xmx300m", "-XX:TieredStopAtLevel=1", "-Dquarkus.http.host=127.0.0.1", "-Dquarkus.log.level=WARN")


@contextmanager
def registry_server() -> Iterator[str]:
    """The URL of a new, empty registry."""
    jar = DIRECTORY / f"apicurio-registry-app-{VERSION}-runner.jar"
    if not jar.exists():
        raise SystemExit("the Schema Registry is not there: run `make tools` first")
    (port,) = free_ports(1)  # Java takes seconds until it listens
    directory = Path(tempfile.mkdtemp(prefix="registry-"))
    command = ["java", *FLAGS, f"-Dquarkus.http.port={port}", "-jar", str(jar)]
    with (directory / "output.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=directory, stdout=log, stderr=subprocess.STDOUT)
    try:
        url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
        _wait(url, process, directory / "output.log")
        yield url
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(directory)


def _wait(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            urllib.request.urlopen(f"{url}/subjects", timeout=START_TIMEOUT_S).close()
            return
        except (urllib.error.URLError, ConnectionError):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the Schema Registry did not come up:\n{log.read_text()[-2000:]}") from None
            time.sleep(0.05)
