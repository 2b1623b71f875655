"""`moldau metrics`: found through the cluster, by address, again and again; and what it says where there are none."""

import json
from collections.abc import Callable, Iterator

import pytest

from moldau.cli.metrics import page_url, parse_metrics
from moldau.testing.brokers import BrokerInThread, broker
from moldau.testing.ports import free_ports
from tests.cli.conftest import Ended, Tool

Run = Callable[[list[str], bytes], Ended]


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[BrokerInThread, int]]:
    (port,) = free_ports(1)
    with broker({"metrics.listener": f"127.0.0.1:{port}"}) as running:
        yield running, port


def test_metrics_are_found_through_the_cluster(served: tuple[BrokerInThread, int], run_tool: Run) -> None:
    arguments = ["metrics", "--bootstrap-server", served[0].bootstrap, "--name", "underreplicatedpartitions"]
    heading, *rows = run_tool(arguments, b"").output.splitlines()
    assert heading.split() == ["BROKER", "METRIC", "VALUE"]
    assert rows
    assert all("underreplicatedpartitions" in row.lower() for row in rows)


def test_a_page_is_named_by_its_address_and_read_again_and_again(
    served: tuple[BrokerInThread, int], run_tool: Run
) -> None:
    url = f"http://127.0.0.1:{served[1]}/metrics"
    arguments = ["metrics", "--url", url, "--name", "^kafka_", "--every", "0.01", "--count", "2", "--json"]
    lines = run_tool(arguments, b"").output.splitlines()
    assert len(lines) == 2
    for line in lines:
        told = json.loads(line)
        assert told["timeMs"] > 0
        assert {"name", "labels", "value"} == set(told["metrics"][0])


def test_a_broker_without_metrics_says_what_to_do(either_tool: Tool) -> None:
    assert "--url" in either_tool.error("metrics")


@pytest.mark.parametrize(
    "arguments", [["--url", "http://127.0.0.1:1/metrics"], ["--url", "ftp://x"], ["--url", ":"], ["--url", "["]]
)
def test_a_page_that_is_not_there_is_one_line(run_tool: Run, arguments: list[str]) -> None:
    ended = run_tool(["metrics", *arguments], b"")
    assert (ended.code, ended.errors.count("\n")) == (1, 1)


def test_a_bad_expression_is_one_line(run_tool: Run) -> None:
    assert "no regular expression" in run_tool(["metrics", "--url", "http://x", "--name", "(["], b"").errors


def test_a_page_of_prometheus_is_read() -> None:
    page = '# HELP a b\na{x="1",y="q\\"\\\\\\n"} 2.5 170\nb 7\nc NaN\nnonsense here\n'
    assert list(parse_metrics(page.splitlines())) == [
        {"name": "a", "labels": {"x": "1", "y": 'q"\\\n'}, "value": 2.5},
        {"name": "b", "labels": {}, "value": 7},
        {"name": "c", "labels": {}, "value": "nan"},
    ]


def test_a_listener_on_every_address_is_reached_at_the_brokers_host() -> None:
    assert page_url("0.0.0.0:9404", "kafka-1") == "http://kafka-1:9404/metrics"
    assert page_url("127.0.0.1:9404", "kafka-1") == "http://127.0.0.1:9404/metrics"
    assert page_url("[::]:9404", "::1") == "http://[::1]:9404/metrics"
