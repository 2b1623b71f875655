"""The MongoDB sink, on a server that speaks MongoDB's protocol."""

import itertools
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]  # no type information
import pytest
from bson import Decimal128
from pymongo import MongoClient

from moldau.pipelines.file.problems import PipelineError
from moldau.pipelines.file.spec import SinkSpec
from moldau.pipelines.kinds import sink_kind
from moldau.pipelines.sinks import batches, mongodb
from tests.pipelines import mongo_server
from tests.pipelines.batch_sinks import EXPECTED, Stream, batch, frame, made, run_and_begin_again
from tests.pipelines.specs import pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_numbers = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with mongo_server.running() as address:
        yield address


class Collection:
    def __init__(self, server: str) -> None:
        self.url, self.name = f"{server}/web", f"visits{next(_numbers)}"

    def sink(self, **options: Any) -> SinkSpec:
        return made("mongodb", mongodb=self.url, collection=self.name, **options)

    def rows(self) -> list[dict[str, Any]]:
        client: MongoClient[dict[str, Any]]
        with MongoClient(self.url, tz_aware=True) as client:
            return list(client.get_default_database()[self.name].find().sort("id"))

    def tuples(self) -> list[tuple[Any, ...]]:
        return [tuple(value for name, value in row.items() if name != "_id") for row in self.rows()]


@pytest.fixture
def collection(server: str) -> Collection:
    return Collection(server)


def write(spec: SinkSpec, rows: "DataFrame", number: int, checkpoint: str = "first") -> None:
    mongodb.writer(spec).write(batches.select(spec, rows).toArrow(), batch(number, checkpoint))


def test_a_batch_written_again_is_written_over_itself(spark: "SparkSession", collection: Collection) -> None:
    spec, rows = collection.sink(), frame(spark, "id BIGINT, name STRING", [(1, "a"), (2, None)])
    for number in (0, 0, 1, 1):
        write(spec, rows, number)
    assert collection.tuples() == [(1, "a"), (1, "a"), (2, None), (2, None)]
    write(spec, rows, 0, checkpoint="after a reset")
    assert len(collection.rows()) == 6


def test_in_mode_complete_documents_of_keys_that_are_no_more_go(spark: "SparkSession", collection: Collection) -> None:
    spec, columns = collection.sink(key=["id", "at"], mode="complete"), "id BIGINT, at TIMESTAMP, n BIGINT"
    noon = datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)
    write(spec, frame(spark, columns, [(1, noon, 1), (2, noon, 1)]), 0)
    write(spec, frame(spark, columns, [(2, noon, 2), (4, noon, 1)]), 1)
    assert [(row["id"], row["n"]) for row in collection.rows()] == [(2, 2), (4, 1)]
    write(spec, frame(spark, columns, []), 2)
    assert collection.rows() == []


def test_a_row_sets_the_fields_of_its_document_and_some_delete(spark: "SparkSession", collection: Collection) -> None:
    spec = collection.sink(key=["id", "b"], delete_when="_op = 'd'")
    schema = "id BIGINT, b STRING, n INT, _op STRING"
    first = [(1, "x", 1, "c"), (1, "x", 2, "u"), (2, "x", 1, "c"), (3, "x", 1, "d"), (3, "x", 2, "c"), (4, "x", 1, "d")]
    write(spec, frame(spark, schema, first).coalesce(1), 0)
    assert collection.tuples() == [(1, "x", 2), (2, "x", 1), (3, "x", 2)]
    write(spec, frame(spark, schema, [(2, "x", None, "d"), (1, "x", 5, None)]), 1)
    assert collection.tuples() == [(1, "x", 5), (3, "x", 2)]
    with pytest.raises(PipelineError, match="1 rows have no 'b', which is of the key"):
        write(spec, frame(spark, schema, [(2, None, 6, None)]), 2)


def test_a_map_as_a_key_is_a_value_and_never_a_query() -> None:
    writer = mongodb.writer(made("mongodb", mongodb="mongodb://h/d", collection="c", key=["k"]))
    rows = pa.table({"k": pa.array([{"$gt": ""}], pa.struct([("$gt", pa.string())])), "n": [1]})
    [write] = writer._writes(rows, batch(0))
    assert write._filter == {"k": {"$eq": {"$gt": ""}}}


def test_values_keep_their_meaning(spark: "SparkSession", collection: Collection) -> None:
    moment = datetime(2026, 1, 31, 12, tzinfo=UTC)
    schema = """id BIGINT, f BOOLEAN, d DOUBLE, n DECIMAL(30, 10), s STRING, b BINARY, day DATE, at TIMESTAMP,
        list ARRAY<STRUCT<x: DATE>>, doc STRUCT<x: STRING, y: DECIMAL(4, 1)>, m MAP<STRING, INT>, nothing STRING"""
    number, day = Decimal("12345678901234567890.1234567891"), date(2026, 1, 31)
    row = (2**62, True, float("inf"), number, "a\x00é", b"\x00\xff", day, moment, [(day,)], ("x", 1), {"k": 1}, None)
    write(collection.sink(), frame(spark, schema, [(*row[:9], ("x", Decimal("1.5")), *row[10:])]), 0)
    [found] = collection.rows()
    del found["_id"]
    midnight = datetime(2026, 1, 31, tzinfo=UTC)
    assert tuple(found.values()) == (
        *(2**62, True, float("inf"), Decimal128(number), "a\x00é", b"\x00\xff", midnight, moment),
        *([{"x": midnight}], {"x": "x", "y": Decimal128("1.5")}, {"k": 1}, None),
    )


def test_the_check_wants_a_database_and_a_key_for_mode_complete(tmp_path: Path) -> None:
    check, spec = sink_kind("mongodb").check, pipeline(tmp_path)
    [problem] = check(made("mongodb", mongodb="mongodb://127.0.0.1:1", collection="c"), spec)
    assert "which database?" in problem.message
    [problem] = check(made("mongodb", mongodb="localhost", collection="c"), spec)
    assert "mongodb://" in problem.message
    [problem] = check(made("mongodb", mongodb="mongodb://127.0.0.1:1/x", collection="c", mode="complete"), spec)
    assert "needs 'key'" in problem.message


@pytest.mark.parametrize("key", [None, ["id"]])
def test_a_stream_whose_last_batch_is_begun_again_ends_exact(
    spark: "SparkSession", storage: Path, collection: Collection, key: list[str] | None
) -> None:
    run_and_begin_again(Stream(spark, storage, collection.sink(**({"key": key} if key else {}))))
    assert collection.tuples() == EXPECTED
