"""Shares of a batch in a topic, each written in one transaction together with the word that it is there (ADR 27).

A batch is divided into slots. Who writes a slot has a transactional id of that slot: to begin under it ends whatever an
earlier writer of the slot has left open, and from then on that writer can commit nothing. Only then is it asked whether
the slot has the batch already: its token is an offset, `batch + 1`, of a consumer group that belongs to the checkpoint,
committed in the transaction of the rows. So of two writers of one slot and batch one at most is ever seen.

This runs in Spark's Python workers as well as in the driver: everything here can be pickled.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)

from moldau.pipelines.file.problems import PipelineError
from moldau.pipelines.sinks.batches import Batch, Owner
from moldau.pipelines.topics import Cluster, when_ready

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # no type information

T = TypeVar("T")

REQUEST_TIMEOUT_S = 30.0
RETRY_S = 120.0
"""The longest that a coordinator may be out of reach before the run ends."""
PAUSE_S = 0.1
ABORT_TIMEOUT_S = 10.0
QUEUE_FULL_S = 0.05
TRANSACTION_TIMEOUT_MS = 60_000
"""The default of librdkafka, and of Java's client."""
TIMEOUT = "transaction.timeout.ms"

_PRODUCER = {
    "linger.ms": "20",  # 400,000 small records a second from one task instead of 200,000 (measured)
    "partitioner": "murmur2_random",  # Java's: a key stays in its partition when `delivery` is changed
    "queue.buffering.max.messages": "500000",
    "queue.buffering.max.kbytes": "262144",
}
_OF_PRODUCERS = {
    "batch.size": "batch.size",
    "compression.type": "compression.type",
    "delivery.timeout.ms": "delivery.timeout.ms",
    "linger.ms": "linger.ms",
    "max.request.size": "message.max.bytes",
    TIMEOUT: TIMEOUT,
}
"""Java's names of what a user may set of the producer, with librdkafka's."""


@dataclass(frozen=True, slots=True)
class Token:
    """The batches of a slot: every one before `next_batch`, the last of them in `slots` parts (0: nobody said)."""

    next_batch: int
    slots: int


@dataclass(frozen=True, slots=True)
class Target:
    """A topic, and by which names a sink is known in its cluster. `name` is PIPELINE.SINK."""

    sink: Owner
    cluster: Cluster
    topic: str
    name: str

    def transactional_id(self, slot: int | str) -> str:
        return f"{self.name}.{slot}"

    def group(self, checkpoint: str) -> str:
        """The group of one checkpoint: another, after a reset or of a pipeline of the same name, begins at batch 0."""
        return f"{self.name}.batches.{checkpoint}"

    @property
    def transaction_timeout_ms(self) -> int:
        return int(dict(self.cluster.client).get(TIMEOUT, TRANSACTION_TIMEOUT_MS))

    def producer(self, slot: int | str) -> Producer:
        """A producer for the slot. The writer of the slot before it is fenced from now on, its transaction ended."""
        given = dict(self.cluster.client)
        own = {theirs: given[ours] for ours, theirs in _OF_PRODUCERS.items() if ours in given}
        identity = {"transactional.id": self.transactional_id(slot)}
        made = Producer({**self.cluster.settings(), **_PRODUCER, **own, **identity})
        patiently(lambda: made.init_transactions(REQUEST_TIMEOUT_S))
        return made

    @contextmanager
    def consumer(self, checkpoint: str, stable: bool = True) -> Iterator[Consumer]:
        """A consumer in the group of tokens. `stable`: it waits for those of transactions that are about to end."""
        settings = {
            "group.id": self.group(checkpoint),
            "enable.auto.commit": False,
            "isolation.level": "read_committed" if stable else "read_uncommitted",
        }
        consumer = Consumer({**self.cluster.settings(), **settings})
        try:
            yield consumer
        finally:
            consumer.close()

    def tokens(self, checkpoint: str, topics: Iterable[str], stable: bool = True) -> dict[int, Token]:
        """The newest token of each slot that there ever was; the sink may have had another topic before."""
        there = self.cluster.topics()
        places = [TopicPartition(topic, slot) for topic in topics for slot in there.get(topic, ())]
        found: dict[int, Token] = {}
        with self.telling(0), self.consumer(checkpoint, stable) as consumer:
            for each in _committed(consumer, places):
                if each.offset >= 0:
                    token = _token(each)
                    found[each.partition] = max(token, found.get(each.partition, token), key=lambda one: one.next_batch)
        return found

    @contextmanager
    def telling(self, slot: int | str) -> Iterator[None]:
        """Turn what Kafka refuses into words that name the sink."""
        begun = time.monotonic()
        try:
            yield
        except KafkaException as error:
            passed_ms = (time.monotonic() - begun) * 1000
            raise self.sink.error(*self._words(error.args[0], slot, passed_ms)) from error

    def _words(self, error: KafkaError, slot: int | str, passed_ms: float) -> tuple[str, str]:
        identity = self.transactional_id(slot)
        if error.code() in _FENCED and passed_ms >= self.transaction_timeout_ms:
            words = f"its transaction took longer than {TIMEOUT}, {self.transaction_timeout_ms} ms, and was aborted"
            return words, f"`client: {{{TIMEOUT}: ...}}`, or a smaller `max_per_batch` at the source"
        if error.code() in _FENCED:
            words = f"another run has taken over the transactional id {identity!r}; nothing of this one was committed"
            return words, "two pipelines of one name into one cluster? give one of them another `name`"
        if error.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            words = f"the cluster does not let it use the transactional id {identity!r}"
            return words, f"allow Write and Describe for transactional ids that begin with {self.name + '.'!r}"
        if error.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
            words = f"{TIMEOUT} {self.transaction_timeout_ms} is more than the cluster allows"
            return words, "the brokers' transaction.max.timeout.ms is the most, 900000 unless it was changed"
        if error.code() == KafkaError._UNSUPPORTED_FEATURE:
            return f"the cluster at {self.cluster.bootstrap} has no transactions", "Kafka has them since 0.11"
        words = f"transaction {identity!r} failed: {error.str().replace('Broker: ', '').replace('Local: ', '')}"
        if error.code() in (KafkaError._TIMED_OUT, KafkaError.GROUP_AUTHORIZATION_FAILED):
            # of a group that it may not read librdkafka says that it timed out
            return words, f"may it read groups that begin with {self.name + '.batches.'!r}?"
        return words, ""


_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


def patiently(call: Callable[[], T]) -> T:
    """The result of a call that is tried again as long as librdkafka says of its error that it may be."""
    deadline = time.monotonic() + RETRY_S
    while True:
        try:
            return call()
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
            time.sleep(PAUSE_S)


def _committed(consumer: Consumer, places: list[TopicPartition]) -> list[TopicPartition]:
    """The committed offset of each place. Raises KafkaException."""
    found = when_ready(lambda: consumer.committed(places, timeout=REQUEST_TIMEOUT_S)) if places else []
    for each in found:
        if each.error:
            raise KafkaException(each.error)
    return found


def _token(found: TopicPartition) -> Token:
    """The token in an offset. One that was set by hand has no metadata: the batch is there as a whole."""
    written = found.metadata or ""
    return Token(found.offset, int(written) if written.isdigit() else 0)


def write(target: Target, batch: Batch, slot: int, slots: int, rows: "Iterable[pa.RecordBatch]") -> bool:
    """Write a slot's share of a batch; False if it was there. Raises PipelineError."""
    with target.telling(slot):
        producer = target.producer(slot)
        with target.consumer(batch.checkpoint) as consumer:
            [found] = _committed(consumer, [TopicPartition(target.topic, slot)])
            if found.offset > batch.number:
                return False
            _in_one_transaction(producer, consumer, target, rows, Token(batch.number + 1, slots), slot)
    return True


def open_ledger(target: Target, batch: Batch) -> None:
    """Commit a token before the first batch: from then on a cluster without tokens is one that lost them."""
    with target.telling(0):
        producer = target.producer(0)
        with target.consumer(batch.checkpoint) as consumer:
            _in_one_transaction(producer, consumer, target, (), Token(batch.number, 1), 0)


def fence(target: Target, slots: Iterable[int]) -> None:
    """End the transactions that earlier runs have left open in these slots, and refuse those runs any other."""
    for slot in slots:
        with target.telling(slot):
            target.producer(slot)


def _in_one_transaction(
    producer: Producer,
    consumer: Consumer,
    target: Target,
    rows: "Iterable[pa.RecordBatch]",
    token: Token,
    slot: int,
) -> None:
    producer.begin_transaction()
    try:
        for part in rows:
            _send(producer, target.topic, part)
        word = [TopicPartition(target.topic, slot, token.next_batch, str(token.slots))]
        group = consumer.consumer_group_metadata()
        patiently(lambda: producer.send_offsets_to_transaction(word, group, REQUEST_TIMEOUT_S))
        patiently(lambda: producer.commit_transaction(REQUEST_TIMEOUT_S))
    except BaseException:
        # Readers would wait for its timeout. A fenced producer cannot, and its successor has done it.
        with suppress(KafkaException):
            producer.abort_transaction(ABORT_TIMEOUT_S)
        raise


def _send(producer: Producer, topic: str, rows: "pa.RecordBatch") -> None:
    """Send the rows as records. One that is refused fails the commit: there is no need to look at each."""
    columns = set(rows.schema.names)
    values = rows.column("value").to_pylist()
    keys = rows.column("key").to_pylist() if "key" in columns else [None] * len(values)
    headers: list[Any] = rows.column("headers").to_pylist() if "headers" in columns else [None] * len(values)
    for value, key, found in zip(values, keys, headers, strict=True):
        named = [(each["key"], each["value"]) for each in found or ()]
        while True:
            try:
                producer.produce(topic, value, key, headers=named)
                break
            except BufferError:
                producer.poll(QUEUE_FULL_S)
    producer.poll(0)


# --- before a run ---

CHECK = "check"
"""The word in the place of a slot: to try a slot's own id would fence a run that goes on."""


def refusal(target: Target) -> PipelineError | None:
    """The error that a run would meet in the cluster, found under an id of the sink that no run uses."""
    try:
        with target.telling(CHECK):
            target.producer(CHECK)
            with target.consumer(CHECK) as consumer:
                _committed(consumer, [TopicPartition(target.topic, 0)])
    except PipelineError as error:
        return error
    return None


def refused_properties(client: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Properties that exactly once decides itself, each with a hint."""
    if "transactional.id" in client:
        yield "transactional.id", "each task has one of its own: PIPELINE.SINK.TASK"
    if client.get("enable.idempotence", "true") != "true":
        yield "enable.idempotence", "a transaction needs it"
    if client.get("acks", "all") not in ("all", "-1"):
        yield "acks", "a transaction needs all"
    if not client.get(TIMEOUT, "1").isdigit() or client.get(TIMEOUT) == "0":
        yield TIMEOUT, "milliseconds, such as 300000"
