"""A server that speaks MongoDB's protocol (mongo-java-server, in memory), since Debian has no MongoDB."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

VERSION = "1.46.0"
ROOT = Path(__file__).parents[2]
JARS = ROOT / ".tools" / f"mongo-java-server-{VERSION}"


@contextmanager
def running() -> Iterator[str]:
    """The address of a running server."""
    if not JARS.is_dir():
        raise FileNotFoundError("mongo-java-server is not there: run `make tools`")
    launcher = ROOT / "tests" / "java" / "MongoServer.java"
    command = ["java", "-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{JARS}/*", str(launcher)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            address = server.stdout.readline().strip()
            if not address:
                raise RuntimeError("mongo-java-server did not start")
            yield address
        finally:
            server.kill()
