"""`moldau perf consume`: the work of kafka-consumer-perf-test."""

import argparse
import random
import re
import sys
import time
from datetime import datetime
from typing import Any

from confluent_kafka import Consumer, Message, TopicPartition

from moldau.cli.common import client_settings
from moldau.cli.failures import ToolError, WrongUsage
from moldau.cli.metadata import partitions_of
from moldau.cli.output import say, show_json
from moldau.cli.perf_numbers import MB, print_metrics
from moldau.cli.reading import close, is_record, matching_topics

BATCH_RECORDS = 10_000
POLL_S = 0.1
DATE_FORMAT = "yyyy-MM-dd HH:mm:ss:SSS"
COLUMNS = (
    "data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, "
    "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)
_LETTERS = {"y": "%Y", "M": "%m", "d": "%d", "H": "%H", "m": "%M", "s": "%S"}


def consume(options: argparse.Namespace) -> int:
    """Read the records, and print what was measured."""
    if (options.topic is None) == (options.include is None):
        raise WrongUsage("say one of a topic and --include")
    return _Run(options).run()


class _Count:
    """Records and bytes of a span of time, and how much of it the group needed to share its partitions."""

    def __init__(self, begun_s: float) -> None:
        self.begun_s = begun_s
        self.bytes = 0
        self.records = 0
        self.joining_s = 0.0

    def numbers(self, now_s: float) -> dict[str, float]:
        """The columns that both of Kafka's tables have."""
        elapsed_s = max(now_s - self.begun_s, 0.001)
        fetching_s = max(elapsed_s - self.joining_s, 0.001)
        return {
            "dataConsumedMb": self.bytes / MB,
            "mbPerSecond": self.bytes / MB / elapsed_s,
            "records": self.records,
            "recordsPerSecond": self.records / elapsed_s,
            "rebalanceTimeMs": int(1000 * self.joining_s),
            "fetchTimeMs": int(1000 * fetching_s),
            "fetchMbPerSecond": self.bytes / MB / fetching_s,
            "fetchRecordsPerSecond": self.records / fetching_s,
        }


class _Run:
    """One run of the tool."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._statistics = ""
        own_group = f"perf-consumer-{random.randrange(100_000)}"
        settings = {
            "group.id": own_group if options.group is None else options.group,
            "auto.offset.reset": "latest" if options.from_latest else "earliest",
            "max.partition.fetch.bytes": options.fetch_size,
            "socket.receive.buffer.bytes": options.socket_buffer_size,
            "fetch.queue.backoff.ms": 2,  # librdkafka's second without fetches is many records
            "queued.min.messages": 1_000_000,
        }
        if options.print_metrics:
            settings |= {"statistics.interval.ms": 200, "stats_cb": self._on_statistics}
        self._consumer = Consumer(client_settings(options, settings))
        self._joining_since_s: float | None = None
        self._whole = self._window = _Count(time.monotonic())

    def run(self) -> int:
        begun = datetime.now()
        try:
            self._read()
            ended, now_s = datetime.now(), time.monotonic()
        finally:
            close(self._consumer)
        self._report(begun, ended, now_s)
        if self._options.print_metrics:
            print_metrics(self._statistics, "consumer")
        return 0

    def _read(self) -> None:
        if self._options.show_detailed_stats and not (self._options.hide_header or self._options.json):
            say(f"time, threadId, {COLUMNS}")
        topics = self._topics()
        now_s = time.monotonic()
        self._whole, self._window = _Count(now_s), _Count(now_s)
        self._joining_since_s = now_s
        self._consumer.subscribe(topics, on_assign=self._on_assign, on_revoke=self._on_revoke)
        last_s = now_s
        while self._whole.records < self._options.num_records:
            left = self._options.num_records - self._whole.records
            batch = self._consumer.consume(min(left, BATCH_RECORDS), POLL_S)
            now_s = time.monotonic()
            if batch:
                self._count(batch)
                last_s = now_s
            elif (now_s - last_s) * 1000 > self._options.timeout:
                sys.stderr.write(
                    "WARNING: Exiting before consuming the expected number of records: timeout "
                    f"({self._options.timeout} ms) exceeded. "
                    "You can use the --timeout option to increase the timeout.\n"
                )
                return
            self._tell(now_s)

    def _topics(self) -> list[str]:
        if self._options.include is None:
            partitions_of(self._consumer, self._options.topic)
            return [self._options.topic]
        found = matching_topics(self._consumer, self._options.include)
        if not found:
            raise ToolError(f"no topic matches {self._options.include!r}")
        return found

    def _count(self, batch: list[Message]) -> None:
        records = [message for message in batch if message.error() is None or is_record(message)]
        keys = (message.key() for message in records)
        size = sum(map(len, records)) + sum(len(key) for key in keys if key)
        for count in (self._whole, self._window):
            count.records += len(records)
            count.bytes += size

    def _tell(self, now_s: float) -> None:
        if (now_s - self._window.begun_s) * 1000 < self._options.reporting_interval:
            return
        if self._options.show_detailed_stats and not self._options.json:
            say(f"{self._time(datetime.now())}, 0, {_row(self._window.numbers(now_s))}")
            sys.stdout.flush()
        self._window = _Count(now_s)

    def _report(self, begun: datetime, ended: datetime, now_s: float) -> None:
        found: dict[str, Any] = self._whole.numbers(now_s)
        if self._options.json:
            show_json({"startTime": self._time(begun), "endTime": self._time(ended), **found})
        elif not self._options.show_detailed_stats:
            if not self._options.hide_header:
                say(f"start.time, end.time, {COLUMNS}")
            say(f"{self._time(begun)}, {self._time(ended)}, {_row(found)}")

    def _time(self, moment: datetime) -> str:
        """The time in the form that Java's SimpleDateFormat has letters for."""
        form = re.sub(r"S+", f"{moment.microsecond // 1000:03}", self._options.date_format)
        return moment.strftime(re.sub(r"y+|M+|d+|H+|m+|s+", lambda run: _LETTERS[run[0][0]], form))

    def _on_assign(self, _: Consumer, __: list[TopicPartition]) -> None:
        if self._joining_since_s is not None:
            took_s = time.monotonic() - self._joining_since_s
            self._whole.joining_s += took_s
            self._window.joining_s += took_s
            self._joining_since_s = None

    def _on_revoke(self, _: Consumer, __: list[TopicPartition]) -> None:
        self._joining_since_s = time.monotonic()

    def _on_statistics(self, statistics: str) -> None:
        self._statistics = statistics


def _row(found: dict[str, float]) -> str:
    whole = ("records", "rebalanceTimeMs", "fetchTimeMs")
    return ", ".join(f"{value:.0f}" if name in whole else f"{value:.4f}" for name, value in found.items())
