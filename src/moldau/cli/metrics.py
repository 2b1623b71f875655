"""`moldau metrics`: what Kafka's JmxTool prints, from the pages of metrics that brokers serve to Prometheus."""

import argparse
import http.client
import json
import re
import sys
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs do not re-export what it documents
    AdminClient,
    ConfigResource,
)

from moldau.cli.common import REQUEST_TIMEOUT_S, add_client_options, client_settings, parser, run
from moldau.cli.failures import EXIT_FAILED, ToolError
from moldau.cli.output import show_table
from moldau.cli.reachable import REACH_TIMEOUT_S

PAGE_BYTES_MAX = 256 * 1024 * 1024
EVERYWHERE = ("0.0.0.0", "::", "")
EXAMPLES = (
    "moldau metrics --name 'underreplicated|offline'",
    "moldau metrics --name bytesin --every 5",
    "moldau metrics --url http://localhost:9404/metrics --json",
)
_SAMPLE = re.compile(r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(\{(?P<labels>.*)\})?\s+(?P<value>\S+)(\s+\S+)?")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}


class Page(NamedTuple):
    """A page of metrics, and whose it is."""

    broker: str
    url: str


def main(argv: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    made = argument_parser()
    options = made.parse_args(argv)
    if options.reporting_interval is not None:
        options.every = options.reporting_interval / 1000
    if options.count is not None and options.every is None:
        made.error("--count needs --every")
    return run(lambda: _run(options))


def argument_parser() -> argparse.ArgumentParser:
    made = parser("metrics", "Print the metrics of brokers.", EXAMPLES)
    add_client_options(made, "--command-config")
    made.add_argument("--url", action="append", default=[], help="a page of metrics, instead of asking the cluster")
    made.add_argument("--name", metavar="REGEX", help="metrics whose name or labels match")
    made.add_argument("--every", type=_seconds, metavar="SECONDS", help="print again and again")
    made.add_argument("--reporting-interval", type=_seconds, metavar="MS", help="the same in milliseconds, as JmxTool")
    made.add_argument("--count", type=_count, metavar="N", help="how often (default: until Ctrl-C)")
    made.add_argument("--one-time", nargs="?", const="true", help=argparse.SUPPRESS)
    made.add_argument("--json", action="store_true", help="print JSON, for programs; with --every a value on each line")
    return made


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1
    if not 0 < number < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def _run(options: argparse.Namespace) -> int:
    try:
        pattern = None if options.name is None else re.compile(options.name, re.IGNORECASE)
    except re.error as error:
        raise ToolError(f"--name {options.name!r} is no regular expression: {error}") from error
    pages = [Page("", url) for url in options.url] or _pages(options)
    times = 0
    while True:
        rows, failures = _scraped(pages, pattern)
        if len(failures) == len(pages):
            raise failures[0]
        sys.stderr.writelines(f"{failure}\n" for failure in failures)
        _show(options, rows)
        times += 1
        if options.every is None or times == options.count:
            return EXIT_FAILED if failures else 0
        sys.stdout.flush()
        time.sleep(options.every)


def _scraped(pages: Sequence[Page], pattern: re.Pattern[str] | None) -> tuple[list[dict[str, Any]], list[ToolError]]:
    """The metrics of all pages, and why some have none."""
    rows: list[dict[str, Any]] = []
    failures = []
    for page in pages:
        try:
            rows += _metrics(page, pattern)
        except ToolError as error:
            failures.append(error)
    return rows, failures


def _show(options: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    now = datetime.now(UTC)
    if options.every is not None and options.json:
        sys.stdout.write(json.dumps({"timeMs": int(now.timestamp() * 1000), "metrics": rows}) + "\n")
        return
    if options.every is not None:
        sys.stdout.write(f"{now:%Y-%m-%d %H:%M:%S} UTC\n")
    shown = rows if options.json else [{**row, "name": _written(row)} for row in rows]
    headings = {"broker": "BROKER", "name": "METRIC", "value": "VALUE"}
    if options.url:
        del headings["broker"]
    show_table(options, shown, headings, "No metric matches.")


def _written(row: dict[str, Any]) -> str:
    labels = ",".join(f'{name}="{value}"' for name, value in row["labels"].items())
    return f"{row['name']}{{{labels}}}" if labels else str(row["name"])


# --- where the pages are ---


def _pages(options: argparse.Namespace) -> list[Page]:
    """The pages of all brokers, from their `metrics.listener`."""
    admin = AdminClient(client_settings(options, {}))
    brokers = admin.list_topics(timeout=REQUEST_TIMEOUT_S).brokers
    pages, without = [], []
    for number, broker in sorted(brokers.items()):
        listener = _listener(admin, number)
        if listener:
            pages.append(Page(str(number), page_url(listener, str(broker.host))))
        else:
            without.append(number)
    if not pages:
        names = ", ".join(map(str, without))
        raise ToolError(
            f"no metrics.listener at broker {names}: it is switched off, or the broker is Apache Kafka's; "
            "name the page of its jmx_exporter with --url"
        )
    for number in without:
        sys.stderr.write(f"broker {number} has no metrics.listener and is left out\n")
    return pages


def _listener(admin: AdminClient, broker: int) -> str:
    resource = ConfigResource(ConfigResource.Type.BROKER, str(broker))
    try:
        found = admin.describe_configs([resource], request_timeout=REACH_TIMEOUT_S)[resource].result()
    except KafkaException:
        return ""
    entry = found.get("metrics.listener")
    return "" if entry is None or entry.value is None else str(entry.value)


def page_url(listener: str, host: str) -> str:
    """The address of a broker's metrics, seen from here."""
    place, _, port = listener.rpartition(":")
    place = place.strip("[]")
    place = host if place in EVERYWHERE else place
    return f"http://[{place}]:{port}/metrics" if ":" in place else f"http://{place}:{port}/metrics"


# --- what is on them ---


def _metrics(page: Page, pattern: re.Pattern[str] | None) -> list[dict[str, Any]]:
    found = parse_metrics(fetch_page(page.url).splitlines())
    owner = {"broker": page.broker} if page.broker else {}
    return [{**owner, **row} for row in found if pattern is None or pattern.search(_written(row))]


def fetch_page(url: str) -> str:
    """The text of a page."""
    wrong = f"{url!r} is no address of a page: write http://HOST:PORT/metrics"
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
    except ValueError as error:  # a bracket that nothing closes
        raise ToolError(wrong) from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ToolError(wrong)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    try:
        connection = kind(parts.hostname, parts.port, timeout=REACH_TIMEOUT_S)
        connection.request("GET", (parts.path or "/metrics") + (f"?{parts.query}" if parts.query else ""))
        answer = connection.getresponse()
        if answer.status != http.HTTPStatus.OK:
            raise ToolError(f"{url} answers {answer.status} {answer.reason}")
        return answer.read(PAGE_BYTES_MAX).decode(errors="replace")
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise ToolError(
            f"no metrics at {url} ({reason}): a broker serves them at its metrics.listener, "
            "which other machines reach only if it is set to 0.0.0.0:PORT"
        ) from error


def parse_metrics(lines: Iterable[str]) -> Iterable[dict[str, Any]]:
    """The samples of a page in Prometheus's text format; other lines are passed over."""
    for line in lines:
        match = None if line.startswith("#") else _SAMPLE.fullmatch(line.strip())
        if match is None:
            continue
        try:
            value = float(match["value"])
        except ValueError:
            continue
        labels = {name: _plain(text) for name, text in _LABEL.findall(match["labels"] or "")}
        told = (
            int(value) if value.is_integer() else value if value == value and abs(value) != float("inf") else str(value)
        )
        yield {"name": match["name"], "labels": labels, "value": told}


def _plain(text: str) -> str:
    return re.sub(r"\\[\\\"n]", lambda found: _ESCAPES[found[0]], text)
