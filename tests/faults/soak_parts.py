"""The parts of the soak of pipelines: a writer to PostgreSQL, runs of pipelines that are begun again whenever they end,
and the memory and the files that they take."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from tests.pipelines.postgres_server import Server

START_PAUSE_S = 1.0
STOP_TIMEOUT_S = 120.0
LIVE_ROWS = 1500
"""Rows that the table has once it has grown: from then on as many are deleted as are inserted."""
CUSTOMERS = 50
TOWNS = ("Brno", "Plzen", "Praha", "Tabor", "Zlin")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

SCHEMA = (
    "CREATE TABLE orders (id INT8 PRIMARY KEY, customer INT, amount NUMERIC(10, 2), version INT, changed TIMESTAMPTZ)",
    "ALTER TABLE orders REPLICA IDENTITY FULL",
    "CREATE TABLE journal (id BIGINT, version INT, op TEXT, customer INT, changed TIMESTAMPTZ)",
    """CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF TG_OP = 'DELETE' THEN
            INSERT INTO journal VALUES (OLD.id, OLD.version, 'd', OLD.customer, OLD.changed);
            RETURN OLD;
        END IF;
        NEW.changed := clock_timestamp();
        INSERT INTO journal VALUES
            (NEW.id, NEW.version, CASE TG_OP WHEN 'INSERT' THEN 'c' ELSE 'u' END, NEW.customer, NEW.changed);
        RETURN NEW;
    END $$""",
    "CREATE TRIGGER note BEFORE INSERT OR UPDATE OR DELETE ON orders FOR EACH ROW EXECUTE FUNCTION note()",
)
"""The table that is captured, and the truth about it: a trigger notes each change in the transaction that makes it."""


def town(customer: int) -> str:
    return TOWNS[customer % len(TOWNS)]


class Writer(threading.Thread):
    """A program that inserts, updates and deletes orders, some tens of rows a second, and waits for a database that is
    away."""

    def __init__(self, server: Server, seed: int, per_second: float) -> None:
        super().__init__(name="writer", daemon=True)
        self._server = server
        self._random = random.Random(seed)
        self._pause_s = 2.5 / per_second
        self._next = 0
        self.reconnects = 0
        self.stopped = threading.Event()

    def run(self) -> None:
        while not self.stopped.is_set():
            try:
                with psycopg.connect(self._server.url, connect_timeout=5) as database:
                    self._write(database)
            except (psycopg.OperationalError, psycopg.InterfaceError):
                self.reconnects += 1
                self.stopped.wait(0.5)

    def _write(self, database: "psycopg.Connection[tuple[object, ...]]") -> None:
        live = [row[0] for row in database.execute("SELECT id FROM orders ORDER BY id").fetchall()]
        # What a transaction did whose answer was lost is read, not guessed: ids are never given twice.
        (last,) = database.execute("SELECT coalesce(max(id), 0) FROM journal").fetchone() or (0,)
        self._next = int(str(last)) + 1
        database.commit()
        while not self.stopped.wait(self._pause_s):
            for _ in range(self._random.randint(1, 4)):
                self._change(database, live)
            database.commit()

    def _change(self, database: "psycopg.Connection[tuple[object, ...]]", live: list[object]) -> None:
        what = self._random.random()
        if what < 0.4 or not live:
            values = (self._next, self._random.randrange(CUSTOMERS), self._random.randrange(100_000) / 100)
            database.execute("INSERT INTO orders VALUES (%s, %s, %s, 1)", values)
            live.append(self._next)
            self._next += 1
        elif what < 0.75 or len(live) < LIVE_ROWS:
            amount = self._random.randrange(100_000) / 100
            query = "UPDATE orders SET amount = %s, customer = %s, version = version + 1 WHERE id = %s"
            database.execute(query, (amount, self._random.randrange(CUSTOMERS), self._random.choice(live)))
        else:
            position = self._random.randrange(len(live))
            database.execute("DELETE FROM orders WHERE id = %s", (live[position],))
            live[position] = live[-1]
            live.pop()


@dataclass(slots=True)
class PipelineProcess:
    """Runs of one pipeline's file; `keep` begins a run again when it has ended, as a supervisor of a machine would."""

    file: Path
    process: "subprocess.Popen[bytes] | None" = None
    runs: int = 0
    ends: list[str] = field(default_factory=list)
    """What was said by runs that ended by themselves."""

    @property
    def name(self) -> str:
        return self.file.stem

    @property
    def log(self) -> Path:
        return self.file.with_suffix(".log")

    @property
    def storage(self) -> Path:
        return self.file.parent / ".moldau" / self.name

    @property
    def pid(self) -> int:
        return self.process.pid if self.process is not None else 0

    def keep(self) -> None:
        """Begin a run if none goes on. An end that nobody asked for is noted."""
        if self.process is not None and self.process.poll() is None:
            return
        if self.process is not None:
            said = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
            self.ends.append(f"exit {self.process.returncode}: {said[-1][:300] if said else ''}")
            time.sleep(START_PAUSE_S)
        self.start()

    def start(self) -> None:
        self.runs += 1
        command = [sys.executable, "-m", "moldau", "pipeline", "run", str(self.file)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=self.file.parent, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )

    def kill9(self) -> None:
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.process = None

    def terminate(self) -> int:
        """The exit code after SIGTERM to the group."""
        code = 0
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            code = self.process.wait(STOP_TIMEOUT_S)
        self.process = None
        return code


def tree(pid: int) -> Iterator[int]:
    """A process and all below it."""
    try:
        below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return
    yield pid
    for child in below:
        yield from tree(int(child))


def resident_mb(pid: int) -> float:
    """Memory of a process and all below it that is theirs alone: what workers share with their parent counts once."""
    total = 0
    for each in tree(pid) if pid else ():
        try:
            _, resident, shared, *_ = Path(f"/proc/{each}/statm").read_text().split()
        except OSError:
            continue
        total += int(resident) - int(shared)
    return total * PAGE_BYTES / 2**20


@dataclass(frozen=True, slots=True)
class Files:
    """How much is in a directory."""

    count: int
    bytes: int

    @classmethod
    def of(cls, directory: Path) -> "Files":
        count = size = 0
        for parent, _, names in os.walk(directory):
            for name in names:
                try:
                    size += os.stat(os.path.join(parent, name)).st_size
                except OSError:
                    continue
                count += 1
        return cls(count, size)

    def __str__(self) -> str:
        return f"{self.count} files, {self.bytes / 2**20:.1f} MB"
