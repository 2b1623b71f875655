"""A member of a group as a process of its own: it reads a topic and commits what it read until SIGTERM.

It tells what happens on stdout, one JSON object a line, in the words of Kafka's VerifiableConsumer, so that a test
need not know which client it watches. A process can die as a machine does: kill -9.

    python -m tests.clients.group_member aiokafka TOPIC '{"bootstrap_servers": ...}'
"""

import asyncio
import json
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

POLL_S = 0.1


class Partition(NamedTuple):
    topic: str
    partition: int


class Member:
    """What all clients share: whether to go on, and the words."""

    def __init__(self) -> None:
        self.leaving = False

    def leave(self) -> None:
        self.leaving = True

    def assigned(self, partitions: Iterable[Any]) -> None:
        tell("partitions_assigned", partitions=_named(partitions))

    def revoked(self, partitions: Iterable[Any]) -> None:
        tell("partitions_revoked", partitions=_named(partitions))

    def consumed(self, offsets: Mapping[Partition, Sequence[int]]) -> None:
        ranges = [
            {**where._asdict(), "minOffset": read[0], "maxOffset": read[-1]} for where, read in offsets.items() if read
        ]
        tell("records_consumed", partitions=ranges)

    def committed(self, offsets: Mapping[Partition, int], error: object = None) -> None:
        told = [{**where._asdict(), "offset": offset} for where, offset in offsets.items()]
        tell("offsets_committed", offsets=told, success=error is None, error=str(error))


def tell(name: str, **facts: object) -> None:
    sys.stdout.write(json.dumps({"name": name, **facts}) + "\n")
    sys.stdout.flush()


def _named(partitions: Iterable[Any]) -> list[dict[str, object]]:
    return [{"topic": each.topic, "partition": each.partition} for each in partitions]


def _next_offsets(offsets: Mapping[Partition, Sequence[int]]) -> dict[Partition, int]:
    return {where: read[-1] + 1 for where, read in offsets.items()}


def run_confluent(member: Member, topic: str, settings: dict[str, Any]) -> None:
    """librdkafka, either protocol."""
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    consumer = Consumer(settings)
    consumer.subscribe(
        [topic],
        on_assign=lambda _, partitions: member.assigned(partitions),
        on_revoke=lambda _, partitions: member.revoked(partitions),
        on_lost=lambda _, partitions: member.revoked(partitions),
    )
    while not member.leaving:
        read: dict[Partition, list[int]] = {}
        for message in consumer.consume(500, POLL_S):
            if message.error() is None:
                where = Partition(str(message.topic()), int(message.partition() or 0))
                read.setdefault(where, []).append(int(message.offset() or 0))
        if not read:
            continue
        member.consumed(read)
        offsets = _next_offsets(read)
        try:
            consumer.commit(offsets=[TopicPartition(*where, at) for where, at in offsets.items()], asynchronous=False)
            member.committed(offsets)
        except KafkaException as error:
            member.committed(offsets, error)
    consumer.close()


def run_kafka_python(member: Member, topic: str, settings: dict[str, Any]) -> None:
    """kafka-python."""
    import kafka  # type: ignore[import-untyped]  # ships no types
    from kafka.errors import KafkaError  # type: ignore[import-untyped]  # ships no types

    class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]  # its base has no types
        def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
            member.assigned(assigned)

        def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
            member.revoked(revoked)

    consumer = kafka.KafkaConsumer(**settings)
    consumer.subscribe([topic], listener=Listener())
    while not member.leaving:
        batches = consumer.poll(timeout_ms=int(POLL_S * 1000))
        read = {Partition(*where): [record.offset for record in batch] for where, batch in batches.items()}
        if not read:
            continue
        member.consumed(read)
        offsets = _next_offsets(read)
        try:
            consumer.commit(
                {kafka.TopicPartition(*where): kafka.OffsetAndMetadata(at, "", -1) for where, at in offsets.items()}
            )
            member.committed(offsets)
        except KafkaError as error:
            member.committed(offsets, error)
    consumer.close(autocommit=False)


def run_aiokafka(member: Member, topic: str, settings: dict[str, Any]) -> None:
    """aiokafka."""
    asyncio.run(_run_aiokafka(member, topic, settings))


async def _run_aiokafka(member: Member, topic: str, settings: dict[str, Any]) -> None:
    import aiokafka  # type: ignore[import-untyped]  # ships no types
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor  # type: ignore[import-untyped]  # no types
    from aiokafka.errors import KafkaError  # type: ignore[import-untyped]  # ships no types

    class Listener(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]  # its base has no types
        def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
            member.assigned(assigned)

        def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
            member.revoked(revoked)

    assignors = (RangePartitionAssignor,)  # what all the other clients offer
    consumer = aiokafka.AIOKafkaConsumer(**settings, partition_assignment_strategy=assignors)
    await consumer.start()
    consumer.subscribe([topic], listener=Listener())
    while not member.leaving:
        batches = await consumer.getmany(timeout_ms=int(POLL_S * 1000))
        read = {Partition(*where): [record.offset for record in batch] for where, batch in batches.items()}
        if not read:
            continue
        member.consumed(read)
        offsets = _next_offsets(read)
        try:
            await consumer.commit({aiokafka.TopicPartition(*where): at for where, at in offsets.items()})
            member.committed(offsets)
        except KafkaError as error:
            member.committed(offsets, error)
    await consumer.stop()


RUNNERS: dict[str, Callable[[Member, str, dict[str, Any]], None]] = {
    "confluent-kafka": run_confluent,
    "kafka-python": run_kafka_python,
    "aiokafka": run_aiokafka,
}


def main(client: str, topic: str, settings: str) -> None:
    member = Member()
    signal.signal(signal.SIGTERM, lambda *_: member.leave())
    RUNNERS[client](member, topic, json.loads(settings))
    tell("shutdown_complete")


if __name__ == "__main__":
    main(*sys.argv[1:])
