"""`moldau perf end-to-end`: the work of Kafka's EndToEndLatency: one record after the other, there and back."""

import argparse
import random
import sys
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from moldau.cli.common import REQUEST_TIMEOUT_S, client_settings
from moldau.cli.failures import ToolError
from moldau.cli.metadata import partitions_of
from moldau.cli.output import say, show_json
from moldau.cli.perf_numbers import percentiles
from moldau.cli.reading import close, is_record, watermarks

TOLD_EVERY = 1000
POLL_S = 0.1
RECORD_TIMEOUT_S = 60.0
PERCENTILES = {"50th": 0.5, "99th": 0.99, "99.9th": 0.999}


def end_to_end(options: argparse.Namespace) -> int:
    """Send and read the records, and print how long that took."""
    settings = client_settings(options, {})
    producer = Producer({"acks": options.producer_acks, "linger.ms": 0, **settings})
    partitions = partitions_of(producer, options.topic)
    consumer = Consumer(
        {
            "group.id": "moldau-perf",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 500,
            "fetch.queue.backoff.ms": 0,
            "auto.offset.reset": "latest",
            **settings,
        }
    )
    try:
        _begin(consumer, options.topic, partitions)
        latencies_ms = _measure(producer, consumer, options)
    finally:
        close(consumer)
    average = sum(latencies_ms) / len(latencies_ms)
    shares = percentiles(latencies_ms, PERCENTILES)
    if options.json:
        show_json({"records": len(latencies_ms), "avgLatencyMs": average, "percentilesMs": shares})
    else:
        say(f"Avg latency: {average:.4f} ms")
        say(f"Percentiles: {', '.join(f'{name} = {latency}' for name, latency in shares.items())}")
    return 0


def _begin(consumer: Consumer, topic: str, partitions: list[int]) -> None:
    """Read from the present ends on. They are asked for: a record that comes first would be missed otherwise."""
    starts = [TopicPartition(topic, each, watermarks(consumer, (topic, each))[1]) for each in partitions]
    consumer.assign(starts)


def _measure(producer: Producer, consumer: Consumer, options: argparse.Namespace) -> list[float]:
    dice = random.Random(0)
    latencies_ms: list[float] = []
    for number in range(options.num_records):
        value = bytes(dice.choices(range(65, 91), k=options.record_size))
        begun_s = time.perf_counter()
        _send(producer, options.topic, value)
        _expect(consumer, value)
        latencies_ms.append(1000 * (time.perf_counter() - begun_s))
        if number % TOLD_EVERY == 0 and not options.json:
            say(f"{number}\t{latencies_ms[-1]:g}")
            sys.stdout.flush()
    return latencies_ms


def _send(producer: Producer, topic: str, value: bytes) -> None:
    told: list[KafkaError | None] = []
    producer.produce(topic, value, on_delivery=lambda error, _: told.append(error))
    if producer.flush(REQUEST_TIMEOUT_S):
        raise ToolError("a record was not acknowledged: no broker answers")
    if told[0] is not None:
        raise KafkaException(told[0])


def _expect(consumer: Consumer, value: bytes) -> None:
    """Read the record that was sent, and no other."""
    deadline_s = time.monotonic() + RECORD_TIMEOUT_S
    while time.monotonic() < deadline_s:
        message = consumer.poll(POLL_S)
        if message is not None and is_record(message):
            if message.value() != value:
                raise ToolError("a record came that was not sent by this command: take a topic that nobody else uses")
            return
    raise ToolError("a record that was acknowledged did not come: see whether the topic's leader is well")
