"""`moldau perf produce`: the work of kafka-producer-perf-test.

Records are handed to librdkafka by the thousand, as Python would be the bound otherwise. Settings are those that
Kafka's producer has by itself, so that the numbers of both tools are about the same thing.
"""

import argparse
import random
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from moldau.cli.common import client_settings, ensure_usable
from moldau.cli.failures import EXIT_FAILED, ToolError
from moldau.cli.metadata import partitions_of
from moldau.cli.output import say, show_json
from moldau.cli.pace import Pace
from moldau.cli.perf_numbers import Sends, print_metrics, rates
from moldau.cli.sender import SLICE_S

BATCH_RECORDS = 1000
TURNS_PER_SECOND = 100
"""Batches that are handed over in a second, at a given rate."""
LETTERS_MIN = 1 << 20
STRIDE = 7919
"""Letters from the begin of one value to that of the next, in a text of random letters; a prime."""
TRANSACTION_MS = 3000
TRANSACTION_TIMEOUT_S = 60.0
PRODUCER_ID_TIMEOUT_S = 5.0
HAS_PRODUCER_ID = '"idemp_state": "Assigned"'
"""Part of librdkafka's statistics once it has one."""

JAVA_DEFAULTS: dict[str, Any] = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 5,
    "batch.size": 16384,
    "queue.buffering.max.kbytes": 32 * 1024,
    "queue.buffering.max.messages": 0,
    "partitioner": "murmur2_random",
}


def produce(options: argparse.Namespace) -> int:
    """Send the records, and print what was measured."""
    values = _values(options)
    return _Run(options, values).run()


def _values(options: argparse.Namespace) -> Iterator[bytes]:
    """Values without an end."""
    if options.record_size is not None:
        return _random_values(options.record_size)
    if options.payload_monotonic:
        return (str(number).encode() for number in count())
    try:
        content = Path(options.payload_file).read_bytes()
    except OSError as error:
        raise ToolError(f"cannot read {options.payload_file}: {error.strerror}") from error
    delimiter = options.payload_delimiter.encode().decode("unicode_escape").encode()
    lines = [line for line in content.split(delimiter) if line] if delimiter else [content]
    if not lines:
        raise ToolError(f"{options.payload_file} is empty: there is nothing to send")
    dice = random.Random(0)
    return (dice.choice(lines) for _ in count())


def _random_values(size: int) -> Iterator[bytes]:
    """Pieces of a long text of random letters, as they cost next to nothing."""
    room = max(LETTERS_MIN, 2 * size)
    letters = bytes(65 + byte % 26 for byte in random.Random(0).randbytes(room + size))
    return (letters[at : at + size] for at in (number * STRIDE % room for number in count()))


class _Run:
    """One run of the tool."""

    def __init__(self, options: argparse.Namespace, values: Iterator[bytes]) -> None:
        self._options = options
        self._values = values
        self._failures = 0
        self._fatal: KafkaError | None = None
        self._statistics = ""
        settings = client_settings(options, JAVA_DEFAULTS)
        self._tell_error = settings["error_cb"]
        settings["error_cb"] = self._on_error
        self._is_idempotent = bool(settings["enable.idempotence"]) and str(settings["enable.idempotence"]) != "false"
        if options.print_metrics or self._is_idempotent:
            settings |= {"statistics.interval.ms": 100, "stats_cb": self._on_statistics}
        self._transaction_ms = self._transactions(settings)
        ensure_usable(settings)
        self._producer = Producer(settings)
        partitions_of(self._producer, options.topic)
        self._sends = Sends(time.monotonic())
        self._steady: Sends | None = None
        self._transaction_s = 0.0

    def _transactions(self, settings: dict[str, Any]) -> int | None:
        """Milliseconds of one transaction; None: there are none."""
        options = self._options
        named = options.transactional_id or settings.get("transactional.id")
        if named is None and options.transaction_duration_ms is None:
            return None
        settings["transactional.id"] = named or f"performance-producer-{uuid.uuid4()}"
        return options.transaction_duration_ms or TRANSACTION_MS

    def run(self) -> int:
        if self._transaction_ms is not None:
            self._producer.init_transactions(TRANSACTION_TIMEOUT_S)
        elif self._is_idempotent:
            self._await_producer_id()
        self._sends = Sends(time.monotonic())
        self._send_all()
        self._finish()
        now_s = time.monotonic()
        self._report(now_s)
        if self._options.print_metrics:
            print_metrics(self._statistics, "producer")
        return EXIT_FAILED if self._failures else 0

    def _await_producer_id(self) -> None:
        """Wait until librdkafka has its producer id, for half a second mostly: the first records would wait for it, and
        that is no latency of the broker's."""
        deadline_s = time.monotonic() + PRODUCER_ID_TIMEOUT_S
        while HAS_PRODUCER_ID not in self._statistics and time.monotonic() < deadline_s:
            self._producer.poll(SLICE_S)

    def _send_all(self) -> None:
        rate = self._options.throughput if self._options.throughput > 0 else None
        turn = BATCH_RECORDS if rate is None else max(1, min(BATCH_RECORDS, int(rate / TURNS_PER_SECOND)))
        pace = Pace(rate, self._producer.poll)
        sent = 0
        while sent < self._options.num_records:
            self._begin_transaction()
            some = list(islice(self._values, min(turn, self._options.num_records - sent)))
            self._hand_over(some)
            sent += len(some)
            self._end_transaction(sent == self._options.num_records)
            pace.wait(sent)
            self._tell()

    def _hand_over(self, values: list[bytes]) -> None:
        messages: list[dict[str, Any]] = [{"value": value} for value in values]
        while messages:
            messages = hand_over(self._producer, self._options.topic, messages, self._on_delivery)
            self._make_room(len(messages))

    def _make_room(self, records: int) -> None:
        """Make the calls for what was delivered until there is room: to try earlier only costs CPU."""
        enough = max(0, len(self._producer) - records)
        self._producer.poll(0)
        while records and len(self._producer) > enough:
            self._producer.poll(SLICE_S)
            self._tell()
            if self._fatal is not None:
                raise KafkaException(self._fatal)

    def _begin_transaction(self) -> None:
        if self._transaction_ms is not None and not self._transaction_s:
            self._producer.begin_transaction()
            self._transaction_s = time.monotonic()

    def _end_transaction(self, is_last: bool) -> None:
        if self._transaction_ms is None:
            return
        if is_last or (time.monotonic() - self._transaction_s) * 1000 >= self._transaction_ms:
            self._producer.commit_transaction(TRANSACTION_TIMEOUT_S)
            self._transaction_s = 0.0

    def _finish(self) -> None:
        while self._producer.flush(SLICE_S):
            self._tell()
            if self._fatal is not None:
                raise KafkaException(self._fatal)

    def _tell(self) -> None:
        now_s = time.monotonic()
        if (now_s - self._sends.window_begun_s) * 1000 < self._options.reporting_interval:
            return
        found = self._sends.window(now_s)
        if not self._options.json:
            say(f"{found['records']} records sent, {found['recordsPerSecond']:.1f} records/sec {rates(found, 1)}.")
            sys.stdout.flush()

    def _report(self, now_s: float) -> None:
        found = self._sends.total(now_s)
        steady = None if self._steady is None else self._steady.total(now_s)
        if self._options.json:
            show_json({**found, "failed": self._failures, **({} if steady is None else {"steadyState": steady})})
            return
        say(_total_line(found, ""))
        if steady is not None:
            say(_total_line(steady, "steady state "))
        if self._failures:
            sys.stderr.write(f"error: {self._failures} records were not sent\n")

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failures += 1
            return
        latency_ms = 1000 * (message.latency() or 0.0)
        self._sends.latencies_ms.append(latency_ms)
        self._sends.bytes += len(message)
        if self._steady is not None:
            self._steady.latencies_ms.append(latency_ms)
            self._steady.bytes += len(message)
        elif self._options.warmup_records and len(self._sends.latencies_ms) >= self._options.warmup_records:
            self._steady = Sends(time.monotonic())

    def _on_error(self, error: KafkaError) -> None:
        self._tell_error(error)
        if error.fatal():
            self._fatal = error

    def _on_statistics(self, statistics: str) -> None:
        self._statistics = statistics


def _total_line(found: dict[str, Any], what: str) -> str:
    shares = ", ".join(f"{latency} ms {name}" for name, latency in found["percentilesMs"].items())
    rate = f"{found['recordsPerSecond']:f} records/sec"
    return f"{found['records']} {what}records sent, {rate} {rates(found, 2)}, {shares}."


def hand_over(
    producer: Producer,
    topic: str,
    messages: list[dict[str, Any]],
    on_delivery: Callable[[KafkaError | None, Message], None],
) -> list[dict[str, Any]]:
    """Hand messages to librdkafka; returns those that its queue has no room for."""
    if not hasattr(producer, "produce_batch"):  # confluent-kafka before 2.13
        return _one_by_one(producer, topic, messages, on_delivery)
    producer.produce_batch(topic, messages, on_delivery=on_delivery)
    refused = [message for message in messages if "_error" in message]
    for message in refused:
        error = message.pop("_error")
        if error.code() != KafkaError._QUEUE_FULL:
            raise KafkaException(error)
    return refused


def _one_by_one(
    producer: Producer,
    topic: str,
    messages: list[dict[str, Any]],
    on_delivery: Callable[[KafkaError | None, Message], None],
) -> list[dict[str, Any]]:
    for index, message in enumerate(messages):
        try:
            producer.produce(topic, value=message["value"], on_delivery=on_delivery)
        except BufferError:
            return messages[index:]
    return []
