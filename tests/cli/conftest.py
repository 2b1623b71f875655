"""The tools in this process, on a broker of their own."""

import io
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer

from moldau.__main__ import main
from moldau.cli.failures import EXIT_FAILED, EXIT_USAGE
from moldau.testing.brokers import BrokerInThread
from tests.transaction_servers import TIMEOUT_S, new_topic, server

COUNT = 10
"""Records in each partition of the topic that is filled."""
STEP_MS = 3_600_000
FOR_EVER = {"log.retention.ms": "-1"}
"""Records of years ago are read, too; a broker looks for those to delete every five minutes."""


class Ended(NamedTuple):
    """What a command left behind."""

    code: int
    output: str
    errors: str


class Tool:
    """Runs `moldau COMMAND ...` against the broker."""

    def __init__(self, bootstrap: str, run: Callable[[list[str], bytes], Ended]) -> None:
        self._bootstrap = bootstrap
        self._run = run

    def __call__(self, command: str, *arguments: str, stdin: bytes = b"") -> Ended:
        return self._run([command, *arguments, "--bootstrap-server", self._bootstrap], stdin)

    def ok(self, command: str, *arguments: str, stdin: bytes = b"") -> str:
        """The output of a command that must succeed."""
        ended = self(command, *arguments, stdin=stdin)
        assert ended.code == 0, ended.errors
        return ended.output

    def error(self, command: str, *arguments: str, stdin: bytes = b"") -> str:
        """The one line that a failing command says. Which of the two codes it is: `test_mistakes`."""
        ended = self(command, *arguments, stdin=stdin)
        assert ended.code in (EXIT_FAILED, EXIT_USAGE)
        assert ended.errors.count("\n") == 1
        return ended.errors


@pytest.fixture
def run_tool(
    capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> Callable[[list[str], bytes], Ended]:
    def run(arguments: list[str], stdin: bytes) -> Ended:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main(arguments)
        output, errors = capsysbinary.readouterr()
        return Ended(code, output.decode(), errors.decode())

    return run


@pytest.fixture(autouse=True)
def nobodys_clusters(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An environment without the clusters of whoever runs the tests."""
    for name in ("MOLDAU_BOOTSTRAP_SERVER", "MOLDAU_CLUSTER", "MOLDAU_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("MOLDAU_TRACEBACK", "1")  # a defect of ours is to fail the test, and to show where it is


@pytest.fixture(scope="session")
def apache_bootstrap(kafka_classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with server("apache", kafka_classpath, tmp_path_factory.mktemp("server"), FOR_EVER) as address:
        yield address


@pytest.fixture(scope="session")
def our_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with server("moldau", "", tmp_path_factory.mktemp("server"), FOR_EVER) as address:
        yield address


@pytest.fixture(scope="session", params=[pytest.param("apache", marks=pytest.mark.foreign), "moldau"])
def either_bootstrap(request: pytest.FixtureRequest) -> str:
    """Apache Kafka, or a broker of ours: the tools work on both. Each is started once for all tests of a process."""
    found: str = request.getfixturevalue("apache_bootstrap" if request.param == "apache" else "our_bootstrap")
    return found


@pytest.fixture
def either_tool(either_bootstrap: str, run_tool: Callable[[list[str], bytes], Ended]) -> Tool:
    return Tool(either_bootstrap, run_tool)


@pytest.fixture
def tool(moldau_broker: BrokerInThread, run_tool: Callable[[list[str], bytes], Ended]) -> Tool:
    return Tool(moldau_broker.bootstrap, run_tool)


@pytest.fixture
def topic() -> str:
    """A name that no other test uses."""
    return f"topic-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="session")
def filled(either_bootstrap: str) -> str:
    """A topic with two partitions of ten records, one for each of the last ten hours, the oldest first."""
    topic = new_topic(either_bootstrap, partitions=2)
    begin_ms = time.time_ns() // 1_000_000 - COUNT * STEP_MS
    producer = Producer({"bootstrap.servers": either_bootstrap})
    for number in range(COUNT):
        for partition in (0, 1):
            producer.produce(topic, b"x", partition=partition, timestamp=begin_ms + number * STEP_MS)
    assert producer.flush(TIMEOUT_S) == 0
    return topic


@pytest.fixture
def group(topic: str) -> str:
    """A name that no other test uses."""
    return topic.replace("topic", "group")
