import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from moldau.pipelines.file.problems import PipelineError
from moldau.pipelines.formats.decoding import METADATA, decode
from moldau.pipelines.formats.json_format import KIND
from tests.pipelines.decoded import MOMENT, context, decoded, encoded, raw
from tests.pipelines.specs import pipeline, source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = (
    "organisation STRING, at TIMESTAMP, visits INT, total BIGINT, share DOUBLE, price DECIMAL(10,2), day DATE, "
    "ok BOOLEAN, place STRUCT<city: STRING, height: DOUBLE>, tags ARRAY<STRING>, sizes ARRAY<DOUBLE>, "
    "counts MAP<STRING, INT>, picture BINARY"
)


def problems(**options: Any) -> list[str]:
    made = source("topic", "visits", topic="t", format="json", **options)
    return [problem.message for problem in KIND.check(made, pipeline(Path("nowhere")))]


def test_every_type_of_a_schema_is_decoded(spark: "SparkSession", storage: Path) -> None:
    value = (
        '{"organisation": "a", "at": "2026-01-02T03:04:05Z", "visits": 1, "total": 9007199254740993, "share": 0.5, '
        '"price": 1.25, "day": "2026-01-02", "ok": true, "place": {"city": "x", "height": 2.5}, "tags": ["p", null], '
        '"sizes": [1, 2.5], "counts": {"q": 3}, "picture": "aGk=", "unknown": 1}'
    )
    row = decoded(spark, storage, [value], format="json", schema=SCHEMA).row
    assert row.pop("at").astimezone(UTC) == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert row == {
        "organisation": "a",
        "visits": 1,
        "total": 9007199254740993,
        "share": 0.5,
        "price": Decimal("1.25"),
        "day": date(2026, 1, 2),
        "ok": True,
        "place": {"city": "x", "height": 2.5},
        "tags": ["p", None],
        "sizes": [1.0, 2.5],
        "counts": {"q": 3},
        "picture": b"hi",
    }


BAD = {
    '{"organisation": "a"': "not JSON",
    "": "not JSON",
    "  ": "not JSON",
    "{'organisation': 'a'}": "not JSON",
    '{"share": NaN}': "not JSON",
    "null": "not a JSON object",
    "5": "not a JSON object",
    '[{"visits": 1}]': "not a JSON object",
    '{"visits": 1} rest': "more than one JSON value",
    '{"visits": 1}{"visits": 2}': "more than one JSON value",
    '{"visits": 1}\n{"visits": 2}': "more than one JSON value",
    '{"visits": "1"}': "field 'visits' is not INT: 1",
    '{"visits": 1.5}': "field 'visits' is not INT: 1.5",
    '{"visits": 99999999999}': "field 'visits' is not INT: 99999999999",
    '{"organisation": "a", "at": "soon", "visits": 1}': "field 'at' is not TIMESTAMP: soon",
    '{"share": "Infinity"}': "field 'share' is not DOUBLE: Infinity",
    '{"ok": "true"}': "field 'ok' is not BOOLEAN: true",
    '{"price": 123456789}': "field 'price' is not DECIMAL(10,2): 123456789",
    '{"day": "2026-13-01"}': "field 'day' is not DATE: 2026-13-01",
    '{"place": 5}': "field 'place' is not STRUCT<CITY:STRING,HEIGHT:DOUBLE>: 5",
    '{"place": {"height": "tall"}}': "a field does not fit its type",
    '{"share": 1e400}': "field 'share' has a number that is too great",
    '{"place": {"height": -1e400}}': "field 'place' has a number that is too great",
    '{"sizes": [1, 1e400]}': "field 'sizes' has a number that is too great",
}


def test_a_bad_value_has_a_reason_that_names_the_fault(spark: "SparkSession", storage: Path) -> None:
    found = decoded(spark, storage, list(BAD), format="json", schema=SCHEMA)
    assert {value: found.reasons.get(offset) for offset, value in enumerate(BAD)} == BAD


def test_a_tombstone_and_what_is_not_utf8_are_bad(spark: "SparkSession", storage: Path) -> None:
    values = [None, b'{"organisation": "\xff"}', '{"organisation": "é"}']
    found = decoded(spark, storage, values, format="json", schema=SCHEMA)
    assert found.reasons == {0: "the record has no value (a tombstone)", 1: "not UTF-8"}
    assert found.rows[2]["organisation"] == "é"


def test_braces_in_texts_and_space_around_an_object_are_no_fault(spark: "SparkSession", storage: Path) -> None:
    values = ['{"organisation": "}{ } {"}', ' {"organisation": "a"}\r\n', '{"place": {"city": "x"} }\t']
    assert decoded(spark, storage, values, format="json", schema=SCHEMA).reasons == {}


def test_a_required_field_must_be_there_and_not_null(spark: "SparkSession", storage: Path) -> None:
    values = ['{"visits": 1}', '{"organisation": null}', '{"organisation": "a"}', '{"organisation": "a", "place": {}}']
    required = ["organisation", "place.city"]
    found = decoded(spark, storage, values, format="json", schema=SCHEMA, required=required)
    assert found.reasons == {
        0: "missing field 'organisation'",
        1: "missing field 'organisation'",
        2: "missing field 'place.city'",
        3: "missing field 'place.city'",
    }


def test_metadata_are_columns_beside_the_fields(spark: "SparkSession", storage: Path) -> None:
    for key, expected in (("text", "k"), ("raw", b"k")):
        made = source("topic", "visits", topic="t", format="json", schema="visits INT", key=key)
        reading = decode(raw(spark, ['{"visits": 1}']), made, context(spark, storage))
        [row] = reading.rows.collect()
        assert reading.rows.columns == ["visits", *METADATA]
        assert (row._key, row._topic, row._partition, row._offset) == (expected, "t", 0, 0)
        assert row._timestamp.astimezone(UTC) == MOMENT


def test_a_bad_record_is_kept_as_it_came(spark: "SparkSession", storage: Path) -> None:
    made = source("topic", "visits", topic="t", format="json", schema="visits INT")
    reading = decode(raw(spark, [b"\x00\xff"]), made, context(spark, storage))
    assert reading.bad is not None
    [row] = reading.bad.collect()
    assert (bytes(row.key), bytes(row.value), row.topic, row.offset) == (b"k", b"\x00\xff", "t", 0)


def test_a_value_is_decoded_once(spark: "SparkSession", storage: Path) -> None:
    made = source("topic", "visits", topic="t", format="json", schema="visits INT, at TIMESTAMP", required=["at"])
    rows = decode(raw(spark, ["{}"]), made, context(spark, storage)).rows.where("visits > 1").select("at")
    plan = rows._jdf.queryExecution().optimizedPlan().toString()
    assert plan.count("from_json") == 1


def test_without_dead_letters_a_bad_record_ends_the_run_and_is_named(spark: "SparkSession", storage: Path) -> None:
    made = source("topic", "visits", topic="t", format="json", schema="visits INT")
    reading = decode(raw(spark, ['{"visits": 1}', "x"]), made, context(spark, storage, dead_letters=None))
    assert reading.bad is None
    with pytest.raises(Exception, match=r"source 'visits': the record at offset 1 of t-0 cannot be decoded: not JSON"):
        reading.rows.collect()


def test_a_framed_value_is_read_without_its_frame(spark: "SparkSession", storage: Path) -> None:
    row = decoded(spark, storage, [b'\0\0\0\0\7{"visits": 1}'], format="json", schema="visits INT").row
    assert row == {"visits": 1}


def test_patterns_for_times_and_dates(spark: "SparkSession", storage: Path) -> None:
    options = {"timestamp_format": "dd.MM.yyyy HH:mm", "date_format": "dd.MM.yyyy"}
    value = '{"at": "02.01.2026 03:04", "day": "02.01.2026"}'
    row = decoded(spark, storage, [value], format="json", schema="at TIMESTAMP, day DATE", **options).row
    assert row["day"] == date(2026, 1, 2)
    assert (row["at"].month, row["at"].minute) == (1, 4)


def test_check_names_what_is_wrong_with_a_schema() -> None:
    assert problems() == ["source 'visits' needs 'schema'"]
    assert problems(schema="_key STRING") == ["source 'visits': its field '_key' has the name of a metadata column"]
    assert problems(schema="at DATE, At INT") == ["source 'visits': its fields 'at' and 'At' differ in case only"]
    assert problems(schema="at DATE", required=["att"]) == [
        "source 'visits': there is no field 'att' that could be required"
    ]
    assert problems(schema="at DATE", required=["at", "_key"]) == []


def test_a_required_field_of_a_field_that_is_not_there_is_refused(spark: "SparkSession", storage: Path) -> None:
    made = source("topic", "visits", topic="t", format="json", schema="a STRUCT<b: INT>", required=["a.c"])
    with pytest.raises(PipelineError, match=r"there is no field 'a\.c'"):
        decode(raw(spark, []), made, context(spark, storage))


def test_rows_become_objects_with_their_nulls(spark: "SparkSession", storage: Path) -> None:
    rows = spark.createDataFrame([(1, None, {"x": 1})], "a INT, b STRING, c MAP<STRING, INT>")
    [value] = encoded(rows, storage, format="json")
    assert json.loads(value) == {"a": 1, "b": None, "c": {"x": 1}}
