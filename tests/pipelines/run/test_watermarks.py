"""Watermarks on columns that a view computes, what the status says of late rows, and new fields after a reset."""

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from moldau.pipelines.file.files import load
from moldau.pipelines.file.problems import PipelineError
from moldau.pipelines.run.display import Display
from moldau.pipelines.run.reset import reset
from moldau.pipelines.run.runner import ONCE, Run
from moldau.pipelines.run.storage import Storage
from moldau.testing.pipelines import pipeline
from tests.pipelines.clusters import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOMENT_MS = 1_763_452_800_000
COUNTED = "SELECT window.start AS minute, count(*) AS n FROM {} GROUP BY window(at, '1 minute')"
BY_OPTION = f"""
  timed: {{sql: "SELECT timestamp_millis(ms) AS at FROM events", watermark: at 1 minute}}
  counts: "{COUNTED.format("timed")}"
"""
IN_SQL = f"""
  timed: "SELECT timestamp_millis(ms) AS at FROM events"
  counts: "{COUNTED.format("timed WATERMARK at DELAY OF INTERVAL 1 MINUTE")}"
"""


def _events(*seconds: int) -> list[dict[str, int]]:
    return [{"ms": MOMENT_MS + second * 1000} for second in seconds]


@pytest.mark.parametrize("views", [BY_OPTION, IN_SQL], ids=["option", "sql"])
def test_a_watermark_on_a_computed_column_closes_windows_and_the_status_has_state_and_late_rows(
    views: str, tmp_path: Path
) -> None:
    file = tmp_path / "p.yaml"
    sinks = "sinks: {out: {from: counts, console: 9}}"
    file.write_text(f'name: p\nsources: {{events: {{topic: t, schema: "ms BIGINT"}}}}\nviews:{views}{sinks}\n')
    with pipeline(file) as events:
        events.give("events", _events(0, 1, 600))
        events.run()
        assert [row["n"] for row in events.rows("out")] == [2], "the first minute is closed"
        events.give("events", _events(5, 601))
        events.run()
        assert [row["n"] for row in events.rows("out")] == [2], "what comes late changes nothing"
        status = Storage(events.spec.storage).read_status()
        assert status is not None
        [query] = [each for each in status["queries"] if each["name"] == "p.out"]
    assert (query["late_rows"], query["state_rows"]) == (1, 1)
    assert query["state_bytes"] > 0
    assert query["watermark"] == "2025-11-18T08:09:01.000Z"


def test_a_watermark_of_a_view_is_the_same_in_python_and_wrong_ones_are_told(tmp_path: Path) -> None:
    file = tmp_path / "p.py"
    file.write_text("""
from moldau.pipelines import Pipeline

pipeline = Pipeline("p")
pipeline.source("r", rate=1)
pipeline.view("a", sql="SELECT timestamp AS at FROM r", watermark="at 1 hour")


@pipeline.view(watermark="at 2 hours")
def b(r):
    return r


@pipeline.table(console=1, watermark="at 3 hours")
def c(r):
    return r
""")
    assert {name: view.watermark for name, view in load(file).views.items()} == {
        "a": ("at", "1 hour"),
        "b": ("at", "2 hours"),
        "c": ("at", "3 hours"),
    }
    other = tmp_path / "p.yaml"
    view = "v: {sql: SELECT 1, watermark: at, watermrk: at}"
    other.write_text(f"name: p\nviews:\n  {view}\nsinks: {{out: {{from: v, console: 1}}}}\n")
    with pytest.raises(PipelineError) as refused:
        load(other)
    assert [problem.words() for problem in refused.value.problems] == [
        "view 'v' has no option 'watermrk' (did you mean 'watermark'?)",
        "view 'v': 'watermark' must be a column and a time, such as `at 1 day`, not 'at'",
    ]


def test_a_new_field_of_inferred_records_is_seen_after_a_reset(
    spark: "SparkSession", moldau_cluster_only: Cluster, tmp_path: Path
) -> None:
    topic = moldau_cluster_only.new_topic("orders")
    file = tmp_path / "p.yaml"
    file.write_text(f"""
name: of-{topic}
bootstrap: {moldau_cluster_only.bootstrap}
sources: {{orders: {{topic: {topic}, schema: infer}}}}
sinks: {{out: {{from: orders, parquet: out}}}}
""")

    def columns() -> Any:
        Run(load(file), spark, ONCE, display=Display(io.StringIO(), live=False)).to_the_end()
        return spark.read.option("mergeSchema", "true").parquet(str(tmp_path / "out")).columns

    moldau_cluster_only.send(topic, [json.dumps({"id": 1})])
    assert columns() == ["id"]
    moldau_cluster_only.send(topic, [json.dumps({"id": 2, "town": "Brno"})])
    assert columns() == ["id"], "a schema that was inferred stays"
    (tmp_path / "out").rename(tmp_path / "before")
    reset(load(file), None, lambda _: None)
    assert columns() == ["id", "town"]
