"""What Spark's analysis finds in a pipeline file, without a query started: it is told with the line in the file."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from moldau.pipelines.file.check import check_frames
from moldau.pipelines.kinds import Context
from moldau.pipelines.run.graph import build
from moldau.pipelines.run.state import kept_for_ever
from tests.pipelines.writing import spec_of, write

EXAMPLES = Path(__file__).parents[2] / "examples"
BAD_FILES = {
    "a column that is not there": (
        """\
        name: bad
        sources: {beats: {rate: 1}}
        views:
          largest: |
            SELECT
              max(vale) AS largest
            FROM beats
          follows: SELECT * FROM largest
        sinks: {out: {from: follows, console: 20}}
        """,
        ["bad.yaml:6: view 'largest': there is no column 'vale' (did you mean 'value' or 'timestamp'?)"],
    ),
    "sql that is none": (
        """\
        name: bad
        sources: {beats: {rate: 1}}
        views:
          all: |
            SELECT *
            FORM beats
        sinks: {out: {from: all, console: 20}}
        """,
        ["bad.yaml:6: view 'all': Syntax error at or near 'beats': extra input 'beats'."],
    ),
    "a function that is not there": (
        """\
        name: bad
        sources: {beats: {rate: 1}}
        views: {all: "SELECT valu(value) FROM beats"}
        sinks: {out: {from: all, console: 20}}
        """,
        ["bad.yaml:3: view 'all': Cannot resolve routine `valu`"],
    ),
    "a key that is no column": (
        """\
        name: bad
        sources: {beats: {rate: 1}}
        sinks:
          out:
            from: beats
            sqlite: beats.db
            table: beats
            key: [value, timestmp]
        """,
        ["bad.yaml:8: sink 'out': 'beats' has no column 'timestmp' for its 'key' (did you mean 'timestamp'?)"],
    ),
    "a condition that does not go": (
        """\
        name: bad
        sources: {beats: {rate: 1}}
        sinks:
          out:
            from: beats
            sqlite: beats.db
            table: beats
            key: value
            delete_when: vale > 3
        """,
        ["bad.yaml:9: sink 'out': 'delete_when': there is no column 'vale' (did you mean 'value' or 'timestamp'?)"],
    ),
    "a watermark that is no column": (
        """\
        name: bad
        sources:
          beats:
            rate: 1
            watermark: at 1 day
        sinks: {out: {from: beats, console: 20}}
        """,
        ["bad.yaml:5: source 'beats': there is no column 'at' (did you mean 'value' or 'timestamp'?)"],
    ),
}
BAD_FUNCTIONS = """\
    from moldau.pipelines import Pipeline

    pipeline = Pipeline("bad")
    pipeline.source("beats", rate=1)

    @pipeline.view
    def misspelled(beats):
        kept = beats.where("value > 3")
        return kept.select("vale")

    @pipeline.view
    def failing(beats):
        return beats.select(no_such_name)

    @pipeline.view
    def forgetful(beats):
        beats.select("value")

    pipeline.sink("out", from_=["misspelled", "failing", "forgetful"], console=20)
    """


@pytest.mark.parametrize("name", BAD_FILES)
def test_what_spark_refuses_is_told_with_its_line(name: str, tmp_path: Path, spark: SparkSession) -> None:
    text, expected = BAD_FILES[name]
    assert _problems(write(tmp_path, "bad.yaml", text), spark) == expected


def test_what_a_function_raises_is_told_with_its_line(tmp_path: Path, spark: SparkSession) -> None:
    assert _problems(write(tmp_path, "bad.py", BAD_FUNCTIONS), spark) == [
        "bad.py:9: view 'misspelled': there is no column 'vale' (did you mean 'value' or 'timestamp'?)",
        "bad.py:13: view 'failing': NameError: name 'no_such_name' is not defined",
        "bad.py:15: view 'forgetful': TypeError: the function must return a data frame, not NoneType",
    ]


STATEFUL = """\
    name: stateful
    sources:
      orders: {rate: 1, watermark: timestamp 1 hour}
      paid: {rate: 1, watermark: timestamp 1 hour}
      plain: {rate: 1}
      table: {rate: 1}
    views:
      by_value: SELECT value, count(*) AS n FROM orders GROUP BY value
      by_date: SELECT date(timestamp) AS day, count(*) AS n FROM orders GROUP BY date(timestamp)
      follows: SELECT * FROM by_value WHERE n > 1
      joined: SELECT o.value FROM orders o JOIN plain p ON o.value = p.value
      one_side: >
        SELECT o.value FROM orders o JOIN paid p ON o.value = p.value AND o.timestamp > p.timestamp
      distinct_values: SELECT DISTINCT value FROM orders
      total: SELECT count(*) AS n FROM orders
      by_hour: SELECT window.start AS hour, count(*) AS n FROM orders GROUP BY window(timestamp, '1 hour')
      sessions: SELECT value, count(*) AS n FROM orders GROUP BY value, session_window(timestamp, '1 hour')
      bounded: >
        SELECT o.value FROM orders o JOIN paid p
        ON o.value = p.value AND p.timestamp BETWEEN o.timestamp AND o.timestamp + INTERVAL 1 HOUR
      same_time: SELECT o.value FROM orders o JOIN paid p ON o.timestamp = p.timestamp
      distinct_rows: SELECT DISTINCT * FROM orders
    sinks: {out: {from: by_value, console: 20, mode: update}}
    """
STATEFUL_FUNCTIONS = """\
    from moldau.pipelines import Pipeline

    pipeline = Pipeline("stateful")
    pipeline.source("orders", rate=1, watermark="timestamp 1 hour")

    @pipeline.view
    def first(orders):
        return orders.dropDuplicates(["value"])

    @pipeline.view
    def second(first):
        return first.join(first, "value").select("value")

    @pipeline.view
    def bounded(orders):
        return orders.dropDuplicatesWithinWatermark(["value"])

    pipeline.sink("out", from_="second", console=20)
    """


def _warnings(path: Path, spark: SparkSession) -> list[str]:
    spec = spec_of(path)
    frames = build(spec, Context(spark, spec, spec.storage))
    assert frames.errors() == []
    return [f"{each.place.line}: {each.message}" for each in kept_for_ever(spec, frames)]


def test_views_that_keep_their_state_for_ever_are_named(tmp_path: Path, spark: SparkSession) -> None:
    assert _warnings(write(tmp_path, "stateful.yaml", STATEFUL), spark) == [
        "8: view 'by_value': its aggregation keeps a row for each value for ever",
        "9: view 'by_date': its aggregation keeps a row for each CAST(orders.timestamp AS DATE) for ever",
        "11: view 'joined': its join of streams keeps the rows of its two sides for ever",
        "12: view 'one_side': its join of streams keeps the rows of its right side for ever",
        "14: view 'distinct_values': its deduplication keeps each value for ever",
    ]
    assert _warnings(write(tmp_path, "stateful.py", STATEFUL_FUNCTIONS), spark) == [
        "6: view 'first': its deduplication keeps each value for ever",
        "10: view 'second': its join of streams keeps the rows of its two sides for ever",
    ]


def _problems(path: Path, spark: SparkSession) -> list[str]:
    spec = spec_of(path)
    frames = build(spec, Context(spark, spec, spec.storage))
    return [str(problem).replace(f"{path.parent}/", "") for problem in check_frames(spec, frames.found)]


@pytest.mark.parametrize("name", ["visits.yaml", "visits.py"])
def test_the_examples_are_right_and_alike(name: str, spark: SparkSession) -> None:
    spec = spec_of(EXAMPLES / name)
    frames = build(spec, Context(spark, spec, spec.storage))
    assert check_frames(spec, frames.found) == []
    counts = frames.of("counts")
    assert counts is not None
    assert counts.dtypes == [("organisation", "string"), ("day", "string"), ("visits", "bigint")]
