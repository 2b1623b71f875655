"""The directory of a pipeline, its lock and what a run leaves there."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from moldau.pipelines.run.storage import Busy, RunLock, Storage

HOLD = """
import sys, pathlib
from moldau.pipelines.run.storage import Storage
with Storage(pathlib.Path(sys.argv[1])).lock():
    print("held", flush=True)
    sys.stdin.read()
"""


def _holder(path: Path) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_one_run_at_a_time(tmp_path: Path) -> None:
    storage = Storage(tmp_path / "visits")
    with storage.lock():
        with pytest.raises(Busy, match=f"process {os.getpid()}"), storage.lock():
            pass
        assert storage.runner() == os.getpid()
    assert storage.runner() is None
    with storage.lock():
        pass


def test_the_lock_of_a_killed_run_is_free_at_once(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    holder = _holder(tmp_path)
    assert storage.runner() == holder.pid
    with pytest.raises(Busy), storage.lock():
        pass
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert storage.runner() is None
    with storage.lock():
        assert storage.runner() == os.getpid()


def test_a_run_waits_for_the_java_that_a_killed_one_left(tmp_path: Path) -> None:
    java = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    (tmp_path / "run.lock").write_text(f'{{"pid": 1, "java": {java.pid}}}')
    said: list[str] = []

    def end(line: str) -> None:
        said.append(line)
        assert java.stdin is not None
        java.stdin.close()
        java.wait()

    with Storage(tmp_path).lock() as lock:
        assert isinstance(lock, RunLock)
        lock.await_orphan(end)
    assert len(said) == 1
    assert str(java.pid) in said[0]


def test_nobody_runs_where_nobody_ever_ran(tmp_path: Path) -> None:
    storage = Storage(tmp_path / "none")
    assert storage.runner() is None
    assert storage.read_status() is None
    assert storage.checkpoints() == []


def test_the_status_is_replaced_as_a_whole(tmp_path: Path) -> None:
    storage = Storage(tmp_path / "visits")
    storage.write_status({"state": "running"})
    storage.write_status({"state": "stopped"})
    assert storage.read_status() == {"state": "stopped"}
    assert [entry.name for entry in storage.path.iterdir()] == ["status.json"]


def test_a_checkpoint_is_forgotten_and_the_others_stay(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    for name in ("table", "topic"):
        (storage.checkpoint(name) / "offsets").mkdir(parents=True)
    storage.forget("table")
    storage.forget("never there")
    assert storage.checkpoints() == ["topic"]
    assert {entry.name for entry in tmp_path.iterdir()} == {"checkpoints"}


def test_schemas_that_were_found_are_forgotten_as_a_whole(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    storage.forget_schemas()
    storage.schemas.mkdir()
    (storage.schemas / "visits.json").write_text("{}")
    storage.forget_schemas()
    assert list(storage.schemas.iterdir()) == []
