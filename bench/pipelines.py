"""Spark's jobs on Moldau and on Apache Kafka in the same run, the latency of a pipeline in real time, others' counts.

Each job runs as `moldau pipeline run --once` would, dead letters and consumer group included, in one warm Spark; the
two brokers take turns, and the median of the rounds counts. Latency is that of `moldau pipeline run --realtime`, from
send to receipt of the derived record, at 50 records a second. quix-streams and bytewax read Moldau, too.
"""

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition

from bench import kafka, pipeline_tables, report
from bench.process import Server, start
from bench.report import KAFKA, MOLDAU
from moldau.pipelines.file.files import load
from moldau.pipelines.file.spec import PipelineSpec
from moldau.pipelines.kinds import Context, source_kind
from moldau.pipelines.run.display import Display
from moldau.pipelines.run.runner import ONCE, Run
from moldau.pipelines.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = 1_000_000
PARTITIONS = 4
USERS = 100
EVENT_EVERY_MS = 5
BEGIN_MS = 1_790_000_000_000
SEND_EVERY_S = 0.02
LATENCY_RECORDS = 600
LATENCY_WARM_UP = 150
P50_MS_MAX = 20.0
RATIO_MIN = 1.0
TIMEOUT_S = 120.0
PART = "pipelines"
TOOLS = Path(__file__).parents[1] / ".tools"
OTHERS = {"quix-streams": ("quix_count.py", 0.2), "bytewax": ("bytewax_count.py", 1.0)}
"""The script, and the share of the records that it counts: quix-streams takes its time over them."""

MOLDAU_COMMAND = str(Path(sys.executable).parent / "moldau")

SOURCE = """
sources:
  events:
    topic: events
    format: json
    schema: id BIGINT, user STRING, action STRING, amount DOUBLE, at TIMESTAMP
    required: [id, at]
    watermark: at 1 minute
    max_per_batch: 500000
"""
COUNT = """
views:
  counts: SELECT user, window.start AS begin, count(*) AS events FROM events GROUP BY user, window(at, '10 seconds')
sinks:
  out: {from: counts, topic: counts, key: [user, begin], create: {partitions: 4}}
"""
COPY = """
sinks:
  out: {from: events, topic: copies, key: user, create: {partitions: 4}}
"""
REALTIME = """
name: realtime
bootstrap: {bootstrap}
sources:
  pings: {{topic: pings, format: text}}
sinks:
  pongs: {{from: pings, topic: pongs, format: text}}
"""


class Job(NamedTuple):
    """`run(spec, spark)` reads all events once."""

    name: str
    file: str
    run: "Callable[[PipelineSpec, SparkSession], None]"


def _decode(spec: PipelineSpec, spark: "SparkSession") -> None:
    """To nowhere: Spark's own sink for measuring."""
    rows = source_kind("topic").read(spec.sources["events"], Context(spark, spec, spec.storage)).rows
    writer = rows.writeStream.format("noop").trigger(availableNow=True)
    writer.option("checkpointLocation", str(spec.storage / "checkpoint")).start().awaitTermination()


def _pipeline(spec: PipelineSpec, spark: "SparkSession") -> None:
    Run(spec, spark, ONCE, display=Display(StringIO())).to_the_end()


JOBS = (
    Job("decode JSON", "sinks: {out: {from: events, console: 1}}\n", _decode),
    Job("windowed count, to a topic", COUNT, _pipeline),
    Job("topic to topic", COPY, _pipeline),
)


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code: with --check, 1 if a target was missed."""
    options = _parser().parse_args(argv)
    if options.tables:
        return _only_tables()
    with ExitStack() as running:
        scratch = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="moldau-bench-")))
        servers = [running.enter_context(server) for server in _servers()]
        rows = [*_throughput(servers, scratch, options), *_latency(servers, scratch)]
        others = {"moldau pipeline": rows[1].ours, **_others(servers[0], scratch, options.records)}
        figures = _tables(servers[0], scratch)
    text, missed = _render(rows, others, figures)
    sys.stdout.write(text)
    command = f"make bench-pipelines    ({options.rounds} rounds, {options.records:,} records)"
    report.write(options.output, text, command, PART)
    sys.stdout.write("".join(f"missed: {line}\n" for line in missed) or "every target met\n")
    return 1 if missed and options.check else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m bench.pipelines", description=__doc__)
    parser.add_argument("--rounds", type=int, default=4, help="an even number: who goes first takes turns")
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--tables", action="store_true", help="only the join with a table and the capture; no report")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a target is missed")
    parser.add_argument("--output", type=Path, default=Path(__file__).parents[1] / "docs" / "benchmarks.md")
    return parser


def _servers() -> Iterator[Server]:
    def moldau(directory: Path, port: int) -> list[str]:
        where = ["--host", "127.0.0.1", "--port", str(port), "--data", str(directory / "data")]
        return [MOLDAU_COMMAND, "serve", *where, "--override", "log.flush.policy=os"]

    yield start(MOLDAU, moldau)
    yield kafka.start_kafka()


# --- throughput


def _throughput(servers: Sequence[Server], scratch: Path, options: argparse.Namespace) -> Iterator[report.Row]:
    for server in servers:
        _fill(server, options.records)
    spark = session(_spec(JOBS[0], servers[0], scratch))
    seconds: dict[tuple[str, str], list[float]] = {}
    cpu: dict[tuple[str, str], list[float]] = {}
    for number in range(options.rounds + 1):  # the first warms Spark up
        for job in JOBS:
            for server in servers if number % 2 else servers[::-1]:
                cpu_before = server.cpu_s()
                taken = _time(job, _spec(job, server, scratch), spark)
                cpu_s = server.cpu_s() - cpu_before
                note(f"  {job.name:28} {server.name:8} {options.records / taken:,.0f} rows/s, broker CPU {cpu_s:.2f} s")
                if number:
                    seconds.setdefault((job.name, server.name), []).append(taken)
                    cpu.setdefault((job.name, server.name), []).append(cpu_s)
    spark.stop()
    for job in JOBS:
        ours, theirs = (options.records / statistics.median(seconds[job.name, name]) for name in (MOLDAU, KAFKA))
        yield report.at_least(f"{job.name}: rows/s", (ours, theirs), RATIO_MIN)
    for job in JOBS:
        ours, theirs = (statistics.median(cpu[job.name, name]) for name in (MOLDAU, KAFKA))
        yield report.Row(f"{job.name}: broker CPU s", ours, theirs, "", is_met=True)


def _time(job: Job, spec: PipelineSpec, spark: "SparkSession") -> float:
    begun = time.perf_counter()
    job.run(spec, spark)
    return time.perf_counter() - begun


def _spec(job: Job, server: Server, scratch: Path) -> PipelineSpec:
    """A fresh pipeline, with storage of its own."""
    directory = Path(tempfile.mkdtemp(dir=scratch))
    file = directory / "pipeline.yaml"
    file.write_text(f"name: {directory.name}\nbootstrap: {server.bootstrap}\n{SOURCE}{job.file}")
    return load(str(file))


def _fill(server: Server, records: int) -> None:
    kafka.create_topic(server.bootstrap, "events", PARTITIONS)
    producer = Producer(
        {"bootstrap.servers": server.bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000}
    )
    for number in range(records):
        ms = BEGIN_MS + number * EVENT_EVERY_MS
        user = f"user-{number * 7919 % USERS}"
        at = datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
        event = {"id": number, "user": user, "action": "visit", "amount": number % 100 / 4, "at": at, "ts": ms}
        _send(producer, "events", json.dumps(event).encode(), user)
    producer.flush(TIMEOUT_S)


def _send(producer: Producer, topic: str, value: bytes, key: str) -> None:
    while True:
        try:
            producer.produce(topic, value, key)
        except BufferError:
            producer.poll(0.1)
        else:
            return


# --- latency in real time


def _latency(servers: Sequence[Server], scratch: Path) -> Iterator[report.Row]:
    medians = []
    for server in servers:
        p50, p99 = _round_trips(server, scratch)
        note(f"  real time {server.name:8} p50 {p50:.1f} ms, p99 {p99:.1f} ms")
        medians.append(p50)
    ours, theirs = medians
    yield report.Row("real time, topic to topic: p50 ms", ours, theirs, f"<= {P50_MS_MAX:g} ms", ours <= P50_MS_MAX)


def _round_trips(server: Server, scratch: Path) -> tuple[float, float]:
    """p50 and p99 in ms of a record through a pipeline that runs in real time."""
    for topic in ("pings", "pongs"):
        kafka.create_topic(server.bootstrap, topic, 1)
    file = Path(tempfile.mkdtemp(dir=scratch)) / "realtime.yaml"
    file.write_text(REALTIME.format(bootstrap=server.bootstrap))
    log = file.with_suffix(".log")
    with log.open("w") as said:
        process = subprocess.Popen(
            [MOLDAU_COMMAND, "pipeline", "run", str(file), "--realtime"], stdout=said, stderr=said
        )
    try:
        taken = list(_taken(server, process, log))[LATENCY_WARM_UP:]
    finally:
        process.terminate()
        process.wait(TIMEOUT_S)
    cuts = statistics.quantiles(taken, n=100)
    return cuts[49], cuts[98]


def _taken(server: Server, process: "subprocess.Popen[bytes]", log: Path) -> Iterator[float]:
    """Milliseconds from send to receipt, of records that are sent once the pipeline has been seen to run."""
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "bench", "fetch.wait.max.ms": 500})
    consumer.assign([TopicPartition("pongs", 0, 0)])
    producer = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 0})
    deadline = time.monotonic() + TIMEOUT_S
    runs_since = math.inf
    received = 0
    while received < LATENCY_RECORDS:
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"no records come through in real time: {log.read_text()[-2000:]}")
        producer.produce("pings", str(time.perf_counter()).encode())
        producer.poll(0)
        until = time.perf_counter() + SEND_EVERY_S
        while (left := until - time.perf_counter()) > 0:
            message = consumer.poll(left)
            if message is not None and message.error() is None:
                now, sent = time.perf_counter(), float(message.value() or b"0")
                runs_since = min(runs_since, now)
                if sent > runs_since:
                    yield (now - sent) * 1000
                    received += 1
    producer.flush(TIMEOUT_S)
    consumer.close()


# --- the same count elsewhere


def _others(server: Server, scratch: Path, records: int) -> dict[str, float]:
    """Rows per second of each; an environment of their own has them (`make bench-pipelines` makes it)."""
    python = TOOLS / "streams" / "bin" / "python"
    found = {}
    for name, (script, share) in OTHERS.items():
        path = Path(__file__).parent / "others" / script
        command = [str(python), str(path), server.bootstrap, "events", str(int(records * share)), str(scratch)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode:
            raise SystemExit(f"{name} failed: {done.stderr[-2000:]}")
        found[name] = float(done.stdout.split()[-1])
        note(f"  windowed count, {name}: {found[name]:,.0f} rows/s")
    return found


# --- tables that are joined, and the capture


def _only_tables() -> int:
    with ExitStack() as running:
        scratch = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="moldau-bench-")))
        _tables(running.enter_context(next(_servers())), scratch)
    return 0


def _tables(server: Server, scratch: Path) -> list[pipeline_tables.Figure]:
    found = []
    for figure in pipeline_tables.figures(server, scratch):
        note(f"  {figure.name}: {figure.value:,.0f} {figure.note}".rstrip())
        found.append(figure)
    return found


def _render(
    rows: Sequence[report.Row], others: dict[str, float], figures: Sequence[pipeline_tables.Figure]
) -> tuple[str, list[str]]:
    tables = [
        report.table("| | Moldau | Kafka | ratio | target | |", "|---|---:|---:|---:|---|---|", rows),
        report.table(
            "| windowed count, reading Moldau | rows/s |",
            "|---|---:|",
            [f"| {name} | {rate:,.0f} |" for name, rate in others.items()],
        ),
        report.table(
            "| tables and changes, on Moldau | | |",
            "|---|---:|---|",
            [f"| {figure.name} | {figure.value:,.0f} | {figure.note} |" for figure in figures],
        ),
    ]
    missed = [f"{row.name}: {row.ratio:.2f} ({row.target})" for row in rows if not row.is_met]
    return "\n".join(tables), missed


def note(line: str) -> None:
    """To standard error: the tables go to standard output."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
