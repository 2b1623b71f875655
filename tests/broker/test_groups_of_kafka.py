"""A data directory that Apache Kafka 4.3.1 wrote: its groups and their committed offsets go on here."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, ConsumerGroupType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.kafka import new_cluster_id
from moldau.testing import broker
from moldau.testing.ports import free_ports
from tests.clients.java_client import SHARED
from tests.log.test_kafka_directory import PROPERTIES, START_TIMEOUT_S

TOPIC = "t"
RECORDS = 20


@contextmanager
def kafka(directory: Path, classpath: str) -> Iterator[str]:
    """Apache Kafka on a free port; its data is in `directory`/closed."""
    port, controller = free_ports(2)
    settings = directory / "server.properties"
    settings.write_text(PROPERTIES.format(directory=directory, port=port, controller=controller))
    cluster_id = new_cluster_id()
    java = ["java", "-Xmx512m", *SHARED, "-cp", classpath]
    format_storage = [*java, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(settings)]
    subprocess.run(format_storage, check=True, capture_output=True)
    with (directory / "out").open("wb") as out:
        process = subprocess.Popen([*java, "kafka.Kafka", str(settings)], stdout=out, stderr=subprocess.STDOUT)
    try:
        yield f"127.0.0.1:{port}"
        process.terminate()
        process.wait(START_TIMEOUT_S)
    finally:
        process.kill()
        process.wait()


def write_everything(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.list_topics(timeout=START_TIMEOUT_S)
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(START_TIMEOUT_S)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORDS):
        producer.produce(TOPIC, str(number))
    producer.flush()
    for protocol in ("classic", "consumer"):
        read_all_and_commit(bootstrap, protocol)
    commit_in_transactions(bootstrap)
    commit_as_a_simple_consumer(bootstrap)  # last: this one does not wait for the coordinator to be ready


def commit_as_a_simple_consumer(bootstrap: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "simple"})
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, 5)], asynchronous=False)
    consumer.close()


def read_all_and_commit(bootstrap: str, protocol: str) -> None:
    """Leaves a group of the protocol's name without members."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": protocol,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([TOPIC])
    assert len(consumer.consume(RECORDS, START_TIMEOUT_S)) == RECORDS
    consumer.commit(asynchronous=False)
    consumer.close()


def commit_in_transactions(bootstrap: str) -> None:
    """One that is committed, then one that is aborted."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "transactional"})
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "x"})
    producer.init_transactions(START_TIMEOUT_S)
    for offset, end in ((11, producer.commit_transaction), (13, producer.abort_transaction)):
        producer.begin_transaction()
        offsets = [TopicPartition(TOPIC, 0, offset)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), START_TIMEOUT_S)
        end(START_TIMEOUT_S)
    consumer.close()


def committed(bootstrap: str, group_id: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group_id})
    try:
        (found,) = consumer.committed([TopicPartition(TOPIC, 0)], START_TIMEOUT_S)
        offset: int = found.offset
        return offset
    finally:
        consumer.close()


def test_groups_and_offsets_are_taken_over_from_kafka(tmp_path: Path, kafka_classpath: str) -> None:
    with kafka(tmp_path, kafka_classpath) as bootstrap:
        write_everything(bootstrap)
    expected = {"simple": 5, "classic": RECORDS, "consumer": RECORDS, "transactional": 11}
    with broker(data=tmp_path / "closed") as running:
        assert {group_id: committed(running.bootstrap, group_id) for group_id in expected} == expected
        listing = AdminClient({"bootstrap.servers": running.bootstrap}).list_consumer_groups
        kinds = {group.group_id: group.type for group in listing().result(START_TIMEOUT_S).valid}
    assert kinds.keys() == expected.keys()
    assert kinds["consumer"] == ConsumerGroupType.CONSUMER
    assert kinds["classic"] == ConsumerGroupType.CLASSIC
