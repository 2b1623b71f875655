"""Prometheus itself: it reads what a broker serves, answers the queries of boards, and understands our alerts."""

import json
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from moldau.testing import broker
from moldau.testing.brokers import BrokerInThread
from moldau.testing.ports import HOST, free_ports
from tests.broker.metrics.boards import KAFKA_EXPORTER, MONITORING, STRIMZI, dashboard_queries
from tests.broker.metrics.scraping import ANY_PORT, get, port_of

DEADLINE_S = 60.0
UNPACKED = Path(__file__).parents[2] / ".tools" / "prometheus" / "usr" / "bin"
PARSE_ERROR = 1
CONFIG = """
global: {{scrape_interval: 1s}}
scrape_configs:
  - job_name: moldau
    static_configs: [{{targets: ["{address}"]}}]
"""


def program(name: str) -> str:
    found = shutil.which(name) or shutil.which(str(UNPACKED / name))
    if found is None:
        pytest.fail(f"{name} is not there: run `make tools`, or install it (Debian: apt-get install prometheus)")
    return found


def promtool(*arguments: str | Path, stdin: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [program("promtool"), *map(str, arguments)], input=stdin, capture_output=True, timeout=DEADLINE_S, check=False
    )


@pytest.fixture(scope="module")
def observed() -> Iterator[BrokerInThread]:
    with broker({**ANY_PORT, "log.flush.policy": "group"}) as running:
        groups = ("readers", 'a "group"\n\\ of readers')
        consumers = [Consumer({"bootstrap.servers": running.bootstrap, "group.id": group}) for group in groups]
        producer = Producer({"bootstrap.servers": running.bootstrap})
        producer.produce("visits", b"one")
        assert producer.flush(DEADLINE_S) == 0
        for consumer in consumers:
            consumer.commit(offsets=[TopicPartition("visits", 0, 0)], asynchronous=False)
        yield running
        for consumer in consumers:
            consumer.close()


def test_promtool_reads_the_metrics_and_has_no_fault_to_find_with_names_of_ours(observed: BrokerInThread) -> None:
    done = promtool("check", "metrics", stdin=get(observed, "/metrics").body)
    assert done.returncode != PARSE_ERROR, done.stderr
    assert not re.findall(rb"^moldau_.*", done.stderr + done.stdout, re.MULTILINE)


def test_promtool_accepts_the_alerts_and_they_fire_when_they_should() -> None:
    checked = promtool("check", "rules", MONITORING / "alerts.yml")
    assert checked.returncode == 0, checked.stderr
    tested = promtool("test", "rules", MONITORING / "alerts_test.yml")
    assert tested.returncode == 0, tested.stdout


class Server:
    """Prometheus, scraping one broker each second."""

    def __init__(self, directory: Path, target: str) -> None:
        (port,) = free_ports(1)
        self._url = f"http://{HOST}:{port}/api/v1/query"
        config = directory / "prometheus.yml"
        config.write_text(CONFIG.format(address=target))
        data, address = f"--storage.tsdb.path={directory}", f"--web.listen-address={HOST}:{port}"
        self.process = subprocess.Popen(
            [program("prometheus"), f"--config.file={config}", data, address],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def has_data(self, query: str) -> bool:
        text = re.sub(r"\$__rate_interval", "30s", query)
        text = re.sub(r"\$(job|topic|group)", ".*", text)
        try:
            with urllib.request.urlopen(f"{self._url}?{urllib.parse.urlencode({'query': text})}", timeout=5) as answer:
                result = json.load(answer)
        except OSError:
            return False  # it is starting
        return bool(result["data"]["result"])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, observed: BrokerInThread) -> Iterator[Server]:
    running = Server(tmp_path_factory.mktemp("prometheus"), f"{HOST}:{port_of(observed)}")
    try:
        yield running
    finally:
        running.process.kill()
        running.process.wait()


def test_prometheus_answers_every_query_of_the_boards(observed: BrokerInThread, server: Server) -> None:
    quiet = {"Held back by open transactions"}  # nobody is held back here
    queries = [query for title, query in dashboard_queries() if title not in quiet]
    left = {"up == 1", *STRIMZI, *KAFKA_EXPORTER, *queries}
    end = time.monotonic() + DEADLINE_S
    producer = Producer({"bootstrap.servers": observed.bootstrap})
    while left and time.monotonic() < end:
        producer.produce("visits", b"more")  # rates of what does not happen are none
        assert producer.flush(DEADLINE_S) == 0
        left = {query for query in left if not server.has_data(query)}
    assert left == set()
