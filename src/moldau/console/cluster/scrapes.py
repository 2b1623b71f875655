"""Metrics of the brokers, where they can be reached: bytes, exact lag in seconds, clients, how busy a broker is.

Of a scrape only a few families are read; the lines of all others are passed over unparsed.
"""

import json
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from typing import Any

from confluent_kafka.admin import AdminClient, ConfigEntry, ConfigResource  # type: ignore[attr-defined]  # stubs hide it

from moldau.cli.reachable import host_and_port
from moldau.console.cluster.state import BrokerState, TopicUse, Traffic
from moldau.console.settings import is_loopback

SCRAPE_S = 3.0
SCRAPE_BYTES_MAX = 64 * 1024 * 1024
PROPERTY = "metrics.listener"
_OF_CLIENT = {
    *("instance_id", "client_id", "software_name", "software_version", "address", "port"),
    *("interval_ms", "asked_for", "pushed_s_ago", "metrics"),
}
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(.)")
_BYTES_IN = "kafka_server_brokertopicmetrics_bytesin_total"
_BYTES_OUT = "kafka_server_brokertopicmetrics_bytesout_total"
_SECONDS = "moldau_group_lag_seconds{"
_RULE = "moldau_group_partition_status{"
_CLIENTS = "kafka_server_socket_server_metrics_connections{"
_BUSY = "moldau_loop_busy_ratio"
_WRITER = "moldau_topic_writer{"
_READER = "moldau_topic_reader{"
_WANTED = (_BYTES_IN, _BYTES_OUT, _SECONDS, _RULE, _CLIENTS, _BUSY, _WRITER, _READER)


def addresses(admin: AdminClient, brokers: Iterable[BrokerState], timeout_s: float) -> dict[int, str]:
    """Addresses of the metrics by broker, as the brokers' configuration names them; Apache Kafka has none."""
    known = {each.id: each for each in brokers}
    asked: dict[int, Future[dict[str, ConfigEntry]]] = {}
    for number in known:  # librdkafka takes one broker at a time
        resource = ConfigResource(ConfigResource.Type.BROKER, str(number))
        (asked[number],) = admin.describe_configs([resource], request_timeout=timeout_s).values()
    found = {}
    for number, future in asked.items():
        entry = future.result(timeout_s + 1).get(PROPERTY)
        if entry is not None and entry.value:
            found[number] = _as_reached(entry.value, known[number].host)
    return found


def _as_reached(listener: str, broker_host: str) -> str:
    """The address for us: a listener on all addresses is reached by the broker's name, one on loopback as it is."""
    host, port = host_and_port(listener)
    anywhere = host in ("", "0.0.0.0", "::")
    chosen = broker_host if anywhere else host
    return f"[{chosen}]:{port}" if ":" in chosen else f"{chosen}:{port}"


def scrape(places: Mapping[int, str], brokers: Mapping[int, BrokerState]) -> Traffic:
    """Figures of all brokers that answer. A loopback address is asked only for a broker on this machine."""
    into = _Sums()
    for number, address in places.items():
        broker = brokers.get(number)
        host, port = host_and_port(address)
        if broker is not None and is_loopback(host) and not is_loopback(broker.host):
            continue
        text = _get(host, port)
        if text is not None:
            into.take(address, text)
    return into.traffic()


def pushed_metrics(addresses: Iterable[str]) -> tuple[list[dict[str, Any]], bool]:
    """Clients that push metrics to any of these brokers (KIP-714), and whether a broker asks them to."""
    found: list[dict[str, Any]] = []
    is_enabled = False
    for address in addresses:
        text = _get(*host_and_port(address), "/clients")
        try:
            told = json.loads(text or "{}")
            found += [each for each in told.get("clients", ()) if _is_whole(each)]
            is_enabled = is_enabled or bool(told.get("enabled"))
        except (ValueError, AttributeError):
            continue  # what listens there is no broker of ours
    return found, is_enabled


def _is_whole(client: Any) -> bool:
    return isinstance(client, dict) and client.keys() >= _OF_CLIENT


def _get(host: str, port: int, path: str = "/metrics") -> str | None:
    try:
        with closing(HTTPConnection(host, port, timeout=SCRAPE_S)) as connection:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read(SCRAPE_BYTES_MAX)
            return body.decode(errors="replace") if answer.status == 200 else None
    except (OSError, HTTPException, UnicodeError):  # the last: a name that none can be, such as a..b
        return None  # a broker that is away, or serves no metrics: the page shows which ones answered


class _Sums:
    """Sums over brokers."""

    def __init__(self) -> None:
        self._brokers: list[str] = []
        self._in: dict[str, float] = {}
        self._out: dict[str, float] = {}
        self._seconds: dict[tuple[str, str, int], float] = {}
        self._rules: dict[tuple[str, str, int], str] = {}
        self._clients: dict[tuple[str, str], int] = {}
        self._busy: dict[str, float] = {}
        self._writers: set[TopicUse] = set()
        self._readers: set[TopicUse] = set()

    def take(self, address: str, text: str) -> None:
        self._brokers.append(address)
        for line in text.split("\n"):
            if line.startswith(_WANTED):
                self._line(address, line)

    def _line(self, address: str, line: str) -> None:
        name, _, rest = line.partition("{")
        labels = {key: _ESCAPE.sub(_unescaped, value) for key, value in _LABEL.findall(rest)}
        try:
            value = float(line.rpartition(" ")[2])
        except ValueError:
            return
        if line.startswith(_BYTES_IN):
            topic = labels.get("topic", "")
            self._in[topic] = self._in.get(topic, 0.0) + value
        elif line.startswith(_BYTES_OUT):
            topic = labels.get("topic", "")
            self._out[topic] = self._out.get(topic, 0.0) + value
        elif line.startswith(_SECONDS):
            self._seconds[labels["consumergroup"], labels["topic"], int(labels["partition"])] = value
        elif line.startswith(_RULE):
            self._rules[labels["consumergroup"], labels["topic"], int(labels["partition"])] = labels["rule"]
        elif line.startswith(_CLIENTS):
            client = (labels.get("clientSoftwareName", "unknown"), labels.get("clientSoftwareVersion", ""))
            self._clients[client] = self._clients.get(client, 0) + int(value)
        elif line.startswith((_WRITER, _READER)):
            users = self._writers if line.startswith(_WRITER) else self._readers
            users.add(TopicUse(labels["topic"], labels["client_id"], labels["host"]))
        elif name.split(" ")[0] == _BUSY:
            self._busy[address] = value

    def traffic(self) -> Traffic:
        return Traffic(
            tuple(self._brokers),
            self._in,
            self._out,
            self._seconds,
            self._rules,
            self._clients,
            self._busy,
            frozenset(self._writers),
            frozenset(self._readers),
        )


def _unescaped(match: "re.Match[str]") -> str:
    return "\n" if match[1] == "n" else match[1]
