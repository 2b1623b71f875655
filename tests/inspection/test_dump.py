"""Dumps say the same as Kafka's DumpLogSegments, line by line, of files of every kind, also of broken ones."""

import json
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.conftest import Ended
from tests.clients.java_client import SHARED
from tests.inspection.logs import every_kind, group_records, old_formats, transaction_records

DRIVER = Path(__file__).parents[1] / "java" / "DumpDriver.java"
SEGMENT = f"{0:020d}"

Run = Callable[[list[str], bytes], Ended]


class Dumps(NamedTuple):
    """Arguments of dumps, and what Kafka's tool says to them."""

    lines: dict[str, str]
    said: dict[str, list[str]]


def flip(path: Path, position: int) -> None:
    """Change one bit of a file."""
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def files_of(directory: Path, *suffixes: str) -> str:
    return ",".join(str(path) for path in sorted(directory.iterdir()) if path.suffix in suffixes)


def broken(directory: Path) -> Path:
    """A partition with wrong entries in its indexes, a wrong checksum and a torn tail."""
    path = every_kind(directory)
    index, times, log = (path / f"{SEGMENT}{suffix}" for suffix in (".index", ".timeindex", ".log"))
    data = bytearray(index.read_bytes())
    data[8:12] = struct.pack(">i", struct.unpack_from(">i", data, 8)[0] + 1)
    index.write_bytes(data)
    data = bytearray(times.read_bytes())
    data[12:20] = struct.pack(">q", 17)
    times.write_bytes(data)
    flip(log, 90)
    log.write_bytes(log.read_bytes() + b"\0\0\0torn")
    return path


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    directory = tmp_path_factory.mktemp("dumped")
    kinds = every_kind(directory)
    torn = broken(directory / "broken")
    all_files = files_of(kinds, ".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    old = old_formats(directory) / f"{SEGMENT}.log"
    return {
        "batches": f"--files {all_files}",
        "records": f"--files {all_files} --deep-iteration",
        "contents": f"--files {all_files} --print-data-log",
        "bare contents": f"--files {files_of(kinds, '.log')} --print-data-log --skip-record-metadata",
        "some bytes": f"--files {files_of(kinds, '.log')} --max-bytes 700",
        "sane indexes": f"--files {files_of(kinds, '.index', '.timeindex')} --index-sanity-check",
        "verified indexes": f"--files {files_of(kinds, '.index', '.timeindex')} --verify-index-only",
        "old formats": f"--files {old} --print-data-log",
        "groups": f"--files {group_records(directory)} --offsets-decoder",
        "transactions": f"--files {transaction_records(directory)} --transaction-log-decoder",
        "broken": f"--files {files_of(torn, '.log', '.index', '.timeindex')} --deep-iteration",
    }


@pytest.fixture(scope="module")
def dumps(kafka_classpath: str, lines: dict[str, str]) -> Dumps:
    ended = subprocess.run(
        ["java", *SHARED, "-cp", kafka_classpath, str(DRIVER)],
        input="".join(f"{line}\n" for line in lines.values()),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-2000:]
    parts = ended.stdout.split("===\n")[:-1]
    return Dumps(lines, {name: part.splitlines() for name, part in zip(lines, parts, strict=True)})


CASES = (
    *("batches", "records", "contents", "bare contents", "some bytes", "sane indexes", "verified indexes"),
    *("old formats", "groups", "transactions", "broken"),
)


@pytest.mark.parametrize("case", CASES)
def test_a_dump_says_what_kafkas_tool_says(dumps: Dumps, run_tool: Run, case: str) -> None:
    ended = run_tool(["log", "dump", *dumps.lines[case].split()], b"")
    said, complaints = ended.output.splitlines(), ended.errors.splitlines()
    assert dumps.said[case][: len(said)] == said
    # Kafka tells the files with complaints in the order of a hash table.
    assert sorted(dumps.said[case][len(said) :]) == sorted(complaints)
    assert said
    assert ended.code == (1 if case == "broken" else 0)


@pytest.mark.parametrize("case", CASES)
def test_json_has_one_value_on_each_line(lines: dict[str, str], run_tool: Run, case: str) -> None:
    ended = run_tool(["log", "dump", *lines[case].split(), "--json"], b"")
    rows = [json.loads(line) for line in ended.output.splitlines()]
    assert all(row["file"] and row["kind"] for row in rows)
    if case == "groups":
        keys = {row["key"]["type"] for row in rows if row["kind"] == "record" and isinstance(row["key"], dict)}
        assert keys == {"1", "2", "3", "5", "6", "7", "8", "16"}


def test_checkpoints_and_properties_are_dumped(run_tool: Run, tmp_path: Path) -> None:
    partition = every_kind(tmp_path)
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\nevents 3 69\n")
    (tmp_path / "meta.properties").write_text("#comment\nversion=1\nnode.id=1\ncluster.id=abc\n")
    (partition / "partition.metadata").write_text("version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw")
    ended = run_tool(["log", "dump", str(tmp_path)], b"")
    assert "topic: events partition: 3 offset: 69\n" in ended.output
    assert "node.id: 1\ncluster.id: abc\n" in ended.output
    ended = run_tool(["log", "dump", str(partition)], b"")
    assert "topic_id: AAECAwQFBgcICQoLDA0ODw\n" in ended.output
    assert "epoch: 2 startOffset: 54\n" in ended.output
    assert ended.code == 0


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("holiday.jpg", b"\xff\xd8", "Ignoring unknown file"),
        (f"{SEGMENT}.snapshot", b"", "is no snapshot"),
        (f"{SEGMENT}.snapshot", b"\0\1" + bytes(8), "Snapshot is corrupt"),
        (f"{SEGMENT}.txnindex", bytes(33), "ends inside an entry"),
        ("leader-epoch-checkpoint", b"nonsense", "is no checkpoint"),
        ("leader-epoch-checkpoint", b"0\n1\n1 2 3\n", "is no checkpoint"),
        ("meta.properties", b"\xff\xfe", "is not text"),
        ("notes.index", bytes(16), "is not named after an offset"),
        (f"{SEGMENT}.log", bytes(100), "cannot be"),
    ],
)
def test_a_file_that_is_broken_or_not_ours_is_one_line(
    run_tool: Run, tmp_path: Path, name: str, content: bytes, complaint: str
) -> None:
    (tmp_path / name).write_bytes(content)
    ended = run_tool(["log", "dump", str(tmp_path / name)], b"")
    assert ended.code == 1
    assert complaint in ended.errors
    assert ended.errors.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--cluster-metadata-decoder"], "--cluster-metadata-decoder is not served"),
        (["--value-decoder-class", "com.shop.Decoder"], "classes of Java cannot be loaded"),
    ],
)
def test_what_is_not_served_is_refused_by_name(run_tool: Run, arguments: list[str], complaint: str) -> None:
    ended = run_tool(["log", "dump", "x.log", *arguments], b"")
    assert (ended.code, ended.errors.count("\n")) == (1, 1)
    assert complaint in ended.errors


def test_an_empty_segment_and_a_missing_file(run_tool: Run, tmp_path: Path) -> None:
    (tmp_path / f"{SEGMENT}.log").write_bytes(b"")
    assert run_tool(["log", "dump", str(tmp_path / f"{SEGMENT}.log")], b"").code == 0
    missing = run_tool(["log", "dump", str(tmp_path / f"{7:020d}.log")], b"")
    assert missing.code == 1
    assert "No such file" in missing.errors
