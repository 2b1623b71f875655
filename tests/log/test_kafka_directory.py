"""A data directory that Apache Kafka 4.3.1 wrote opens here with the same offsets, records and producers."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.kafka import new_cluster_id
from moldau.core.clock import SystemClock
from moldau.core.ids import TopicPartition
from moldau.core.real_files import RealFiles
from moldau.core.topic_config import TopicConfig
from moldau.inspection.decoders import text
from moldau.inspection.directory_check import check, find
from moldau.inspection.dump import DumpOptions, dump_file
from moldau.inspection.dump_segments import SegmentOptions
from moldau.inspection.faults import Faults
from moldau.inspection.findings import Report
from moldau.log.log import Log
from moldau.log.manager import LogManager
from moldau.log.snapshots import parse_snapshot
from moldau.log.txn_index import AbortedTxn
from moldau.testing.ports import free_ports
from tests.clients.java_client import SHARED
from tests.log.helpers import append, idempotent, records
from tests.tools.java_tools import JavaTools

START_TIMEOUT_S = 90
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PLAIN, CODED, TXN = TopicPartition("plain", 0), TopicPartition("coded", 0), TopicPartition("txn", 0)
PLAIN_COUNT = 12_000

PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={directory}/closed
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
"""


class Written(NamedTuple):
    """What Kafka left: after a clean stop, and as the files were while it ran."""

    closed: Path
    running: Path


@pytest.fixture(scope="module")
def written(kafka_classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    directory = tmp_path_factory.mktemp("kafka")
    written = Written(directory / "closed", directory / "running")
    port, controller = free_ports(2)
    settings = directory / "server.properties"
    settings.write_text(PROPERTIES.format(directory=directory, port=port, controller=controller))
    cluster_id = new_cluster_id()
    java = ["java", "-Xmx512m", *SHARED, "-cp", kafka_classpath]
    subprocess.run(
        [*java, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(settings)],
        check=True,
        capture_output=True,
    )
    with (directory / "out").open("wb") as out:
        kafka = subprocess.Popen([*java, "kafka.Kafka", str(settings)], stdout=out, stderr=subprocess.STDOUT)
    try:
        write_everything(f"127.0.0.1:{port}")
        shutil.copytree(written.closed, written.running)
        kafka.terminate()
        kafka.wait(START_TIMEOUT_S)
    finally:
        kafka.kill()
        kafka.wait()
    yield written
    shutil.rmtree(directory)


def write_everything(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.list_topics(timeout=START_TIMEOUT_S)
    topics = [
        NewTopic("plain", 1, 1, config={"segment.bytes": "1048576"}),
        NewTopic("coded", 1, 1),
        NewTopic("txn", 1, 1),
    ]
    for created in admin.create_topics(topics).values():
        created.result()
    for codec in CODECS:
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "enable.idempotence": True})
        for number in range(50):
            producer.produce("coded", key=codec, value=f"{codec} {number} " * 5, headers=[("h", b"1")], partition=0)
        producer.flush()
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "batch.num.messages": 50})
    for number in range(PLAIN_COUNT):
        producer.produce("plain", value=b"%06d" % number + bytes(100), partition=0)
        producer.poll(0)
    producer.flush()
    write_transactions(bootstrap)


def write_transactions(bootstrap: str) -> None:
    """Committed, aborted, committed, aborted, open."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "t"})
    producer.init_transactions()
    for number in range(5):
        producer.begin_transaction()
        for _ in range(10):
            producer.produce("txn", value=b"%d" % number, partition=0)
        producer.flush()
        if number < 4:
            producer.commit_transaction() if number % 2 == 0 else producer.abort_transaction()


@pytest.fixture(params=["closed", "running"])
def manager(request: pytest.FixtureRequest, written: Written, tmp_path: Path) -> Iterator[LogManager]:
    """A manager over a copy, so that tests may write."""
    data = tmp_path / "data"
    shutil.copytree(getattr(written, request.param), data)
    manager = LogManager(
        RealFiles(),
        SystemClock(),
        [str(data)],
        config_of=lambda _: TopicConfig(segment_bytes=1 << 20),
        new_uuid=lambda: os.urandom(16),
    )
    manager.lock()
    manager.claim(1, manager.directories[0].meta_properties()["cluster.id"])
    manager.load()
    yield manager
    manager.close()


def log_of(manager: LogManager, partition: TopicPartition) -> Log:
    log = manager.get(partition)
    assert log is not None
    return log


def test_every_partition_is_found_and_kafkas_own_metadata_is_not_one(manager: LogManager) -> None:
    topics = {log.topic_partition.topic for log in manager}
    assert topics == {"plain", "coded", "txn", "__transaction_state"}
    assert all(log.topic_id is not None for log in manager)


def test_records_of_every_codec_are_there(manager: LogManager) -> None:
    found = records(log_of(manager, CODED))
    assert [record.offset for record in found] == list(range(250))
    expected = [f"{codec} {number} " * 5 for codec in CODECS for number in range(50)]
    assert [(record.value or b"").decode() for record in found] == expected
    assert all(record.headers == (("h", b"1"),) for record in found)


def test_all_segments_are_read_from_any_offset(manager: LogManager) -> None:
    log = log_of(manager, PLAIN)
    assert len(log.segments) > 1
    assert log.log_end_offset == PLAIN_COUNT
    for offset in (0, 1, 4999, 9_500, PLAIN_COUNT - 1):
        found = records(log, offset, max_bytes=100_000)
        assert [(record.value or b"")[:6] for record in found] == [b"%06d" % n for n in range(offset, PLAIN_COUNT)]


def test_transactions_are_where_kafka_had_them(manager: LogManager) -> None:
    log = log_of(manager, TXN)
    (producer_id,) = [entry.producer_id for entry in log.producers]
    assert log.log_end_offset == 54
    assert log.last_stable_offset == 44
    assert log.aborted_transactions(0, 54) == [
        AbortedTxn(producer_id, 11, 21, 22),
        AbortedTxn(producer_id, 33, 43, 44),
    ]


def test_producers_go_on_with_their_next_sequence(manager: LogManager) -> None:
    log = log_of(manager, PLAIN)
    (producer,) = log.producers
    again = idempotent(PLAIN_COUNT, producer_id=producer.producer_id, epoch=producer.epoch)
    assert producer.last_sequence == PLAIN_COUNT - 1
    assert append(log, again) == PLAIN_COUNT


def test_the_files_are_left_as_kafka_closes_them(written: Written, manager: LogManager) -> None:
    """Indexes byte for byte; snapshots with the same last batch of each producer, as ours tell of more."""
    manager.close()
    home = Path(str(manager.home_of(PLAIN)))
    for theirs in sorted(written.closed.glob("[a-z]*-0/*")):
        ours = home / theirs.relative_to(written.closed)
        if theirs.suffix == ".snapshot":
            assert last_batches(ours) == last_batches(theirs)
        else:
            assert ours.read_bytes() == theirs.read_bytes(), ours


@pytest.mark.parametrize("state", ["closed", "running"])
def test_a_look_at_the_whole_directory_finds_no_problem(written: Written, state: str) -> None:
    """The copy of a running broker's files is that of one that died: padded indexes, no mark of a clean stop."""
    report = Report()
    found = find(str(getattr(written, state)), report)
    check(found, report, lambda _: None, lambda _: None)
    assert [each.line() for each in report.findings if each.is_problem] == []
    assert report.partitions == 5  # with the controller's own log
    assert report.segments > 5


@pytest.mark.parametrize("name", ["plain-0", "coded-0", "txn-0", "__cluster_metadata-0"])
def test_a_dump_of_its_files_is_that_of_kafkas_tool(kafka_classpath: str, written: Written, name: str) -> None:
    suffixes = (".log", ".checkpoint", ".index", ".timeindex", ".txnindex", ".snapshot")
    is_text = not name.startswith("__")
    files = sorted(path for path in (written.closed / name).iterdir() if path.suffix in suffixes)
    theirs = JavaTools(kafka_classpath).dump(files, "--print-data-log" if is_text else "--deep-iteration").splitlines()
    options, faults = DumpOptions(SegmentOptions(is_deep=True, decoder=text if is_text else None)), Faults()
    ours = [
        line
        for path in files
        for line in (f"Dumping {path}", *(row.line() for row in dump_file(str(path), options, faults)))
    ]
    complaints = [line for line in theirs if "is followed by" in line or line.startswith("Non-consecutive")]
    assert ours == [line for line in theirs if line not in complaints]
    assert sorted(faults.lines()) == sorted(complaints)


def last_batches(path: Path) -> dict[int, tuple[object, ...]]:
    entries = parse_snapshot(path.read_bytes(), 0)
    return {
        entry.producer_id: (entry.epoch, entry.batches[-1], entry.coordinator_epoch, entry.current_txn_first_offset)
        for entry in entries
    }
