"""`moldau perf` beside Kafka's own tools: the same load, in turns, on the same broker.

    python -m bench.perf_tools                  # against Moldau and against Apache Kafka
    python -m bench.perf_tools --rounds 3 --scale 0.2 --only moldau

A round is theirs, ours, ours, theirs; medians of all rounds are compared. Both tools are started anew each time, and
each measures itself; of producing the first half is left out (`--warmup-records`), in which Java compiles itself.
`--check` ends with 1 where they differ by more than a tenth.
"""

import argparse
import json
import re
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench import kafka
from bench.process import Server, start

DIFFERENCE_MAX = 0.1
ROUNDS = 3
WARM_UP = 0.1
THEIRS, OURS = "Kafka's tool", "moldau perf"

Measure = Callable[[str, str, int], float]
"""Takes the address, a topic and how many records."""


class Work(NamedTuple):
    """One thing that both tools measure."""

    name: str
    unit: str
    records: int
    theirs: Measure
    ours: Measure
    reads: int = 0
    """Size of the records of a topic that is read, and was filled before; 0: nothing is read."""


def _moldau(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "moldau", "perf", *arguments, "--json"]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def _producing(size: int, value: str, *properties: str, rate: int = -1) -> tuple[Measure, Measure]:
    """Measures of producing: `value` is `recordsPerSecond` or `avgLatencyMs`."""
    load = ("--record-size", str(size), "--throughput", str(rate), "--warmup-records")

    def theirs(bootstrap: str, topic: str, count: int) -> float:
        named = ("--producer-props", f"bootstrap.servers={bootstrap}", *properties)
        words = ("--topic", topic, "--num-records", str(count), *load, str(count // 2), *named)
        output = kafka.java("org.apache.kafka.tools.ProducerPerformance", *words)
        found = re.findall(r"^\d+ steady state records sent, ([\d.]+) records/sec .*?([\d.]+) ms avg", output, re.M)
        return float(found[-1][0 if value == "recordsPerSecond" else 1])

    def ours(bootstrap: str, topic: str, count: int) -> float:
        named = ("--producer-props", f"bootstrap.servers={bootstrap}", *properties)
        found = _moldau("produce", topic, "--num-records", str(count), *load, str(count // 2), *named)
        return float(found["steadyState"][value])

    return theirs, ours


def _their_consume(bootstrap: str, topic: str, count: int) -> float:
    words = ("--bootstrap-server", bootstrap, "--topic", topic, "--messages", str(count), "--timeout", "60000")
    output = kafka.java("org.apache.kafka.tools.ConsumerPerformance", *words)
    return _fetched_per_s(output.strip().splitlines()[-1])


def _fetched_per_s(row: str) -> float:
    """The last column, fetch.nMsg.sec: joining the group is not in it."""
    return float(row.rpartition(",")[2])


def _our_consume(bootstrap: str, topic: str, count: int) -> float:
    words = ("--bootstrap-server", bootstrap, "--num-records", str(count), "--timeout", "60000", "--hide-header")
    command = [sys.executable, "-m", "moldau", "perf", "consume", topic, *words]
    return _fetched_per_s(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())


def _our_latency(bootstrap: str, topic: str, count: int) -> float:
    words = ("--num-records", str(count), "--record-size", "100", "--bootstrap-server", bootstrap)
    return float(_moldau("end-to-end", topic, *words)["avgLatencyMs"])


def _their_latency(bootstrap: str, topic: str, count: int) -> float:
    return kafka.latency(bootstrap, topic, count, 100).average_ms


WORK = (
    Work("produce 100 B, acks=1", "records/s", 6_000_000, *_producing(100, "recordsPerSecond", "acks=1")),
    Work("produce 1 KiB, acks=all", "records/s", 1_000_000, *_producing(1024, "recordsPerSecond")),
    Work("produce 1 KiB, 5,000 records/s", "records/s", 50_000, *_producing(1024, "recordsPerSecond", rate=5000)),
    Work("latency of that", "ms", 50_000, *_producing(1024, "avgLatencyMs", rate=5000)),
    Work("consume 1 KiB", "records/s", 1_000_000, _their_consume, _our_consume, reads=1024),
    Work("end to end 100 B", "ms", 5_000, _their_latency, _our_latency),
)


class Row(NamedTuple):
    """What both tools measured of one work."""

    broker: str
    work: Work
    theirs: float
    ours: float

    @property
    def difference(self) -> float:
        return self.ours / self.theirs - 1


def _measured(server: Server, work: Work, rounds: int, scale: float) -> Row:
    count = max(200, int(work.records * scale))
    topic = f"perf-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(server.bootstrap, topic, 1)
    if work.reads:
        kafka.produce(server.bootstrap, topic, count, work.reads, ("acks=1",))
    for measure in (work.theirs, work.ours):
        measure(server.bootstrap, topic, max(200, int(count * WARM_UP)))
    found: dict[str, list[float]] = {THEIRS: [], OURS: []}
    for _ in range(rounds):
        for name in (THEIRS, OURS, OURS, THEIRS):
            measure = work.theirs if name == THEIRS else work.ours
            found[name].append(measure(server.bootstrap, topic, count))
    _say(f"{server.name}, {work.name}: {found}")
    return Row(server.name, work, median(found[THEIRS]), median(found[OURS]))


def table(rows: Iterable[Row]) -> str:
    """The table of docs/benchmarks.md."""
    lines = [f"| broker | work | {THEIRS} | {OURS} | difference |", "|---|---|---|---|---|"]
    for row in rows:
        digits = 2 if row.work.unit == "ms" else 0
        numbers = " | ".join(f"{value:,.{digits}f} {row.work.unit}" for value in (row.theirs, row.ours))
        lines.append(f"| {row.broker} | {row.work.name} | {numbers} | {row.difference:+.0%} |")
    return "\n".join(lines)


def _moldau_command(directory: Path, port: int) -> list[str]:
    where = ["--port", str(port), "--host", "127.0.0.1", "--data", str(directory / "data")]
    policy = ["--override", "log.flush.policy=os", "--override", "metrics.listener="]
    return [sys.executable, "-m", "moldau", "serve", *where, *policy]


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Measure, and print the table; the exit code says whether the tools agree."""
    made = argparse.ArgumentParser("python -m bench.perf_tools", description=__doc__)
    made.add_argument("--rounds", type=int, default=ROUNDS)
    made.add_argument("--scale", type=float, default=1.0, help="how many records, of those that the work names")
    made.add_argument("--only", choices=("moldau", "kafka"))
    made.add_argument("--work", default="", help="only works with this in their name")
    made.add_argument("--check", action="store_true", help="end with 1 where they differ by more than a tenth")
    options = made.parse_args()
    servers: dict[str, Callable[[], Server]] = {
        "moldau": lambda: start("moldau", _moldau_command),
        "kafka": kafka.start_kafka,
    }
    rows = []
    for name, begin in servers.items():
        if options.only in (None, name):
            with begin() as server:
                wanted = [work for work in WORK if options.work in work.name]
                rows += [_measured(server, work, options.rounds, options.scale) for work in wanted]
    _say(table(rows))
    return int(options.check and any(abs(row.difference) > DIFFERENCE_MAX for row in rows))


if __name__ == "__main__":
    sys.exit(main())
