"""librdkafka (confluent-kafka), aiokafka and kafka-python behind the interface of `tests.clients.interface`."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, TypeVar, cast

import aiokafka  # type: ignore[import-untyped]  # ships no types
import aiokafka.errors  # type: ignore[import-untyped]  # ships no types
import confluent_kafka
import kafka  # type: ignore[import-untyped]  # ships no types
import kafka.errors  # type: ignore[import-untyped]  # ships no types

from tests.clients.interface import ALL_CODECS, Acks, AtTimestamp, Client, ClientError, Codec, Record, Start
from tests.clients.java_client import JavaClient, JavaDriver

SEND_TIMEOUT_S = 60.0

Result = TypeVar("Result")


class ConfluentClient:
    """librdkafka."""

    name = "confluent-kafka"
    codecs = ALL_CODECS
    has_idempotence = True
    has_headers = True

    def __init__(self, bootstrap: str) -> None:
        # Reading by assignment commits nothing, yet librdkafka wants a group's name.
        self._base: dict[str, Any] = {"bootstrap.servers": bootstrap, "log_level": 0}
        self._consumer = {
            **self._base,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }

    def produce(
        self,
        topic: str,
        partition: int,
        records: Sequence[Record],
        *,
        codec: Codec = "none",
        acks: Acks = "all",
        idempotent: bool = False,
    ) -> list[int]:
        settings = {"compression.codec": codec, "acks": acks, "enable.idempotence": idempotent}
        producer = confluent_kafka.Producer({**self._base, **settings})
        delivered: list[confluent_kafka.Message] = []
        failed: list[confluent_kafka.KafkaError] = []

        def on_delivery(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
            delivered.append(message) if error is None else failed.append(error)

        for record in records:
            producer.produce(topic, partition=partition, on_delivery=on_delivery, **_confluent_fields(record))
            producer.poll(0)
        left = producer.flush(SEND_TIMEOUT_S)
        if failed or left:
            raise ClientError(f"{left} records unsent, {len(failed)} refused: {failed[:1]}")
        return [_confluent_offset(message) for message in delivered]

    def read(self, topic: str, partition: int, start: Start, count: int, *, timeout_s: float = 20.0) -> list[Record]:
        consumer = confluent_kafka.Consumer(self._consumer)
        try:
            position = _confluent_position(consumer, topic, partition, start, timeout_s)
            consumer.assign([position])
            messages = consumer.consume(count, timeout_s)
        except confluent_kafka.KafkaException as error:
            raise ClientError(str(error)) from error
        finally:
            consumer.close()
        return [_from_confluent(message) for message in messages]

    def close(self) -> None:
        """Nothing stays open between calls."""


def _confluent_fields(record: Record) -> dict[str, Any]:
    return {
        "value": record.value,
        "key": record.key,
        "headers": list(record.headers),
        "timestamp": record.timestamp_ms or 0,
    }


def _confluent_position(
    consumer: confluent_kafka.Consumer, topic: str, partition: int, start: Start, timeout_s: float
) -> confluent_kafka.TopicPartition:
    names = {"earliest": confluent_kafka.OFFSET_BEGINNING, "latest": confluent_kafka.OFFSET_END}
    if isinstance(start, AtTimestamp):
        wanted = confluent_kafka.TopicPartition(topic, partition, start.timestamp_ms)
        [found] = consumer.offsets_for_times([wanted], timeout=timeout_s)
        return found
    offset = names[start] if isinstance(start, str) else start
    return confluent_kafka.TopicPartition(topic, partition, offset)


def _from_confluent(message: confluent_kafka.Message) -> Record:
    error = message.error()
    if error is not None:
        raise ClientError(str(error))
    headers = cast("list[tuple[str, str | bytes | None]]", message.headers() or [])
    _, timestamp_ms = message.timestamp()
    return Record(
        value=message.value(),
        key=message.key(),
        timestamp_ms=timestamp_ms,
        headers=tuple((name, _bytes_or_none(value)) for name, value in headers),
        offset=_confluent_offset(message),
    )


def _confluent_offset(message: confluent_kafka.Message) -> int:
    offset = message.offset()
    return -1 if offset is None else offset


def _bytes_or_none(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


class KafkaPythonClient:
    """kafka-python."""

    name = "kafka-python"
    codecs = ALL_CODECS
    has_idempotence = True
    has_headers = True

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def produce(
        self,
        topic: str,
        partition: int,
        records: Sequence[Record],
        *,
        codec: Codec = "none",
        acks: Acks = "all",
        idempotent: bool = False,
    ) -> list[int]:
        settings = {
            "compression_type": None if codec == "none" else codec,
            "acks": acks,
            "enable_idempotence": idempotent,
        }
        with self._open(kafka.KafkaProducer, settings) as producer:
            sent = [producer.send(topic, partition=partition, **_fields(record)) for record in records]
            offsets = [future.get(SEND_TIMEOUT_S).offset for future in sent]
        return [-1] * len(sent) if acks == 0 else offsets  # it makes up offsets when there is no answer

    def read(self, topic: str, partition: int, start: Start, count: int, *, timeout_s: float = 20.0) -> list[Record]:
        with self._open(kafka.KafkaConsumer, {"group_id": None, "auto_offset_reset": "none"}) as consumer:
            where = kafka.TopicPartition(topic, partition)
            consumer.assign([where])
            self._seek(consumer, where, start)
            return self._poll(consumer, count, time.monotonic() + timeout_s)

    @contextmanager
    def _open(self, kind: Callable[..., Any], settings: dict[str, Any]) -> Iterator[Any]:
        try:
            with closing(kind(bootstrap_servers=self._bootstrap, **settings)) as opened:
                yield opened
        except kafka.errors.KafkaError as error:
            raise ClientError(repr(error)) from error

    def _seek(self, consumer: Any, where: Any, start: Start) -> None:
        if start == "earliest":
            consumer.seek_to_beginning(where)
        elif start == "latest":
            consumer.seek_to_end(where)
        elif isinstance(start, AtTimestamp):
            found = consumer.offsets_for_times({where: start.timestamp_ms})[where]
            consumer.seek(where, found.offset if found else consumer.end_offsets([where])[where])
        else:
            consumer.seek(where, start)

    def _poll(self, consumer: Any, count: int, deadline: float) -> list[Record]:
        records: list[Record] = []
        while len(records) < count and time.monotonic() < deadline:
            for batch in consumer.poll(timeout_ms=100, max_records=count - len(records)).values():
                records += map(_from_python, batch)
        return records

    def close(self) -> None:
        """Nothing stays open between calls."""


def _fields(record: Record) -> dict[str, Any]:
    """The names that kafka-python and aiokafka share."""
    return {
        "value": record.value,
        "key": record.key,
        "headers": list(record.headers),
        "timestamp_ms": record.timestamp_ms,
    }


def _from_python(record: Any) -> Record:
    return Record(record.value, record.key, record.timestamp, tuple(record.headers), record.offset)


class AiokafkaClient:
    """aiokafka, on an event loop of its own."""

    name = "aiokafka"
    codecs = ALL_CODECS
    has_idempotence = True
    has_headers = True

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._runner = asyncio.Runner()

    def produce(
        self,
        topic: str,
        partition: int,
        records: Sequence[Record],
        *,
        codec: Codec = "none",
        acks: Acks = "all",
        idempotent: bool = False,
    ) -> list[int]:
        settings = {
            "compression_type": None if codec == "none" else codec,
            "acks": acks,
            "enable_idempotence": idempotent,
        }
        return self._run(self._produce(topic, partition, records, settings))

    async def _produce(
        self, topic: str, partition: int, records: Sequence[Record], settings: dict[str, Any]
    ) -> list[int]:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=self._bootstrap, **settings)
        try:
            await producer.start()
            sent = [await producer.send(topic, partition=partition, **_fields(record)) for record in records]
            answers = await asyncio.wait_for(asyncio.gather(*sent), SEND_TIMEOUT_S)
        finally:
            await producer.stop()
        return [-1 if answer is None else answer.offset for answer in answers]

    def read(self, topic: str, partition: int, start: Start, count: int, *, timeout_s: float = 20.0) -> list[Record]:
        return self._run(self._read(aiokafka.TopicPartition(topic, partition), start, count, timeout_s))

    async def _read(self, where: Any, start: Start, count: int, timeout_s: float) -> list[Record]:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap, enable_auto_commit=False, auto_offset_reset="none"
        )
        try:
            await consumer.start()
            consumer.assign([where])
            await self._seek(consumer, where, start)
            return await self._poll(consumer, count, time.monotonic() + timeout_s)
        finally:
            await consumer.stop()

    async def _seek(self, consumer: Any, where: Any, start: Start) -> None:
        if start == "earliest":
            await consumer.seek_to_beginning(where)
        elif start == "latest":
            await consumer.seek_to_end(where)
        elif isinstance(start, AtTimestamp):
            found = (await consumer.offsets_for_times({where: start.timestamp_ms}))[where]
            consumer.seek(where, found.offset if found else (await consumer.end_offsets([where]))[where])
        else:
            consumer.seek(where, start)

    async def _poll(self, consumer: Any, count: int, deadline: float) -> list[Record]:
        records: list[Record] = []
        while len(records) < count and time.monotonic() < deadline:
            for batch in (await consumer.getmany(timeout_ms=100, max_records=count - len(records))).values():
                records += map(_from_python, batch)
        return records

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        try:
            return self._runner.run(work)
        except (aiokafka.errors.KafkaError, TimeoutError) as error:
            raise ClientError(repr(error)) from error

    def close(self) -> None:
        self._runner.close()


CLIENTS = ("java-4.3.1", "java-0.10.2.0", "confluent-kafka", "aiokafka", "kafka-python")


class Clients:
    """Opens clients by name; the JVMs are shared between the clients of a session."""

    def __init__(self, classpaths: Mapping[str, str]) -> None:
        self._drivers = {version: JavaDriver(version, classpath) for version, classpath in classpaths.items()}
        self._open: list[Client] = []

    def connect(self, name: str, bootstrap: str) -> Client:
        """A client of the kind `name` (see `CLIENTS`) for the cluster at `bootstrap`."""
        client = self._new(name, bootstrap)
        self._open.append(client)
        return client

    def java(self, version: str, bootstrap: str) -> JavaClient:
        """The Java client with what only it can do (properties, offsets)."""
        client = JavaClient(self._drivers[version], bootstrap)
        self._open.append(client)
        return client

    def _new(self, name: str, bootstrap: str) -> Client:
        kinds: dict[str, type[ConfluentClient | KafkaPythonClient | AiokafkaClient]] = {
            kind.name: kind for kind in (ConfluentClient, KafkaPythonClient, AiokafkaClient)
        }
        if name in kinds:
            return kinds[name](bootstrap)
        return JavaClient(self._drivers[name.removeprefix("java-")], bootstrap)

    def close_clients(self) -> None:
        """At the end of a test."""
        while self._open:
            self._open.pop().close()

    def close(self) -> None:
        """At the end of the session."""
        self.close_clients()
        for driver in self._drivers.values():
            driver.close()
