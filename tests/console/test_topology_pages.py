"""Topology: who writes and who reads what, and graphs of it."""

import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from moldau.cli.wire import WireCluster
from moldau.console.web.graphs import NODES_MAX, Node, drawn
from moldau.protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from moldau.testing import broker
from moldau.testing.brokers import BrokerInThread
from tests.console.consoles import Asking, asking

WAIT_S = 20


@pytest.fixture(scope="module")
def kafka() -> Iterator[BrokerInThread]:
    with broker({"metrics.listener": "127.0.0.1:0", "client.telemetry.enable": "true"}) as running:
        yield running


@pytest.fixture(scope="module")
def console(kafka: BrokerInThread, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asking]:
    metrics = (str(kafka.broker.metrics_address),)
    with asking(kafka.bootstrap, tmp_path_factory.mktemp("console"), metrics=metrics) as running:
        yield running


def produce(kafka: BrokerInThread, client_id: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "client.id": client_id})
    producer.produce(topic, b"value")
    assert producer.flush(WAIT_S) == 0


def test_writers_topics_and_readers_are_connected(kafka: BrokerInThread, console: Asking) -> None:
    produce(kafka, "website", "visits")
    settings = {"bootstrap.servers": kafka.bootstrap, "client.id": "counter-1", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "group.id": "counters"})
    consumer.subscribe(["visits"])
    assert consumer.poll(WAIT_S) is not None
    produce(kafka, "counter-1", "counts")  # the id of the member: it is the group that writes
    console.look()
    rows = {row["topic"]: row for row in console.json("/topology")["rows"]}
    assert [(each["kind"], each["name"]) for each in rows["visits"]["writers"]] == [("client", "website")]
    assert [(each["kind"], each["name"]) for each in rows["visits"]["readers"]] == [("group", "counters")]
    assert [each["name"] for each in rows["counts"]["writers"]] == ["counters"]
    page = console.page("/topology")
    assert page.count('<path class="edge"') == 3, "website, visits, counters, counts in a line"
    assert "moldau-console" not in page, "the console itself reads everything"
    assert [row["topic"] for row in console.json("/topology?q=WEBSITE")["rows"]] == ["visits"]
    consumer.close()


def test_a_client_with_a_hostile_name_is_shown_harmlessly(kafka: BrokerInThread, console: Asking) -> None:
    produce(kafka, '"><script>alert(1)</script>\u202e', "visits")
    console.look()
    page = console.page("/topology")
    assert "<script>alert" not in page
    assert "\u202e" not in page
    assert "&lt;script&gt;" in page


def test_metrics_that_a_client_pushes_are_shown_for_it(kafka: BrokerInThread, console: Asking) -> None:
    assert "moldau configs alter client-metrics" in console.page("/clients")
    with WireCluster(kafka.bootstrap, WAIT_S) as wire:
        wanted = {"metrics": "*", "interval.ms": "100"}
        changes = [AlterableConfig(name=name, config_operation=0, value=text) for name, text in wanted.items()]
        resource = AlterConfigsResource(resource_type=16, resource_name="all", configs=changes)
        request = IncrementalAlterConfigsRequest(resources=[resource])
        assert wire.any().request(request, IncrementalAlterConfigsResponse).responses[0].error_code == 0
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap, "client.id": "<b>pusher</b>", "enable.metrics.push": True}
    )
    producer.produce("visits", b"value")
    assert producer.flush(WAIT_S) == 0
    console.look()
    end = time.monotonic() + 2 * WAIT_S
    rows: list[dict[str, Any]] = []
    while not (rows and rows[0]["metrics"]) and time.monotonic() < end:
        rows = console.json("/clients?q=pusher")["rows"]
    assert rows[0]["client_id"] == "<b>pusher</b>"
    told = console.json(rows[0]["link"])
    assert any(each["name"].startswith("producer.") for each in told["metrics"])
    page = console.page(rows[0]["link"])
    assert "<b>pusher" not in page
    assert "&lt;b&gt;pusher" in page
    assert "no client" in console.json("/clients/nobody", 404)["error"]
    console.page("/topics/visits/records")
    assert console.json("/clients?q=moldau-console")["rows"] == [], "its readers would crowd out all others"


def test_where_no_metrics_are_read_the_page_says_what_is_missing(kafka: BrokerInThread, tmp_path: Path) -> None:
    with asking(kafka.bootstrap, tmp_path, metrics=("127.0.0.1:1",)) as running:
        assert "who writes is not" in running.page("/topology")


class Boxes(HTMLParser):
    """Places of boxes by the title that is inside."""

    def __init__(self, svg: str) -> None:
        super().__init__()
        self.places: dict[str, tuple[int, int]] = {}
        self._title = ""
        self._in_title = False
        self.feed(svg)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        said = dict(attributes)
        self._in_title = tag == "title"
        if tag == "rect":
            self.places[self._title] = (int(said["x"] or 0), int(said["y"] or 0))

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self._title = data


def boxes(edges: list[tuple[str, str]]) -> dict[str, tuple[int, int]]:
    ids = list(dict.fromkeys(id_ for edge in edges for id_ in edge))
    return {
        title.split()[1]: place
        for title, place in Boxes(drawn("g", [Node(i, "k", i) for i in ids], edges)).places.items()
    }


def test_boxes_stand_to_the_right_of_what_gives_to_them_and_never_on_each_other() -> None:
    edges = [("a", "b"), ("b", "c"), ("a", "c"), ("d", "c"), ("c", "e"), ("f", "e")]
    places = boxes(edges)
    assert all(places[begin][0] < places[end][0] for begin, end in edges)
    assert len(set(places.values())) == len(places)


def test_a_circle_is_drawn_and_one_who_takes_from_himself_too() -> None:
    places = boxes([("a", "b"), ("b", "c"), ("c", "a"), ("c", "c")])
    assert set(places) == {"a", "b", "c"}
    assert len(set(places.values())) == 3


def test_a_graph_of_very_many_is_cut() -> None:
    nodes = [Node(str(number), "k", str(number)) for number in range(5000)]
    svg = drawn("g", nodes, [("0", str(number)) for number in range(1, 5000)])
    assert svg.count("<rect") == NODES_MAX
    assert drawn("g", nodes, []) == ""
