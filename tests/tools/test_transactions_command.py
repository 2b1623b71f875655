"""Apache Kafka 4.3.1's TransactionsCommand, on Apache Kafka as well as on a broker of ours."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from tests.tools.java_tools import JavaTools
from tests.transaction_servers import (
    FOREIGN_PRODUCER,
    SERVERS,
    TIMEOUT_S,
    UNVERIFIED,
    hang,
    new_topic,
    server,
)

COMMAND = "TransactionsCommand"
HOUR_MS = 3_600_000


@pytest.fixture(scope="module", params=SERVERS)
def bootstrap(
    request: pytest.FixtureRequest, kafka_classpath: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    with server(request.param, kafka_classpath, tmp_path_factory.mktemp("server"), UNVERIFIED) as address:
        yield address


def rows(output: str) -> list[dict[str, str]]:
    """The table that the tool prints, without what logging adds."""
    lines = [line.split("\t") for line in output.splitlines() if "\t" in line]
    heading, *values = [[word.strip() for word in line] for line in lines]
    return [dict(zip(heading, each, strict=True)) for each in values]


def test_transactions_are_listed_described_and_ended(kafka_classpath: str, bootstrap: str) -> None:
    tools, topic = JavaTools(kafka_classpath, bootstrap), new_topic(bootstrap)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, b"x", partition=0)
    producer.flush(TIMEOUT_S)

    (listed,) = rows(tools.tool(COMMAND, "list", "--transactional-id-pattern", topic))
    assert (listed["TransactionalId"], listed["TransactionState"]) == (topic, "Ongoing")
    assert rows(tools.tool(COMMAND, "list", "--duration-filter", HOUR_MS)) == []
    (told,) = rows(tools.tool(COMMAND, "describe", "--transactional-id", topic))
    assert (told["TransactionState"], told["TopicPartitions"]) == ("Ongoing", f"{topic}-0")

    place = ("--topic", topic, "--partition", 0)
    hang(bootstrap, topic, 0, age_ms=HOUR_MS)
    described = rows(tools.tool(COMMAND, "describe-producers", *place))
    assert {each["ProducerId"]: each["CurrentTransactionStartOffset"] for each in described} == {
        listed["ProducerId"]: "0",
        str(FOREIGN_PRODUCER): "1",
    }
    (hanging,) = rows(tools.tool(COMMAND, "find-hanging", *place))
    assert (hanging["ProducerId"], hanging["StartOffset"]) == (str(FOREIGN_PRODUCER), "1")
    tools.tool(COMMAND, "abort", *place, "--start-offset", 1)
    assert rows(tools.tool(COMMAND, "find-hanging", *place)) == []

    tools.tool(COMMAND, "forceTerminateTransaction", "--transactionalId", topic)
    (ended,) = rows(tools.tool(COMMAND, "describe", "--transactional-id", topic))
    assert (ended["TransactionState"], ended["TopicPartitions"]) == ("Empty", "")
