"""Three brokers of Moldau and three of Apache Kafka side by side: 3 replicas, min.insync.replicas=2, acks=all.

Both clusters run at the same time and get each piece of work in turn, the order changing from round to round; medians
count. Rounds of full size go before and are thrown away: three JVMs on a small machine were seen to need twice the CPU
in the first counted round of what they needed in the second. CPU is that of all three brokers together. Both leave
flushing to the system: replication is the durability. Then leaders are killed: seconds from `kill -9` to the first
acknowledgement of a record sent after it, by the same librdkafka producer, whose own waiting is part of it.
"""

import argparse
import sys
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench import kafka, report
from bench.kafka_cluster import NODES, Cluster, kafka_cluster, moldau_cluster
from bench.replicated import States, failover, latency, wait_until
from bench.report import KAFKA, MOLDAU, Row
from bench.side_by_side import note, settle

LATENCY_RATIO_MAX = 1.0
FAILOVER_RATIO_MAX = 0.1
FAILOVERS = 5
WARM_UPS = 3
PART = "cluster"


class Work(NamedTuple):
    """`run(cluster, topic, count)` returns figures by name."""

    name: str
    records: int
    run: Callable[[Cluster, str, int], dict[str, float]]
    partitions: int = 6


def _producing(size: int, *properties: str) -> Callable[[Cluster, str, int], dict[str, float]]:
    def run(cluster: Cluster, topic: str, count: int) -> dict[str, float]:
        return {"records/s": kafka.produce(cluster.bootstrap, topic, count, size, ("acks=all", *properties))}

    return run


def _end_to_end(cluster: Cluster, topic: str, count: int) -> dict[str, float]:
    p50_ms, p99_ms = latency(cluster.bootstrap, topic, count, 100)
    return {"p50 ms": p50_ms, "p99 ms": p99_ms}


WORK = (
    Work("produce 100 B", 1_000_000, _producing(100)),
    Work("produce 1 KiB", 200_000, _producing(1024)),
    Work("produce 1 KiB, 128 KiB batches", 400_000, _producing(1024, "batch.size=131072", "linger.ms=5")),
    Work("end to end, 100 B", 2_000, _end_to_end, partitions=1),
)


@dataclass
class Figures:
    """By work and name of the figure, then by cluster."""

    values: dict[tuple[str, str], dict[str, list[float]]] = field(default_factory=dict)

    def add(self, work: str, figure: str, cluster: str, value: float) -> None:
        self.values.setdefault((work, figure), {}).setdefault(cluster, []).append(value)

    def rows(self) -> list[Row]:
        return [
            _row(f"{work}: {figure}", figure, (median(both[MOLDAU]), median(both[KAFKA])))
            for (work, figure), both in self.values.items()
        ]


def _row(name: str, figure: str, both: tuple[float, float]) -> Row:
    match figure:
        case "records/s":
            return report.at_least(name, both, report.THROUGHPUT_RATIO_MIN)
        case "CPU s":
            return report.at_most(name, both, report.CPU_RATIO_MAX)
        case "s to the first acknowledgement":
            return report.at_most(name, both, FAILOVER_RATIO_MAX)
        case "p50 ms" | "p99 ms":
            return report.at_most(name, both, LATENCY_RATIO_MAX)
        case _:
            return Row(name, *both, "", True)


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code: with --check, 1 if a target was missed."""
    options = _parser().parse_args(argv)
    work = [one for one in WORK if any(name in one.name for name in options.only.split(","))]
    figures = Figures()
    with ExitStack() as running:
        clusters = [running.enter_context(made) for made in (moldau_cluster(), kafka_cluster())]
        for cluster in clusters:
            figures.add("three brokers", "start, s", cluster.name, cluster.start())
        _measure(clusters, work, options, figures)
        for cluster in clusters:
            figures.add("three brokers", "resident after the run, MB", cluster.name, cluster.resident_mb())
        if any(name in "failover" for name in options.only.split(",")):
            _fail_over(clusters, options.failovers, figures)
    rows = figures.rows()
    table = report.table("| | Moldau | Kafka | ratio | target | |", "|---|---:|---:|---:|---|---|", rows)
    sys.stdout.write(table)
    if not options.only:
        command = f".venv/bin/python -m bench.cluster    ({options.rounds} rounds, {options.scale:g} of full size)"
        report.write(options.output, table, command, PART, rows)
    missed = [f"missed: {row.name}: {row.ratio:.2f} ({row.target})\n" for row in rows if not row.is_met]
    sys.stdout.write("".join(missed) or "every target met\n")
    return 1 if missed and options.check else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m bench.cluster", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm-ups", type=int, default=WARM_UPS, help="rounds that are thrown away")
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of records")
    parser.add_argument("--failovers", type=int, default=FAILOVERS)
    parser.add_argument("--only", default="", help="parts of names of the work to do, with commas; writes no file")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a target is missed")
    parser.add_argument("--output", type=Path, default=Path(__file__).parents[1] / "docs" / "benchmarks.md")
    return parser


def _measure(clusters: Sequence[Cluster], work: Sequence[Work], options: argparse.Namespace, figures: Figures) -> None:
    for number in range(options.warm_ups):
        note(f"warm-up {number + 1} of {options.warm_ups}")
        _round(clusters, work, options.scale, Figures())
    for number in range(options.rounds):
        note(f"round {number + 1} of {options.rounds}")
        _round(clusters if number % 2 == 0 else clusters[::-1], work, options.scale, figures)


def _round(clusters: Sequence[Cluster], work: Sequence[Work], scale: float, figures: Figures) -> None:
    for one in work:
        for cluster in clusters:
            topic = _new_topic(cluster, one.partitions)
            settle()
            before_s = cluster.cpu_s()
            measured = one.run(cluster, topic, max(1, int(one.records * scale)))
            measured["CPU s"] = max(cluster.cpu_s() - before_s, 0.01)  # the kernel counts in hundredths
            for figure, value in measured.items():
                figures.add(one.name, figure, cluster.name, value)
            note(f"  {one.name:32} {cluster.name:8} " + "  ".join(f"{k}: {v:,.2f}" for k, v in measured.items()))


def _fail_over(clusters: Sequence[Cluster], times: int, figures: Figures) -> None:
    topics = {cluster.name: _new_topic(cluster, 1) for cluster in clusters}
    for _ in range(times):
        for cluster in clusters:
            seconds = failover(cluster, topics[cluster.name])
            figures.add("failover", "s to the first acknowledgement", cluster.name, seconds)
            note(f"  failover {cluster.name:8} {seconds:.3f} s")


def _new_topic(cluster: Cluster, partitions: int) -> str:
    topic = f"t{uuid.uuid4().hex[:8]}"
    kafka.create_topic(cluster.bootstrap, topic, partitions, NODES, min_insync_replicas="2")
    states = States(cluster.bootstrap)
    wait_until(lambda: states.are_whole(topic), f"{cluster.name} did not bring {topic} up")
    return topic


if __name__ == "__main__":
    sys.exit(main())
