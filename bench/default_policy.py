"""Moldau's default beside Apache Kafka's, which syncs nothing, and beside a Kafka that syncs as Moldau does.

Kafka's own producers send records of 1 KiB with acks=all, to each broker in turn, forth and back. "Kafka, synced" is
the same Kafka with `flush.messages=1` on its topics, where an acknowledged record is on the disk as it is with Moldau.
CPU is the broker's with that of the kernel's threads meanwhile. Beside the ratios stands what the disk itself takes for
an fdatasync of 16 KiB: no broker that waits for it, with one batch under way, can be faster.

    python -m bench.default_policy --rounds 3
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from bench import kafka, report
from bench.ab import drop_pages, kernel_threads_cpu_s, process_cpu_s
from bench.process import Server, start
from bench.report import Row
from bench.side_by_side import note

RECORD_BYTES = 1024
PARTITIONS = 6
SYNCS = 400
SYNC_BYTES = 16 * 1024
WARM_UP = 0.2
MOLDAU, KAFKA, KAFKA_SYNCED = "moldau", "kafka", "kafka, synced"
PART = "default policy"


class Work(NamedTuple):
    """What the producers do, and what is wanted: Moldau's throughput at least so many times Kafka's."""

    name: str
    records: int
    throughput_min: float
    producers: int = 1
    properties: tuple[str, ...] = ()


WORK = (
    Work("16 KiB batches, one producer", 200_000, 0.9),
    Work("128 KiB batches, one producer", 400_000, 1.0, properties=("batch.size=131072", "linger.ms=5")),
    Work("16 KiB batches, five producers", 300_000, 1.0, producers=5),
)
CPU_MAX = 1.0
SYNCED_THROUGHPUT_MIN, SYNCED_CPU_MAX = 3.0, 0.2
SYNCED_SHARE = 0.25
"""Part of the records that the Kafka that syncs is given: it takes a multiple of the time."""


class Sample(NamedTuple):
    """One run of one broker."""

    per_s: float
    cpu_us: float  # for each record


Samples = dict[tuple[str, str], list[Sample]]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m bench.default_policy", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of records")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a target is missed")
    parser.add_argument("--output", type=Path, default=Path(__file__).parents[1] / "docs" / "benchmarks.md")
    options = parser.parse_args(argv)
    sync_us = disk_sync_us()
    note(f"the disk: {sync_us:.0f} us for an fdatasync of 16 KiB (median of {SYNCS})")
    with ExitStack() as running:
        moldau, other = (running.enter_context(each()) for each in (_start_moldau, kafka.start_kafka))
        brokers = {MOLDAU: moldau, KAFKA: other, KAFKA_SYNCED: other}
        samples: Samples = {}
        _round(brokers, list(brokers), options.scale * WARM_UP, {})
        for number in range(options.rounds):
            _round(brokers, list(brokers)[:: -1 if number % 2 else 1], options.scale, samples)
    rows = [row for work in WORK for row in _rows(work, samples)]
    table = report.table("| | Moldau | Kafka | ratio | target | |", "|---|---:|---:|---:|---|---|", rows)
    sys.stdout.write(table)
    how = f".venv/bin/python -m bench.default_policy    ({options.rounds} rounds, {options.scale:g} of full size)"
    said = f"An fdatasync of 16 KiB takes the disk {sync_us:.0f} us.\n\n{table}"
    report.write(options.output, said, how, PART, rows)
    missed = [f"missed: {row.name}: {row.ratio:.2f} ({row.target})\n" for row in rows if not row.is_met]
    sys.stdout.write("".join(missed) or "every target met\n")
    return 1 if missed and options.check else 0


def disk_sync_us() -> float:
    """What an fdatasync takes after a write of 16 KiB over blocks that exist, in microseconds."""
    took: list[float] = []
    with tempfile.TemporaryFile() as file:
        data = os.urandom(SYNC_BYTES)
        file.write(data * SYNCS)
        file.flush()
        os.fsync(file.fileno())
        for number in range(SYNCS):
            os.pwrite(file.fileno(), data, number * SYNC_BYTES)
            begun = time.perf_counter()
            os.fdatasync(file.fileno())
            took.append((time.perf_counter() - begun) * 1e6)
    return statistics.median(took)


def _start_moldau() -> Server:
    program = str(Path(sys.executable).with_name("moldau"))
    return start(MOLDAU, lambda directory, port: [program, "serve", "--port", str(port), "--data", f"{directory}/data"])


def _round(brokers: Mapping[str, Server], order: Sequence[str], scale: float, samples: Samples) -> None:
    for work in WORK:
        for name in order:
            share = SYNCED_SHARE if name == KAFKA_SYNCED else 1.0
            sample = _run(work, brokers[name], int(work.records * scale * share), is_synced=name == KAFKA_SYNCED)
            samples.setdefault((work.name, name), []).append(sample)


def _run(work: Work, server: Server, records: int, *, is_synced: bool) -> Sample:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    if is_synced:
        kafka.create_topic(server.bootstrap, topic, PARTITIONS, flush_messages="1")
    else:
        kafka.create_topic(server.bootstrap, topic, PARTITIONS)
    properties = ("acks=all", *work.properties)

    def produce(_: int) -> float:
        return kafka.produce(server.bootstrap, topic, records // work.producers, RECORD_BYTES, properties)

    cpu_s, before = process_cpu_s(server.pid), kernel_threads_cpu_s()
    with ThreadPoolExecutor(work.producers) as producers:
        per_s = sum(producers.map(produce, range(work.producers)))
    cpu_s, after = process_cpu_s(server.pid) - cpu_s, kernel_threads_cpu_s()
    kernel_s = sum(spent_s - before.get(pid, 0.0) for pid, spent_s in after.items())
    drop_pages(server.data)
    return Sample(per_s, (cpu_s + kernel_s) * 1e6 / records)


def _rows(work: Work, samples: Samples) -> list[Row]:
    """Rows of one work: the medians of both, and the ratios within a round, which noise of the machine moves less."""
    own = samples[work.name, MOLDAU]
    rows = []
    for name, promise in (
        (KAFKA, (work.throughput_min, CPU_MAX)),
        (KAFKA_SYNCED, (SYNCED_THROUGHPUT_MIN, SYNCED_CPU_MAX)),
    ):
        other = samples[work.name, name]
        where = f"{work.name}, against {name}"
        rows += [
            report.at_least(f"{where}: records/s", _both(own, other, lambda each: each.per_s), promise[0]),
            report.at_most(f"{where}: CPU us a record", _both(own, other, lambda each: each.cpu_us), promise[1]),
        ]
    return rows


def _both(own: Sequence[Sample], other: Sequence[Sample], figure: Callable[[Sample], float]) -> tuple[float, float]:
    """Median of the own figure, and what it is compared with: as far away as the median of the rounds' ratios says."""
    ours = statistics.median(map(figure, own))
    return ours, ours / statistics.median(figure(a) / figure(b) for a, b in zip(own, other, strict=True))


if __name__ == "__main__":
    sys.exit(main())
