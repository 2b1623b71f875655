"""Pipelines: how they are shown, stopped and started. Runs are stood in for by a process that holds a run's lock; the
real thing is in `tests/examples`."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.console.pipelines import watched
from moldau.testing.brokers import BrokerInThread
from tests.console.consoles import Asking, asking
from tests.console.runs import PIPELINE, RUN, run_of, storage_of


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "visits.yaml"
    path.write_text(PIPELINE)
    return path


@pytest.fixture
def console(kafka: BrokerInThread, tmp_path: Path, file: Path) -> Iterator[Asking]:
    broken = tmp_path / "broken.yaml"
    broken.write_text("name: broken\nsources: {a: {topic: x, formt: json}}\nsinks: {b: {from: a, topic: y}}\n")
    with asking(kafka.bootstrap, tmp_path, pipelines=(file, broken, tmp_path / "gone.yaml")) as running:
        yield running


def test_progress_lag_and_state_of_a_run_are_shown(console: Asking, file: Path) -> None:
    assert console.json("/pipelines")["rows"][0]["state"] == "never run"
    with run_of(file):
        row = console.json("/pipelines")["rows"][0]
        assert (row["name"], row["state"], row["rows"], row["lag"]) == ("visits", "running", 120, 7)
        assert (row["state_rows"], row["state_bytes"]) == (11, 2048)
        page = console.page("/pipelines/visits")
    assert "40" in page
    assert "Restart" in page
    assert console.json("/pipelines/visits")["pipeline"]["state"] == "killed"
    problems = [each["what"] for each in console.json("/")["problems"]]
    assert any(each.startswith("pipeline visits is killed") for each in problems)


def test_the_flow_is_a_graph_and_tells_no_secret(console: Asking) -> None:
    told = console.json("/pipelines/visits")
    flows = [(each["from"], each["to"]) for each in told["flows"]]
    assert flows == [("clicks", "counts"), ("counts", "by-page"), ("counts", "table")]
    page = console.page("/pipelines/visits")
    assert page.count('<path class="edge"') == 3
    assert "secret" not in page + json.dumps(told)


def test_a_file_that_is_not_sound_or_gone_is_told_with_its_problem(console: Asking) -> None:
    rows = {row["name"]: row for row in console.json("/pipelines")["rows"]}
    assert "formt" in rows["broken"]["problem"]
    assert "No such file" in rows["gone"]["problem"]
    assert "formt" in console.post("/pipelines/broken/start", {}, 409)["error"]
    assert "not told of" in console.json("/pipelines/other", 404)["error"]
    console.post("/pipelines/..%2f..%2fetc/start", {}, 404)


def test_a_file_that_was_mended_is_read_again(console: Asking, file: Path) -> None:
    file.write_text(PIPELINE.replace("counts: SELECT", "sums: SELECT"))
    assert "counts" in console.json("/pipelines")["rows"][0]["problem"]
    file.write_text(PIPELINE.replace("counts", "sums"))
    assert console.json("/pipelines")["rows"][0]["problem"] == ""


def test_a_run_is_stopped(console: Asking, file: Path) -> None:
    with run_of(file) as process:
        assert console.post("/pipelines/visits/stop", {}) == {"done": "visits is stopped"}
        assert process.wait(20) == 0
    assert console.post("/pipelines/visits/stop", {}) == {"done": "visits was not running"}


def test_a_run_whose_batch_takes_long_is_asked_to_stop_and_not_restarted(
    console: Asking, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched, "STOP_S", 0.0)
    monkeypatch.setattr(watched, "RESTART_S", 0.0)
    with run_of(file, "unwilling"):
        assert "asked to stop" in console.post("/pipelines/visits/stop", {})["done"]
        assert "has not ended" in console.post("/pipelines/visits/restart", {}, 409)["error"]
        assert "running already" in console.post("/pipelines/visits/start", {}, 409)["error"]


def test_a_run_is_started_in_a_process_of_its_own(
    console: Asking, file: Path, monkeypatch: pytest.MonkeyPatch, kafka: BrokerInThread
) -> None:
    commands: list[list[str]] = []
    popen = subprocess.Popen

    def run_instead(command: list[str], **more: object) -> "subprocess.Popen[bytes]":
        commands.append(command)
        return popen([sys.executable, "-c", RUN, str(storage_of(file)), "willing"], **more)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr(subprocess, "Popen", run_instead)
    assert console.post("/pipelines/visits/start", {}) == {"done": "visits is started"}
    assert commands[0][1:] == ["-m", "moldau", "pipeline", "run", str(file), "--bootstrap-server", kafka.bootstrap]
    assert console.post("/pipelines/visits/restart", {}) == {"done": "visits is restarted"}
    assert console.post("/pipelines/visits/stop", {}) == {"done": "visits is stopped"}


def test_a_run_that_cannot_start_says_why(console: Asking, file: Path) -> None:
    file.write_text(PIPELINE.replace("clicks, schema", "no-such-topic, schema"))
    refused = console.post("/pipelines/visits/start", {}, 409)
    assert refused["error"].startswith("visits did not start: ")
    assert "secret" not in refused["error"]
