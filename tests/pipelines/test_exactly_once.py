"""kill -9 of a run at random points, and a batch that Spark does again: what the sinks hold in the end.

All five sinks of one pipeline add rows without a key, so that a row written twice is seen. `make faults` runs it with
300,000 records and three kills.
"""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pyarrow.parquet  # type: ignore[import-untyped]  # it has no type information
from deltalake import DeltaTable

from tests.pipelines.clusters import Cluster, Record
from tests.pipelines.postgres_server import Server
from tests.seeds import seed_of

RECORDS = int(os.environ.get("MOLDAU_LEDGER_RECORDS", "20000"))
KILLS = int(os.environ.get("MOLDAU_LEDGER_KILLS", "1"))
BATCHES = 6
SENT_AT_ONCE = 20_000
PARTITIONS = 4
TIMEOUT_S = 300.0
LOOK_S = 0.02

PIPELINE = """
name: ledger
bootstrap: {bootstrap}
storage: state
sources:
  events: {{topic: {topic}, schema: id INT, required: [id], max_per_batch: {batch}}}
sinks:
  postgres: {{from: events, postgres: "{postgres}", table: ledger}}
  sqlite: {{from: events, sqlite: ledger.db, table: ledger}}
  parquet: {{from: events, parquet: ledger.parquet}}
  delta: {{from: events, delta: ledger.delta}}
  topic: {{from: events, topic: {topic}-out, create: {{partitions: 4}}}}
"""


class Runs:
    """`moldau pipeline run --once`, each in a process group of its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._log = directory / "runs.log"

    def start(self) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "moldau", "pipeline", "run", "pipeline.yaml", "--once"]
        with self._log.open("ab") as log:
            return subprocess.Popen(command, cwd=self._directory, stdout=log, stderr=log, start_new_session=True)

    def to_the_end(self) -> None:
        assert self.start().wait(TIMEOUT_S) == 0, self._log.read_text()[-3000:]

    def kill_when(self, condition: Callable[[], bool]) -> None:
        run = self.start()
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            assert run.poll() is None, f"it ended before it was killed: {self._log.read_text()[-3000:]}"
            assert time.monotonic() < deadline, self._log.read_text()[-3000:]
            time.sleep(LOOK_S)
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()


def in_sqlite(directory: Path) -> list[int]:
    with suppress(sqlite3.OperationalError), closing(sqlite3.connect(directory / "ledger.db")) as database:
        return [number for (number,) in database.execute("SELECT id FROM ledger")]
    return []  # no table yet


def test_killed_runs_and_replayed_batches_leave_every_row_once(
    moldau_cluster_only: Cluster, server: Server, tmp_path: Path
) -> None:
    cluster, seed = moldau_cluster_only, seed_of(__name__)
    topic = cluster.new_topic("ledger", PARTITIONS)
    for first in range(0, RECORDS, SENT_AT_ONCE):
        numbers = range(first, first + SENT_AT_ONCE)
        cluster.send(topic, [Record(b'{"id":%d}' % number, partition=number % PARTITIONS) for number in numbers])
    names = {"bootstrap": cluster.bootstrap, "topic": topic, "postgres": server.url}
    text = PIPELINE.format(**names, batch=RECORDS // BATCHES)
    (tmp_path / "pipeline.yaml").write_text(text)
    runs = Runs(tmp_path)
    for written in sorted(random.Random(seed).sample(range(1, RECORDS * 9 // 10), KILLS)):
        runs.kill_when(lambda written=written: len(in_sqlite(tmp_path)) >= written)  # type: ignore[misc]
    runs.to_the_end()
    check(cluster, server, f"{topic}-out", tmp_path)
    for sink in ("postgres", "sqlite", "parquet", "delta", "topic"):
        forget_the_last_commit(tmp_path / "state" / "checkpoints" / sink / "commits")
    runs.to_the_end()
    check(cluster, server, f"{topic}-out", tmp_path)


def forget_the_last_commit(commits: Path) -> None:
    """As if the run had been killed between the write of the last batch and the note of it: Spark does it again."""
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink()


def check(cluster: Cluster, server: Server, topic: str, directory: Path) -> None:
    """Four sinks hold every row once, the topic holds every row."""
    every = list(range(RECORDS))
    assert sorted(number for (number,) in server.rows("SELECT id FROM ledger")) == every
    assert sorted(in_sqlite(directory)) == every
    assert sorted(committed_parquet(directory / "ledger.parquet")) == every
    assert sorted(DeltaTable(directory / "ledger.delta").to_pyarrow_table()["id"].to_pylist()) == every
    assert sorted({int(record.value[6:-1]) for record in cluster.read(topic) if record.value}) == every


def committed_parquet(directory: Path) -> list[int]:
    """As Spark reads it: the files that the sink's own log names, and no others."""
    names: set[str] = set()
    for entry in (directory / "_spark_metadata").iterdir():
        if not entry.name.startswith("."):
            names.update(json.loads(line)["path"] for line in entry.read_text().splitlines()[1:])
    files = [directory / Path(name).name for name in names]
    return [number for file in files for number in pyarrow.parquet.read_table(file)["id"].to_pylist()]
