"""The port for metrics: what it answers, whom it refuses, and that nobody can hold it up."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from moldau.broker.metrics import listener
from moldau.core.broker_config import BrokerConfig
from moldau.core.config import ConfigError
from moldau.testing import broker
from moldau.testing.brokers import BrokerInThread
from tests.broker.metrics.scraping import ANY_PORT, DEADLINE_S, get, parse, port_of, scrape


@pytest.fixture(scope="module")
def observed() -> Iterator[BrokerInThread]:
    with broker(ANY_PORT) as running:
        yield running


def exchange(broker: BrokerInThread, *requests: bytes) -> bytes:
    """Everything that comes back until the broker closes."""
    with socket.create_connection(("127.0.0.1", port_of(broker)), DEADLINE_S) as opened:
        answer = b""
        try:
            for request in requests:
                opened.sendall(request)
            while data := opened.recv(65536):
                answer += data
        except ConnectionError:
            pass  # it was closed before all was sent
        return answer


def test_a_broker_that_runs_is_well_and_ready(observed: BrokerInThread) -> None:
    assert get(observed, "/healthz").body == b"ok\n"
    ready = get(observed, "/readyz")
    assert (ready.status, ready.body) == (200, b"ready\n")


def test_metrics_come_in_the_format_that_is_asked_for(observed: BrokerInThread) -> None:
    old = get(observed, "/metrics")
    assert (old.status, old.content_type) == (200, "text/plain; version=0.0.4; charset=utf-8")
    new = get(observed, "/metrics?x=y", accept="application/openmetrics-text;version=1.0.0")
    assert new.content_type == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert new.body.endswith(b"# EOF\n")
    assert parse(new.body.decode()).keys() == parse(old.body.decode()).keys()


def test_head_tells_the_length_and_sends_nothing(observed: BrokerInThread) -> None:
    answer = get(observed, "/metrics", method="HEAD")
    assert (answer.status, answer.body) == (200, b"")
    assert answer.length > 0


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /nothing HTTP/1.1\r\n\r\n", 404),
        (b"GET / HTTP/1.0\r\n\r\n", 404),
        (b"GET /../metrics HTTP/1.1\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 405),
        (b"GET metrics HTTP/1.1\r\n\r\n", 400),
        (b"GET http://elsewhere/metrics HTTP/1.1\r\n\r\n", 400),
        (b"GET /metrics\r\n\r\n", 400),
        (b"GET /metrics HTTP/2\r\n\r\n", 400),
        (b"GET  /metrics HTTP/1.1\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\n folded: yes\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"\x00\xff\xfe\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n", 400),
        (b"GET /" + b"a" * listener.HEAD_BYTES_MAX + b" HTTP/1.1\r\n\r\n", 431),
        (b"GET /metrics HTTP/1.1\r\n" + b"a: b\r\n" * 10_000, 431),
    ],
)
def test_a_bad_request_is_told_so_and_its_connection_closed(
    observed: BrokerInThread, request_: bytes, status: int
) -> None:
    answer = exchange(observed, request_)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer[:80]
    assert answer.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:9404", 200),
        ("LOCALHOST", 200),
        ("127.0.0.1:9404", 200),
        ("[::1]:9404", 200),
        ("evil.example:9404", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.nip.io", 421),
    ],
)
@pytest.mark.parametrize("path", ["/metrics", "/clients"])
def test_a_name_that_leads_to_this_machine_is_not_enough(
    observed: BrokerInThread, path: str, host: str, status: int
) -> None:
    """A browser on this machine would give names of topics, groups and clients to the page that made it ask."""
    answer = exchange(observed, f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())


def test_where_other_machines_may_ask_it_has_any_name() -> None:
    with broker({"metrics.listener": "0.0.0.0:0"}) as running:
        answer = exchange(running, b"GET /metrics HTTP/1.1\r\nHost: broker-1.example:9404\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200 ")


def test_a_request_may_come_byte_by_byte_and_a_second_one_is_not_read(observed: BrokerInThread) -> None:
    request = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    assert exchange(observed, *(bytes([each]) for each in request)).endswith(b"\r\n\r\nok\n")
    assert exchange(observed, request * 3).count(b"HTTP/1.1") == 1


def test_who_connects_and_does_not_ask_keeps_nobody_away(observed: BrokerInThread) -> None:
    with ExitStack() as stack:
        held = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port_of(observed)), DEADLINE_S))
            for _ in range(listener.CONNECTIONS_MAX)
        ]
        for each in held:
            each.sendall(b"GET /healthz")
        assert get(observed, "/healthz").status == 200
        first, *others = held
        with suppress(ConnectionError):
            assert first.recv(100) == b""
        for each in others:
            each.sendall(b" HTTP/1.1\r\n\r\n")
            assert each.recv(100).startswith(b"HTTP/1.1 200")
            while each.recv(65536):
                pass
    assert get(observed, "/healthz").status == 200


def test_one_connection_too_many_is_closed_while_all_others_are_answered(
    monkeypatch: pytest.MonkeyPatch, observed: BrokerInThread
) -> None:
    is_time = threading.Event()

    async def late(_: object, __: object) -> listener.Page:
        while not is_time.is_set():
            await asyncio.sleep(0)
        return listener.Page(200, b"late")

    monkeypatch.setattr(listener.MetricsListener, "answer", late)
    metrics = observed.broker._running.listeners.metrics
    with ExitStack() as stack:
        held = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port_of(observed)), DEADLINE_S))
            for _ in range(listener.CONNECTIONS_MAX)
        ]
        for each in held:
            each.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        while not (len(metrics._connections) == len(held) and all(each._task for each in [*metrics._connections])):
            pass
        assert exchange(observed, b"GET /healthz HTTP/1.1\r\n\r\n") == b""
        is_time.set()
        for each in held:
            assert each.recv(100).startswith(b"HTTP/1.1 200")
            while each.recv(65536):
                pass
    monkeypatch.undo()
    assert get(observed, "/healthz").status == 200


def test_one_who_does_not_ask_is_cut_off(monkeypatch: pytest.MonkeyPatch, observed: BrokerInThread) -> None:
    monkeypatch.setattr(listener, "ASKING_S_MAX", 0.01)
    assert exchange(observed, b"GET /metrics HT") == b""


def test_one_who_does_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch, observed: BrokerInThread) -> None:
    async def endless(_: object, __: object) -> listener.Page:
        return listener.Page(200, bytes(64 << 20))

    monkeypatch.setattr(listener, "ANSWERING_S_MAX", 0.05)
    monkeypatch.setattr(listener.MetricsListener, "answer", endless)
    with socket.create_connection(("127.0.0.1", port_of(observed)), DEADLINE_S) as opened:
        opened.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        metrics = observed.broker._running.listeners.metrics
        while metrics._connections:
            opened.recv(1)
    monkeypatch.undo()
    assert get(observed, "/healthz").status == 200


def test_a_failure_while_a_page_is_made_is_told(
    monkeypatch: pytest.MonkeyPatch, observed: BrokerInThread, caplog: pytest.LogCaptureFixture
) -> None:
    async def failing(_: object, __: object) -> listener.Page:
        raise ValueError("broken")

    monkeypatch.setattr(listener.MetricsListener, "answer", failing)
    assert get(observed, "/metrics").status == 500
    assert "/metrics failed" in caplog.text


def test_a_broker_starts_though_the_port_is_taken_and_says_so(
    observed: BrokerInThread, caplog: pytest.LogCaptureFixture
) -> None:
    taken = f"127.0.0.1:{port_of(observed)}"
    with broker({"metrics.listener": taken}) as second:
        assert second.broker.metrics_address is None
    assert f"metrics.listener={taken} is in use" in caplog.text
    assert scrape(observed)


def test_nothing_listens_where_the_listener_is_empty() -> None:
    with broker({"metrics.listener": ""}) as silent:
        assert silent.broker.metrics_address is None


@pytest.mark.parametrize(
    "text", ["9404", "http://localhost:9404", "localhost", "localhost:99999", "a b:1", "::1:9404x"]
)
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"metrics\.listener"):
        BrokerConfig.parse({"metrics.listener": text})


def test_the_port_of_a_listener_is_refused() -> None:
    with pytest.raises(ConfigError, match="one of the listeners"):
        BrokerConfig.parse({"metrics.listener": "0.0.0.0:9092"})


@pytest.mark.parametrize(("text", "host"), [(":9404", ""), ("[::1]:9404", "::1"), ("h:0", "h")])
def test_an_address_is_read_and_written_alike(text: str, host: str) -> None:
    address = BrokerConfig.parse({"metrics.listener": text})[0].metrics_listener
    assert address is not None
    assert (address.host, str(address)) == (host, text)
