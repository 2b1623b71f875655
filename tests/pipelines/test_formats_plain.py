from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from moldau.pipelines.file.problems import PipelineError
from tests.pipelines.decoded import decoded, encoded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_raw_values_are_bytes_and_a_tombstone_is_a_row(spark: "SparkSession", storage: Path) -> None:
    found = decoded(spark, storage, [b"\x00\xff", None], format="raw")
    assert found.rows == {0: {"value": b"\x00\xff"}, 1: {"value": None}}


def test_text_is_utf8_or_bad(spark: "SparkSession", storage: Path) -> None:
    found = decoded(spark, storage, ["grün", b"\xff", None, ""], format="text")
    assert found.rows == {0: {"value": "grün"}, 3: {"value": ""}}
    assert found.reasons == {1: "not UTF-8", 2: "the record has no value (a tombstone)"}


def test_csv_is_read_by_its_schema(spark: "SparkSession", storage: Path) -> None:
    values = ['a,1,2026-01-02,"x, ""y"""', "b,,,", "c,one,,", "d", "e,1,2026-01-02,x,more", "", None, b"\xff,1,,"]
    schema = "name STRING, visits INT, day DATE, note STRING"
    found = decoded(spark, storage, values, format="csv", schema=schema)
    assert found.rows == {
        0: {"name": "a", "visits": 1, "day": date(2026, 1, 2), "note": 'x, "y"'},
        1: {"name": "b", "visits": None, "day": None, "note": None},
    }
    unfit = "does not fit the schema of 4 fields (name, visits, day, note)"
    assert found.reasons == {
        2: unfit,
        3: unfit,
        4: unfit,
        5: "an empty line",
        6: "the record has no value (a tombstone)",
        7: "not UTF-8",
    }


def test_csv_with_its_own_separator_and_null(spark: "SparkSession", storage: Path) -> None:
    options = {"separator": ";", "null": "-", "quote": "'"}
    found = decoded(spark, storage, ["'a;b';-"], format="csv", schema="a STRING, b INT", **options)
    assert found.row == {"a": "a;b", "b": None}


def test_csv_is_written_as_it_is_read(spark: "SparkSession", storage: Path) -> None:
    rows = spark.createDataFrame([('x, "y"', 1, None)], "a STRING, b INT, c DATE")
    values = encoded(rows, storage, format="csv")
    schema = "a STRING, b INT, c DATE"
    assert decoded(spark, storage, values, format="csv", schema=schema).row == {"a": 'x, "y"', "b": 1, "c": None}


def test_one_column_is_written_as_text_or_bytes(spark: "SparkSession", storage: Path) -> None:
    number = spark.createDataFrame([(5,)], "a INT")
    assert encoded(number, storage, format="text") == [b"5"]
    assert encoded(spark.createDataFrame([(bytearray(b"\xff"),)], "a BINARY"), storage, format="raw") == [b"\xff"]
    with pytest.raises(PipelineError, match="is binary or string, but 'a' is integer"):
        encoded(number, storage, format="raw")


def test_several_columns_are_no_text(spark: "SparkSession", storage: Path) -> None:
    with pytest.raises(PipelineError, match="is one column, not 2: a, b"):
        encoded(spark.createDataFrame([(1, 2)], "a INT, b INT"), storage, format="text")
