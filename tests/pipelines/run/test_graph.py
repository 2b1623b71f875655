"""From a spec to data frames."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from moldau.pipelines import kinds
from moldau.pipelines.file.check import check_frames
from moldau.pipelines.kinds import Context
from moldau.pipelines.run import graph
from moldau.pipelines.run.runner import prepare
from tests.pipelines.fakes import KINDS, sink, source, spec, view

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(autouse=True)
def _fake_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(kinds.SOURCES, "folder", KINDS["source"])
    monkeypatch.setitem(kinds.SINKS, "list", KINDS["sink"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "in"
    made.mkdir()
    return made


def test_views_come_after_what_they_read(tmp_path: Path) -> None:
    made = spec(tmp_path, view("a", "", ("c", "rows")), view("b", "", ("a",)), view("c", "", ("rows",)))
    order = [each.name for each in graph.views_in_order(made)]
    assert order.index("c") < order.index("a") < order.index("b")


def test_only_what_a_sink_needs_is_opened(tmp_path: Path) -> None:
    parts = (
        source(tmp_path, "rows"),
        source(tmp_path, "unused"),
        view("a", "", ("rows",)),
        view("b", "", ("unused",)),
        sink("out", ("a",)),
    )
    made = graph.needed(spec(tmp_path, *parts))
    assert (set(made.sources), set(made.views)) == ({"rows"}, {"a"})
    assert [each.name for each in graph.sources_of(made, made.sinks["out"])] == ["rows"]


def test_frames_of_sql_and_functions_with_watermark_and_names_that_need_quotes(
    spark: "SparkSession", folder: Path, tmp_path: Path
) -> None:
    def loud(words: "DataFrame", rows: "DataFrame") -> "DataFrame":
        return words.join(rows.select("n"), "n")

    made = spec(
        tmp_path,
        source(folder, watermark=("at", "1 hour")),
        source(folder, "names-of-words", **{"as": "table"}),
        view("words", "SELECT rows.n, w.word FROM rows JOIN `names-of-words` w USING (n)", ("rows", "names-of-words")),
        view("loud", loud, ("words", "rows")),
        sink("out", ("words",)),
    )
    frames = graph.build(made, Context(spark, made, tmp_path))
    assert frames.errors() == []
    assert [(name, frame.isStreaming) for name in made.sources if (frame := frames.of(name)) is not None] == [
        ("rows", True),
        ("names-of-words", False),
    ]
    assert graph.rows_of(made.sinks["out"], frames).columns == ["n", "word"]
    plan = frames.of("loud")
    assert plan is not None
    assert "EventTimeWatermark" in plan._jdf.queryExecution().analyzed().toString()


def test_what_reads_a_broken_view_is_left_out_and_told_once(
    spark: "SparkSession", folder: Path, tmp_path: Path
) -> None:
    made = spec(
        tmp_path,
        source(folder),
        view("a", "SELECT wrod FROM rows"),
        view("b", "SELECT * FROM a", ("a",)),
        view("c", lambda _: 7),
        sink("out", ("b",)),
    )
    frames = graph.build(made, Context(spark, made, tmp_path))
    assert "b" not in frames.found
    problems = check_frames(made, frames.found)
    assert [str(problem) for problem in problems] == [
        "visits.yaml:3: view 'a': there is no column 'wrod' (did you mean 'at' or 'n' or 'word'?)",
        "visits.yaml:3: view 'c': TypeError: the function must return a data frame, not int",
    ]
    assert graph.check_sinks(made, frames) == ({}, [])


def _problems(spark: "SparkSession", made: Any) -> list[str]:
    return [str(problem) for problem in prepare(made, Context(spark, made, made.storage))[2]]


def test_several_flows_are_one_union_by_name(spark: "SparkSession", folder: Path, tmp_path: Path) -> None:
    views = (view("a", "SELECT n, word FROM rows"), view("b", "SELECT upper(word) AS word, n FROM rows"))
    made = spec(tmp_path, source(folder), *views, sink("out", ("a", "b")))
    _, rows, problems = prepare(made, Context(spark, made, tmp_path))
    assert problems == []
    assert rows["out"].columns == ["n", "word"]
    assert rows["out"].isStreaming


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ("SELECT n, word AS name FROM rows", "'a' and 'b' must have the same columns, but differ in 'name', 'word'"),
        ("SELECT n, array(word) AS word FROM rows", "flows do not go together: UNION can only be performed"),
    ],
)
def test_flows_that_do_not_go_together_are_named(
    second: str, words: str, spark: "SparkSession", folder: Path, tmp_path: Path
) -> None:
    views = (view("a", "SELECT n, word FROM rows"), view("b", second))
    [problem] = _problems(spark, spec(tmp_path, source(folder), *views, sink("out", ("a", "b"))))
    assert problem.startswith("visits.yaml:4: sink 'out': ")
    assert words in problem


def test_a_sink_without_a_stream_is_refused(spark: "SparkSession", folder: Path, tmp_path: Path) -> None:
    [problem] = _problems(spark, spec(tmp_path, source(folder, **{"as": "table"}), sink()))
    assert problem == "visits.yaml:4: sink 'out' gets no stream: all that it takes is read as a table"


# --- output modes

COUNTS = "SELECT word, count(*) AS n FROM rows GROUP BY word"
OUTER = "SELECT a.n, b.word FROM rows a LEFT JOIN others b ON a.n = b.n AND a.at = b.at"


def test_an_output_mode_that_spark_refuses_is_told_before_a_start(
    spark: "SparkSession", folder: Path, tmp_path: Path
) -> None:
    made = spec(tmp_path, source(folder), view("counts", COUNTS), sink("out", ("counts",)))
    [problem] = _problems(spark, made)
    assert problem.startswith("visits.yaml:4: sink 'out': Invalid streaming output mode: append.")
    assert "`watermark`" in problem
    assert (
        _problems(
            spark, spec(tmp_path, source(folder), view("counts", COUNTS), sink("out", ("counts",), {"key": "word"}))
        )
        == []
    )


def test_rows_that_cannot_be_updated_are_appended_unless_the_file_says_otherwise(
    spark: "SparkSession", folder: Path, tmp_path: Path
) -> None:
    sources = (source(folder, watermark=("at", "1 hour")), source(folder, "others", watermark=("at", "1 hour")))
    joined = view("joined", OUTER, ("rows", "others"))
    made = spec(tmp_path, *sources, joined, sink("out", ("joined",), {"key": ["n"], "newest_by": ()}))
    _, rows, problems = prepare(made, Context(spark, made, tmp_path))
    assert problems == []
    assert graph.output_mode(made.sinks["out"], rows["out"]) == "append"
    written = spec(tmp_path, *sources, joined, sink("out", ("joined",), {"key": ["n"], "mode": "update"}))
    [problem] = _problems(spark, written)
    assert "LeftOuter join" in problem
    assert "not supported in Update output mode" in problem
