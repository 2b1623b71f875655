"""The servers that tests of transactions run against: what holds of one has to hold of the other."""

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from moldau.testing import broker
from tests.tools.java_tools import ApacheKafka

TIMEOUT_S = 30.0

SERVERS = ("apache",)
"""Of "apache" and "moldau"."""

INTERNAL_TOPICS = {
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
}


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
