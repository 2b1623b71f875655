"""`moldau produce`: lines from standard input become records, in the manner of kafka-console-producer."""

import argparse
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from moldau.cli.common import (
    EXIT_FAILED,
    ToolError,
    add_client_options,
    client_settings,
    describe,
    is_true,
    pairs,
    parser,
    run,
)
from moldau.cli.metadata import partitions_of

Headers = list[tuple[str, str | bytes | None]]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def main(argv: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    options = _parser().parse_args(argv)
    return run(lambda: _run(options, sys.stdin.buffer))


def _parser() -> argparse.ArgumentParser:
    made = parser("produce", "Send each line of standard input to a topic.")
    made.add_argument("--topic", required=True)
    made.add_argument("--partition", type=int, default=-1, metavar="N", help="default: by key, or spread")
    made.add_argument("--compression-codec", nargs="?", const="gzip", default="none", choices=CODECS)
    made.add_argument("--acks", "--request-required-acks", default="all", choices=("0", "1", "-1", "all"))
    made.add_argument("--sync", action="store_true", help="wait for each record before the next is sent")
    made.add_argument("--batch-size", type=int, metavar="BYTES", help="the most that is sent as one batch")
    made.add_argument("--timeout", type=int, metavar="MS", help="how long a batch may wait for more records")
    made.add_argument(
        "--property",
        "--reader-property",
        dest="properties",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="parse.key, key.separator, parse.headers, headers.delimiter, headers.separator, "
        "headers.key.separator, null.marker, ignore.error",
    )
    add_client_options(made, "--producer.config", "--producer-property")
    return made


def _run(options: argparse.Namespace, lines: Iterable[bytes]) -> int:
    reader = LineReader(pairs(options.properties))
    sender = _Sender(client_settings(options, _settings(options)), options.topic, options.partition)
    for number, line in enumerate(lines, start=1):
        sender.send(reader.record(line, number))
        if options.sync:
            sender.flush()
    sender.flush()
    return EXIT_FAILED if sender.failures else 0


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "compression.codec": options.compression_codec,
        "acks": options.acks,
        "partitioner": "murmur2_random",  # where the Java clients put a key
    }
    if options.acks in ("all", "-1"):
        settings["enable.idempotence"] = True  # a retry must not write a line twice
    if options.batch_size is not None:
        settings["batch.size"] = options.batch_size
    if options.timeout is not None:
        settings["linger.ms"] = options.timeout
    return settings


class InputRecord(NamedTuple):
    """The parts of one line."""

    key: bytes | None
    value: bytes | None
    headers: Headers


class LineReader:
    """Reader that splits a line into headers, key and value as the properties ask."""

    def __init__(self, properties: dict[str, str]) -> None:
        self._parses_key = is_true(properties, "parse.key")
        self._parses_headers = is_true(properties, "parse.headers")
        self._ignores_errors = is_true(properties, "ignore.error")
        self._key_separator = properties.get("key.separator", "\t").encode()
        self._headers_delimiter = properties.get("headers.delimiter", "\t").encode()
        self._headers_separator = properties.get("headers.separator", ",")
        self._header_key_separator = properties.get("headers.key.separator", ":")
        marker = properties.get("null.marker")
        self._null_marker = None if marker is None else marker.encode()

    def record(self, line: bytes, number: int) -> InputRecord:
        """The record of line `number`."""
        rest = line.removesuffix(b"\n").removesuffix(b"\r")
        headers: Headers = []
        key: bytes | None = None
        if self._parses_headers:
            text, rest = self._split(rest, self._headers_delimiter, "headers.delimiter", number)
            headers = self._headers(text, number)
        if self._parses_key:
            key, rest = self._split(rest, self._key_separator, "key.separator", number)
        return InputRecord(self._nullable(key), self._nullable(rest), headers)

    def _split(self, text: bytes, separator: bytes, name: str, number: int) -> tuple[bytes | None, bytes]:
        first, found, rest = text.partition(separator)
        if found:
            return first, rest
        if self._ignores_errors:
            return None, text
        raise ToolError(f"line {number} has no {name} {separator.decode()!r} in it: {text.decode(errors='replace')!r}")

    def _headers(self, text: bytes | None, number: int) -> Headers:
        if not text or text == self._null_marker:
            return []
        return [self._header(item, number) for item in text.decode().split(self._headers_separator)]

    def _header(self, item: str, number: int) -> tuple[str, bytes | None]:
        name, found, value = item.partition(self._header_key_separator)
        if not found and not self._ignores_errors:
            raise ToolError(f"line {number}: header {item!r} has no {self._header_key_separator!r} in it")
        return name, self._nullable(value.encode()) if found else None

    def _nullable(self, data: bytes | None) -> bytes | None:
        return None if data == self._null_marker else data


class _Sender:
    """Sender that hands records to librdkafka, waits while its queue is full, and prints each that failed."""

    def __init__(self, settings: dict[str, Any], topic: str, partition: int) -> None:
        self.failures = 0
        self._fatal: KafkaError | None = None
        self._producer = Producer({**settings, "error_cb": self._on_error})
        self._topic = topic
        self._partition = partition
        partitions_of(self._producer, topic)

    def send(self, record: InputRecord) -> None:
        while not self._accepted(record):
            self._producer.poll(0.1)
        self._producer.poll(0)

    def flush(self) -> None:
        """Wait until every record is sent or has failed."""
        self._producer.flush()
        if self._fatal is not None:
            raise KafkaException(self._fatal)

    def _accepted(self, record: InputRecord) -> bool:
        try:
            self._producer.produce(
                self._topic,
                value=record.value,
                key=record.key,
                headers=record.headers,
                partition=self._partition,
                on_delivery=self._on_delivery,
            )
        except BufferError:
            return False
        return True

    def _on_error(self, error: KafkaError) -> None:
        """Note an error that is fatal; after any other librdkafka connects again by itself."""
        if error.fatal():
            self._fatal = error

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and self._fatal is None:
            self.failures += 1
            shown = (message.value() or b"")[:40].decode(errors="replace")
            sys.stderr.write(f"error: not sent: {shown!r}: {describe(error)}\n")
