"""A run in this process, with fake sources and sinks."""

import io
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from moldau.pipelines import kinds
from moldau.pipelines.file.problems import PipelineError
from moldau.pipelines.file.spec import PipelineSpec
from moldau.pipelines.run import runner, together
from moldau.pipelines.run.display import Display
from moldau.pipelines.run.runner import CONTINUOUS, ONCE, REALTIME, Run, RunFailed, Stop
from moldau.pipelines.run.storage import Storage
from tests.pipelines import fake_sink
from tests.pipelines.fake_source import add_file
from tests.pipelines.fakes import KINDS, sink, source, spec, view

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMEOUT_S = 180.0
COUNTS = "SELECT word, count(*) AS n FROM rows GROUP BY word"


@pytest.fixture(autouse=True)
def _fake_kinds(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(kinds.SOURCES, "folder", KINDS["source"])
    monkeypatch.setitem(kinds.SINKS, "list", KINDS["sink"])
    yield
    fake_sink.BATCHES.clear()
    fake_sink.BEFORE.clear()


def _filled(folder: Path, *files: list[str]) -> Path:
    """One file, and so one batch, a list of words."""
    first = len(list(folder.glob("*.json"))) if folder.exists() else 0
    for number, words in enumerate(files, first):
        rows = [{"n": n, "word": word, "at": "2026-11-16T05:00:00Z"} for n, word in enumerate(words)]
        add_file(folder, number, rows)
    return folder


def _run(made: PipelineSpec, spark: "SparkSession", mode: str = ONCE, stop: Stop | None = None) -> str:
    """What it printed."""
    out = io.StringIO()
    Run(made, spark, mode, stop or Stop(), Display(out, live=False)).to_the_end()
    return out.getvalue()


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _status(made: PipelineSpec) -> dict[str, Any]:
    status = Storage(made.storage).read_status()
    assert status is not None
    return status


def test_a_run_writes_every_sink_tells_of_it_and_the_next_goes_on(
    spark: "SparkSession", storage: Path, tmp_path: Path
) -> None:
    folder = _filled(tmp_path / "in", ["a", "b"], ["a"])
    counts = sink("counts", ("counts",), {"key": ["word"]})
    made = spec(storage, source(folder), view("counts", COUNTS), sink("all"), counts)
    said = _run(made, spark)
    assert "visits.all: to list, as good as a list" in said
    assert [row["word"] for row in fake_sink.kept("all")] == ["a", "b", "a"]
    assert fake_sink.BATCHES["counts"][-1] == [{"word": "a", "n": 2}]
    status = _status(made)
    assert (status["state"], status["mode"], status["error"]) == ("finished", "once", None)
    assert {each["name"]: (each["state"], each["rows"], each["batch"]) for each in status["queries"]} == {
        "visits.all": ("ended", 3, 1),
        "visits.counts": ("ended", 3, 1),
    }
    assert {each["name"]: each["state_rows"] for each in status["queries"]} == {"visits.all": 0, "visits.counts": 2}
    assert Storage(storage).checkpoints() == ["all", "counts"]

    _filled(folder, ["a", "c"])
    _run(made, spark)
    assert [row["word"] for row in fake_sink.kept("all")] == ["a", "b", "a", "a", "c"]
    assert {row["word"]: row["n"] for row in fake_sink.BATCHES["counts"][-1]} == {"a": 3, "c": 1}


def test_when_one_query_fails_the_others_are_stopped_and_the_cause_is_one_line(
    spark: "SparkSession", storage: Path, tmp_path: Path
) -> None:
    def fail(_: int) -> None:
        raise RuntimeError("the disk\nis full")

    fake_sink.BEFORE["bad"] = fail
    made = spec(storage, source(_filled(tmp_path / "in", ["a"])), sink("good"), sink("bad"), trigger="1 second")
    with pytest.raises(RunFailed) as failure:
        _run(made, spark, CONTINUOUS)
    assert str(failure.value) == "visits.bad: RuntimeError: the disk is full"
    status = _status(made)
    assert (status["state"], status["error"]) == ("failed", str(failure.value))
    assert {each["name"]: each["state"] for each in status["queries"]} == {
        "visits.good": "ended",
        "visits.bad": "failed",
    }
    assert spark.streams.active == []


def test_an_error_of_spark_itself_is_told_without_its_stack(
    spark: "SparkSession", storage: Path, tmp_path: Path
) -> None:
    folder = _filled(tmp_path / "in", ["a"])
    made = spec(storage, source(folder), view("numbers", "SELECT int(word) AS n FROM rows"), sink("out", ("numbers",)))
    with pytest.raises(RunFailed) as failure:
        _run(made, spark)
    assert str(failure.value).startswith('visits.out: The value \'a\' of the type "STRING" cannot be cast to "INT"')
    assert "\n" not in str(failure.value)
    assert "SQLSTATE" not in str(failure.value)


@pytest.mark.parametrize("words", runner.WORKER_LATE)
def test_a_python_that_starts_too_late_for_spark_is_waited_for_some_times(
    spark: "SparkSession", storage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    times = iter(range(4))

    def late(_: int) -> None:
        if next(times, 0) in (0, 2, 3):
            raise RuntimeError(f"{words} in this test")

    monkeypatch.setattr(runner, "LATE_MAX", 1)
    fake_sink.BEFORE["out"] = late
    made = spec(storage, source(_filled(tmp_path / "in", ["a"])), sink())
    assert "in this test: the queries begin again" in _run(made, spark)
    assert [row["word"] for row in fake_sink.kept("out")] == ["a"]

    _filled(tmp_path / "in", ["b"])
    with pytest.raises(RunFailed, match=words):
        _run(made, spark)


def test_a_stop_waits_for_the_batch_at_hand_and_the_next_run_goes_on(
    spark: "SparkSession", storage: Path, tmp_path: Path
) -> None:
    stop = Stop()
    words = [[f"{number}-{n}" for n in range(3)] for number in range(6)]

    def ask(number: int) -> None:
        if number == 1:
            stop.ask(signal.SIGTERM)
            _until(lambda: _status(made)["state"] == "stopping")
        elif number > 1:  # begun before the stop came: it is held, and writes nothing
            _until(lambda: not any(query.isActive for query in spark.streams.active))
            raise RuntimeError("it is stopped")

    fake_sink.BEFORE["out"] = ask
    made = spec(storage, source(_filled(tmp_path / "in", *words)), sink(), trigger="1 millisecond")
    _run(made, spark, CONTINUOUS, stop)
    assert _status(made)["state"] == "stopped"
    stopped_at = len(fake_sink.BATCHES["out"])
    assert stopped_at >= 2, "the batch at hand was not finished"
    assert stopped_at < 6, "it did not stop"
    del fake_sink.BEFORE["out"]
    _run(made, spark)
    assert [row["word"] for row in fake_sink.kept("out")] == [word for batch in words for word in batch]


def test_a_pipeline_that_spark_cannot_run_starts_nothing(spark: "SparkSession", storage: Path, tmp_path: Path) -> None:
    folder = _filled(tmp_path / "in", ["a"])
    made = spec(storage, source(folder), view("counts", COUNTS), sink("good"), sink("counts", ("counts",)))
    with pytest.raises(PipelineError, match="Invalid streaming output mode: append"):
        _run(made, spark)
    assert fake_sink.kept("good") == []
    assert Storage(storage).checkpoints() == []
    status = _status(made)
    assert status["state"] == "failed"
    assert status["error"].startswith("visits.yaml:4: sink 'counts': Invalid streaming output mode")


def test_real_time_has_no_mode_but_update(spark: "SparkSession", storage: Path, tmp_path: Path) -> None:
    made = spec(storage, source(_filled(tmp_path / "in", ["a"])), sink(written={"mode": "append"}))
    with pytest.raises(PipelineError, match="in real time there is no mode 'append'"):
        _run(made, spark, REALTIME)


def test_real_time_has_no_batches_to_be_exact_about(spark: "SparkSession", storage: Path, tmp_path: Path) -> None:
    made = spec(storage, source(_filled(tmp_path / "in", ["a"])), sink(written={"delivery": "exactly once"}))
    with pytest.raises(PipelineError, match="in real time there is no 'exactly once'"):
        _run(made, spark, REALTIME)


def test_a_second_signal_asks_to_stop_now() -> None:
    stop = Stop()
    with stop.on_signals():
        signal.raise_signal(signal.SIGINT)
        assert (stop.asked, stop.now) == (True, False)
        signal.raise_signal(signal.SIGTERM)
        assert (stop.number, stop.now) == (signal.SIGTERM, True)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_sigterm_while_spark_starts_is_a_clean_stop(storage: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def starting(*_: object, **__: object) -> None:
        signal.raise_signal(signal.SIGTERM)
        raise AssertionError("it goes on")

    for module in (runner, together):
        monkeypatch.setattr(module, "session", starting)
    made, display = spec(storage), Display(io.StringIO(), live=False)
    assert runner.run(made, CONTINUOUS, display=display).number == signal.SIGTERM
    stop, failed = together.run([made], CONTINUOUS, display=display)
    assert (stop.number, failed) == (signal.SIGTERM, [])
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_spark_that_is_gone_is_told_with_what_to_set(
    storage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Gone:
        """A session whose Java has ended."""

        def __init__(self, process: "subprocess.Popen[bytes]") -> None:
            self._sc = SimpleNamespace(_gateway=SimpleNamespace(proc=process))

        def __getattr__(self, name: str) -> Any:
            raise ConnectionRefusedError(name)

    with subprocess.Popen(["true"]) as ended:
        spark: Any = Gone(ended)
        made = spec(storage, source(_filled(tmp_path / "in", ["a"])), sink("out"))
        run = Run(made, spark, ONCE, display=Display(io.StringIO(), live=False))
        monkeypatch.setattr(Run, "_jobs", lambda run: run.spark.streams)
        with pytest.raises(RunFailed) as failure:
            run.to_the_end()
    assert str(failure.value).startswith("visits: Spark's Java ended by itself, most likely for lack of memory")
    assert "max_per_batch" in str(failure.value)
    assert _status(made)["error"] == str(failure.value)
