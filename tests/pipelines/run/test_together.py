"""Several pipelines in one Spark, and their status over HTTP."""

import io
import json
import sqlite3
import sys
import urllib.error
import urllib.request
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from moldau.pipelines.file.files import load
from moldau.pipelines.file.problems import PipelineError
from moldau.pipelines.file.spec import PipelineSpec
from moldau.pipelines.run.display import Display
from moldau.pipelines.run.runner import ONCE, Stop
from moldau.pipelines.run.status_page import PortTaken, serving
from moldau.pipelines.run.storage import Storage
from moldau.pipelines.run.together import refuse_misfits, run_in
from tests.pipelines.specs import pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _file(directory: Path, name: str, sql: str, more: str = "") -> Path:
    """A pipeline of files, whose view has the same name in each of them."""
    (directory / name).mkdir()
    (directory / name / "a.json").write_text("".join(f'{{"n": {n}}}\n' for n in range(5)))
    file = directory / f"{name}.yaml"
    file.write_text(f"""
name: {name}
dead_letters: none
{more}
sources: {{r: {{files: {name}, schema: n INT}}}}
views: {{v: "{sql}"}}
sinks: {{out: {{from: v, sqlite: {name}.db, table: t}}}}
""")
    return file


def _rows(file: Path) -> list[int]:
    with sqlite3.connect(file.with_suffix(".db")) as connection:
        return [n for (n,) in connection.execute("SELECT n FROM t ORDER BY n")]


def test_pipelines_in_one_spark_do_not_see_each_other_and_one_that_fails_takes_none_along(
    spark: "SparkSession", tmp_path: Path
) -> None:
    files = [
        _file(tmp_path, "one", "SELECT n + 1 AS n FROM r"),
        _file(tmp_path, "bad", "SELECT n, raise_error('no') AS it FROM r"),
        _file(tmp_path, "two", "SELECT n * 10 AS n FROM r", "spark: {spark.sql.shuffle.partitions: 3}"),
    ]
    out = io.StringIO()
    freed: list[str] = []
    specs: list[tuple[PipelineSpec, ExitStack]] = []
    for file in files:
        held = ExitStack()
        held.callback(freed.append, file.stem)
        specs.append((load(file), held))
    [error] = run_in(spark, specs, ONCE, Display(out, live=False), Stop())
    assert (_rows(files[0]), _rows(files[2])) == ([1, 2, 3, 4, 5], [0, 10, 20, 30, 40])
    assert str(error).startswith("bad.out: ")
    assert "bad has failed; the others go on: bad.out: " in out.getvalue()
    assert sorted(freed) == ["bad", "one", "two"]
    states = {spec.name: (Storage(spec.storage).read_status() or {})["state"] for spec, _ in specs}
    assert states == {"one": "finished", "bad": "failed", "two": "finished"}

    with serving([spec for spec, _ in specs], "127.0.0.1", 0, lambda _: None) as address:
        assert _get(f"{address}/pipelines/one")[1] == Storage(specs[0][0].storage).read_status()
        assert [each["pipeline"] for each in _get(f"{address}/pipelines")[1]] == ["one", "bad", "two"]
        assert _get(f"{address}/healthz") == (503, states)
        assert _get(f"{address}/pipelines/four") == (404, {"error": "no pipeline 'four' runs here"})
        assert _get(f"{address}/other")[0] == 404
        with urllib.request.urlopen(address) as page:
            assert b"two: finished (once)" in page.read()
        with pytest.raises(PortTaken, match="the status page cannot listen"):
            serving([], "127.0.0.1", int(address.rpartition(":")[2]), lambda _: None).__enter__()


def _get(address: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(address) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        return refused.code, json.load(refused)


def test_pipelines_that_cannot_share_a_spark_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = pipeline(tmp_path / "a", name="one", spark={"spark.driver.memory": "1g", "spark.sql.x": "1"})
    two = pipeline(tmp_path / "b", name="two", spark={"spark.driver.memory": "2g", "spark.sql.x": "2"})
    with pytest.raises(PipelineError) as refused:
        refuse_misfits([one, two, replace(one), pipeline(tmp_path / "a", name="three")])
    assert [problem.message for problem in refused.value.problems] == [
        "pipeline.yaml is a pipeline 'one', too",
        f"'one' has the same storage {tmp_path / 'a'}",
        "spark.driver.memory is 2g here and 1g in pipeline.yaml, and one Spark has one of them",
    ]
    files = []
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "prices.py").write_text("")
        files.append(tmp_path / name / f"{name}.py")
        files[-1].write_text(
            f"from moldau.pipelines import Pipeline\nimport prices\npipeline = Pipeline('{name}')\n"
            "pipeline.source('r', rate=1)\npipeline.sink('out', from_='r', console=1)\n"
        )
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "prices", raising=False)
    specs = [load(file) for file in files]
    with pytest.raises(PipelineError, match="there are two modules 'prices'"):
        refuse_misfits(specs)
    monkeypatch.delitem(sys.modules, "prices")
    refuse_misfits(specs)
