"""`moldau pipeline`: what needs no Spark in this process, and three runs in processes of their own."""

import importlib.util
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from moldau.__main__ import main
from moldau.pipelines.run.storage import Storage
from tests.pipelines.clusters import Cluster

TIMEOUT_S = 300.0

PIPELINE = """
name: numbers
bootstrap: {bootstrap}
storage: state
sources:
  numbers:
    topic: {topic}
    schema: n INT
    required: [n]
    max_per_batch: 50
sinks:
  table: {{from: numbers, sqlite: out.db, table: numbers}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "numbers.yaml"
    made.write_text(PIPELINE.format(bootstrap="127.0.0.1:1", topic="numbers"))
    return made


Said = tuple[int, str, str]
"""Exit code, output, errors."""


@pytest.fixture
def tool(capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    def run(*arguments: object) -> Said:
        code = main(["pipeline", *map(str, arguments)])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


# --- in this process


def test_a_sound_file_is_said_to_be_sound(tool: Callable[..., Said], file: Path) -> None:
    assert tool("check", "--static", file) == (0, f"{file}: numbers is sound: 1 sources, 0 views, 1 sinks\n", "")


def test_each_problem_is_one_line(tool: Callable[..., Said], file: Path) -> None:
    file.write_text(file.read_text().replace("from: numbers", "from: numbres").replace("schema:", "shema:"))
    code, output, errors = tool("check", "--static", file)
    assert (code, output) == (1, "")
    assert [line.split(": ")[0] for line in errors.splitlines()] == [f"{file}:8", f"{file}:12"]


def test_problems_are_told_to_programs(tool: Callable[..., Said], file: Path) -> None:
    sound = json.loads(tool("check", "--static", "--json", file)[1])
    assert sound == {"file": str(file), "isSound": True, "problems": [], "warnings": []}
    file.write_text(file.read_text().replace("from: numbers", "from: numbres"))
    code, output, errors = tool("check", "--static", "--json", file)
    (told,) = json.loads(output)["problems"]
    assert (code, errors) == (1, "")
    assert (told["file"], told["line"]) == (str(file), 12)
    assert "numbres" in told["problem"]


def test_a_cluster_that_does_not_answer_is_a_problem_before_spark_starts(tool: Callable[..., Said], file: Path) -> None:
    code, _, errors = tool("run", "--once", file)
    assert code == 1
    assert errors.startswith(f"{file}:")
    assert "no broker answers at 127.0.0.1:1" in errors


def test_options_may_be_set_on_the_command_line(tool: Callable[..., Said], file: Path) -> None:
    settings = ("--set", "name=others", "--set", "sources.numbers.max_per_batch=7")
    assert tool("check", "--static", file, *settings)[0] == 0
    code, _, errors = tool("check", "--static", file, "--set", "sources.numbers.max_per_batch=many")
    assert (code, errors) == (
        1,
        "command line:1: source 'numbers': 'max_per_batch' must be a whole number, 0 or more, not 'many'\n",
    )
    assert "did you mean 'trigger'?" in tool("check", "--static", file, "--set", "triger=1 second")[2]
    assert "did you mean 'table'?" in tool("check", "--static", file, "--set", "sinks.tabel.key=n")[2]


def test_without_the_extra_the_command_says_what_to_install(
    tool: Callable[..., Said], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pyspark" else found(name))
    expected = "error: pipelines need PySpark: pip install 'moldau[pipelines]'\n"
    assert tool("run", file) == (1, "", expected)


def test_without_the_yaml_package_too(file: Path) -> None:
    program = "import sys; sys.modules['yaml'] = None; from moldau.__main__ import main; sys.exit(main(sys.argv[1:]))"
    ended = subprocess.run(
        [sys.executable, "-c", program, "pipeline", "status", file], capture_output=True, text=True, check=False
    )
    expected = "error: pipelines need the package 'yaml': pip install 'moldau[pipelines]'\n"
    assert (ended.returncode, ended.stderr) == (1, expected)


def test_a_static_check_starts_no_spark_and_imports_none(file: Path) -> None:
    program = (
        "import sys; from moldau.__main__ import main; "
        "code = main(sys.argv[1:]); print('pyspark' in sys.modules); sys.exit(code)"
    )
    command = [sys.executable, "-c", program, "pipeline", "check", "--static", str(file)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout.splitlines()[-1]) == (0, "False"), ended.stderr


def test_nothing_runs_and_nothing_is_stopped(tool: Callable[..., Said], file: Path) -> None:
    assert tool("status", file) == (0, "numbers: never run\n", "")
    assert tool("stop", file) == (0, "numbers is not running\n", "")


def test_a_reset_must_be_meant(tool: Callable[..., Said], file: Path) -> None:
    checkpoint = Storage(file.parent / "state").checkpoint("table")
    checkpoint.mkdir(parents=True)
    code, output, errors = tool("reset", file)
    assert (code, output) == (1, "table: would begin anew; rows are added to those that are there: empty it first\n")
    assert "--yes" in errors
    assert checkpoint.exists()
    assert "did you mean 'table'?" in tool("reset", file, "--sink", "tabel")[2]


def test_a_running_pipeline_is_not_reset(tool: Callable[..., Said], file: Path) -> None:
    storage = Storage(file.parent / "state")
    storage.checkpoint("table").mkdir(parents=True)
    with storage.lock():
        code, _, errors = tool("reset", file, "--yes")
        assert (code, errors) == (1, f"error: the pipeline is running already (process {os.getpid()})\n")
        assert tool("status", file)[1] == f"numbers: starting (process {os.getpid()})\n"
    assert storage.checkpoint("table").exists()


def test_the_status_of_a_run_that_was_killed_says_so(tool: Callable[..., Said], file: Path) -> None:
    status = {"pipeline": "numbers", "mode": "once", "pid": 1, "state": "running", "queries": [], "error": None}
    times = {"started": "2026-11-16T05:00:00.000+00:00", "updated": "2026-11-16T05:01:00.000+00:00"}
    Storage(file.parent / "state").write_status({**status, **times})
    code, output, _ = tool("status", file)
    assert code == 1
    assert output.startswith("numbers: killed (once), since 2026-11-16T05:00:00, as of 2026-11-16T05:01:00 UTC\n")
    assert json.loads(tool("status", file, "--json")[1])["state"] == "killed"


@pytest.mark.parametrize("time_given", ["yesterday", "2026-13-01"])
def test_a_time_that_is_none_is_refused(tool: Callable[..., Said], file: Path, time_given: str) -> None:
    code, _, errors = tool("replay", file, "--from", time_given, "--to", "sqlite=x.db")
    assert code == 1
    assert errors.count("\n") == 1
    assert "error: " in errors


# --- in processes


@contextmanager
def _running(file: Path, *arguments: str) -> "Iterator[subprocess.Popen[str]]":
    command = [sys.executable, "-m", "moldau", "pipeline", "run", str(file), "--master", "local[2]", *arguments]
    log = (file.parent / "run.log").open("a")
    process = subprocess.Popen(command, stdout=log, stderr=log, text=True, start_new_session=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        log.close()


def _until(condition: Callable[[], bool], process: "subprocess.Popen[str]", file: Path) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        log = (file.parent / "run.log").read_text()
        assert process.poll() is None, f"the run ended with {process.returncode}:\n{log}"
        assert time.monotonic() < deadline, f"waited in vain:\n{log}"
        time.sleep(0.1)


def _numbers(file: Path) -> list[int]:
    """Not opened for reading only: what a killed run left half written has to be undone before it can be read."""
    try:
        with sqlite3.connect(f"file:{file.parent / 'out.db'}?mode=rw", uri=True) as connection:
            return sorted(n for (n,) in connection.execute("SELECT n FROM numbers"))
    except sqlite3.OperationalError:
        return []


def _file(tmp_path: Path, cluster: Cluster, count: int) -> tuple[Path, str]:
    topic = cluster.new_topic("numbers", partitions=2)
    _send(cluster, topic, range(count))
    made = tmp_path / "numbers.yaml"
    made.write_text(PIPELINE.format(bootstrap=cluster.bootstrap, topic=topic))
    return made, topic


def _send(cluster: Cluster, topic: str, numbers: range) -> None:
    cluster.send(topic, [json.dumps({"n": number}) for number in numbers])


def _status(file: Path) -> dict[str, Any]:
    return Storage(file.parent / "state").read_status() or {"state": "none", "queries": [{"rows": 0}]}


def test_a_run_once_reads_all_there_is_and_ends(
    moldau_cluster_only: Cluster, tmp_path: Path, tool: Callable[..., Said]
) -> None:
    file, _ = _file(tmp_path, moldau_cluster_only, 120)
    with _running(file, "--once") as process:
        assert process.wait(TIMEOUT_S) == 0, (tmp_path / "run.log").read_text()
    assert _numbers(file) == list(range(120))
    said = (tmp_path / "run.log").read_text().splitlines()
    assert said[0] == "numbers.table: to sqlite, exactly once"
    [ended] = [line for line in said if re.match(r"numbers\.table +ended ", line)]  # either query may end first
    assert re.fullmatch(r"numbers\.table +ended .* 120 rows .* lag 0 .*", ended), said
    code, output, _ = tool("status", file)
    assert code == 0
    assert output.startswith("numbers: finished (once)")


def test_a_run_is_killed_begun_again_and_stopped_alone_or_with_its_group_and_every_row_is_there_once(
    moldau_cluster_only: Cluster, tmp_path: Path, tool: Callable[..., Said]
) -> None:
    file, topic = _file(tmp_path, moldau_cluster_only, 1000)
    with _running(file, "--set", "trigger=1 millisecond") as process:
        _until(lambda: len(_numbers(file)) >= 50, process, file)
        process.kill()
        process.wait()
    before = len(_numbers(file))
    assert tool("status", file)[1].startswith("numbers: killed (continuous)")

    with _running(file) as process:
        _until(lambda: len(_numbers(file)) >= 1000, process, file)
        _send(moldau_cluster_only, topic, range(1000, 1100))
        _until(lambda: len(_numbers(file)) >= 1100, process, file)
        _until(lambda: _status(file)["queries"][0]["rows"] >= 1100 - before - 50, process, file)
        code, output, _ = tool("status", file)
        assert code == 0
        assert output.startswith(f"numbers: running (continuous, process {process.pid})")
        assert f"(process {process.pid})" in tool("run", file)[2]
        assert tool("stop", file) == (0, "numbers is stopped\n", "")
        assert process.wait(TIMEOUT_S) == 0
    assert _status(file)["state"] == "stopped"
    assert _numbers(file) == list(range(1100))

    # as systemd, timeout and many supervisors do it: Java hears it, too
    with _running(file) as process:
        _send(moldau_cluster_only, topic, range(1100, 1200))
        _until(lambda: len(_numbers(file)) >= 1200, process, file)
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(TIMEOUT_S) == 0, (tmp_path / "run.log").read_text()
    assert _status(file)["state"] == "stopped"
    assert _numbers(file) == list(range(1200))


def test_a_run_once_that_is_interrupted_says_so_by_its_exit_code(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from moldau.pipelines.run import runner

    monkeypatch.setattr("moldau.cli.pipeline._checked", lambda *_: None)
    monkeypatch.setattr(runner, "run", lambda *_: runner.Stop(signal.SIGINT))
    assert main(["pipeline", "run", str(file), "--once"]) == 130
    assert main(["pipeline", "run", str(file)]) == 0


def test_a_replay_is_run_once_in_a_storage_of_its_own_with_productions_schemas_and_no_dead_letters(
    moldau_cluster_only: Cluster, tmp_path: Path, tool: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    from moldau.pipelines.run import runner

    file, _ = _file(tmp_path, moldau_cluster_only, 1)
    schemas = Storage(tmp_path / "state").schemas
    schemas.mkdir(parents=True)
    (schemas / "numbers.json").write_text("{}")
    launched: list[tuple[Any, ...]] = []

    def launch(*given: Any, **named: Any) -> runner.Stop:
        launched.append((*given, named))
        return runner.Stop()

    monkeypatch.setattr(runner, "launch", launch)
    code, output, errors = tool("replay", file, "--from", "2026-11-16", "--to", f"sqlite={tmp_path}/again.db")
    assert code == 0, errors
    [(spec, mode, *_, shape, named)] = launched
    assert spec.storage.parent == tmp_path / "state" / "replays"
    assert output.startswith(f"replay {spec.storage.name}: group numbers.replay.{spec.storage.name}, storage ")
    assert (mode, shape is not None, named) == ("once", True, {"with_dead_letters": False})
    assert (Storage(spec.storage).schemas / "numbers.json").read_text() == "{}"
    assert "no topic 'nowhere'" in tool("replay", file, "--from", "2026-11-16", "--to", "topic=nowhere")[2]


def test_two_pipelines_share_a_run_and_are_stopped_one_alone_and_the_rest_by_a_signal(
    moldau_cluster_only: Cluster, tmp_path: Path, tool: Callable[..., Said]
) -> None:
    files = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        file, _ = _file(tmp_path / name, moldau_cluster_only, 20)
        file.write_text(file.read_text().replace("name: numbers", f"name: {name}"))
        files.append(file)
    first, second = files
    with _running(first, str(second), "--status-port", "0") as process:
        _until(lambda: len(_numbers(first)) == len(_numbers(second)) == 20, process, first)
        said = (first.parent / "run.log").read_text()
        [address] = re.findall(r"^status at (http://127\.0\.0\.1:\d+)/pipelines$", said, re.MULTILINE)
        with urllib.request.urlopen(f"{address}/pipelines/second") as answer:
            assert json.load(answer)["pid"] == process.pid
        assert tool("stop", first) == (0, "first is stopped\n", "")
        assert (_status(first)["state"], _status(second)["state"]) == ("stopped", "running")
        assert tool("reset", first, "--yes")[0] == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_S) == 0, (first.parent / "run.log").read_text()
    assert _status(second)["state"] == "stopped"
