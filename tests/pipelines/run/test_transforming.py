"""Transforms of sources and sinks, as Kafka Connect's are used, and routes of rows to topics."""

import io
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from moldau.pipelines.file.files import load
from moldau.pipelines.file.problems import PipelineError
from moldau.pipelines.kinds import Context
from moldau.pipelines.run.display import Display
from moldau.pipelines.run.runner import ONCE, Run, prepare
from moldau.pipelines.run.transforming import applied
from moldau.pipelines.sinks.topic import KIND as TOPIC
from moldau.testing.pipelines import pipeline
from tests.pipelines.clusters import Cluster, Record
from tests.pipelines.specs import pipeline as of_nothing
from tests.pipelines.specs import sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def _after(rows: "DataFrame", *transforms: dict[str, Any]) -> list[dict[str, Any]]:
    made = applied(sink("console", console=1, transforms=list(transforms)), rows)
    return [row.asDict(recursive=True) for row in made.collect()]


@pytest.fixture(scope="module")
def rows(spark: "SparkSession") -> "DataFrame":
    columns = (
        "usr STRING, card STRING, pin INT, day STRING, _key STRING, _headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
    )
    headers = [("region", b"old"), ("region", b"eu")]
    return spark.createDataFrame([("ann", "4711", 1234, "2026-11-16", "k", headers), (None,) * 6], columns)


def test_columns_are_renamed_dropped_cast_and_masked_one_transform_after_another(rows: "DataFrame") -> None:
    first, second = _after(
        rows,
        {"rename": {"usr": "user", "card": "number"}},
        {"mask": ["pin"]},
        {"mask": {"number": "****"}},
        {"cast": {"day": "DATE"}},
        {"drop": ["_headers"]},
    )
    assert first == {"user": "ann", "number": "****", "pin": 0, "day": date(2026, 11, 16), "_key": "k"}
    assert set(second.values()) == {None}


def test_a_header_becomes_a_column_the_last_of_its_name(rows: "DataFrame") -> None:
    first, second = _after(rows, {"header": {"region": "region", "other": "not-there"}}, {"drop": ["_headers", "card"]})
    assert (first["region"], first["other"], second["region"]) == ("eu", None, None)


def test_an_envelope_is_unwrapped_and_the_records_own_columns_stay(spark: "SparkSession") -> None:
    wrapped = spark.sql("SELECT named_struct('id', 1, 'name', 'a') AS payload, 7 AS version, 'k' AS _key")
    assert _after(wrapped, {"unwrap": "payload"}) == [{"id": 1, "name": "a", "_key": "k"}]


def test_a_change_of_debezium_is_its_row_and_a_deletion_deletes(tmp_path: Path) -> None:
    file = tmp_path / "changes.yaml"
    state = "STRUCT<id: INT, name: STRING>"
    file.write_text(f"""
name: changes
sources:
  people:
    topic: db.people
    schema: "payload STRUCT<before: {state}, after: {state}, op: STRING, ts_ms: BIGINT>"
    transforms: [unwrap: payload, unwrap: debezium]
sinks:
  table: {{from: people, sqlite: out.db, table: people, key: id}}
""")

    def change(op: str, before: Any, after: Any) -> dict[str, Any]:
        return {"_key": "1", "payload": {"op": op, "before": before, "after": after, "ts_ms": 1}}

    ann, bob = {"id": 1, "name": "ann"}, {"id": 2, "name": "bob"}
    with pipeline(file) as changes:
        changes.give("people", [change("c", None, ann), change("r", None, bob)])
        changes.run()
        assert changes.rows("table") == [ann, bob]
        married = {"id": 2, "name": "bo"}
        changes.give("people", [change("u", bob, married), change("d", ann, None), {"_key": "1", "_deleted": True}])
        changes.run()
        assert changes.rows("table") == [married]
        assert changes.dead_letters() == []
        changes.give("people", [change("t", None, None), change("c", None, ann)])
        changes.run()
        assert changes.rows("table") == [ann, married]
        assert ["op t" in letter.reason for letter in changes.dead_letters()] == [True]


MISTAKES = {
    "[{renam: {a: b}}]": "'transforms' must be a list of transforms, and there is no 'renam' (did you mean 'rename'?)",
    "[{cast: {id: INTT}}]": "INTT is no type",
    "[{drop: 3}]": "and 'drop' of them a name or a list of names",
    "rename": "'transforms' must be a list of transforms, such as",
}


@pytest.mark.parametrize("written", MISTAKES)
def test_a_mistake_in_a_transform_is_found_in_the_file(written: str, tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    sources = f"sources:\n  r: {{rate: 1, transforms: {written}}}\n"
    file.write_text(f"name: p\n{sources}sinks:\n  out: {{from: r, console: 1}}\n")
    with pytest.raises(PipelineError) as refused:
        load(file)
    [problem] = refused.value.problems
    assert MISTAKES[written] in str(problem)
    assert problem.place.line == 3


def test_columns_that_a_transform_lacks_are_named_with_the_nearest_one(spark: "SparkSession", tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text("""
name: p
sources:
  ticks: {rate: 1, transforms: [rename: {valu: number}]}
  tocks: {rate: 1}
sinks:
  one: {from: ticks, console: 1}
  two: {from: tocks, console: 1, transforms: [drop: [timestmp]]}
  three: {from: tocks, console: 1, transforms: [rename: {value: timestamp}]}
  four: {from: tocks, console: 1, transforms: [unwrap: value]}
  five: {from: tocks, topic: a, route: "a-{valu}", transforms: [header: {a: b}]}
  six: {from: tocks, topic: a, route: "a-{number}"}
  seven: {from: tocks, topic: a, route: "a-{number}", transforms: [rename: {value: number}]}
""")
    spec = load(file)
    _, _, problems = prepare(spec, Context(spark, spec, tmp_path))
    assert [str(problem).partition(":")[2] for problem in problems] == [
        "4: source 'ticks': its transform 'rename' names 'valu', which is no column (did you mean 'value'?)",
        "8: sink 'two': its transform 'drop' names 'timestmp', which is no column (did you mean 'timestamp'?)",
        "9: sink 'three': its transform 'rename' makes a second column 'timestamp'",
        "10: sink 'four': its transform 'unwrap' needs a struct, and 'value' is BIGINT",
        "11: sink 'five': its transform 'header' needs the column '_headers' (keep it in the view)",
        "12: sink 'six': 'tocks' has no column 'number' for its 'route' (there are: timestamp, value)",
    ]


def test_rows_go_to_the_topics_that_their_columns_name_and_the_others_to_the_sinks_own(
    spark: "SparkSession", moldau_cluster_only: Cluster, tmp_path: Path
) -> None:
    cluster = moldau_cluster_only
    topic = cluster.new_topic("orders")
    regions = {1: b"eu", 2: b"us", 3: b"", 4: b"e u", 5: b"eu"}
    cluster.send(topic, [Record(b'{"id": %d}' % n, headers=(("region", at),)) for n, at in regions.items()])
    file = tmp_path / "routes.yaml"
    file.write_text(f"""
name: of-{topic}
bootstrap: {cluster.bootstrap}
sources:
  orders: {{topic: {topic}, schema: id INT, transforms: [header: {{region: region}}]}}
sinks:
  out: {{from: orders, topic: {topic}-rest, create: true, columns: id, key: id, route: "{topic}-{{region}}"}}
""")
    Run(load(file), spark, ONCE, display=Display(io.StringIO(), live=False)).to_the_end()
    found = {name: [record.value for record in cluster.read(f"{topic}-{name}")] for name in ("eu", "us", "rest")}
    assert found["eu"] == [b'{"id":1}', b'{"id":5}']
    assert found["us"] == [b'{"id":2}']
    assert found["rest"] == [b'{"id":4}']
    assert [record.value for record in cluster.read(f"{topic}-")] == [b'{"id":3}']


def test_a_route_is_checked_before_a_run(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text("""
name: p
sources: {r: {rate: 1}}
sinks:
  out: {from: r, topic: a, route: all}
""")
    with pytest.raises(PipelineError, match="'route' must be a topic with a column in it"):
        load(file)
    made = sink("topic", topic="a", route="a-{value}", delivery="exactly once")
    problems = [problem.message for problem in TOPIC.check(made, of_nothing(tmp_path))]
    assert "sink 'out': 'exactly once' writes one topic, and a 'route' leads to several" in problems
