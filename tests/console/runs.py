"""A run of a pipeline that is stood in for by a process which holds its lock, and the status that it has written."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from moldau.pipelines.run.progress import Figures

PIPELINE = """name: visits
sources:
  clicks: {topic: clicks, schema: page STRING}
views:
  counts: SELECT page, count(*) AS n FROM clicks GROUP BY page
sinks:
  by-page: {from: counts, topic: by-page, key: page, newest_by: none}
  table: {from: counts, postgres: "postgresql://me:secret@db/x", table: t, key: page, newest_by: none}
"""
RUN = """
import signal, sys, time
from dataclasses import asdict
from pathlib import Path
from moldau.pipelines.run.progress import Figures
from moldau.pipelines.run.storage import Storage
ended = []
signal.signal(signal.SIGTERM, lambda *_: ended.append(1) if sys.argv[2] == "willing" else None)
storage = Storage(Path(sys.argv[1]))
with storage.lock():
    print("ready", flush=True)
    while not ended:
        signal.pause()
"""
QUERY = Figures(
    "visits.by-page",
    state="running",
    batch=3,
    rows=120,
    rows_per_second=40.5,
    lag=7,
    batch_ms=900,
    state_rows=11,
    state_bytes=2048,
)


def storage_of(file: Path) -> Path:
    return file.parent / ".moldau" / "visits"


@contextmanager
def run_of(file: Path, manner: str = "willing") -> Iterator["subprocess.Popen[str]"]:
    """A process that has the lock of a run, and its status."""
    command = [sys.executable, "-c", RUN, str(storage_of(file)), manner]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        status = {"pipeline": "visits", "state": "running", "mode": "continuous", "pid": process.pid}
        more = {"started": "2026-11-18T12:00:00", "updated": "2026-11-18T12:01:00", "error": None}
        queries = [{name: getattr(QUERY, name) for name in Figures.__slots__}]
        (storage_of(file) / "status.json").write_text(json.dumps({**status, **more, "queries": queries}))
        yield process
    finally:
        process.kill()
        process.wait()
