"""Moldau and Apache Kafka under the same load by Kafka's own clients, interleaved, three rounds.

Every broker gets each piece of work in turn, forth and back, so twice a round, and the median counts. A round at a
fifth of the size goes before and is thrown away: it warms the JVM up. Both brokers leave flushing to the system;
beside them runs a Moldau with its default policy (group commit), so that its cost is seen. CPU is the broker's own.
Transactions are of Kafka's own clients, too: copies in them, and what reading them costs that only sees committed ones.
"""

import argparse
import shlex
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from bench import kafka, report
from bench.process import Server, start
from bench.report import DURABLE, KAFKA, MOLDAU

STARTS = 5
WARM_UP = 0.2
READ_100, READ_1024, READ_TRANSACTIONS = "read-100", "read-1024", "read-transactions"
TRANSACTION_MS = 10
"""How long a transaction is open in the topic that is read with and without `read_committed`."""


class Work(NamedTuple):
    """One piece of work: `run(server, topic, count)` measures it."""

    name: str
    records: int
    size: int
    run: Callable[[Server, str, int], report.Measured]
    partitions: int = 6
    repeats: int = 1
    reads: str | None = None
    copies: str | None = None
    """A topic that is read beside the one that is written."""
    is_synced: bool = False
    cpu_ratio_max: float = report.CPU_RATIO_MAX


def _producing(size: int, *properties: str) -> Callable[[Server, str, int], report.Measured]:
    def run(server: Server, topic: str, count: int) -> report.Measured:
        return report.Measured(kafka.produce(server.bootstrap, topic, count, size, properties))

    return run


def _consuming(*properties: str) -> Callable[[Server, str, int], report.Measured]:
    def run(server: Server, topic: str, count: int) -> report.Measured:
        return report.Measured(kafka.consume(server.bootstrap, topic, count, *properties))

    return run


def _copying(per_transaction: int) -> Callable[[Server, str, int], report.Measured]:
    def run(server: Server, topic: str, count: int) -> report.Measured:
        return report.Measured(kafka.copy(server.bootstrap, READ_1024, topic, count, per_transaction))

    return run


def _end_to_end(server: Server, topic: str, count: int) -> report.Measured:
    average_ms, p99_ms = kafka.latency(server.bootstrap, topic, count, 100)
    return report.Measured(1000 / average_ms, average_ms, p99_ms)


_BIG_BATCHES = ("acks=all", "batch.size=131072", "linger.ms=5")
WORK = (
    Work("produce 100 B, acks=1", 3_000_000, 100, _producing(100, "acks=1")),
    Work("produce 1 KiB, acks=all", 500_000, 1024, _producing(1024, "acks=all"), is_synced=True),
    Work(
        "produce 1 KiB, acks=all, 128 KiB batches",
        1_000_000,
        1024,
        _producing(1024, *_BIG_BATCHES),
        is_synced=True,
        cpu_ratio_max=report.CPU_RATIO_MAX_BIG_BATCHES,
    ),
    Work(
        "produce 1 KiB, acks=all, lz4",
        500_000,
        1024,
        _producing(1024, "acks=all", "compression.type=lz4"),
        is_synced=True,
    ),
    Work("consume 100 B", 3_000_000, 100, _consuming(), repeats=kafka.CONSUMER_READS, reads=READ_100),
    Work("consume 1 KiB", 1_000_000, 1024, _consuming(), repeats=kafka.CONSUMER_READS, reads=READ_1024),
    Work("end to end, 100 B, acks=all", 5_000, 100, _end_to_end, partitions=1, is_synced=True),
    *(
        Work(
            f"copy 1 KiB, {per_transaction:,} records a transaction",
            records,
            1024,
            _copying(per_transaction),
            repeats=kafka.COPIES,
            copies=READ_1024,
            cpu_ratio_max=report.CPU_RATIO_MAX_TRANSACTIONS,
        )
        for per_transaction, records in ((100, 25_000), (10_000, 100_000))
    ),
    *(
        Work(
            name,
            500_000,
            1024,
            _consuming(f"isolation.level={level}"),
            repeats=kafka.CONSUMER_READS,
            reads=READ_TRANSACTIONS,
        )
        for name, level in ((report.PLAIN, "read_uncommitted"), (report.COMMITTED, "read_committed"))
    ),
)


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code: with --check, 1 if a target was missed."""
    options = _parser().parse_args(argv)
    work = [one for one in WORK if any(name in one.name for name in options.only.split(","))]
    results = report.Results(start_s=_start_times(options))
    with ExitStack() as running:
        servers = [running.enter_context(server) for server in _servers(options)]
        _measure(servers, work, options, results)
        results.resident_mb.update({server.name: server.resident_mb() for server in servers})
    text, missed = report.render(results)
    sys.stdout.write(text)
    if not options.only:
        command = f"make bench{_extra(options)}"
        how = f"{command}    ({options.rounds} rounds, {options.scale:g} of full size)"
        report.write(options.output, text, how, rows=report.compared(results))
    sys.stdout.write("".join(f"missed: {line}\n" for line in missed) or "every target met\n")
    return 1 if missed and options.check else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m bench.side_by_side", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of records")
    parser.add_argument("--only", default="", help="parts of names of the work to do, with commas; writes no file")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a target is missed")
    parser.add_argument("--output", type=Path, default=Path(__file__).parents[1] / "docs" / "benchmarks.md")
    parser.add_argument(
        "--moldau",
        default=f"{Path(sys.executable).parent / 'moldau'} serve --host 127.0.0.1 --port {{port}} --data {{data}}",
        help="how to start Moldau, with {port} and {data}",
    )
    return parser


def _extra(options: argparse.Namespace) -> str:
    changed = [f"--{name} {getattr(options, name)}" for name in ("rounds", "scale") if _is_changed(options, name)]
    return f" ARGS='{' '.join(changed)}'" if changed else ""


def _is_changed(options: argparse.Namespace, name: str) -> bool:
    return bool(getattr(options, name) != _parser().get_default(name))


# --- the brokers ---


def _servers(options: argparse.Namespace) -> Iterator[Server]:
    """Started one by one, so that each is stopped even if the next does not come up."""
    yield _start_moldau(options, MOLDAU, "--override log.flush.policy=os --override group.initial.rebalance.delay.ms=0")
    yield kafka.start_kafka()
    yield _start_moldau(options, DURABLE, "")


def _start_moldau(options: argparse.Namespace, name: str, more: str) -> Server:
    def command(directory: Path, port: int) -> list[str]:
        return shlex.split(f"{options.moldau} {more}".format(port=port, data=directory / "data"))

    return start(name, command)


def _start_times(options: argparse.Namespace) -> dict[str, list[float]]:
    """Seconds from the start of the process to its first answer, one broker at a time."""
    starters = {MOLDAU: lambda: _start_moldau(options, MOLDAU, ""), KAFKA: kafka.start_kafka}
    times: dict[str, list[float]] = {name: [] for name in starters}
    for _ in range(STARTS):
        for name, starter in starters.items():
            with starter() as server:
                times[name].append(server.start_s)
    return times


# --- the work ---


def _measure(
    servers: Sequence[Server], work: Sequence[Work], options: argparse.Namespace, results: report.Results
) -> None:
    for server in servers:
        _fill(server, work, options.scale)
    _round(servers, work, options.scale * WARM_UP, report.Results())
    for number in range(options.rounds):
        note(f"round {number + 1} of {options.rounds}")
        _round(servers, work, options.scale, results)


def _fill(server: Server, work: Sequence[Work], scale: float) -> None:
    """The topics that are read; the group-commit broker reads nothing, its policy is about writing."""
    if server.name == DURABLE:
        return
    topics: dict[str, Work] = {}
    for one in work:
        topic = one.reads or one.copies
        if topic is not None and (topic not in topics or topics[topic].records < one.records):
            topics[topic] = one
    for topic, one in topics.items():
        kafka.create_topic(server.bootstrap, topic, one.partitions)
        acks, transaction_ms = ("acks=all", TRANSACTION_MS) if topic == READ_TRANSACTIONS else ("acks=1", 0)
        settings = (acks, "batch.size=131072")
        kafka.produce(server.bootstrap, topic, _scaled(one, scale), one.size, settings, transaction_ms)


def _round(servers: Sequence[Server], work: Sequence[Work], scale: float, results: report.Results) -> None:
    there_and_back = [*servers, *(server for server in reversed(servers) if server.name != DURABLE)]
    for one in work:
        for server in there_and_back:
            if one.is_synced or server.name != DURABLE:
                sample = _sample(server, one, scale)
                results.add(one.name, server.name, sample, one.cpu_ratio_max)
                note(f"  {one.name:42} {server.name:20} {sample.measured.per_s:12,.0f}/s {sample.cpu_s:6.2f} CPU s")


def _sample(server: Server, work: Work, scale: float) -> report.Sample:
    topic = work.reads or f"t{uuid.uuid4().hex[:8]}"
    if work.reads is None:
        kafka.create_topic(server.bootstrap, topic, work.partitions)
        settle()
    count = _scaled(work, scale)
    before_s = server.cpu_s()
    measured = work.run(server, topic, count)
    cpu_s = max(server.cpu_s() - before_s, 0.01)  # the kernel counts in hundredths
    return report.Sample(measured, cpu_s / work.repeats, count * work.size / 1e9)


def _scaled(work: Work, scale: float) -> int:
    return max(1, int(work.records * scale))


def settle() -> None:
    """Write out, and drop the page cache where we may: the reclaim of one run must not be charged to the next."""
    subprocess.run(["sync"], check=True)
    try:
        Path("/proc/sys/vm/drop_caches").write_text("1")
    except OSError:
        note("  (not root: the page cache stays as it is)")


def note(line: str) -> None:
    """For whoever watches."""
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
