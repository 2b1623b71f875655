"""A soak of pipelines: capture of PostgreSQL -> topic -> join with a table -> lakes and a database, while each part is
killed or begun again every few minutes. In the end every sink must be exact, and memory and state bounded.

    python -m tests.faults.pipeline_soak --minutes 60
    python -m tests.faults.pipeline_soak --minutes 5 --every 40 --seed 7       the same choices again

The truth is in the source's own database: a trigger notes each change in the transaction that makes it. Two pipelines
run as processes of their own, and are begun again when they end, as a machine's supervisor would do. Of the sinks one
only adds rows (Iceberg), so that a change that came twice is seen; two have a key and delete (Delta, PostgreSQL); one
counts by the minute in Spark's state. The lakes are read all the while: no reader may see a row twice, or fail.
"""

import argparse
import json
import logging
import random
import shutil
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyiceberg.catalog import load_catalog

from moldau.testing.processes import BrokerProcess, ClusterOfProcesses
from tests.faults.soak_parts import (
    CUSTOMERS,
    SCHEMA,
    TOWNS,
    Files,
    PipelineProcess,
    Writer,
    resident_mb,
    town,
)
from tests.pipelines.clusters import Cluster, Record
from tests.pipelines.postgres_server import Server, ServerProcess

LOOK_S = 1.0
SAMPLE_S = 10.0
SAMPLES_TOLD = 12
LINES_TOLD = 5
READY_TIMEOUT_S = 900.0
"""A loaded machine takes minutes to start two Sparks."""
SETTLE_TIMEOUT_S = 600.0
AWAY_MAX_S = 20.0
"""Seconds that a part is away at most before it is begun again."""
FIRST_ROWS = 200
STATE_ROWS_MAX = 100
"""Bound of the state: a watermark of ten minutes leaves some twelve minutes of counts by five towns."""
LAKE_FILES_MAX = 25
"""Bound of a lake table's data files: they are merged after every ten batches."""
GROWTH_MAX, GROWTH_MB = 1.5, 100.0
"""Bound of memory: the peak of the last quarter beside that of the second, and so much more."""

CAPTURE = """
name: capture
bootstrap: {bootstrap}
trigger: 3 seconds
spark: {{spark.driver.memory: 1g}}
sources:
  orders: {{postgres: "{postgres}", table: orders}}
views:
  changes: SELECT id, customer, amount, version, changed, _op AS op, _lsn AS lsn, _number AS number FROM orders
sinks:
  orders: {{from: changes, topic: orders, key: id, delivery: exactly once, create: {{partitions: 3}}}}
"""

LAKE = """
name: lake
bootstrap: {bootstrap}
trigger: 5 seconds
spark: {{spark.driver.memory: 1g}}
sources:
  changes:
    topic: orders
    schema: >-
      id BIGINT, customer INT, amount DECIMAL(10, 2), version INT, changed TIMESTAMP, op STRING, lsn BIGINT,
      number BIGINT
    required: [id, op]
    watermark: changed 10 minutes
  customers: {{topic: customers, as: table, schema: "customer INT, name STRING, town STRING"}}
views:
  joined: SELECT changes.*, name, town FROM changes JOIN customers USING (customer)
  journal: SELECT id, version, op, town FROM joined
  minutes: |
    SELECT window.start AS minute, town, count(*) AS changes FROM joined WHERE op <> 'd'
    GROUP BY window(changed, '1 minute'), town
sinks:
  orders:
    {{from: joined, delta: lake/orders, key: id, delete_when: op = 'd', newest_by: [lsn, number], compact: 10}}
  journal: {{from: journal, iceberg: web.journal, catalog: {catalog}, compact: 10, history: 10 minutes}}
  copy: {{from: joined, postgres: "{postgres}", table: copy, key: id, delete_when: op = 'd', newest_by: [lsn, number]}}
  minutes: {{from: minutes, postgres: "{postgres}", table: minutes, key: [minute, town]}}
"""


@dataclass(slots=True)
class Figures:
    """What was seen at each sample, by the part's name."""

    at: list[float] = field(default_factory=list)
    memory_mb: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    state_rows: list[int] = field(default_factory=list)
    storage: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    lakes: list[tuple[int, int]] = field(default_factory=list)
    """Data files that the newest version of each lake table has: Delta, Iceberg."""
    faults: Counter[str] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)

    def quarter(self, values: list[float], number: int) -> list[float]:
        """The values of one quarter of the time, 0 to 3."""
        size = max(1, len(values) // 4)
        return values[number * size : (number + 1) * size if number < 3 else len(values)] or [0.0]


class Soak:
    """All parts, what is done to them, and what is found."""

    def __init__(self, directory: Path, seed: int, per_second: float) -> None:
        self.directory = directory
        self.figures = Figures()
        self._random = random.Random(seed)
        self.postgres = ServerProcess()
        self.broker: BrokerProcess = ClusterOfProcesses(directory / "broker", brokers=1)[1]
        catalog = {"type": "sql", "uri": f"sqlite:///{directory}/lake.db", "warehouse": f"file://{directory}/lake"}
        self.catalog = catalog
        (directory / "lake").mkdir()
        names = {
            "bootstrap": self.broker.bootstrap,
            "postgres": self.server.url,
            "catalog": json.dumps(catalog),
        }
        for name, text in (("capture", CAPTURE), ("lake", LAKE)):
            (directory / f"{name}.yaml").write_text(text.format(**names))
        self.pipelines = [PipelineProcess(directory / f"{name}.yaml") for name in ("capture", "lake")]
        self.writer = Writer(self.server, seed, per_second)

    @property
    def server(self) -> Server:
        return self.postgres.server

    # --- from the first row to the last

    def run(self, seconds: float, every_s: float) -> None:
        self._begin()
        deadline = time.monotonic() + seconds
        due = self._choices()
        fault_at, sample_at = time.monotonic() + every_s / 2, time.monotonic()
        while time.monotonic() < deadline:
            self._keep()
            if time.monotonic() >= sample_at:
                self.sample()
                sample_at = time.monotonic() + SAMPLE_S
            if time.monotonic() >= fault_at:
                self._strike(*due[sum(self.figures.faults.values()) % len(due)])
                fault_at = time.monotonic() + every_s
            time.sleep(LOOK_S)
        self.writer.stopped.set()
        self.writer.join()
        self._settle()

    def close(self) -> None:
        self.writer.stopped.set()
        for pipeline in self.pipelines:
            pipeline.kill9()
        self.broker.kill9()
        self.postgres.remove()

    def last_words(self) -> list[str]:
        """The last lines of each run: all that there is to tell of a soak that did not come to its beginning."""
        said = {pipeline.name: pipeline.log.read_text(errors="replace").splitlines() for pipeline in self.pipelines}
        return [f"{name}: {line}" for name, lines in said.items() for line in lines[-LINES_TOLD:]]

    def _begin(self) -> None:
        self.postgres.start()
        self.broker.start()
        self.server.run(*SCHEMA)
        rows = f"SELECT n, n % {CUSTOMERS}, n / 3.0, 1 FROM generate_series(1, {FIRST_ROWS}) n"
        self.server.run(f"INSERT INTO orders {rows}", "UPDATE journal SET op = 'r'")
        cluster = Cluster("moldau", self.broker.bootstrap)
        cluster.make("orders", 3)
        cluster.make("customers", 1, cleanup_policy="compact")
        known = ({"customer": each, "name": f"customer {each}", "town": town(each)} for each in range(CUSTOMERS))
        cluster.send("customers", [Record(json.dumps(row).encode(), str(row["customer"]).encode()) for row in known])
        self._until(lambda: not self.differences(), READY_TIMEOUT_S, "the first rows did not come to the sinks")
        self.writer.start()

    def _settle(self) -> None:
        """Wait until everything is in the sinks, and stop the runs."""
        begun = time.monotonic()
        try:
            self._until(lambda: not self.differences(), SETTLE_TIMEOUT_S, "the sinks are not exact")
        except TimeoutError as error:
            self.figures.complaints.append(str(error))
        tell(f"the sinks had everything {time.monotonic() - begun:.0f} s after the last change")
        self.sample()
        for pipeline in self.pipelines:
            code = pipeline.terminate()
            if code != 0:
                self.figures.complaints.append(f"{pipeline.name} ended with {code} after SIGTERM")
        self.figures.complaints += self.differences()

    def _until(self, condition: Callable[[], bool], timeout_s: float, complaint: str) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{complaint}: {'; '.join(self.differences())}")
            self._keep()
            time.sleep(LOOK_S)

    def _keep(self) -> None:
        for pipeline in self.pipelines:
            pipeline.keep()

    # --- faults

    def _choices(self) -> list[tuple[str, Callable[[], object], Callable[[], None] | None]]:
        """Faults in an order of chance: name, what is done, what mends it."""
        capture, lake = self.pipelines
        every: list[tuple[str, Callable[[], object], Callable[[], None] | None]] = [
            ("broker: kill -9", self.broker.kill9, self.broker.start),
            ("broker: SIGTERM", self.broker.terminate, self.broker.start),
            ("postgres: kill -9", self.postgres.kill9, self.postgres.start),
            ("postgres: stopped", self.postgres.stop, self.postgres.start),
            ("capture: kill -9", capture.kill9, None),
            ("capture: SIGTERM", capture.terminate, None),
            ("lake: kill -9", lake.kill9, None),
            ("lake: SIGTERM", lake.terminate, None),
        ]
        self._random.shuffle(every)
        return every

    def _strike(self, name: str, harm: Callable[[], object], mend: Callable[[], None] | None) -> None:
        self.figures.faults[name] += 1
        code = harm()
        if isinstance(code, int) and code != 0:
            self.figures.complaints.append(f"{name}: exit code {code}")
        if mend is not None:
            away = self._random.uniform(0, AWAY_MAX_S)
            tell(f"{name}, away for {away:.0f} s")
            time.sleep(away)
            mend()
        else:
            tell(name)

    # --- what is in the sinks

    def differences(self) -> list[str]:
        """What the sinks have too much or lack; none if all is exact."""
        try:
            orders = Counter(self.server.rows("SELECT id, customer, amount, version FROM orders"))
            journal = Counter(
                (number, version, op, town(customer))
                for number, version, op, customer in self.server.rows("SELECT id, version, op, customer FROM journal")
            )
            minutes = Counter(
                (minute, town(customer))
                for minute, customer in self.server.rows(
                    "SELECT date_trunc('minute', changed), customer FROM journal WHERE op <> 'd'"
                )
            )
            copied = Counter(self.server.rows("SELECT id, customer, amount, version FROM copy"))
            counted = {(at, where): n for at, where, n in self.server.rows("SELECT minute, town, changes FROM minutes")}
            lake = Counter(self._delta("id", "customer", "amount", "version"))
            noted = Counter(self._iceberg())
        except (psycopg.Error, LookupError, OSError) as error:
            return [f"a sink cannot be read: {error}"]
        compared = {"copy": (copied, orders), "orders": (lake, orders), "journal": (noted, journal)}
        found = [_difference(name, there, due) for name, (there, due) in compared.items() if there != due]
        return found + ([_difference("minutes", Counter(counted), minutes)] if counted != dict(minutes) else [])

    def _delta(self, *columns: str) -> list[tuple[Any, ...]]:
        path = self.directory / "lake" / "orders"
        if not DeltaTable.is_deltatable(str(path)):
            raise LookupError("there is no Delta table yet")
        found = DeltaTable(path).to_pyarrow_table(columns=list(columns))
        return list(zip(*(found[name].to_pylist() for name in columns), strict=True))

    def _iceberg(self) -> list[tuple[Any, ...]]:
        catalog = load_catalog("default", **self.catalog)
        if not catalog.table_exists("web.journal"):
            raise LookupError("there is no Iceberg table yet")
        found = catalog.load_table("web.journal").scan().to_arrow()
        columns = [found[name].to_pylist() for name in ("id", "version", "op", "town")]
        return list(zip(*columns, strict=True))

    # --- figures

    def sample(self) -> None:
        """Measure, read the lakes, and say so now and then."""
        figures = self.figures
        figures.at.append(time.monotonic())
        for name, pid in [
            ("broker", self.broker.pid if self.broker.is_running else 0),
            ("postgres", self.postgres.pid),
            *((pipeline.name, pipeline.pid) for pipeline in self.pipelines),
        ]:
            figures.memory_mb[name].append(resident_mb(pid))
        for pipeline in self.pipelines:
            figures.storage[pipeline.name].append(Files.of(pipeline.storage).count)
        figures.state_rows.append(self._state_rows())
        try:
            self._read_lakes()
        except (OSError, ValueError, LookupError, DeltaError) as error:
            figures.complaints.append(f"a reader failed: {error!r}")
        if len(figures.at) % SAMPLES_TOLD == 0:
            memory = ", ".join(f"{name} {values[-1]:.0f}" for name, values in figures.memory_mb.items())
            tell(f"memory in MB: {memory}; state {figures.state_rows[-1]} rows; files of lakes {figures.lakes[-1]}")

    def _read_lakes(self) -> None:
        """Read the lakes as any program might at any time."""
        figures = self.figures
        twice = [row for row, times in Counter(self._iceberg()).items() if times > 1]
        twice += [row for row, times in Counter(self._delta("id")).items() if times > 1]
        if twice:
            figures.complaints.append(f"a reader saw rows twice: {twice[:3]}")
        table = load_catalog("default", **self.catalog).load_table("web.journal")
        files = len(DeltaTable(self.directory / "lake" / "orders").file_uris())
        figures.lakes.append((files, len(list(table.scan().plan_files()))))

    def _state_rows(self) -> int:
        status = json.loads((self.pipelines[1].storage / "status.json").read_text())
        found: int = max((query.get("state_rows") or 0 for query in status.get("queries", [])), default=0)
        return found

    def report(self) -> list[str]:
        """The figures as lines; complaints about bounds are added to the others."""
        figures = self.figures
        lines = [f"faults: {sum(figures.faults.values())} ({', '.join(f'{k} {n}' for k, n in figures.faults.items())})"]
        (changes,) = self.server.rows("SELECT count(*) FROM journal")[0]
        lines.append(f"changes captured: {changes}; the writer was cut off {self.writer.reconnects} times")
        for pipeline in self.pipelines:
            lines.append(f"{pipeline.name}: {pipeline.runs} runs, {len(pipeline.ends)} ended by themselves")
            lines += [f"    {n} times {end}" for end, n in Counter(pipeline.ends).most_common(5)]
        for name, values in figures.memory_mb.items():
            early, late = max(figures.quarter(values, 1)), max(figures.quarter(values, 3))
            lines.append(f"memory of {name}: peak {max(values):.0f} MB; second quarter {early:.0f}, last {late:.0f}")
            if late > early * GROWTH_MAX + GROWTH_MB:
                figures.complaints.append(f"memory of {name} grows: {early:.0f} MB, then {late:.0f} MB")
        lines.append(f"state: at most {max(figures.state_rows)} rows, {figures.state_rows[-1]} in the end")
        if max(figures.state_rows) > STATE_ROWS_MAX:
            figures.complaints.append(f"the state grows: {max(figures.state_rows)} rows of {len(TOWNS)} towns")
        for name, counts in figures.storage.items():
            whole = [float(count) for count in counts]
            early, late = max(figures.quarter(whole, 1)), max(figures.quarter(whole, 3))
            lines.append(f"storage of {name}: second quarter {early:.0f} files, last {late:.0f}")
        for name in ("orders", "web/journal"):
            lines.append(f"lake {name}: {Files.of(self.directory / 'lake' / name)}")
        delta, iceberg = figures.lakes[-1]
        peak = [max(pair[side] for pair in figures.lakes) for side in (0, 1)]
        if max(peak) > LAKE_FILES_MAX:
            figures.complaints.append(f"small files are not merged: {peak[0]} in Delta, {peak[1]} in Iceberg")
        lines.append(f"data files of the newest version: Delta {delta} (peak {peak[0]}), Iceberg {iceberg} ({peak[1]})")
        query = "SELECT slot_name, pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn) FROM pg_replication_slots"
        kept = ", ".join(f"{slot} {int(size or 0) / 2**20:.1f} MB" for slot, size in self.server.rows(query))
        lines.append(f"write-ahead log that slots keep: {kept}")
        return lines


def _difference(name: str, there: "Counter[Any]", due: "Counter[Any]") -> str:
    more, less = there - due, due - there
    return f"{name}: {more.total()} too many {list(more)[:3]}, {less.total()} lacking {list(less)[:3]}"


def tell(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)  # noqa: T201  a program


def run(seed: int, seconds: float, every_s: float, per_second: float, keep: Path | None = None) -> list[str]:
    """Complaints about what was found; none if all was exact and bounded."""
    directory = Path(tempfile.mkdtemp(prefix="moldau-soak-"))
    tell(f"seed {seed}, {seconds / 60:.0f} minutes, a fault every {every_s:.0f} s, in {directory}")
    soak = Soak(directory, seed, per_second)
    try:
        try:
            soak.run(seconds, every_s)
        except TimeoutError as error:
            soak.figures.complaints.append(str(error))
        for line in soak.report() if soak.figures.at else soak.last_words():
            tell(line)
        return soak.figures.complaints
    finally:
        soak.close()
        if soak.figures.complaints and keep is not None:
            shutil.copytree(directory, keep / directory.name, dirs_exist_ok=True)
        shutil.rmtree(directory, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="pipeline_soak", description="soak of pipelines with faults")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--every", type=float, default=120.0, metavar="SECONDS", help="time between two faults")
    parser.add_argument("--rows", type=float, default=25.0, metavar="N", help="changes per second")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--keep", type=Path, help="directory for what a failed soak leaves")
    given = parser.parse_args()
    logging.getLogger("pyiceberg").setLevel(logging.ERROR)
    complaints = run(given.seed, given.minutes * 60, given.every, given.rows, given.keep)
    for complaint in complaints:
        tell(f"WRONG: {complaint}")
    tell("exact and bounded" if not complaints else f"{len(complaints)} complaints")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
