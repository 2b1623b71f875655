"""`make demo`: three brokers, visits of a website, and a pipeline on Spark that counts them by organisation and day.

The counts change while you look, here and as records of the topic `visits-by-day` in the console, whose address is
printed; visits that are told of late correct the day they belong to. It ends by itself, or on Ctrl-C. `--headless` does
without the console.
"""

import itertools
import json
import os
import random
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from confluent_kafka import Producer

MOLDAU = str(Path(sys.executable).parent / "moldau")
PIPELINE = Path(__file__).with_name("visits.yaml")
TOPIC = "page-views"
VISITS_PER_S = 50
SHOW_S = 25.0
"""How long visits still come once the first are counted."""
LATE = 0.2
BROKEN_EVERY = 100
DAYS = 3
WAIT_S = 120
COUNT_S = 300.0
"""For all of it: a first run fetches Spark's jars, and Spark takes a while to start on a small machine."""
LOOK_EVERY_S = 0.5
SAY_EVERY_S = 3.0

ORGANISATIONS = ("Charles University", "Czech Radio", "National Library", "Observatory", "Prague Zoo")
PAGES = ("/", "/docs", "/pricing", "/blog", "/download")

Counts = Mapping[tuple[str, str], int]


def main() -> int:
    """The exit code."""
    with tempfile.TemporaryDirectory(prefix="moldau-demo-") as name:
        directory = Path(name)
        try:
            shutil.copy(PIPELINE, directory)
            with _brokers(directory / "brokers") as bootstrap, _console(directory, bootstrap):
                _run(
                    "topics",
                    "create",
                    TOPIC,
                    "--partitions",
                    "3",
                    "--replication-factor",
                    "3",
                    "--bootstrap-server",
                    bootstrap,
                )
                _count_visits(directory, bootstrap)
        except KeyboardInterrupt:
            _say("\nstopped")
            return 130
    _say("\nAll is stopped and removed. The pipeline was examples/visits.yaml; more is in docs/pipelines.md.")
    return 0


@contextmanager
def _brokers(directory: Path) -> Iterator[str]:
    """Three brokers on free ports; their addresses."""
    begun = time.monotonic()
    serving = ("serve", "--brokers", "3", "--port", "0", "--data", str(directory), "--log-level", "warning")
    process = _start(*serving, stdout=subprocess.PIPE)
    try:
        for line in process.stdout or ():
            _say(f"{line.strip()}   (after {time.monotonic() - begun:.2f} s)")
            ready = re.search(r"3 brokers are ready at (\S+)", line)
            if ready:
                yield ready[1]
                break
        else:
            raise SystemExit("the brokers did not start: what they said is above")
    finally:
        _end(process)


@contextmanager
def _console(directory: Path, bootstrap: str) -> Iterator[None]:
    """A console for the cluster, unless it is not wanted."""
    if "--headless" in sys.argv[1:]:
        yield
        return
    noted = str(directory / "audit.jsonl")
    more = ("--port", "0", "--audit-log", noted, "--pipeline", str(directory / PIPELINE.name))
    process = _start("console", "--bootstrap-server", bootstrap, *more, stdout=subprocess.PIPE)
    try:
        line = process.stdout.readline().strip() if process.stdout else ""
        if line:
            _say(f"{line}\nLook there at the records of {TOPIC} and visits-by-day, and at the pipeline: they change.")
        yield
    finally:
        _end(process)


def _count_visits(directory: Path, bootstrap: str) -> None:
    """The pipeline reads while visits come, until every one of them is counted."""
    file = directory / PIPELINE.name
    log = directory / "pipeline.log"
    with log.open("w") as written:
        pipeline = _start("pipeline", "run", str(file), "--bootstrap-server", bootstrap, stdout=written.fileno())
    try:
        _say("\nSpark is starting (its jars are fetched the first time) ...")
        visitors = Visitors(bootstrap, random.Random(7))
        visitors.start()
        _watch(directory / "visits.db", visitors, pipeline, log)
        _run("pipeline", "status", str(file), "--bootstrap-server", bootstrap)
        _run("pipeline", "stop", str(file), "--bootstrap-server", bootstrap)
        _show_topics(bootstrap)
    finally:
        _end(pipeline)


class Visitors(threading.Thread):
    """Sends visits at an even pace; one in five is told of days late, one in a hundred is no JSON at all."""

    def __init__(self, bootstrap: str, chance: random.Random) -> None:
        super().__init__(daemon=True)
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        self._chance = chance
        self.sent = 0
        self.late = 0
        self.until: float | None = None
        self.done = False

    def run(self) -> None:
        begun = time.monotonic()
        for number in itertools.count():
            if self.until is not None and time.monotonic() > self.until:
                break
            time.sleep(max(0.0, begun + number / VISITS_PER_S - time.monotonic()))
            if number % BROKEN_EVERY == BROKEN_EVERY - 1:
                self._producer.produce(TOPIC, b"<visit>this is not JSON</visit>")
            else:
                self._visit()
            self._producer.poll(0)
        self._producer.flush(WAIT_S)
        self.done = True

    def _visit(self) -> None:
        late = self._chance.random() < LATE
        at = datetime.now(UTC) - timedelta(days=self._chance.randint(1, DAYS) if late else 0)
        visit = {
            "organisation": self._chance.choice(ORGANISATIONS),
            "page": self._chance.choice(PAGES),
            "at": at.isoformat(timespec="milliseconds"),
        }
        self._producer.produce(TOPIC, json.dumps(visit), visit["organisation"])
        self.sent += 1
        self.late += late


def _watch(database: Path, visitors: Visitors, pipeline: subprocess.Popen[str], log: Path) -> None:
    """Show the counts as they change, until all is counted."""
    board = Board()
    deadline = time.monotonic() + COUNT_S
    while True:
        counts = _counts(database)
        counted = sum(counts.values())
        is_over = visitors.done and counted == visitors.sent
        title = f"{counted:,} visits counted of {visitors.sent:,} sent, {visitors.late:,} of them late"
        board.show(counts, title, is_over)
        if is_over:
            return
        if counted and visitors.until is None:
            visitors.until = time.monotonic() + SHOW_S
        if pipeline.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"the pipeline has not counted all visits; it said:\n{log.read_text()}")
        time.sleep(LOOK_EVERY_S)


def _counts(database: Path) -> Counts:
    """What the pipeline has written so far."""
    if not database.exists():
        return {}
    with (
        closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection,
        suppress(sqlite3.OperationalError),
    ):
        rows = connection.execute("SELECT organisation, day, visits FROM visits_by_day").fetchall()
        return {(organisation, day): visits for organisation, day, visits in rows}
    return {}  # the table is not there yet


class Board:
    """A table in place on a terminal; elsewhere a line now and then."""

    def __init__(self) -> None:
        self._on_terminal = sys.stdout.isatty()
        self._height = 0
        self._last: Counts = {}
        self._said_at = -SAY_EVERY_S

    def show(self, counts: Counts, title: str, is_last: bool) -> None:
        if counts == self._last and not self._on_terminal and not is_last:
            return
        if self._on_terminal:
            lines = [title, *self._table(counts)]
            sys.stdout.write(f"\x1b[{self._height}F" if self._height else "\n")
            sys.stdout.write("".join(f"\x1b[2K{line}\n" for line in lines))
            self._height = len(lines)
        elif is_last or time.monotonic() - self._said_at >= SAY_EVERY_S:
            _say("\n".join(["", title, *self._table(counts)]))
            self._said_at = time.monotonic()
        sys.stdout.flush()
        self._last = dict(counts)

    def _table(self, counts: Counts) -> Iterator[str]:
        days = sorted({day for _, day in counts})
        yield f"{'':20}" + "".join(f"{day:>12}" for day in days)
        for organisation in sorted({organisation for organisation, _ in counts}):
            cells = [(counts.get((organisation, day), 0), self._last.get((organisation, day), 0)) for day in days]
            yield f"{organisation:20}" + "".join(f"{now:>11}{'*' if now != before else ' '}" for now, before in cells)


def _show_topics(bootstrap: str) -> None:
    """The same counts in a compacted topic, and what could not be read."""
    shown = ("--from-beginning", "--timeout-ms", "3000", "--bootstrap-server", bootstrap)
    _run("consume", "--topic", "visits-by-day", "--max-messages", "5", "--property", "print.key=true", *shown)
    dead = ("--property", "print.headers=true", "--max-messages", "1")
    _run("consume", "--topic", "visits.dead-letters", *dead, *shown)


def _run(*arguments: str) -> None:
    if _start(*arguments).wait(WAIT_S):
        raise SystemExit("that failed: the reason is above")


def _start(*arguments: str, stdout: int | None = None) -> subprocess.Popen[str]:
    _say(f"\n$ moldau {shlex.join(arguments)}")
    command = [MOLDAU, *arguments]
    errors = subprocess.STDOUT if stdout not in (None, subprocess.PIPE) else None
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=errors, text=True, env=os.environ)


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    process.wait(WAIT_S)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
