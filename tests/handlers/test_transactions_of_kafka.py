"""Apache Kafka 4.3.1 and this broker are sent the same requests of transactions, sane and insane, and say the same.

`DELIBERATE` has the steps at which the two differ, and why; what is there and does not differ any more fails, too.
"""

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest

from moldau.protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from tests.handlers.raw_transactions import GROUP, Connection
from tests.handlers.transaction_sequences import PARTITIONS, SEQUENCES, T, Told
from tests.transaction_servers import SERVERS, server

TIMEOUT_MS = 30_000
PROPERTIES = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}


class Difference(NamedTuple):
    """Steps of a sequence at which the brokers may differ, by a pattern, and what each says there."""

    steps: str
    kafka: str
    ours: str
    why: str


_LATE_COMMIT = Difference(
    ".*", "INVALID_TXN_STATE", "PRODUCER_FENCED", "KAFKA-20785, in Kafka since 4.4: fatal to Kafka Streams otherwise"
)
_NO_PRODUCER = Difference(
    r".*(negative|nobody|\(-1, -1\)).*",
    "NONE",
    "INVALID_RECORD",
    "a batch of a transaction without a producer is no part of any",
)
DELIBERATE: dict[str, list[Difference]] = {
    "init_while_open": [
        Difference(
            "3: zombie",
            "CONCURRENT_TRANSACTIONS",
            "INVALID_PRODUCER_EPOCH",
            "a zombie aborts nothing of others (ADR 26)",
        ),
        Difference("[45]: zombie", "CONCURRENT_TRANSACTIONS", "PRODUCER_FENCED", "the same"),
    ],
    "odd_partitions": [
        Difference("twice, version .", "(.*)", "(.*)", "here a partition is answered once, however often it is named")
    ],
    "producers_described": [Difference("twice", "(.*)", "(.*)", "the same")],
    "ends_in_a_row": [_LATE_COMMIT],
    "commits_by_anybody": [_LATE_COMMIT],
    "timed_out": [_LATE_COMMIT],
    "batches_by_anybody": [_NO_PRODUCER],
    "odd_markers": [
        Difference(
            ".* epoch -1", "UNKNOWN_SERVER_ERROR", "INVALID_PRODUCER_EPOCH", "there it breaks when the marker is built"
        ),
        Difference(
            "version 2 of -1.*",
            "UNKNOWN_SERVER_ERROR",
            "(NONE|INVALID_PRODUCER_EPOCH|TRANSACTION_COORDINATOR_FENCED)",
            "a transaction version below 0 is an old one here",
        ),
        Difference(
            ".* ended with 0: sequence 1",
            "OUT_OF_ORDER_SEQUENCE_NUMBER",
            "NONE",
            "there the batch before, which came twice, leaves a guard that only itself could pass",
        ),
    ],
    "listings": [
        Difference(
            r"pattern '(x+|\\\\pL.*)'?",
            "NONE (.*)",
            "INVALID_REGULAR_EXPRESSION (.*)",
            "patterns have a bound here, and no classes of Unicode",
        )
    ],
}


@pytest.fixture(scope="module")
def connections(kafka_classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Connection]]:
    """To Apache Kafka and to this broker, with a topic and a coordinator of groups each."""
    with (
        server(SERVERS[0], kafka_classpath, tmp_path_factory.mktemp("kafka"), PROPERTIES) as kafka,
        server(SERVERS[1], kafka_classpath, tmp_path_factory.mktemp("moldau"), PROPERTIES) as ours,
    ):
        found = [_ready(kafka), _ready(ours)]
        yield found
        for each in found:
            each.close()


def _ready(bootstrap: str) -> Connection:
    topic = CreatableTopic(name=T, num_partitions=PARTITIONS, replication_factor=1)
    connection = Connection(bootstrap)
    made = connection.ask(CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS), 5)
    assert [each.error_code for each in made.topics] == [0]
    connection.find_coordinator("g", GROUP)
    return connection


@pytest.mark.parametrize("steps", [pytest.param(each, id=each.__name__) for each in SEQUENCES])
def test_kafka_and_this_broker_say_the_same(connections: list[Connection], steps: Callable[[Connection], Told]) -> None:
    with ThreadPoolExecutor() as pool:
        kafka, ours = pool.map(steps, connections)
    assert list(kafka) == list(ours)
    unused = list(DELIBERATE.get(steps.__name__, ()))
    unexplained = {}
    for step in kafka:
        if kafka[step] != ours[step]:
            why = _reason(steps.__name__, step, kafka[step], ours[step])
            if why is None:
                unexplained[step] = (kafka[step], ours[step])
            elif why in unused:
                unused.remove(why)
    assert (unexplained, unused) == ({}, [])


def _reason(name: str, step: str, kafka: str, ours: str) -> Difference | None:
    codes = [re.sub(r"\S+:", "", each) for each in (kafka, ours)]  # without topics and partitions
    for each in DELIBERATE.get(name, ()):
        if all(map(re.fullmatch, (each.steps, each.kafka, each.ours), (step, *codes))):
            return each
    return None
