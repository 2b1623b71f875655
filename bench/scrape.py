"""A scrape of a broker with 2,000 partitions and 500 consumer groups: its time, its size, and what producers notice.

python -m bench.scrape
"""

import argparse
import statistics
import tempfile
import time
from http.client import HTTPConnection
from pathlib import Path

from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.side_by_side import note
from moldau.testing.ports import HOST, free_ports
from moldau.testing.processes import BrokerProcess

PARTITIONS_OF_TOPIC = 10
OFFSETS_OF_GROUP = 4
TIMEOUT_S = 60.0
SCRAPES = 15
SCRAPE_EVERY_S = 15.0
"""As Prometheus is most often told. With one each second a twentieth of all requests would wait for a turn of it."""
PRODUCE_S = 30.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.scrape", description=__doc__.partition("\n")[0])
    parser.add_argument("--partitions", type=int, default=2_000)
    parser.add_argument("--groups", type=int, default=500)
    options = parser.parse_args()
    port, metrics_port = free_ports(2)
    with tempfile.TemporaryDirectory() as directory:
        properties = {
            "broker.id": "1",
            "listeners": f"PLAINTEXT://{HOST}:{port}",
            "log.dirs": f"{directory}/data",
            "metrics.listener": f"{HOST}:{metrics_port}",
            "offsets.topic.replication.factor": "1",
        }
        broker = BrokerProcess(Path(directory), properties)
        broker.start()
        try:
            topics = _fill(broker.bootstrap, options.partitions, options.groups)
            _measure(broker, metrics_port, topics)
        finally:
            broker.kill9()


def _fill(bootstrap: str, partitions: int, groups: int) -> list[str]:
    """Make the topics with a record in each partition, and commits that are behind it."""
    admin, producer = AdminClient({"bootstrap.servers": bootstrap}), Producer({"bootstrap.servers": bootstrap})
    topics = [f"topic-{number}" for number in range(partitions // PARTITIONS_OF_TOPIC)]
    for future in admin.create_topics([NewTopic(topic, PARTITIONS_OF_TOPIC, 1) for topic in topics]).values():
        future.result(TIMEOUT_S)
    for topic in topics:
        for partition in range(PARTITIONS_OF_TOPIC):
            producer.produce(topic, b"value", partition=partition)
    producer.flush(TIMEOUT_S)
    for number in range(groups):
        topic = topics[number % len(topics)]
        offsets = [TopicPartition(topic, partition, 0) for partition in range(OFFSETS_OF_GROUP)]
        committed = ConsumerGroupTopicPartitions(f"group-{number}", offsets)
        for future in admin.alter_consumer_group_offsets([committed]).values():
            future.result(TIMEOUT_S)
    return topics


def _measure(broker: BrokerProcess, metrics_port: int, topics: list[str]) -> None:
    times: list[float] = []
    for number in range(SCRAPES):
        began = time.perf_counter()
        body = _scrape(metrics_port)
        times.append(time.perf_counter() - began)
        if number == 0:
            lines = body.count(b"\n")
            note(f"first scrape {1000 * times[0]:.0f} ms, {len(body):,} bytes, {lines:,} lines")
    later = sorted(times[1:])
    note(f"later ones {1000 * later[0]:.0f} to {1000 * later[-1]:.0f} ms, median {1000 * statistics.median(later):.0f}")
    without = _latencies(broker.bootstrap, topics[0], None)
    scraped = _latencies(broker.bootstrap, topics[0], metrics_port)
    again = _latencies(broker.bootstrap, topics[0], None)
    for name, latencies in (
        ("nobody scrapes", without),
        (f"a scrape every {SCRAPE_EVERY_S:.0f} s", scraped),
        ("nobody again", again),
    ):
        cuts = statistics.quantiles(latencies, n=1000)
        note(f"{name}: produce p50 {cuts[499]:.2f} ms, p99 {cuts[989]:.2f} ms, max {max(latencies):.1f} ms")


def _scrape(port: int) -> bytes:
    connection = HTTPConnection(HOST, port, timeout=TIMEOUT_S)
    connection.request("GET", "/metrics")
    body = connection.getresponse().read()
    connection.close()
    return body


def _latencies(bootstrap: str, topic: str, metrics_port: int | None) -> list[float]:
    """Milliseconds of produce requests, one after the other; a scrape begins every SCRAPE_EVERY_S."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": 1})
    latencies: list[float] = []
    connection: HTTPConnection | None = None
    next_scrape = time.perf_counter()
    end = next_scrape + PRODUCE_S
    while time.perf_counter() < end:
        if metrics_port is not None and time.perf_counter() >= next_scrape:
            if connection is not None:
                connection.getresponse().read()
                connection.close()
            connection = HTTPConnection(HOST, metrics_port, timeout=TIMEOUT_S)
            connection.request("GET", "/metrics")  # its answer is read before the next one
            next_scrape += SCRAPE_EVERY_S
        began = time.perf_counter()
        producer.produce(topic, b"value", partition=0)
        producer.flush(TIMEOUT_S)
        latencies.append(1000 * (time.perf_counter() - began))
    if connection is not None:
        connection.getresponse().read()
        connection.close()
    return latencies


if __name__ == "__main__":
    main()
