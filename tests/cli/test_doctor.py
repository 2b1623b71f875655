"""`moldau doctor` on clusters, Moldau's and Apache Kafka's, and on data directories: each fault has its diagnosis."""

import json
import os
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from moldau.cli import doctor_cluster, doctor_directory, transactions
from moldau.testing.brokers import BrokerInThread, broker
from moldau.testing.clusters import ClusterInThread, cluster
from tests.cli.conftest import Ended, Tool
from tests.docs.command_lines import calls, problem
from tests.transaction_servers import hang, new_topic

Run = Callable[[list[str], bytes], Ended]
QUICK = ("--watch", "0.2")
DISK_LOW = doctor_cluster.DISK_LOW


@pytest.fixture(autouse=True)
def disk_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk that these tests run on may be as full as it likes."""
    for module in (doctor_cluster, doctor_directory):
        monkeypatch.setattr(module, "DISK_LOW", 0.0)


def found(tool: Tool) -> dict[str, dict[str, Any]]:
    """The diagnoses of a cluster, by the name of the check."""
    ended = tool("doctor", "--json", *QUICK)
    told = json.loads(ended.output)
    assert ended.code == int(any(each["severity"] != "notice" for each in told))
    assert all(each["remedy"] for each in told)
    ensure_understood(told)
    return {each["check"]: each for each in told}


def ensure_understood(told: list[dict[str, Any]]) -> None:
    """Fail for a remedy with a command that its parser does not take."""
    for each in told:
        for line in re.findall(r"moldau [^;(,]+", each["remedy"]):
            assert [problem(call) for call in calls(line)] == [None], line


def commit(bootstrap: str, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def fill(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=0)
    producer.flush()


def test_offsets_out_of_range_and_groups_without_members_are_found(either_tool: Tool, either_bootstrap: str) -> None:
    topic = new_topic(either_bootstrap)
    fill(either_bootstrap, topic, 20)
    commit(either_bootstrap, f"{topic}-beyond", topic, 99)
    commit(either_bootstrap, f"{topic}-idle", topic, 5)
    told = found(either_tool)
    assert any(each.startswith(f"{topic}-beyond ") for each in told["offsets-behind-log"]["subjects"])
    remedy = told["offsets-behind-log"]["remedy"]
    assert f"moldau groups reset {topic}-beyond --topic {topic}:0 " in remedy
    either_tool.ok(*remedy.split()[1:])
    assert "offsets-behind-log" not in found(either_tool)
    assert f"{topic}-idle" in told["groups-without-members"]["subjects"]


def test_a_group_that_falls_behind_while_nothing_is_committed_is_found(
    tool: Tool, moldau_broker: BrokerInThread
) -> None:
    bootstrap = moldau_broker.bootstrap
    topic = new_topic(bootstrap)
    fill(bootstrap, topic, 5)
    settings = {"bootstrap.servers": bootstrap, "group.id": "slow", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.subscribe([topic])
    while (record := consumer.poll(1.0)) is None or record.error():
        pass
    consumer.commit(message=record, asynchronous=False)
    stop = threading.Event()

    def produce() -> None:
        while not stop.is_set():
            fill(bootstrap, topic, 1)

    writer = threading.Thread(target=produce)
    writer.start()
    try:
        assert found(tool)["lag-grows"]["subjects"] == ["slow"]
    finally:
        stop.set()
        writer.join()
        consumer.close()


def test_an_unclean_election_that_is_allowed_is_found(either_tool: Tool, topic: str) -> None:
    either_tool.ok("topics", "create", topic, "--config", "unclean.leader.election.enable=true")
    told = found(either_tool)["unclean-election"]
    assert topic in told["subjects"]
    either_tool.ok("topics", "alter", topic, "--delete-config", "unclean.leader.election.enable")
    assert "unclean-election" not in found(either_tool)


def test_a_transaction_that_hangs_is_found_with_the_command_that_ends_it(run_tool: Run) -> None:
    with broker({"transaction.partition.verification.enable": "false"}) as running:
        topic = new_topic(running.bootstrap)
        hang(running.bootstrap, topic, 0, age_ms=3_600_000)
        tool = Tool(running.bootstrap, run_tool)
        told = found(tool)["transactions-hang"]
        assert told["subjects"] == [f"{topic}-0"]
        command = told["remedy"].split()
        assert command[:2] == ["moldau", "transactions"]
        assert transactions.main([*command[2:], "--bootstrap-server", running.bootstrap]) == 0
        run_tool(["--version"], b"")  # takes away what was printed
        ended = tool("doctor", *QUICK)
        assert (ended.code, ended.output) == (0, f"{running.bootstrap}: nothing is wrong.\n")


@pytest.fixture(scope="module")
def three() -> Iterator[ClusterInThread]:
    with cluster(3, {"auto.leader.rebalance.enable": "false"}) as running:
        yield running


def test_a_broker_that_is_gone_is_seen_in_its_partitions(three: ClusterInThread, run_tool: Run, topic: str) -> None:
    tool = Tool(three.bootstrap, run_tool)
    assert found(tool) == {}
    settings = ("--config", "min.insync.replicas=3")
    tool.ok("topics", "create", topic, "--replica-assignment", "3:1:2")
    tool.ok("topics", "create", f"{topic}-strict", "--replica-assignment", "1:2:3", *settings)
    tool.ok("topics", "create", f"{topic}-single", "--replica-assignment", "3")
    assert set(found(tool)) == {"topics-single"}
    three.stop(3)
    three.wait_for_isr(topic, {1, 2})
    three.wait(lambda image: image.topics[f"{topic}-single"].partitions[0].leader == -1)
    told = found(Tool(three.bootstrap, run_tool))
    assert told["offline-partitions"]["subjects"] == [f"{topic}-single-0"]
    assert "start broker 3" in told["offline-partitions"]["remedy"]
    assert told["under-min-isr"]["subjects"] == [f"{topic}-strict-0"]
    assert f"{topic}-0" in told["under-replicated"]["subjects"]
    ended = Tool(three.bootstrap, run_tool)("doctor", *QUICK)
    severities = [line.split(":")[0] for line in ended.output.splitlines() if not line.startswith(" ")][:-1]
    assert severities == sorted(severities, key=["critical", "warning", "notice"].index)
    three.start(3)
    three.wait_for_isr(topic, {1, 2, 3})
    assert f"{topic}-0" in found(Tool(three.bootstrap, run_tool))["leaders-unbalanced"]["subjects"]


# --- data directories ---


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    (path / "visits-0").mkdir(parents=True)
    (path / "visits-0" / f"{0:020d}.log").write_bytes(b"")
    (path / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=abc\n")
    (path / ".kafka_cleanshutdown").write_text("")
    return path


def diagnosed(run_tool: Run, path: Path) -> tuple[int, dict[str, dict[str, Any]]]:
    ended = run_tool(["doctor", str(path), "--json"], b"")
    return ended.code, {each["check"]: each for each in json.loads(ended.output)}


@pytest.mark.parametrize(
    ("free", "inodes_free", "told"),
    [
        (0.5, 0.5, []),
        (0.09, 0.5, [("disk-nearly-full", "warning")]),
        (0.02, 0.5, [("disk-nearly-full", "critical")]),
        (0.5, 0.02, [("inodes-nearly-gone", "critical")]),
    ],
)
def test_a_disk_without_room_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free: float, inodes_free: float, told: list[tuple[str, str]]
) -> None:
    left, files_left = int(1000 * free), int(1000 * inodes_free)
    disk = SimpleNamespace(f_bavail=left, f_blocks=1000, f_frsize=4096, f_favail=files_left, f_files=1000)
    monkeypatch.setattr(doctor_directory, "DISK_LOW", DISK_LOW)
    monkeypatch.setattr("os.statvfs", lambda _: disk)
    assert [(each.check, each.severity) for each in doctor_directory._check_room(str(tmp_path))] == told


def test_a_directory_that_is_well(run_tool: Run, data: Path) -> None:
    assert diagnosed(run_tool, data) == (0, {})


SPOILT: dict[str, tuple[Callable[[Path], object], str, int]] = {
    "no owner": (lambda path: (path / "meta.properties").unlink(), "no-meta-properties", 1),
    "not closed": (lambda path: (path / ".kafka_cleanshutdown").unlink(), "unclean-shutdown", 0),
    "a stray": (lambda path: (path / f"gone-0.{'0' * 32}-stray").mkdir(), "stray-directories", 1),
    "left alone": (lambda path: (path / "left-alone").write_text("visits-0\n"), "left-alone", 1),
    "not to be read": (lambda path: (path / "visits-0" / f"{0:020d}.log").chmod(0), "wrong-permissions", 1),
    "open to all": (lambda path: path.chmod(0o777), "open-to-all", 1),
    "a broken checkpoint": (lambda path: (path / "log-start-offset-checkpoint").write_text("?"), "file", 1),
}


@pytest.mark.parametrize("name", SPOILT)
def test_a_fault_of_a_directory_is_found(run_tool: Run, data: Path, name: str) -> None:
    spoil, check, expected = SPOILT[name]
    spoil(data)
    code, told = diagnosed(run_tool, data)
    assert check in told
    assert code == expected


def test_files_of_another_user_are_found(run_tool: Run, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner is made up: only root may give files away."""
    real = os.lstat

    def told_of_another(path: str) -> os.stat_result:
        found = list(real(path))
        found[4] += os.path.basename(path) == "visits-0"
        return os.stat_result(found)

    monkeypatch.setattr(os, "lstat", told_of_another)
    code, told = diagnosed(run_tool, data)
    assert (code, told["wrong-owner"]["subjects"]) == (1, [str(data / "visits-0")])


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nowhere"], "is no directory"),
        (["."], "neither a partition's directory nor a data directory"),
        (["--bootstrap-server", "127.0.0.1:1"], "no broker answers"),
    ],
)
def test_mistakes_are_one_line(
    run_tool: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], complaint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = run_tool(["doctor", *arguments], b"")
    assert (ended.code, ended.errors.count("\n")) == (1, 1)
    assert complaint in ended.errors
