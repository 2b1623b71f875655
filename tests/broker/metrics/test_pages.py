"""What a scrape says of topics, partitions, brokers and replication."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from typing import cast

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from moldau.broker.metrics.exposition import OPEN_METRICS, TEXT, Format
from moldau.broker.metrics.listener import Page, Question
from moldau.broker.metrics.observed import Observed
from moldau.broker.metrics.pages import Pages
from moldau.protocol.codec import Steps
from moldau.requests import turns
from moldau.testing import broker
from moldau.testing.brokers import BrokerInThread
from tests.broker.metrics.scraping import ANY_PORT, Samples, get, scrape, value

RECORDS = 7
DEADLINE_S = 20.0


@pytest.fixture(scope="module")
def observed() -> Iterator[BrokerInThread]:
    with broker({**ANY_PORT, "broker.id": "4", "min.insync.replicas": "1"}) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        for future in admin.create_topics([NewTopic("orders", 3, 1)]).values():
            future.result(DEADLINE_S)
        producer = Producer({"bootstrap.servers": running.bootstrap})
        for number in range(RECORDS):
            producer.produce("orders", str(number), partition=1)
        producer.flush(DEADLINE_S)
        yield running


@pytest.fixture(scope="module")
def samples(observed: BrokerInThread) -> Samples:
    return scrape(observed)


def test_a_partition_is_told_by_the_names_of_kafka_and_of_kafka_exporter(samples: Samples) -> None:
    expected = {
        "kafka_cluster_partition_underreplicated": 0,
        "kafka_cluster_partition_insyncreplicascount": 1,
        "kafka_cluster_partition_replicascount": 1,
        "kafka_cluster_partition_underminisr": 0,
        "kafka_cluster_partition_atminisr": 1,
        "kafka_cluster_partition_laststableoffsetlag": 0,
        "kafka_log_log_logstartoffset": 0,
        "kafka_log_log_logendoffset": RECORDS,
        "kafka_log_log_numlogsegments": 1,
        "kafka_topic_partition_current_offset": RECORDS,
        "kafka_topic_partition_oldest_offset": 0,
        "kafka_topic_partition_leader": 4,
        "kafka_topic_partition_leader_is_preferred": 1,
        "kafka_topic_partition_replicas": 1,
        "kafka_topic_partition_in_sync_replica": 1,
        "kafka_topic_partition_under_replicated_partition": 0,
    }
    assert {name: value(samples, name, topic="orders", partition="1") for name in expected} == expected
    assert value(samples, "kafka_log_log_size", topic="orders", partition="1") > 0


def test_the_broker_and_the_cluster_are_told_in_numbers(samples: Samples) -> None:
    expected = {
        "kafka_server_replicamanager_partitioncount": 3,
        "kafka_server_replicamanager_leadercount": 3,
        "kafka_server_replicamanager_underreplicatedpartitions": 0,
        "kafka_server_replicamanager_underminisrpartitioncount": 0,
        "kafka_server_replicamanager_atminisrpartitioncount": 3,
        "kafka_server_replicamanager_offlinereplicacount": 0,
        "kafka_log_logmanager_offlinelogdirectorycount": 0,
        "kafka_controller_kafkacontroller_activecontrollercount": 1,
        "kafka_controller_kafkacontroller_globaltopiccount": 1,
        "kafka_controller_kafkacontroller_globalpartitioncount": 3,
        "kafka_controller_kafkacontroller_offlinepartitionscount": 0,
        "kafka_controller_kafkacontroller_preferredreplicaimbalancecount": 0,
        "kafka_controller_kafkacontroller_activebrokercount": 1,
        "kafka_controller_kafkacontroller_fencedbrokercount": 0,
        "kafka_server_raftmetrics_current_leader": 4,
        "kafka_brokers": 1,
    }
    assert {name: value(samples, name) for name in expected} == expected
    assert value(samples, "kafka_topic_partitions", topic="orders") == 3


def test_connections_and_the_process_are_told(observed: BrokerInThread, samples: Samples) -> None:
    connections = samples["kafka_server_socket_server_metrics_connection_count"]
    assert [dict(labels)["listener"] for labels in connections] == ["PLAINTEXT"]
    assert sum(connections.values()) >= 2
    assert value(samples, "process_open_fds") > 3
    info = dict(next(iter(samples["kafka_broker_info"])))
    assert info == {"id": "4", "address": observed.bootstrap}


def test_a_broker_that_lacks_a_log_is_not_ready(observed: BrokerInThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observed.broker.parts.replicas, "replica", lambda *_: None)
    answer = get(observed, "/readyz")
    assert (answer.status, answer.body) == (503, b"the log of orders-0 is not open yet\n")


def test_a_start_imports_no_page() -> None:
    program = "import sys, moldau.broker.main; print(*(name for name in sys.modules if 'broker.metrics' in name))"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    imported = {name.removeprefix("moldau.broker.metrics") for name in done.stdout.split()}
    assert imported == {"", ".listener", ".observed"}


def test_what_a_counter_has_grown_by_is_added_up_once_where_both_formats_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns, "TURN_S", 0.0)  # each step gives way
    pages, at_work = Pages(cast(Observed, None)), []

    def text(form: Format) -> Steps[bytes]:
        at_work.append(form)
        yield
        assert at_work == [form]
        at_work.remove(form)
        return form.media_type.encode()

    async def ask(form: Format) -> Page:
        return await pages.answer(Question("/metrics", form.media_type, wants_body=True))

    async def ask_for_both() -> list[Page]:
        return list(await asyncio.gather(ask(TEXT), ask(OPEN_METRICS), ask(TEXT)))

    monkeypatch.setattr(pages, "_text", text)
    told = [page.body for page in asyncio.run(ask_for_both())]
    assert told == [form.media_type.encode() for form in (TEXT, OPEN_METRICS, TEXT)]
