"""`moldau serve --brokers N`: how the brokers are planned, started, started again, and stopped."""

import asyncio
import itertools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from moldau.broker.supervisor import BrokerPlan, Supervisor, plan_brokers
from moldau.core.memory_files import MemoryFiles
from moldau.log.data_directory import DirectoryError
from tests.serving import UNWATCHED

DEADLINE_S = 60.0
USAGE_ERROR = 2


def properties_of(plan: BrokerPlan) -> dict[str, str]:
    given = plan.arguments
    overrides = [value for flag, value in itertools.pairwise(given) if flag == "--override"]
    return dict(override.split("=", 1) for override in overrides)


def test_every_broker_has_a_number_a_port_and_a_directory_of_its_own_and_one_store() -> None:
    plans = plan_brokers(3, {"log.dirs": "/d", "listeners": "PLAINTEXT://h:9092"}, ["f"], MemoryFiles())
    properties = [properties_of(plan) for plan in plans]
    assert [each["broker.id"] for each in properties] == ["1", "2", "3"]
    assert [each["listeners"] for each in properties] == [f"PLAINTEXT://h:{port}" for port in (9092, 9093, 9094)]
    assert [each["log.dirs"] for each in properties] == ["/d/broker-1", "/d/broker-2", "/d/broker-3"]
    assert {each["metadata.store.path"] for each in properties} == {"/d/metadata.sqlite"}
    assert [plan.address for plan in plans] == ["h:9092", "h:9093", "h:9094"]
    assert all(plan.arguments[0] == "f" for plan in plans)


def test_every_listener_and_every_data_directory_is_divided() -> None:
    given = {
        "log.dirs": "/a,/b",
        "listeners": "OUT://h:9000,IN://h:9100",
        "advertised.listeners": "OUT://public:80,IN://h:9100",
        "listener.security.protocol.map": "OUT:PLAINTEXT,IN:PLAINTEXT",
    }
    second = properties_of(plan_brokers(2, given, [], MemoryFiles())[1])
    assert second["log.dirs"] == "/a/broker-2,/b/broker-2"
    assert second["listeners"] == "OUT://h:9001,IN://h:9101"
    assert second["advertised.listeners"] == "OUT://public:81,IN://h:9101"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ["127.0.0.1:9404", "127.0.0.1:9405"]),
        ({"metrics.listener": "[::1]:7000"}, ["[::1]:7000", "[::1]:7001"]),
        ({"metrics.listener": ""}, ["nothing", "nothing"]),
    ],
)
def test_metrics_are_served_on_neighbouring_ports_too(given: dict[str, str], expected: list[str]) -> None:
    plans = plan_brokers(2, {"log.dirs": "/d", **given}, [], MemoryFiles())
    assert [properties_of(plan).get("metrics.listener", "nothing") for plan in plans] == expected


def test_free_ports_are_all_different() -> None:
    plans = plan_brokers(20, {"log.dirs": "/d", "listeners": "PLAINTEXT://127.0.0.1:0"}, [], MemoryFiles())
    assert len({plan.address for plan in plans}) == 20
    assert all(not plan.address.endswith(":0") for plan in plans)


@pytest.mark.parametrize(("count", "factor"), [(2, "2"), (5, "3")])
def test_the_topic_of_the_offsets_has_as_many_replicas_as_are_useful(count: int, factor: str) -> None:
    plans = plan_brokers(count, {"log.dirs": "/d"}, [], MemoryFiles())
    assert properties_of(plans[0])["offsets.topic.replication.factor"] == factor


def test_what_somebody_has_said_about_the_topic_of_the_offsets_stays() -> None:
    plans = plan_brokers(3, {"log.dirs": "/d", "offsets.topic.replication.factor": "1"}, [], MemoryFiles())
    assert "offsets.topic.replication.factor" not in properties_of(plans[0])


def test_the_directory_of_a_single_broker_is_refused() -> None:
    files = MemoryFiles()
    files.make_directory("/d")
    files.write_atomically("/d/meta.properties", b"broker.id=1001\n")
    with pytest.raises(DirectoryError, match="single broker"):
        plan_brokers(3, {"log.dirs": "/d"}, [], files)


class Supervised:
    """A supervisor and its brokers."""

    def __init__(self, data: Path, *arguments: str) -> None:
        self.errors = data.with_name("errors.log")
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "moldau",
                    "serve",
                    "--brokers",
                    "3",
                    "--data",
                    str(data),
                    *UNWATCHED,
                    *arguments,
                ],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def line_with(self, text: str) -> str:
        assert self.process.stdout is not None
        found = next((line for line in self.process.stdout if text in line), None)
        assert found is not None, self.errors.read_text()
        return found

    def pid_of(self, number: int) -> int:
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                command = path.read_bytes()
                parent = int(re.findall(r"\nPPid:\s+(\d+)", path.with_name("status").read_text())[0])
            except (OSError, IndexError):
                continue
            if parent == self.process.pid and f"broker.id={number}\0".encode() in command:
                return int(path.parent.name)
        raise AssertionError(f"there is no broker {number}")


@contextmanager
def supervised(data: Path, *arguments: str) -> Iterator[Supervised]:
    running = Supervised(data, *arguments)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.wait(DEADLINE_S)
        if running.process.stdout is not None:
            running.process.stdout.close()


def wait_for_brokers(bootstrap: str, numbers: set[int]) -> None:
    """Until whoever is asked knows of them: a broker that is ready is known to the others a moment later."""
    deadline = time.monotonic() + DEADLINE_S
    admin = AdminClient({"bootstrap.servers": bootstrap})
    while (known := set(admin.list_topics(timeout=DEADLINE_S).brokers)) != numbers:
        assert time.monotonic() < deadline, known
        time.sleep(0.01)


def test_a_broker_that_is_killed_comes_back_and_all_stop_together(tmp_path: Path) -> None:
    with supervised(tmp_path / "d", "--port", "0") as running:
        bootstrap = running.line_with("3 brokers are ready at ").rpartition(" ")[2].strip()
        wait_for_brokers(bootstrap, {1, 2, 3})
        victim = running.pid_of(2)
        os.kill(victim, signal.SIGKILL)
        running.line_with("broker 2 is ready")
        wait_for_brokers(bootstrap, {1, 2, 3})
        assert running.pid_of(2) != victim
        producer = Producer({"bootstrap.servers": bootstrap})
        producer.produce("events", b"v")
        assert producer.flush(DEADLINE_S) == 0
        children = [running.pid_of(number) for number in (1, 2, 3)]
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(DEADLINE_S) == 0
        assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]
    assert "broker 2 ended with signal 9; restarting in 0.5 s" in running.errors.read_text()


def test_brokers_do_not_outlive_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    with supervised(tmp_path / "d", "--port", "0") as running:
        running.line_with("3 brokers are ready at ")
        children = [Path(f"/proc/{running.pid_of(number)}") for number in (1, 2, 3)]
        running.process.kill()
        deadline = time.monotonic() + DEADLINE_S
        while any(child.exists() for child in children):
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_nonsense_is_refused_before_any_broker_is_started(tmp_path: Path) -> None:
    with supervised(tmp_path / "d", "--override", "listeners=NONSENSE") as running:
        assert running.process.wait(DEADLINE_S) == USAGE_ERROR
    assert not (tmp_path / "d").exists()


def test_a_broker_that_does_not_understand_its_options_stops_all() -> None:
    plans = [BrokerPlan(1, ("--no-such-option",), ""), BrokerPlan(2, ("--no-such-option",), "")]
    assert asyncio.run(asyncio.wait_for(Supervisor(plans, on_ready=lambda: None).run(), DEADLINE_S)) == USAGE_ERROR
