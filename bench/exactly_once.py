"""Topic to topic at least once and exactly once, in one warm Spark: what transactions cost a pipeline.

The ways take turns, and the median of the rounds counts. `python -m bench.exactly_once`; `--servers` names the brokers.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from bench import pipelines, report
from bench.pipelines import Job
from bench.report import KAFKA, MOLDAU
from moldau.pipelines.spark.session import session

SINK = "sinks:\n  out: {{from: events, topic: copies-{number}, key: user, create: {{partitions: 4}}{options}}}\n"
WAYS = {
    "at least once": "",
    "exactly once, 1 task": ", delivery: exactly once",
    "exactly once, 2 tasks": ", delivery: exactly once, tasks: 2",
    "exactly once, 4 tasks": ", delivery: exactly once, tasks: 4",
}
JOBS = tuple(
    Job(name, SINK.format(number=number, options=options), pipelines._pipeline)
    for number, (name, options) in enumerate(WAYS.items())
)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m bench.exactly_once", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=pipelines.RECORDS)
    parser.add_argument("--servers", nargs="+", default=[MOLDAU, KAFKA], help="those to measure")
    options = parser.parse_args(argv)
    with ExitStack() as running:
        scratch = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="moldau-bench-")))
        started = [running.enter_context(server) for server in pipelines._servers()]
        servers = [server for server in started if server.name in options.servers]
        for server in servers:
            pipelines._fill(server, options.records)
        spark = session(pipelines._spec(JOBS[0], servers[0], scratch))
        seconds: dict[tuple[str, str], list[float]] = {}
        for number in range(options.rounds + 1):  # the first warms Spark up
            for job in JOBS if number % 2 else JOBS[::-1]:
                for server in servers:
                    taken = pipelines._time(job, pipelines._spec(job, server, scratch), spark)
                    pipelines.note(f"  {job.name:24} {server.name:8} {options.records / taken:,.0f} rows/s")
                    if number:
                        seconds.setdefault((job.name, server.name), []).append(taken)
        spark.stop()
    rates = {key: options.records / statistics.median(taken) for key, taken in seconds.items()}
    lines = [
        f"| {name} | {server} | {rate:,.0f} | {rate / rates[JOBS[0].name, server]:.2f} |"
        for (name, server), rate in sorted(rates.items(), key=lambda item: (item[0][1], -item[1]))
    ]
    sys.stdout.write(report.table("| delivery | broker | rows/s | of at least once |", "|---|---|---:|---:|", lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
