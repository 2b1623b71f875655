"""The admin requests as real clients send them, over a socket."""

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it re-exports without saying so
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)
from confluent_kafka.cimpl import NewPartitions, NewTopic
from kafka.admin import KafkaAdminClient  # type: ignore[import-untyped]  # ships no types

from moldau.testing.brokers import BrokerInThread

TIMEOUT_S = 20


@pytest.fixture
def admin(moldau_broker: BrokerInThread) -> AdminClient:
    return AdminClient({"bootstrap.servers": moldau_broker.bootstrap})


def _fill(broker: BrokerInThread, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for number in range(count):
        producer.produce(topic, str(number).encode(), partition=0)
    assert producer.flush(TIMEOUT_S) == 0


def test_librdkafka_creates_grows_and_deletes_a_topic(admin: AdminClient) -> None:
    admin.create_topics([NewTopic("t", 2, 1, config={"retention.ms": "5000"})])["t"].result(TIMEOUT_S)
    assert len(admin.list_topics("t", timeout=TIMEOUT_S).topics["t"].partitions) == 2
    admin.create_partitions([NewPartitions("t", 4)])["t"].result(TIMEOUT_S)
    assert len(admin.list_topics("t", timeout=TIMEOUT_S).topics["t"].partitions) == 4
    admin.delete_topics(["t"])["t"].result(TIMEOUT_S)
    assert "t" not in admin.list_topics(timeout=TIMEOUT_S).topics


def test_librdkafka_is_told_why_not(admin: AdminClient) -> None:
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([NewTopic("t", 1, 1, config={"retention.ms": "abc"})])["t"].result(TIMEOUT_S)
    assert refused.value.args[0].name() == "INVALID_CONFIG"
    assert "retention.ms" in refused.value.args[0].str()


def test_librdkafka_describes_and_alters_configs(admin: AdminClient) -> None:
    admin.create_topics([NewTopic("t", 1, 1)])["t"].result(TIMEOUT_S)
    change = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND)
    resource = ConfigResource(ResourceType.TOPIC, "t", incremental_configs=[change])
    admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)
    asked = ConfigResource(ResourceType.TOPIC, "t")
    configs = admin.describe_configs([asked])[asked].result(TIMEOUT_S)
    assert configs["cleanup.policy"].value == "delete,compact"
    assert configs["cleanup.policy"].source == 1
    assert configs["retention.ms"].is_default


def test_librdkafka_deletes_records(moldau_broker: BrokerInThread, admin: AdminClient) -> None:
    admin.create_topics([NewTopic("t", 1, 1)])["t"].result(TIMEOUT_S)
    _fill(moldau_broker, "t", 10)
    partition = TopicPartition("t", 0, 4)
    (deleted,) = admin.delete_records([partition]).values()
    assert deleted.result(TIMEOUT_S).low_watermark == 4
    earliest = TopicPartition("t", 0)
    (found,) = admin.list_offsets({earliest: OffsetSpec.earliest()}).values()  # type: ignore[no-untyped-call]  # its
    assert found.result(TIMEOUT_S).offset == 4


def test_librdkafka_describes_the_cluster(admin: AdminClient) -> None:
    cluster = admin.describe_cluster(include_authorized_operations=True).result(TIMEOUT_S)
    assert len(cluster.nodes) == 1
    assert cluster.controller.id == cluster.nodes[0].id
    assert cluster.authorized_operations


def test_kafka_python_lists_and_describes(moldau_broker: BrokerInThread, admin: AdminClient) -> None:
    admin.create_topics([NewTopic("t", 3, 1)])["t"].result(TIMEOUT_S)
    _fill(moldau_broker, "t", 10)
    client = KafkaAdminClient(bootstrap_servers=moldau_broker.bootstrap)
    try:
        (topic,) = client.describe_topics(["t"])
        assert len(topic["partitions"]) == 3
        assert client.describe_cluster()["cluster_id"]
        assert moldau_broker.data in str(client.describe_log_dirs())
    finally:
        client.close()
