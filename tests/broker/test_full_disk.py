"""A full disk refuses writes and nothing else: seen by real clients on a real file system that is full."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_END, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it re-exports without saying so
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from moldau.log.data_directory import CLEAN_SHUTDOWN_FILE
from moldau.testing.ports import free_ports
from tests.clients.adapters import Clients
from tests.clients.interface import numbered
from tests.handlers.raw_transactions import Connection, until
from tests.handlers.raw_transactions import Producer as Transacting
from tests.serving import Serving
from tests.small_disk import SmallDisk, small_disk

TIMEOUT_S = 30.0
SIZE = "40m"
VALUE = os.urandom(100_000)
PATIENT_RECORDS = 200
TRANSACTIONS = 100
OVERRIDES = {
    "log.segment.bytes": "1000000",
    # More often than by default, so that every one of them meets the full disk in the time of a test.
    "replica.high.watermark.checkpoint.interval.ms": "200",
    "log.flush.offset.checkpoint.interval.ms": "200",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "1",
}


class Deliveries:
    """What became of the records of a producer."""

    def __init__(self, bootstrap: str, **settings: object) -> None:
        self.producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, **settings})
        self.acknowledged: list[bytes] = []
        self.errors: list[int] = []

    def send(self, topic: str, value: bytes, key: bytes) -> None:
        self.producer.produce(topic, value, key=key, partition=0, on_delivery=self._delivered)
        self.producer.poll(0)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged.append(message.key() or b"")
        else:
            self.errors.append(error.code())


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", SIZE) as mounted:
        yield mounted


def serve(disk: SmallDisk, log_directory: Path, port: int) -> Serving:
    arguments = [part for name, value in OVERRIDES.items() for part in ("--override", f"{name}={value}")]
    return Serving(
        disk.inside / "data", "--port", str(port), *arguments, log_file=log_directory / "broker.log", under=disk.under
    )


def make_topics(bootstrap: str, *names: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(name, 1) for name in names]).values():
        future.result(TIMEOUT_S)


def delete_topic(bootstrap: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([name])[name].result(TIMEOUT_S)


def fill_up(bootstrap: str, topic: str) -> Deliveries:
    """Produce until the disk is full, with a producer that does not try again."""
    filling = Deliveries(bootstrap, **{"message.send.max.retries": 0, "acks": "all"})
    for number in range(10_000):
        filling.send(topic, VALUE, str(number).encode())
        if number % 8 == 7:
            assert filling.producer.flush(TIMEOUT_S) == 0
        if filling.errors:
            return filling
    raise AssertionError("the disk takes everything")


def keys_in(bootstrap: str, topic: str) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "nobody", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT_S)
    keys: list[bytes] = []
    while len(keys) < end:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None, f"{len(keys)} of {end} records can be read"
        keys.append(message.key() or b"")
    consumer.close()
    return keys


def joins_reads_and_commits(bootstrap: str, group: str, topic: str) -> int:
    """What a new member of a group has committed in the end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    message = consumer.poll(TIMEOUT_S)
    assert message is not None
    assert message.error() is None
    consumer.commit(message=message, asynchronous=False)
    [committed] = consumer.committed([TopicPartition(topic, 0)], TIMEOUT_S)
    consumer.close()
    return int(committed.offset)


def test_a_full_disk_refuses_writes_and_nothing_else(disk: SmallDisk, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    server = serve(disk, tmp_path, port)
    try:
        bootstrap = server.bootstrap
        make_topics(bootstrap, "ledger", "bulk")
        patient = Deliveries(
            bootstrap, **{"enable.idempotence": True, "message.timeout.ms": 120_000, "retry.backoff.ms": 50}
        )
        patient.send("ledger", b"first", b"first")
        assert patient.producer.flush(TIMEOUT_S) == 0

        bulk = fill_up(bootstrap, "bulk")
        assert set(bulk.errors) == {KafkaError.KAFKA_STORAGE_ERROR}
        for number in range(PATIENT_RECORDS):
            patient.send("ledger", b"x" * 1000, str(number).encode())

        assert keys_in(bootstrap, "ledger") == [b"first"]
        assert keys_in(bootstrap, "bulk") == bulk.acknowledged
        assert joins_reads_and_commits(bootstrap, "readers", "ledger") == 1

        assert server.stop() == 0
        assert (disk.outside / "data" / CLEAN_SHUTDOWN_FILE).exists()
        assert server.log.count("is full") == 1
        server = serve(disk, tmp_path, port)
        assert keys_in(bootstrap, "bulk") == bulk.acknowledged
        assert joins_reads_and_commits(bootstrap, "others", "ledger") == 1
        assert patient.acknowledged == [b"first"]
        assert patient.producer.flush(0) == PATIENT_RECORDS

        delete_topic(bootstrap, "bulk")
        assert patient.producer.flush(TIMEOUT_S) == 0
        assert patient.errors == []
        sent = [b"first", *(str(number).encode() for number in range(PATIENT_RECORDS))]
        assert patient.acknowledged == keys_in(bootstrap, "ledger") == sent
        assert server.log.count("is full") == 2, "once in each life"
        assert server.log.count("has room again") == 1
        assert "offline" not in server.log
        assert server.stop() == 0
    finally:
        server.kill()


def test_a_broker_killed_on_a_full_disk_starts_and_lets_old_records_go(disk: SmallDisk, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    server = serve(disk, tmp_path, port)
    try:
        bootstrap = server.bootstrap
        make_topics(bootstrap, "bulk")
        first = fill_up(bootstrap, "bulk")
        server.kill()
        server = serve(disk, tmp_path, port)
        assert keys_in(bootstrap, "bulk") == first.acknowledged

        keep_at_most(bootstrap, "bulk", 1_000_000)
        produce_one(bootstrap, "bulk")
        keep_at_most(bootstrap, "bulk", -1)
        fill_up(bootstrap, "bulk")
        delete_records(bootstrap, "bulk")
        produce_one(bootstrap, "bulk")
        assert "offline" not in server.log
        assert server.stop() == 0
    finally:
        server.kill()


def test_the_java_producer_waits_for_room(disk: SmallDisk, tmp_path: Path, clients: Clients) -> None:
    (port,) = free_ports(1)
    server = serve(disk, tmp_path, port)
    try:
        make_topics(server.bootstrap, "ledger", "bulk")
        client = clients.connect("java-4.3.1", server.bootstrap)
        assert client.produce("ledger", 0, numbered(1), idempotent=True) == [0]
        fill_up(server.bootstrap, "bulk")
        with ThreadPoolExecutor(1) as thread:
            producing = thread.submit(client.produce, "ledger", 0, numbered(50, start=1), idempotent=True)
            assert joins_reads_and_commits(server.bootstrap, "readers", "ledger") == 1
            assert not producing.done()
            delete_topic(server.bootstrap, "bulk")
            assert producing.result(TIMEOUT_S) == list(range(1, 51))
    finally:
        server.kill()


def keep_at_most(bootstrap: str, topic: str, retention_bytes: int) -> None:
    change = ConfigEntry("retention.bytes", str(retention_bytes), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource("topic", topic, incremental_configs=[change])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)


def delete_records(bootstrap: str, topic: str) -> None:
    """All of them."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_records([TopicPartition(topic, 0, OFFSET_END)]).values():
        future.result(TIMEOUT_S)


def produce_one(bootstrap: str, topic: str) -> None:
    """With a producer that waits for room."""
    patient = Deliveries(bootstrap, **{"retry.backoff.ms": 50})
    patient.send(topic, VALUE, b"one more")
    assert patient.producer.flush(TIMEOUT_S) == 0
    assert patient.errors == []


@pytest.mark.parametrize("is_killed", [False, True])
def test_transactions_on_a_full_disk_end_when_there_is_room_again(
    disk: SmallDisk, tmp_path: Path, is_killed: bool
) -> None:
    """So many that not all decisions find room in what is left of the coordinator's last page."""
    (port,) = free_ports(1)
    server = serve(disk, tmp_path, port)
    connection = Connection(server.bootstrap)
    try:
        make_topics(server.bootstrap, "ledger", "bulk")
        producers = [Transacting(connection, f"copier-{number}") for number in range(TRANSACTIONS)]
        for each in producers:
            each.begin()
            assert each.produce("ledger") == "ledger-0:NONE"
        fill_up(server.bootstrap, "bulk")
        fill_up_to_the_last_byte(disk)
        assert producers[0].produce("ledger", sequence=1) == "ledger-0:KAFKA_STORAGE_ERROR"
        told = {each.end() for each in producers}
        assert "NOT_COORDINATOR" in told
        assert told <= {
            "NONE",
            "NOT_COORDINATOR",
            "COORDINATOR_LOAD_IN_PROGRESS",
        }  # NONE: before that was seen
        assert connection.last_stable_offset("ledger") == 0
        if is_killed:
            server.kill()
            connection.close()
        (disk.outside / "filler").unlink()
        if is_killed:
            server = serve(disk, tmp_path, port)
        delete_topic(server.bootstrap, "bulk")
        until(lambda: "has room again" in server.log)
        until(lambda: {each.end() for each in producers} == {"NONE"})
        until(lambda: {each.state() for each in producers} == {"CompleteCommit"})
        until(lambda: connection.last_stable_offset("ledger") == 2 * TRANSACTIONS)
        assert "offline" not in server.log
    finally:
        connection.close()
        server.kill()


def test_a_start_on_a_disk_that_something_else_has_filled_says_which_one_and_what_to_do(
    disk: SmallDisk, tmp_path: Path
) -> None:
    """The ballast is gone already, so that there is no room for a checkpoint."""
    (port,) = free_ports(1)
    server = serve(disk, tmp_path, port)
    make_topics(server.bootstrap, "bulk")
    fill_up(server.bootstrap, "bulk")
    server.kill()
    fill_up_to_the_last_byte(disk)
    with pytest.raises(RuntimeError, match=f"the disk of {disk.inside}/data is full .*free some of it"):
        serve(disk, tmp_path, port)
    (disk.outside / "filler").unlink()
    server = serve(disk, tmp_path, port)
    assert keys_in(server.bootstrap, "bulk")
    server.kill()


def fill_up_to_the_last_byte(disk: SmallDisk) -> None:
    with suppress(OSError), (disk.outside / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
