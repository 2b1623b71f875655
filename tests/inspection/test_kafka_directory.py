"""`moldau log verify`, `log dump` and `doctor` on a data directory that Apache Kafka 4.3.1 writes."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from bench.kafka import start_kafka
from tests.cli.conftest import Ended

pytestmark = pytest.mark.foreign
Run = Callable[[list[str], bytes], Ended]


@pytest.fixture(scope="module")
def written(kafka_classpath: str) -> Iterator[Path]:
    """The directory of a broker that runs, with records of a transaction among others."""
    assert kafka_classpath
    with start_kafka() as server:
        producer = Producer({"bootstrap.servers": server.bootstrap, "transactional.id": "clerk", "linger.ms": 0})
        producer.init_transactions(60)
        for end in (producer.commit_transaction, producer.abort_transaction):
            producer.begin_transaction()
            for number in range(500):
                producer.produce("visits", b"%d " % number * 20, key=b"praha")
            assert producer.flush(60) == 0  # an abort throws away what was not sent yet
            end(60)
        yield server.data


def test_a_directory_of_apache_kafka_is_well(run_tool: Run, written: Path) -> None:
    ended = run_tool(["log", "verify", str(written), "--json"], b"")
    told = json.loads(ended.output)
    assert (ended.code, told["problems"]) == (0, [])
    assert told["batches"] > 2
    ended = run_tool(["doctor", str(written), "--json"], b"")
    assert [each for each in json.loads(ended.output) if each["severity"] == "critical"] == []


def test_its_partitions_are_dumped(run_tool: Run, written: Path) -> None:
    ended = run_tool(["log", "dump", str(written / "visits-0"), "--print-data-log"], b"")
    assert ended.code == 0
    assert ended.output.count("| offset: ") == 1002, "records, and the markers of both ends"
    assert "payload: 499 499 " in ended.output
