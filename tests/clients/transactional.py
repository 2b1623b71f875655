"""Transactions with each client library, behind one interface, so that one test runs over all of them."""

import asyncio
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import count
from typing import Any, Literal, Protocol, TypeVar

import aiokafka  # type: ignore[import-untyped]  # ships no types
import aiokafka.errors  # type: ignore[import-untyped]  # ships no types
import confluent_kafka
import kafka  # type: ignore[import-untyped]  # ships no types
import kafka.errors  # type: ignore[import-untyped]  # ships no types

from tests.clients.interface import ClientError
from tests.clients.java_client import NEWEST, TV1_LAST, JavaDriver

TIMEOUT_S = 60.0
Isolation = Literal["read_committed", "read_uncommitted"]
End = Literal["commit", "abort"]
Result = TypeVar("Result")


class TransactionalProducer(Protocol):
    """A producer whose transactional id is registered. Every call may raise ClientError."""

    def begin(self) -> None: ...

    def send(self, topic: str, *values: bytes) -> None:
        """Send to partition 0, and wait until all are acknowledged."""
        ...

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def copy(self, source: str, target: str, wanted: int, group: str, end: End) -> None:
        """Read records of `source` as a member of `group`, write them to `target` in one transaction that has the
        group's offsets, and end it."""
        ...

    def close(self) -> None: ...


class TransactionalClient(Protocol):
    """One client library, talking to one cluster."""

    def producer(self, transactional_id: str) -> TransactionalProducer: ...

    def read(self, topic: str, isolation: Isolation) -> list[bytes]:
        """The values of partition 0 from its beginning to its end, as far as readers of this isolation may read."""
        ...


def _patience() -> Iterator[None]:
    """Turns of a loop that waits for something; raises ClientError when the time is up."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        yield
    raise ClientError("nothing came in time")


# --- librdkafka ---


class ConfluentTransactions:
    """librdkafka, which knows transaction version 1 only."""

    def __init__(self, bootstrap: str) -> None:
        self._base: dict[str, Any] = {"bootstrap.servers": bootstrap, "log_level": 0}

    def producer(self, transactional_id: str) -> TransactionalProducer:
        return ConfluentProducer(self._base, transactional_id)

    def read(self, topic: str, isolation: Isolation) -> list[bytes]:
        settings = {"group.id": "unused", "isolation.level": isolation, "enable.partition.eof": True}
        with closing(confluent_kafka.Consumer({**self._base, **settings})) as consumer:
            consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
            values: list[bytes] = []
            for _ in _patience():
                record = consumer.poll(1.0)
                if record is None:
                    continue
                error = record.error()
                if error is None:
                    values.append(record.value() or b"")
                elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    break
                else:
                    raise ClientError(str(error))
            return values


class ConfluentProducer:
    """librdkafka's producer."""

    def __init__(self, base: dict[str, Any], transactional_id: str) -> None:
        self._base = base
        self._producer = confluent_kafka.Producer({**base, "transactional.id": transactional_id})
        self._do(self._producer.init_transactions, TIMEOUT_S)

    def begin(self) -> None:
        self._do(self._producer.begin_transaction)

    def send(self, topic: str, *values: bytes) -> None:
        errors: list[object] = []
        for value in values:
            self._do(
                lambda value=value: self._producer.produce(
                    topic, value, partition=0, on_delivery=lambda error, _: errors.append(error) if error else None
                )
            )
        self._producer.flush(TIMEOUT_S)
        if errors:
            raise ClientError(str(errors[0]))

    def commit(self) -> None:
        self._do(self._producer.commit_transaction, TIMEOUT_S)

    def abort(self) -> None:
        self._do(self._producer.abort_transaction, TIMEOUT_S)

    def copy(self, source: str, target: str, wanted: int, group: str, end: End) -> None:
        settings = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        with closing(confluent_kafka.Consumer({**self._base, **settings})) as consumer:
            consumer.subscribe([source])
            records: list[confluent_kafka.Message] = []
            for _ in _patience():
                records += consumer.consume(wanted - len(records), timeout=0.5)
                if len(records) == wanted:
                    break
            self.begin()
            self.send(target, *(record.value() or b"" for record in records))
            positions = consumer.position(consumer.assignment())
            metadata = consumer.consumer_group_metadata()
            self._do(self._producer.send_offsets_to_transaction, positions, metadata, TIMEOUT_S)
            self.commit() if end == "commit" else self.abort()

    def close(self) -> None:
        self._producer.purge()

    @staticmethod
    def _do(call: Callable[..., Any], *arguments: Any) -> None:
        try:
            call(*arguments)
        except confluent_kafka.KafkaException as error:
            raise ClientError(str(error.args[0])) from error


# --- kafka-python ---


@contextmanager
def _kafka_python_errors() -> Iterator[None]:
    try:
        yield
    except kafka.errors.KafkaError as error:
        raise ClientError(f"{type(error).__name__}: {error}") from error


class KafkaPythonTransactions:
    """kafka-python."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def producer(self, transactional_id: str) -> TransactionalProducer:
        return KafkaPythonProducer(self._bootstrap, transactional_id)

    def read(self, topic: str, isolation: Isolation) -> list[bytes]:
        consumer = kafka.KafkaConsumer(bootstrap_servers=self._bootstrap, group_id=None, isolation_level=isolation)
        with _kafka_python_errors(), closing(consumer):
            place = kafka.TopicPartition(topic, 0)
            consumer.assign([place])
            consumer.seek_to_beginning(place)
            end = consumer.end_offsets([place])[place]
            values: list[bytes] = []
            for _ in _patience():
                if consumer.position(place) >= end:
                    break
                values += [record.value for record in consumer.poll(500).get(place, [])]
            return values


class KafkaPythonProducer:
    """kafka-python's producer."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._bootstrap = bootstrap
        self._producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
        with _kafka_python_errors():
            self._producer.init_transactions()

    def begin(self) -> None:
        with _kafka_python_errors():
            self._producer.begin_transaction()

    def send(self, topic: str, *values: bytes) -> None:
        with _kafka_python_errors():
            for future in [self._producer.send(topic, value, partition=0) for value in values]:
                future.get(TIMEOUT_S)

    def commit(self) -> None:
        with _kafka_python_errors():
            self._producer.commit_transaction()

    def abort(self) -> None:
        with _kafka_python_errors():
            self._producer.abort_transaction()

    def copy(self, source: str, target: str, wanted: int, group: str, end: End) -> None:
        consumer = kafka.KafkaConsumer(
            source,
            bootstrap_servers=self._bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        place = kafka.TopicPartition(source, 0)
        with _kafka_python_errors(), closing(consumer):
            records: list[Any] = []
            for _ in _patience():
                records += consumer.poll(500, max_records=wanted - len(records)).get(place, [])
                if len(records) == wanted:
                    break
            self.begin()
            self.send(target, *(record.value for record in records))
            offsets = {place: kafka.OffsetAndMetadata(records[-1].offset + 1, "", -1)}
            self._producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
            self.commit() if end == "commit" else self.abort()

    def close(self) -> None:
        self._producer.close(timeout=5)


# --- aiokafka ---


class AiokafkaTransactions:
    """aiokafka, whose loop runs while it is asked for something."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def producer(self, transactional_id: str) -> TransactionalProducer:
        return AiokafkaProducer(self._bootstrap, transactional_id)

    def read(self, topic: str, isolation: Isolation) -> list[bytes]:
        return asyncio.run(self._read(topic, isolation))

    async def _read(self, topic: str, isolation: Isolation) -> list[bytes]:
        place = aiokafka.TopicPartition(topic, 0)
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=self._bootstrap, isolation_level=isolation)
        async with consumer:
            consumer.assign([place])
            await consumer.seek_to_beginning(place)
            end = (await consumer.end_offsets([place]))[place]
            values: list[bytes] = []
            for _ in _patience():
                if await consumer.position(place) >= end:
                    break
                values += [record.value for record in (await consumer.getmany(timeout_ms=500)).get(place, [])]
            return values


class AiokafkaProducer:
    """aiokafka's producer."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._bootstrap = bootstrap
        self._runner = asyncio.Runner()
        self._do(self._start(transactional_id))

    async def _start(self, transactional_id: str) -> None:
        self._producer = aiokafka.AIOKafkaProducer(bootstrap_servers=self._bootstrap, transactional_id=transactional_id)
        await self._producer.start()

    def begin(self) -> None:
        self._do(self._producer.begin_transaction())

    def send(self, topic: str, *values: bytes) -> None:
        self._do(self._send(topic, values))

    async def _send(self, topic: str, values: Sequence[bytes]) -> None:
        for future in [await self._producer.send(topic, value, partition=0) for value in values]:
            await future

    def commit(self) -> None:
        self._do(self._producer.commit_transaction())

    def abort(self) -> None:
        self._do(self._producer.abort_transaction())

    def copy(self, source: str, target: str, wanted: int, group: str, end: End) -> None:
        self._do(self._copy(source, target, wanted, group, end))

    async def _copy(self, source: str, target: str, wanted: int, group: str, end: End) -> None:
        place = aiokafka.TopicPartition(source, 0)
        settings = {"group_id": group, "auto_offset_reset": "earliest", "enable_auto_commit": False}
        async with aiokafka.AIOKafkaConsumer(source, bootstrap_servers=self._bootstrap, **settings) as consumer:
            records = [await asyncio.wait_for(consumer.getone(), TIMEOUT_S) for _ in range(wanted)]
            await self._producer.begin_transaction()
            await self._send(target, [record.value for record in records])
            await self._producer.send_offsets_to_transaction({place: records[-1].offset + 1}, group)
            await (self._producer.commit_transaction() if end == "commit" else self._producer.abort_transaction())

    def close(self) -> None:
        try:
            self._do(self._producer.stop())
        finally:
            self._runner.close()

    def _do(self, work: Coroutine[Any, Any, Result]) -> Result:
        try:
            return self._runner.run(asyncio.wait_for(work, TIMEOUT_S))
        except aiokafka.errors.KafkaError as error:
            raise ClientError(f"{type(error).__name__}: {error}") from error


# --- Java ---


class JavaTransactions:
    """Kafka's own client, through `tests/java/TransactionDriver.java`."""

    def __init__(self, driver: JavaDriver, bootstrap: str) -> None:
        self._driver = driver
        self._bootstrap = f"bootstrap.servers={bootstrap}"

    def producer(self, transactional_id: str) -> TransactionalProducer:
        return JavaProducer(self._driver, self._bootstrap, transactional_id)

    def read(self, topic: str, isolation: Isolation) -> list[bytes]:
        answer = self._driver.command("read", topic, self._bootstrap, f"isolation.level={isolation}")
        return [b64decode(value) for (value,) in answer]


class JavaProducer:
    """KafkaProducer."""

    _names = count()

    def __init__(self, driver: JavaDriver, bootstrap: str, transactional_id: str) -> None:
        self._driver = driver
        self._bootstrap = bootstrap
        self._name = f"producer-{next(self._names)}"
        driver.command("init", self._name, bootstrap, f"transactional.id={transactional_id}")

    def begin(self) -> None:
        self._driver.command("begin", self._name)

    def send(self, topic: str, *values: bytes) -> None:
        self._driver.command("send", self._name, topic, *(b64encode(value).decode() for value in values))

    def commit(self) -> None:
        self._driver.command("commit", self._name)

    def abort(self) -> None:
        self._driver.command("abort", self._name)

    def copy(self, source: str, target: str, wanted: int, group: str, end: End) -> None:
        self._driver.command("copy", self._name, source, target, wanted, end, self._bootstrap, f"group.id={group}")

    def close(self) -> None:
        self._driver.command("close", self._name)


PYTHON_CLIENTS: dict[str, Callable[[str], TransactionalClient]] = {
    "confluent-kafka": ConfluentTransactions,
    "kafka-python": KafkaPythonTransactions,
    "aiokafka": AiokafkaTransactions,
}
CLIENTS = (f"java-{NEWEST}", f"java-{TV1_LAST}", *PYTHON_CLIENTS)
