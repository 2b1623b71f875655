"""What was measured, as tables that say for each row whether its target was met; and their place in the docs."""

import os
import platform
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench import plot
from bench.plot import Bar

THROUGHPUT_RATIO_MIN = 1.0
CPU_RATIO_MAX = 0.5
CPU_RATIO_MAX_BIG_BATCHES = 0.7
CPU_RATIO_MAX_TRANSACTIONS = 0.6
COMMITTED_CPU_RATIO_MAX = 1.1
LATENCY_RATIO_MAX = 0.9
START_RATIO_MAX = 0.1
RESIDENT_MB_MAX = 100.0

MOLDAU, KAFKA, DURABLE = "moldau", "kafka", "moldau group commit"
PLAIN, COMMITTED = "consume 1 KiB of transactions", "consume 1 KiB of transactions, read_committed"
PART = "side by side"


class Measured(NamedTuple):
    """Records per second; and milliseconds where each record was timed."""

    per_s: float
    average_ms: float | None = None
    p99_ms: float | None = None


class Sample(NamedTuple):
    """One run of one piece of work."""

    measured: Measured
    cpu_s: float
    gigabytes: float


@dataclass
class Results:
    """All samples: by work, then by broker."""

    start_s: dict[str, list[float]] = field(default_factory=dict)
    resident_mb: dict[str, float] = field(default_factory=dict)
    samples: dict[str, dict[str, list[Sample]]] = field(default_factory=dict)
    cpu_ratio_max: dict[str, float] = field(default_factory=dict)

    def add(self, work: str, server: str, sample: Sample, cpu_ratio_max: float) -> None:
        self.samples.setdefault(work, {}).setdefault(server, []).append(sample)
        self.cpu_ratio_max[work] = cpu_ratio_max

    def medians(self, work: str, value: Callable[[Sample], float], second: str = KAFKA) -> tuple[float, float]:
        """Of Moldau and of the other broker."""
        ours, theirs = (median(map(value, self.samples[work][name])) for name in (MOLDAU, second))
        return ours, theirs

    def timed(self, is_timed: bool) -> list[str]:
        """Work where each record was timed, or the other work."""
        return [
            work
            for work, servers in self.samples.items()
            if (servers[MOLDAU][0].measured.average_ms is not None) == is_timed
        ]


class Row(NamedTuple):
    """A figure of both brokers and what was promised."""

    name: str
    ours: float
    theirs: float
    target: str
    is_met: bool

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs

    @property
    def bar(self) -> Bar:
        return Bar(self.name, self.ratio, more_is_better=self.name.endswith("records/s"))

    def __str__(self) -> str:
        verdict = "**missed**" if not self.is_met else "met" if self.target else ""
        figures = f"{_figure(self.ours)} | {_figure(self.theirs)} | {self.ratio:.2f}"
        return f"| {self.name} | {figures} | {self.target} | {verdict} |"


def render(results: Results) -> tuple[str, list[str]]:
    """The tables, and the rows that missed their target."""
    rows, committed = compared(results), _committed(results)
    tables = [
        table("| | Moldau | Kafka | ratio | target | |", "|---|---:|---:|---:|---|---|", rows),
        table("| broker CPU seconds per GB | Moldau | Kafka |", "|---|---:|---:|", _cpu_per_gigabyte(results)),
        table(
            "| the price of group commit | log.flush.policy=os | group, the default |",
            "|---|---:|---:|",
            _group_commit(results),
        ),
        table(
            "| the price of read_committed | read_committed | read_uncommitted | ratio | target | |",
            "|---|---:|---:|---:|---|---|",
            committed,
        ),
    ]
    missed = [f"{row.name}: {row.ratio:.2f} ({row.target})" for row in (*rows, *committed) if not row.is_met]
    return "\n".join(tables), missed


def write(path: Path, tables: str, command: str, part: str = PART, rows: Sequence[Row] = ()) -> None:
    """Put the tables between the markers of the part of the document, and a picture of the rows before them; the text
    around them stays."""
    begin, end = f"<!-- {part}: begin -->", f"<!-- {part}: end -->"
    text = path.read_text() if path.exists() else f"# Benchmarks\n\n{begin}\n{end}\n"
    before, _, rest = text.partition(begin)
    after = rest.partition(end)[2]
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    picture = ""
    if rows:
        name = f"{part.replace(' ', '-')}.svg"
        plot.write(path.parent / path.stem / name, f"Moldau beside Apache Kafka: {part}", [row.bar for row in rows])
        picture = f"![What Moldau has or takes for each one of Kafka's]({path.stem}/{name})\n\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{before}{begin}\n\n    {command}\n\n{machine}.\n\n{picture}{tables}\n{end}{after}")


def compared(results: Results) -> list[Row]:
    """The rows of the first table."""
    throughput = [_throughput(results, work) for work in results.timed(False)]
    latency = [row for work in results.timed(True) for row in _latency(results, work)]
    cpu = [_cpu(results, work) for work in results.samples]
    return [*throughput, *cpu, *latency, *_process(results)]


def _throughput(results: Results, work: str) -> Row:
    return at_least(f"{work}: records/s", results.medians(work, _per_s), THROUGHPUT_RATIO_MIN)


def _cpu(results: Results, work: str) -> Row:
    return at_most(f"{work}: broker CPU s", results.medians(work, _cpu_s), results.cpu_ratio_max[work])


def _latency(results: Results, work: str) -> list[Row]:
    return [
        at_most(f"{work}: average ms", results.medians(work, _average_ms), LATENCY_RATIO_MAX),
        at_most(f"{work}: p99 ms", results.medians(work, _p99_ms), LATENCY_RATIO_MAX),
    ]


def _process(results: Results) -> list[Row]:
    start = median(results.start_s[MOLDAU]), median(results.start_s[KAFKA])
    ours_mb, theirs_mb = results.resident_mb[MOLDAU], results.resident_mb[KAFKA]
    target = f"<= {RESIDENT_MB_MAX:.0f} MB"
    return [
        at_most("start to first answer, s", start, START_RATIO_MAX),
        Row("resident after the run, MB", ours_mb, theirs_mb, target, ours_mb <= RESIDENT_MB_MAX),
    ]


def at_most(name: str, both: tuple[float, float], limit: float) -> Row:
    """A figure of which we may have this much of Kafka's."""
    ours, theirs = both
    return Row(name, ours, theirs, f"ratio <= {limit}", ours / theirs <= limit)


def _cpu_per_gigabyte(results: Results) -> list[str]:
    return [_line(work, results.medians(work, _cpu_s_per_gb)) for work in results.timed(False)]


def _group_commit(results: Results) -> list[str]:
    lines = []
    for work, servers in results.samples.items():
        if DURABLE in servers:
            values = TIMED_VALUES if work in results.timed(True) else VALUES
            lines += [_line(f"{work}: {unit}", results.medians(work, value, DURABLE)) for unit, value in values]
    return lines


def _committed(results: Results) -> list[Row]:
    """What a broker takes for the same records when only committed ones are asked for."""
    if COMMITTED not in results.samples or PLAIN not in results.samples:
        return []
    (ours, theirs), (ours_plain, theirs_plain) = (results.medians(work, _cpu_s) for work in (COMMITTED, PLAIN))
    return [
        at_most("Moldau: broker CPU s", (ours, ours_plain), COMMITTED_CPU_RATIO_MAX),
        Row("Kafka: broker CPU s", theirs, theirs_plain, "", True),
    ]


def _line(name: str, both: tuple[float, float]) -> str:
    first, second = both
    return f"| {name} | {_figure(first)} | {_figure(second)} |"


def _per_s(sample: Sample) -> float:
    return sample.measured.per_s


def _cpu_s(sample: Sample) -> float:
    return sample.cpu_s


def _cpu_s_per_gb(sample: Sample) -> float:
    return sample.cpu_s / sample.gigabytes


def _average_ms(sample: Sample) -> float:
    return sample.measured.average_ms or 0.0


def _p99_ms(sample: Sample) -> float:
    return sample.measured.p99_ms or 0.0


VALUES = (("records/s", _per_s), ("broker CPU s", _cpu_s))
TIMED_VALUES = (("average ms", _average_ms), ("p99 ms", _p99_ms), ("broker CPU s", _cpu_s))


def at_least(name: str, both: tuple[float, float], limit: float) -> Row:
    """A figure of which we must have this much of Kafka's."""
    ours, theirs = both
    return Row(name, ours, theirs, f"ratio >= {limit}", ours / theirs >= limit)


def table(head: str, rule: str, rows: Iterable[object]) -> str:
    """In Markdown."""
    return "\n".join((head, rule, *map(str, rows))) + "\n"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
