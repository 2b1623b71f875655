"""Kafka's own DumpLogSegments reads what we wrote, and finds nothing wrong."""

import re
from pathlib import Path

import pytest

from moldau.core.clock import ManualClock
from moldau.core.real_files import RealFiles
from moldau.core.topic_config import TopicConfig
from moldau.log.log import Log
from tests.log.helpers import (
    NOW_MS,
    PARTITION,
    append,
    batch,
    fill,
    idempotent,
    marker,
    small_segments,
    transactional,
)
from tests.tools.java_tools import JavaTools


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log with every kind of batch over several segments, closed."""
    path = tmp_path_factory.mktemp("logs") / str(PARTITION)
    log = Log.open(RealFiles(), ManualClock(NOW_MS), str(path), PARTITION, small_segments(6000))
    fill(log, 40, size=200)
    for codec in range(5):
        append(log, batch(b"first" * 9, b"second" * 9, codec=codec), leader_epoch=1)
    append(log, transactional(0), leader_epoch=1)
    append(log, marker(committed=False), leader_epoch=1)
    append(log, transactional(1), leader_epoch=2)
    append(log, marker(committed=True), leader_epoch=2)
    for number in range(7):
        append(log, idempotent(2 * number, 2, producer_id=9), leader_epoch=2)
    append(log, transactional(2), leader_epoch=2)
    log.close()
    return path


def dump(classpath: str, directory: Path, suffixes: tuple[str, ...], *options: str) -> str:
    """What the tool says of all files with these suffixes."""
    files = sorted(path for path in directory.iterdir() if path.suffix in suffixes)
    return JavaTools(classpath).dump(files, *options)


def test_every_record_is_dumped(kafka_classpath: str, directory: Path) -> None:
    said = dump(kafka_classpath, directory, (".log",), "--deep-iteration", "--print-data-log")
    assert [int(offset) for offset in re.findall(r"^\| offset: (\d+)", said, re.M)] == list(range(69))
    assert "isvalid: false" not in said
    assert set(re.findall(r"compresscodec: (\w+)", said)) == {"none", "gzip", "snappy", "lz4", "zstd"}
    assert re.search(r"endTxnMarker: ABORT coordinatorEpoch: 0", said)
    assert re.search(r"endTxnMarker: COMMIT coordinatorEpoch: 0", said)
    assert said.count("payload: secondsecond") == 5
    # The tool expects offset 0 at the start of every file, Kafka's own ones too.
    assert set(re.findall(r"^ +(-?\d+) is followed by", said, re.M)) <= {"-1"}


def test_a_log_that_has_grown_ahead_is_dumped_to_its_end(kafka_classpath: str, tmp_path: Path) -> None:
    """As of a broker that is being written to at full speed, or was killed then."""
    files = RealFiles(lambda *_: None)
    log = Log.open(files, ManualClock(NOW_MS), str(tmp_path / str(PARTITION)), PARTITION, TopicConfig())
    fill(log, 140, size=8000)
    said = dump(kafka_classpath, tmp_path / str(PARTITION), (".log",), "--deep-iteration")
    assert [int(offset) for offset in re.findall(r"^\| offset: (\d+)", said, re.M)] == list(range(140))
    assert "isvalid: false" not in said
    filler = (tmp_path / str(PARTITION) / f"{0:020d}.log").stat().st_size - log.size_bytes
    assert filler > 0
    assert said.splitlines()[-1] == f"Found {filler} invalid bytes at the end of {0:020d}.log"
    log.close()
    assert "invalid" not in dump(kafka_classpath, tmp_path / str(PARTITION), (".log",))


def test_the_indexes_pass_the_sanity_check(kafka_classpath: str, directory: Path) -> None:
    said = dump(kafka_classpath, directory, (".index", ".timeindex"), "--index-sanity-check")
    passed = re.findall(r"(passed sanity check|is empty)", said)
    assert len(passed) == len([path for path in directory.iterdir() if path.suffix in (".index", ".timeindex")])


def test_every_index_entry_points_to_its_batch(kafka_classpath: str, directory: Path) -> None:
    said = dump(kafka_classpath, directory, (".index", ".timeindex"), "--verify-index-only")
    complaints = [line for line in said.splitlines() if not re.match(r"Dumping |.* is empty\.$", line)]
    assert complaints == []


def test_producers_and_aborted_transactions_are_dumped(kafka_classpath: str, directory: Path) -> None:
    said = dump(kafka_classpath, directory, (".snapshot", ".txnindex"))
    assert "version: 0 producerId: 7 firstOffset: 50 lastOffset: 51 lastStableOffset: 52" in said
    newest = said.rpartition("Dumping ")[2]
    last_row = {row[0]: row[1] for row in re.findall(r"producerId: (\d+) .* lastSequence: (\d+) ", newest)}
    assert last_row == {"7": "2", "9": "13"}
    assert re.search(r"producerId: 7 .* currentTxnFirstOffset: OptionalLong\[68\]", newest)
