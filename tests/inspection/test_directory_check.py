"""`moldau log verify` finds what is broken, says where, changes nothing, and finds nothing in what is well."""

import json
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from moldau.testing.brokers import BrokerInThread, broker
from tests.cli.conftest import Ended
from tests.inspection.logs import every_kind, old_formats

SEGMENT = f"{0:020d}"
LATER = f"{22:020d}"

Run = Callable[[list[str], bytes], Ended]
Break = Callable[[Path], object]


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """A partition in a data directory that was closed."""
    data = tmp_path / "cluster" / "broker-1"
    path = every_kind(data)
    (data / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=abc\n")
    (data / ".kafka_cleanshutdown").write_text("")
    (data / "recovery-point-offset-checkpoint").write_text("0\n1\nevents 3 71\n")
    (data / "replication-offset-checkpoint").write_text("0\n1\nevents 3 71\n")
    return path


def verified(run_tool: Run, path: Path) -> tuple[int, dict[str, Any]]:
    ended = run_tool(["log", "verify", str(path), "--json"], b"")
    assert ended.errors == ""
    return ended.code, json.loads(ended.output)


def snapshot_of(directory: Path) -> dict[str, tuple[int, int, bytes]]:
    """Everything in a directory, with times."""
    files = [path for path in sorted(directory.rglob("*")) if path.is_file()]
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_ino, path.read_bytes()) for path in files}


def changed(path: Path, position: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[position : position + len(data)] = data
    path.write_bytes(content)


def test_a_directory_that_is_well_has_no_problem_and_is_not_touched(run_tool: Run, partition: Path) -> None:
    before = snapshot_of(partition.parent)
    code, told = verified(run_tool, partition.parent)
    assert (code, told["problems"], told["notes"]) == (0, [], [])
    assert told["partitions"] == 1
    assert told["segments"] == 3
    assert told["batches"] == 59
    assert told["bytes"] == sum(path.stat().st_size for path in partition.glob("*.log"))
    assert snapshot_of(partition.parent) == before


@pytest.mark.parametrize("where", ["partition", "directory", "cluster"])
def test_a_path_may_be_a_partition_a_data_directory_or_one_above(run_tool: Run, partition: Path, where: str) -> None:
    above = {"partition": partition, "directory": partition.parent, "cluster": partition.parent.parent}[where]
    code, told = verified(run_tool, above)
    assert (code, told["partitions"]) == (0, 1)


BROKEN: dict[str, tuple[Break, str]] = {
    "a flipped bit in a record": (
        lambda path: changed(path / f"{SEGMENT}.log", 100, b"\xaa"),
        "the checksum of the batch of",
    ),
    "a flipped bit in the last batch of a closed log": (
        lambda path: changed(path / f"{56:020d}.log", 395, b"\x7e"),
        "are missing",
    ),
    "a magic of nobody": (lambda path: changed(path / f"{LATER}.log", 16, b"\x09"), "no batch begins here"),
    "a hole of zeros": (lambda path: changed(path / f"{LATER}.log", 0, bytes(600)), "no batch begins here"),
    "a batch that comes twice": (
        lambda path: (path / f"{LATER}.log").write_bytes((path / f"{LATER}.log").read_bytes() * 2),
        "come after",
    ),
    "a tail cut off": (
        lambda path: os.truncate(path / f"{56:020d}.log", (path / f"{56:020d}.log").stat().st_size - 9),
        "are no whole batch",
    ),
    "an earlier segment cut off": (
        lambda path: os.truncate(path / f"{SEGMENT}.log", 1000),
        "are no whole batch",
    ),
    "an index entry into the middle of a batch": (
        lambda path: changed(path / f"{SEGMENT}.index", 4, struct.pack(">i", 271)),
        "into the middle of a batch",
    ),
    "an index entry with an offset that is too low": (
        lambda path: changed(path / f"{SEGMENT}.index", 40, struct.pack(">i", 3)),
        "does not come after",
    ),
    "an index behind the log": (
        lambda path: (path / f"{SEGMENT}.index").write_bytes(
            (path / f"{SEGMENT}.index").read_bytes() + struct.pack(">ii", 30, 999_999)
        ),
        "behind the last batch",
    ),
    "zeros behind the entries of an index that is closed": (
        lambda path: (path / f"{SEGMENT}.index").write_bytes((path / f"{SEGMENT}.index").read_bytes() + bytes(80)),
        "its last 10 entries are zeros",
    ),
    "half an index entry": (
        lambda path: (path / f"{SEGMENT}.index").write_bytes((path / f"{SEGMENT}.index").read_bytes() + b"\0"),
        "no multiple of 8",
    ),
    "a wrong time": (
        lambda path: changed(path / f"{SEGMENT}.timeindex", 0, struct.pack(">q", 5)),
        "the highest timestamp up to there is",
    ),
    "a wrong aborted transaction": (
        lambda path: changed(path / f"{LATER}.txnindex", 2, struct.pack(">q", 99)),
        "ends a transaction of producer 7, not of 99",
    ),
    "a broken snapshot": (lambda path: changed(path / f"{71:020d}.snapshot", 20, b"\xff"), "CRC is no longer valid"),
    "epochs that do not fit": (
        lambda path: (path / "leader-epoch-checkpoint").write_text("0\n1\n7 0\n"),
        "it has epoch 7 at offset 0",
    ),
    "a torn checkpoint": (
        lambda path: (path.parent / "replication-offset-checkpoint").write_text("0\n2\nevents 3"),
        "it is no checkpoint",
    ),
    "a high watermark behind the log": (
        lambda path: (path.parent / "replication-offset-checkpoint").write_text("0\n1\nevents 3 99\n"),
        "the high watermark in the checkpoint is 99",
    ),
    "a file without an id": (
        lambda path: (path / "partition.metadata").write_text("version: 0\n"),
        "names no topic id",
    ),
    "an owner that nobody knows": (
        lambda path: (path.parent / "meta.properties").write_text("version=0\n"),
        "does not say cluster.id and broker.id",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_found_and_said_in_one_line(run_tool: Run, partition: Path, name: str) -> None:
    spoil, complaint = BROKEN[name]
    spoil(partition)
    ended = run_tool(["log", "verify", str(partition.parent)], b"")
    assert ended.code == 1
    problems = [line for line in ended.output.splitlines() if line.startswith("problem: ")]
    assert problems
    assert any(complaint in line for line in problems), problems
    assert all("; " in line for line in problems)
    assert "Traceback" not in ended.errors


def test_a_torn_tail_above_the_recovery_point_is_a_note_after_a_crash(run_tool: Run, partition: Path) -> None:
    (partition.parent / ".kafka_cleanshutdown").unlink()
    (partition.parent / "recovery-point-offset-checkpoint").write_text("0\n1\nevents 3 60\n")
    (partition.parent / "replication-offset-checkpoint").write_text("0\n1\nevents 3 60\n")
    last = partition / f"{56:020d}.log"
    os.truncate(last, last.stat().st_size - 9)
    (partition / f"{71:020d}.snapshot").unlink()
    code, told = verified(run_tool, partition.parent)
    assert (code, told["problems"]) == (0, [])
    assert "a torn tail: " in told["notes"][0]["what"]


def test_what_a_power_cut_leaves_of_bytes_that_were_not_synced_is_a_note(run_tool: Run, partition: Path) -> None:
    (partition.parent / ".kafka_cleanshutdown").unlink()
    (partition.parent / "recovery-point-offset-checkpoint").write_text("0\n1\nevents 3 60\n")
    (partition.parent / "replication-offset-checkpoint").write_text("0\n1\nevents 3 60\n")
    last = partition / f"{56:020d}.log"
    size = last.stat().st_size
    os.truncate(last, size - 80)
    os.truncate(last, size)  # the file got its size, and zeros
    (partition / f"{71:020d}.snapshot").write_bytes(b"")
    (partition / "partition.metadata").write_bytes(b"")
    code, told = verified(run_tool, partition.parent)
    assert (code, told["problems"]) == (0, [])
    whats = [each["what"] for each in told["notes"]]
    assert [word for word in ("a torn tail: ", "is no snapshot", "names no topic id") if word not in str(whats)] == []


def test_messages_of_old_formats_are_checked(run_tool: Run, tmp_path: Path) -> None:
    path = old_formats(tmp_path)
    assert verified(run_tool, path)[0] == 0
    changed(path / f"{SEGMENT}.log", 28, b"\xaa")
    code, told = verified(run_tool, path)
    assert code == 1
    assert "checksum" in told["problems"][0]["what"]


@pytest.mark.parametrize("content", [None, "holiday.jpg", f"{SEGMENT}.log"])
def test_directories_that_are_empty_or_of_another_program(run_tool: Run, tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / content).write_bytes(b"")
    ended = run_tool(["log", "verify", str(tmp_path)], b"")
    is_partition = content is not None and content.endswith(".log")
    assert ended.code == (0 if is_partition else 1)
    assert ended.errors.count("\n") == (0 if is_partition else 1)


def test_a_missing_directory_is_one_line(run_tool: Run, tmp_path: Path) -> None:
    ended = run_tool(["log", "verify", str(tmp_path / "nowhere")], b"")
    assert (ended.code, ended.errors.count("\n")) == (1, 1)
    assert "No such file or directory" in ended.errors


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerInThread]:
    with broker({}, tmp_path_factory.mktemp("running")) as running:
        producer = Producer({"bootstrap.servers": running.bootstrap, "linger.ms": 0})
        for number in range(2000):
            producer.produce("visits", b"%d " % number * 50)
            producer.poll(0)
        producer.flush()
        yield running


def test_the_directory_of_a_running_broker_is_well_and_its_lock_stays(run_tool: Run, running: BrokerInThread) -> None:
    code, told = verified(run_tool, Path(running.data))
    assert (code, told["problems"]) == (0, [])
    assert told["isRunning"]
    assert told["batches"] > 0
    again = BrokerInThread(running.data)
    with pytest.raises(Exception, match="in use"):
        again.start()


def test_a_tail_that_is_being_written_is_no_problem(run_tool: Run, running: BrokerInThread) -> None:
    (segment,) = Path(running.data).glob("visits-0/*.log")
    whole = segment.stat().st_size
    with segment.open("ab") as file:
        file.write(segment.read_bytes()[:45])
    ended = run_tool(["log", "verify", str(segment.parent)], b"")
    os.truncate(segment, whole)
    assert ended.code == 0, ended.output
    assert "45 bytes behind the last whole batch: the broker is writing" in ended.output
