"""The servers that tests of transactions run against: what holds of one has to hold of the other."""

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from moldau.cli.wire import WireCluster
from moldau.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from moldau.records.batch import Record, build_batch
from moldau.testing import broker
from tests.tools.java_tools import ApacheKafka

TIMEOUT_S = 30.0

SERVERS = ("apache", "moldau")
"""Of "apache" and "moldau"."""

INTERNAL_TOPICS = {
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
}

UNVERIFIED = {"transaction.partition.verification.enable": "false"}
"""Before KIP-890 leaders took records of transactions that no coordinator knew: this is how transactions hang."""
FOREIGN_PRODUCER = 987_654
PRODUCE_NAMES_TOPICS = 11


@contextmanager
def server(kind: str, classpath: str, directory: Path, properties: Mapping[str, str]) -> Iterator[str]:
    """One broker of this kind; its address."""
    settings = {**INTERNAL_TOPICS, **properties}
    if kind == "apache":
        with ApacheKafka(classpath, directory, settings) as kafka:
            yield kafka.bootstrap
    else:
        with broker(settings) as ours:
            yield ours.bootstrap


def new_topic(bootstrap: str, partitions: int = 1) -> str:
    """A topic with a name that no other test uses."""
    name = f"topic-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(TIMEOUT_S)
    return name


def hang(bootstrap: str, topic: str, partition: int, *, age_ms: int, producer_id: int = FOREIGN_PRODUCER) -> None:
    """Begin a transaction in a partition that no coordinator knows of."""
    record = Record(0, now_ms() - age_ms, None, b"left behind", ())
    batch = build_batch([record], producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)
    data = PartitionProduceData(index=partition, records=batch)
    request = ProduceRequest(
        transactional_id="nobody",
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    with WireCluster(bootstrap) as cluster:

        def is_taken() -> bool:  # a new topic may be without a leader for a moment
            answer = cluster.any().request(request, ProduceResponse, PRODUCE_NAMES_TOPICS)
            return answer.responses[0].partition_responses[0].error_code == 0

        until(is_taken)


def until(condition: Callable[[], bool], timeout_s: float = TIMEOUT_S) -> None:
    """Ask again and again: a commit is answered before its markers are written."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline


def now_ms() -> int:
    return time.time_ns() // 1_000_000
