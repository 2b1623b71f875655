"""Readers of the output that take nothing but the truth: each input record once, in its order, in whole transactions.

The law is checked while they read, at each record: `Ledger` is told every record in the order in which a reader of
committed records was given it.
"""

import random
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence

from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as RdPartition

from moldau.core.ids import TopicPartition
from moldau.protocol.messages.k01_fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from moldau.records.batch import Record, iter_records, read_end_txn_marker, split_batches
from tests.faults.transactions.records import OUTPUT, OUTPUT_PARTITIONS, SOURCES, read_copy
from tests.faults.transactions.wire import PASSING, Refused, Unanswered, Wire, sent_bytes
from tests.faults.workload import IMPATIENT, RETRIED, Client

COMPLAINTS_MAX = 8
FETCH_VERSION = 11
READ_COMMITTED = 1
WAIT_MS = 200
FETCH_BYTES = (200, 5_000, 200_000)


class Ledger:
    """What a reader of committed records has been given so far."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.next = dict.fromkeys(SOURCES, 0)
        """Number of the input record that must come next, by source."""
        self.complaints: list[str] = []
        self._seen: dict[tuple[int, str], list[int]] = defaultdict(list)
        self._open: set[tuple[int, str]] = set()

    @property
    def read(self) -> int:
        return sum(self.next.values())

    @property
    def transactions(self) -> int:
        """Parts of transactions that were seen, one for each partition."""
        return len(self._seen)

    def take(self, partition: int, offset: int, value: bytes) -> None:
        """Note a record. The rest of its transaction may come later: transactions of others that are still open may
        stand between, and hold back what is behind them."""
        copy = read_copy(value)
        where = f"{OUTPUT}-{partition}@{offset}, {value.decode()}"
        if copy.is_doomed:
            self._complain(f"an aborted record was read: {where}")
        if copy.number != self.next[copy.source]:
            self._complain(f"number {self.next[copy.source]} of {copy.source} must come next: {where}")
        self.next[copy.source] = copy.number + 1
        of_transaction = self._seen[partition, copy.transaction]
        of_transaction.append(copy.position)
        if copy.position != len(of_transaction) - 1 or copy.position >= copy.of:
            self._complain(f"a transaction in pieces, {of_transaction[-3:]}: {where}")
        if copy.position == copy.of - 1:
            self._open.discard((partition, copy.transaction))
        else:
            self._open.add((partition, copy.transaction))

    def torn(self) -> list[str]:
        """Transactions that were read in part."""
        return [f"{self.name}: {name} is not whole in {OUTPUT}-{partition}" for partition, name in sorted(self._open)][
            :5
        ]

    def _complain(self, what: str) -> None:
        if len(self.complaints) < COMPLAINTS_MAX:
            self.complaints.append(f"{self.name}: {what}")


class HandReader(Client):
    """Reader by hand, which knows the last stable offset of each answer and filters by the aborted transactions."""

    def __init__(self, bootstrap: Sequence[str], seed: int) -> None:
        super().__init__("reader by hand")
        self.ledger = Ledger(self.name)
        self._chance = random.Random(seed)
        self._wire = Wire(bootstrap, "reader", self._chance)
        self._positions = dict.fromkeys(range(OUTPUT_PARTITIONS), 0)
        self._told: dict[tuple[int, int], int] = {}
        """High watermark when the first batch of a transaction was told, by partition and producer id."""

    def _work(self) -> None:
        while not self._stopping.is_set():
            for partition in self._positions:
                try:
                    self._read(partition)
                except (Refused, Unanswered) as error:
                    if (
                        isinstance(error, Refused)
                        and error.code not in PASSING
                        and len(self.complaints) < COMPLAINTS_MAX
                    ):
                        self.complaints.append(str(error))
                    self._wire.forget()
                    time.sleep(0.02)
        self._wire.close()

    def _read(self, partition: int) -> None:
        at = self._positions[partition]
        part = FetchPartition(
            partition=partition, fetch_offset=at, partition_max_bytes=self._chance.choice(FETCH_BYTES)
        )
        request = FetchRequest(
            max_wait_ms=WAIT_MS // OUTPUT_PARTITIONS,
            min_bytes=1,
            isolation_level=READ_COMMITTED,
            topics=[FetchTopic(topic=OUTPUT, partitions=[part])],
        )
        answer = self._wire.ask_leader(TopicPartition(OUTPUT, partition), FETCH_VERSION, request, FetchResponse)
        (result,) = answer.responses[0].partitions
        if result.error_code:
            raise Refused(result.error_code, f"Fetch of {OUTPUT}-{partition} at {at}")
        data, stable = sent_bytes(result.records), result.last_stable_offset
        self._check_ends(partition, data, result.high_watermark)
        for record in committed_records(data, result.aborted_transactions or ()):
            if record.offset >= at:
                self.ledger.take(partition, record.offset, record.value or b"")
                if record.offset >= stable:
                    self.complaints.append(f"{OUTPUT}-{partition}@{record.offset} is past the stable offset {stable}")
        for header, _ in split_batches(data, partial_end=True)[-1:]:
            self._positions[partition] = max(at, header.next_offset)

    def _check_ends(self, partition: int, data: bytes, high_watermark: int) -> None:
        """What was told below a high watermark has its marker there, too: before that a leader that fails takes the
        end of the transaction with it."""
        for header, _ in split_batches(data, partial_end=True):
            key = partition, header.producer_id
            if not header.is_control:
                self._told.setdefault(key, high_watermark)
            elif (
                header.base_offset >= self._told.pop(key, header.next_offset) and len(self.complaints) < COMPLAINTS_MAX
            ):
                self.complaints.append(f"{OUTPUT}-{partition}: told before its marker at {header.base_offset} was safe")


def committed_records(data: bytes, aborted: Sequence[AbortedTransaction]) -> Iterator[Record]:
    """Records of a fetched piece of a log that were not aborted."""
    due = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
    ignored: set[int] = set()
    for header, batch in split_batches(data, partial_end=True):
        while due and due[-1].first_offset < header.next_offset:
            ignored.add(due.pop().producer_id)
        if header.is_control:
            marker = read_end_txn_marker(batch)
            if marker is not None and not marker.committed:
                ignored.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in ignored):
            yield from iter_records(batch)


class RdkafkaReader(Client):
    """Reader by librdkafka."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__("reader by librdkafka")
        self.ledger = Ledger(self.name)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "reader",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": WAIT_MS,
                **IMPATIENT,
            }
        )
        self._consumer.assign([RdPartition(OUTPUT, each, 0) for each in range(OUTPUT_PARTITIONS)])

    def _work(self) -> None:
        while not self._stopping.is_set():
            for message in self._consumer.consume(500, 0.2):
                error = message.error()
                partition, offset = message.partition(), message.offset()
                if error is None and partition is not None and offset is not None:
                    self.ledger.take(partition, offset, message.value() or b"")
                elif error is not None and error.code() not in {*RETRIED, KafkaError._PARTITION_EOF}:
                    self.complaints.append(f"{self.name}: {partition}@{offset}: {error}")
        self._consumer.close()
