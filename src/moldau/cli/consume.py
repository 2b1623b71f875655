"""`moldau consume`: prints the records of a topic, in the manner of kafka-console-consumer, without a group."""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from typing import BinaryIO, cast

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from moldau.cli.common import ToolError, add_client_options, client_settings, describe, is_true, pairs, parser, run
from moldau.cli.metadata import partitions_of

BATCH_RECORDS = 500
POLL_S = 0.2
_NAMED_OFFSETS = {"earliest": OFFSET_BEGINNING, "latest": OFFSET_END}
_TIMESTAMP_NAMES = {TIMESTAMP_CREATE_TIME: "CreateTime", TIMESTAMP_LOG_APPEND_TIME: "LogAppendTime"}


def main(argv: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    options = _parse(argv)
    return run(lambda: _run(options, sys.stdout.buffer))


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    made = _parser()
    options = made.parse_args(argv)
    if options.offset is not None and options.partition is None:
        made.error("--offset needs --partition")
    if options.offset is not None and options.from_beginning:
        made.error("--offset and --from-beginning exclude each other")
    return options


def _parser() -> argparse.ArgumentParser:
    made = parser("consume", "Print the records of a topic: of all its partitions, or of one.")
    made.add_argument("--topic", required=True)
    made.add_argument("--partition", type=int, metavar="N", help="only this one")
    made.add_argument(
        "--offset",
        type=_offset,
        metavar="earliest|latest|N",
        help="where to start in --partition (default: latest)",
    )
    made.add_argument("--from-beginning", action="store_true", help="start with the first record there is")
    made.add_argument("--max-messages", type=int, metavar="N", help="end after so many records")
    made.add_argument("--timeout-ms", type=int, metavar="MS", help="end when no record has come for so long")
    made.add_argument("--isolation-level", default="read_uncommitted", choices=("read_uncommitted", "read_committed"))
    made.add_argument(
        "--property",
        "--formatter-property",
        dest="properties",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="print.timestamp, print.partition, print.offset, print.headers, print.key, print.value, "
        "key.separator, line.separator, headers.separator, null.literal",
    )
    add_client_options(made, "--consumer.config", "--consumer-property")
    return made


def _offset(text: str) -> int:
    if text in _NAMED_OFFSETS:
        return _NAMED_OFFSETS[text]
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is neither earliest, latest nor an offset")
    return int(text)


def _run(options: argparse.Namespace, output: BinaryIO) -> int:
    formatter = Formatter(pairs(options.properties))
    consumer = Consumer(client_settings(options, _settings(options)))
    try:
        consumer.assign(_positions(consumer, options))
        _print_records(_batches(consumer, options.timeout_ms, options.max_messages), formatter, output)
    finally:
        consumer.close()
    return 0


def _print_records(batches: Iterator[list[Message]], formatter: "Formatter", output: BinaryIO) -> None:
    shown = 0
    try:
        for batch in batches:
            output.writelines(map(formatter.line, batch))
            output.flush()
            shown += len(batch)
    finally:
        sys.stderr.write(f"Processed a total of {shown} messages\n")


def _settings(options: argparse.Namespace) -> dict[str, str | bool]:
    return {
        "group.id": "moldau-consume",  # librdkafka wants one; nothing is committed under it
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "isolation.level": options.isolation_level,
    }


def _positions(consumer: Consumer, options: argparse.Namespace) -> list[TopicPartition]:
    partitions = partitions_of(consumer, options.topic)
    if options.partition is not None:
        if options.partition not in partitions:
            raise ToolError(f"topic {options.topic!r} has no partition {options.partition}: it has {len(partitions)}")
        partitions = [options.partition]
    start = OFFSET_BEGINNING if options.from_beginning else OFFSET_END
    offset = start if options.offset is None else options.offset
    return [TopicPartition(options.topic, partition, offset) for partition in partitions]


def _batches(consumer: Consumer, timeout_ms: int | None, limit: int | None) -> Iterator[list[Message]]:
    """Batches of records as they come, until `limit` records have come or none has for `timeout_ms`."""
    left = sys.maxsize if limit is None else limit
    last = time.monotonic()
    while left > 0:
        batch = _next_batch(consumer, min(left, BATCH_RECORDS))
        if batch:
            yield batch
            left -= len(batch)
            last = time.monotonic()
        elif timeout_ms is not None and (time.monotonic() - last) * 1000 > timeout_ms:
            return


def _next_batch(consumer: Consumer, size: int) -> list[Message]:
    """The records that are there, without waiting for a full batch."""
    first = consumer.poll(POLL_S)
    if first is None:
        return []
    rest = consumer.consume(size - 1, timeout=0) if size > 1 else []
    return [message for message in (first, *rest) if _is_record(message)]


def _is_record(message: Message) -> bool:
    error = message.error()
    if error is None:
        return True
    if error.code() == KafkaError._AUTO_OFFSET_RESET:
        raise ToolError(f"partition {message.partition()} has no such offset: try --offset earliest")
    if error.fatal() or not (error.retriable() or error.code() in _PASSING_ERRORS):
        raise KafkaException(error)
    sys.stderr.write(f"warning: {describe(error)}; trying again\n")
    return False


_PASSING_ERRORS = (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._RESOLVE)


class Formatter:
    """Formatter of one record as one line, in Kafka's order: timestamp, partition, offset, headers, key, value."""

    def __init__(self, properties: dict[str, str]) -> None:
        self._prints = {
            name: is_true(properties, f"print.{name}", default=name == "value")
            for name in ("timestamp", "partition", "offset", "headers", "key", "value")
        }
        self._separator = properties.get("key.separator", "\t").encode()
        self._end = properties.get("line.separator", "\n").encode()
        self._headers_separator = properties.get("headers.separator", ",").encode()
        self._null = properties.get("null.literal", "null").encode()

    def line(self, message: Message) -> bytes:
        """The line for `message`, with its end."""
        parts = [getattr(self, f"_{name}")(message) for name, printed in self._prints.items() if printed]
        return self._separator.join(parts) + self._end

    def _timestamp(self, message: Message) -> bytes:
        kind, timestamp_ms = message.timestamp()
        name = _TIMESTAMP_NAMES.get(kind)
        return b"NO_TIMESTAMP" if name is None else f"{name}:{timestamp_ms}".encode()

    def _partition(self, message: Message) -> bytes:
        return f"Partition:{message.partition()}".encode()

    def _offset(self, message: Message) -> bytes:
        return f"Offset:{message.offset()}".encode()

    def _headers(self, message: Message) -> bytes:
        headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])  # what it is, of all that it might be
        shown = (name.encode() + b":" + self._shown(value) for name, value in headers)
        return self._headers_separator.join(shown) if headers else b"NO_HEADERS"

    def _key(self, message: Message) -> bytes:
        return self._shown(message.key())

    def _value(self, message: Message) -> bytes:
        return self._shown(message.value())

    def _shown(self, data: bytes | None) -> bytes:
        return self._null if data is None else data
