"""Times in values: as texts, as numbers in a named unit, and those that no store can keep."""

import io
import json
import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from moldau.pipelines.file.files import load
from moldau.pipelines.run.display import Display
from moldau.pipelines.run.runner import ONCE, Run
from tests.pipelines.clusters import Cluster, Record
from tests.pipelines.decoded import decoded, encoded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOMENT_S = 1_763_452_800
AS_READ = datetime(2025, 11, 18, 8)
NESTED = "at TIMESTAMP, inner STRUCT<times: ARRAY<TIMESTAMP>, named: MAP<STRING, TIMESTAMP>, n: INT>"


@pytest.mark.parametrize(("unit", "factor"), [("seconds", 1), ("milliseconds", 1000), ("microseconds", 1_000_000)])
def test_numbers_are_times_in_the_unit_that_is_named_and_texts_are_as_ever(
    spark: "SparkSession", storage: Path, unit: str, factor: int
) -> None:
    number = MOMENT_S * factor
    values = [
        json.dumps({"at": number, "inner": {"times": [number, None], "named": {"a": number}, "n": 1}}),
        json.dumps({"at": "2025-11-18T08:00:00Z"}),
        json.dumps({"at": float(number)}),
        json.dumps({"at": None}),
        json.dumps({"at": "soon"}),
        json.dumps({"inner": {"times": [number, "soon"]}}),
        "{",
        "",
    ]
    found = decoded(spark, storage, values, format="json", schema=NESTED, timestamp_format=unit)
    assert found.rows[0] == {"at": AS_READ, "inner": {"times": [AS_READ, None], "named": {"a": AS_READ}, "n": 1}}
    assert [found.rows[number]["at"] for number in (1, 2, 3)] == [AS_READ, AS_READ, None]
    assert found.reasons[4] == "field 'at' is not TIMESTAMP: soon"
    assert found.reasons[5] == "a field does not fit its type"
    assert sorted(found.reasons) == [4, 5, 6, 7]


def test_csv_has_numbers_as_times_too(spark: "SparkSession", storage: Path) -> None:
    options = {"format": "csv", "schema": "at TIMESTAMP, n INT", "timestamp_format": "milliseconds"}
    found = decoded(spark, storage, [f"{MOMENT_S}000,1", "2025-11-18T08:00:00Z,2", ",3", "soon,4", "1"], **options)
    assert [found.rows[number] for number in range(3)] == [
        {"at": at, "n": n} for at, n in ((AS_READ, 1), (AS_READ, 2), (None, 3))
    ]
    assert sorted(found.reasons) == [3, 4]


def test_times_are_written_as_numbers_of_the_unit(spark: "SparkSession", storage: Path) -> None:
    at = datetime(2025, 11, 18, 8, 0, 0, 5000, tzinfo=UTC)
    rows = spark.createDataFrame([(at, [at, None]), (None, None)], "at TIMESTAMP, times ARRAY<TIMESTAMP>")
    first, second = encoded(rows, storage, format="json", timestamp_format="milliseconds")
    assert json.loads(first) == {"at": MOMENT_S * 1000 + 5, "times": [MOMENT_S * 1000 + 5, None]}
    assert json.loads(second) == {"at": None, "times": None}
    [value] = encoded(rows.select("at").where("at IS NOT NULL"), storage, format="csv", timestamp_format="seconds")
    assert value == str(MOMENT_S).encode()


def test_milliseconds_that_are_read_as_seconds_are_bad_records(spark: "SparkSession", storage: Path) -> None:
    values = [f'{{"at": {MOMENT_S}}}', f'{{"at": {MOMENT_S}000}}', '{"at": "+58847-01-01T00:00:00Z"}']
    values.append(f'{{"inner": {{"times": [{MOMENT_S}000]}}}}')
    found = decoded(spark, storage, values, format="json", schema=NESTED)
    assert list(found.rows) == [0]
    hint = "(a number is seconds since 1970: `timestamp_format: milliseconds`?)"
    assert found.reasons[1] == f"field 'at' is a time outside the years 1 to 9999 {hint}"
    assert sorted(found.reasons) == [1, 2, 3]
    of_csv = decoded(spark, storage, ["+58847-01-01T00:00:00Z"], format="csv", schema="at TIMESTAMP")
    assert "outside the years" in of_csv.reason


def test_a_time_or_a_key_that_no_table_can_keep_is_a_dead_letter_and_the_others_are_written(
    spark: "SparkSession", moldau_cluster_only: Cluster, tmp_path: Path
) -> None:
    cluster = moldau_cluster_only
    topic = cluster.new_topic("times")
    moments = [MOMENT_S, MOMENT_S * 1000, MOMENT_S + 1]
    cluster.send(topic, [Record(json.dumps({"id": n, "at": at}).encode()) for n, at in enumerate(moments)])
    cluster.send(topic, [Record(json.dumps({"id": None, "at": MOMENT_S}).encode())])
    file = tmp_path / "times.yaml"
    file.write_text(f"""
name: of-{topic}
bootstrap: {cluster.bootstrap}
sources:
  events: {{topic: {topic}, schema: "id INT, at BIGINT"}}
views:
  timed: SELECT id, CAST(at AS TIMESTAMP) AS at FROM events
sinks:
  out: {{from: timed, sqlite: out.db, table: timed, key: id}}
  compacted: {{from: timed, topic: {topic}-out, key: id, create: {{cleanup.policy: compact}}}}
""")
    out = io.StringIO()
    Run(load(file), spark, ONCE, display=Display(out, live=False)).to_the_end()
    with sqlite3.connect(tmp_path / "out.db") as connection:
        assert connection.execute("SELECT id FROM timed ORDER BY id").fetchall() == [(0,), (2,)]
    assert {record.key for record in cluster.read(f"{topic}-out")} == {b"0", b"2"}
    reasons = {
        dict(letter.headers)["moldau.dlq.offset"]: dict(letter.headers)["moldau.dlq.reason"]
        for letter in cluster.read(f"of-{topic}.dead-letters")
    }
    assert b"the column 'at' is a time outside the years 1 to 9999" in reasons[b"1"]
    assert b"the row has no 'id', which is of the sink's key" in reasons[b"3"]
