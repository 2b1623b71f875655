"""The sinks of table formats, Delta and Iceberg, on real files."""

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]  # no type information
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from moldau.pipelines.file.problems import PipelineError
from moldau.pipelines.file.spec import SinkSpec
from moldau.pipelines.kinds import sink_kind
from moldau.pipelines.sinks import batches, delta, iceberg
from moldau.pipelines.sinks.batches import BatchWriter
from tests.pipelines.batch_sinks import EXPECTED, Stream, batch, frame, made, run_and_begin_again
from tests.pipelines.specs import pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = """f BOOLEAN, i BIGINT, d DOUBLE, n DECIMAL(38, 10), s STRING, b BINARY, day DATE, at TIMESTAMP,
    list ARRAY<INT>, doc STRUCT<x: STRING, at: TIMESTAMP>, m MAP<STRING, INT>, nothing STRING"""
MOMENT = datetime(2026, 1, 31, 12, 0, 0, 5, UTC)
ROW = (
    *(True, 2**62, float("inf"), Decimal("12345678901234567890.1234567891"), "a\x00é", b"\x00\xff", date(2026, 1, 31)),
    *(MOMENT, [1, None], ("x", MOMENT), {"k": 1}, None),
)


class Format:
    """A table of one of the two formats: how it is declared, and what is in it."""

    def __init__(self, kind: str, directory: Path) -> None:
        self.kind = kind
        self.path = str(directory / "visits")
        self.catalog = {"type": "sql", "uri": f"sqlite:///{directory}/catalog.db", "warehouse": f"file://{directory}"}

    def sink(self, **options: Any) -> SinkSpec:
        if self.kind == "delta":
            return made("delta", delta=self.path, **options)
        return made("iceberg", iceberg="web.visits", catalog=self.catalog, **options)

    def write(self, spec: SinkSpec, rows: "DataFrame", number: int, checkpoint: str = "first") -> bool:
        writer: BatchWriter = delta.writer(spec) if self.kind == "delta" else iceberg.writer(spec)
        return writer.write(batches.select(spec, rows).toArrow(), batch(number, checkpoint))

    def rows(self) -> list[dict[str, Any]]:
        if self.kind == "delta":
            found = DeltaTable(self.path).to_pyarrow_table()
        else:
            found = load_catalog("default", **self.catalog).load_table("web.visits").scan().to_arrow()
        return sorted(found.to_pylist(), key=str)

    def tuples(self) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in self.rows()]


@pytest.fixture(params=["delta", "iceberg"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Format:
    return Format(request.param, tmp_path)


def test_a_batch_written_again_is_skipped_and_a_new_checkpoint_is_no_replay(
    spark: "SparkSession", table: Format
) -> None:
    spec, rows = table.sink(), frame(spark, "id BIGINT, name STRING", [(1, "a")])
    assert table.write(spec, rows, 0)
    assert not table.write(spec, rows, 0)
    assert table.write(spec, rows, 1)
    assert table.write(spec, rows, 0, checkpoint="after a reset")
    assert table.tuples() == [(1, "a")] * 3
    with pytest.raises(PipelineError, match=r"has batch 1, but the checkpoint is back at batch 0.*reset"):
        table.write(spec, rows, 0)


def test_the_last_row_of_a_key_wins(spark: "SparkSession", table: Format) -> None:
    spec = table.sink(key=["a", "b"])
    schema = "a BIGINT, b STRING, n INT"
    assert table.write(spec, frame(spark, schema, [(1, "x", 1), (1, "x", 2), (2, "x", 1)]).coalesce(1), 0)
    assert table.write(spec, frame(spark, schema, [(2, "x", 5), (3, "x", 1)]), 1)
    assert not table.write(spec, frame(spark, schema, [(2, "x", 6)]), 1)
    assert table.tuples() == [(1, "x", 2), (2, "x", 5), (3, "x", 1)]
    with pytest.raises(PipelineError, match="1 rows have no 'b', which is of the key"):
        table.write(spec, frame(spark, schema, [(2, None, 6)]), 2)


def test_mode_complete_replaces_all_rows(spark: "SparkSession", table: Format) -> None:
    spec = table.sink(mode="complete")
    assert table.write(spec, frame(spark, "id INT", [(1,), (2,)]), 0)
    assert table.write(spec, frame(spark, "id INT", [(3,)]), 1)
    assert table.tuples() == [(3,)]


def test_values_keep_their_meaning(spark: "SparkSession", table: Format) -> None:
    assert table.write(table.sink(), frame(spark, SCHEMA, [ROW]), 0)
    [found] = table.rows()
    assert found.pop("m") == [("k", 1)]
    assert found.pop("doc") == {"x": "x", "at": MOMENT}
    assert tuple(found.values()) == (*ROW[:9], None)


def test_rows_of_other_columns_are_refused(spark: "SparkSession", table: Format) -> None:
    assert table.write(table.sink(), frame(spark, "id BIGINT", [(1,)]), 0)
    with pytest.raises(PipelineError, match=r"pipeline.yaml:1: sink 'out': (Delta|Iceberg) says: "):
        table.write(table.sink(), frame(spark, "id STRING, name STRING", [("x", "y")]), 1)
    assert [row["id"] for row in table.rows()] == [1]


@pytest.mark.parametrize("options", [{}, {"key": "id"}, {"mode": "complete"}])
def test_a_column_that_the_table_lacks_is_added(spark: "SparkSession", table: Format, options: dict[str, Any]) -> None:
    assert table.write(table.sink(**options), frame(spark, "id BIGINT", [(1,), (2,)]), 0)
    wider = frame(spark, "id BIGINT, at TIMESTAMP, tags ARRAY<STRING>", [(2, MOMENT, ["a"])])
    assert table.write(table.sink(**options), wider, 1)
    assert not table.write(table.sink(**options), wider, 1)
    added, first = {"id": 2, "at": MOMENT, "tags": ["a"]}, {"id": 1, "at": None, "tags": None}
    left = {"key": [first], "mode": []}.get(next(iter(options), ""), [first, {**first, "id": 2}])
    assert table.rows() == sorted([*left, added], key=str)


@pytest.mark.parametrize("key", [None, "id"])
def test_values_that_a_table_would_keep_less_of_are_refused(table: Format, key: str | None) -> None:
    options = {"key": key} if key else {}
    writer = delta.writer(table.sink(**options)) if table.kind == "delta" else iceberg.writer(table.sink(**options))
    narrow = {"n": (pa.int32(), pa.float64()), "price": (pa.decimal128(10, 2), pa.decimal128(12, 4))}
    narrow |= {"day": (pa.date32(), pa.timestamp("us", "UTC")), "count": (pa.int32(), pa.int64())}
    first = {"id": pa.array([1], pa.int64()), **{name: pa.array([None], there) for name, (there, _) in narrow.items()}}
    assert writer.write(pa.table(first), batch(0))
    for name, (_, wider) in narrow.items():
        with pytest.raises(PipelineError, match=r"sink 'out': (Delta|Iceberg) says: "):
            writer.write(pa.table({**first, name: pa.array([None], wider)}), batch(1))
    assert len(table.rows()) == 1


def test_a_delta_table_takes_narrower_values(tmp_path: Path) -> None:
    table = Format("delta", tmp_path)
    kinds = {"n": pa.int64(), "price": pa.decimal128(12, 2), "exact": pa.float64(), "at": pa.timestamp("us", "UTC")}
    first = {"id": pa.array([1]), **{name: pa.array([None], kind) for name, kind in kinds.items()}}
    narrower = {"n": pa.array([7], pa.int16()), "price": pa.array([7], pa.int32()), "exact": pa.array([7], pa.int32())}
    narrower |= {"id": pa.array([1]), "at": pa.array([date(2026, 1, 31)])}
    writer = delta.writer(table.sink(key="id"))
    assert writer.write(pa.table(first), batch(0))
    assert writer.write(pa.table(narrower), batch(1))
    assert table.rows() == [
        {"id": 1, "n": 7, "price": Decimal(7), "exact": 7.0, "at": datetime(2026, 1, 31, tzinfo=UTC)}
    ]


def test_an_upsert_into_iceberg_that_would_empty_a_column_is_refused(spark: "SparkSession", tmp_path: Path) -> None:
    table = Format("iceberg", tmp_path)
    assert table.write(table.sink(key="id"), frame(spark, "id BIGINT, name STRING", [(1, "a")]), 0)
    with pytest.raises(PipelineError, match=r"the table web.visits has a column 'name' that the rows lack"):
        table.write(table.sink(key="id"), frame(spark, "id BIGINT", [(1,)]), 1)
    assert table.tuples() == [(1, "a")]


def test_rows_of_a_table_can_be_deleted_by_key(spark: "SparkSession", table: Format, tmp_path: Path) -> None:
    spec = table.sink(key="id", delete_when="_op = 'd'", partition_by="day")
    schema = "id BIGINT, day STRING, _op STRING"
    rows = [(1, "mon", "c"), (2, "mon", "c"), (3, "tue", "d"), (2, "tue", "u")]
    assert table.write(spec, frame(spark, schema, rows).coalesce(1), 0)
    assert table.tuples() == [(1, "mon"), (2, "tue")]
    assert table.write(spec, frame(spark, schema, [(1, None, "d"), (4, "tue", "c")]), 1)
    assert table.tuples() == [(2, "tue"), (4, "tue")]
    assert table.write(spec, frame(spark, schema, [(2, None, "d"), (9, None, "d")]), 2)
    assert table.tuples() == [(4, "tue")]
    assert list(tmp_path.rglob("day=tue"))


@pytest.mark.parametrize("key", [None, ["id"]])
def test_a_stream_whose_last_batch_is_begun_again_ends_exact(
    spark: "SparkSession", storage: Path, table: Format, key: list[str] | None
) -> None:
    run_and_begin_again(Stream(spark, storage, table.sink(**({"key": key} if key else {}))))
    assert table.tuples() == EXPECTED


def test_a_table_of_iceberg_needs_its_namespace(tmp_path: Path) -> None:
    [problem] = sink_kind("iceberg").check(made("iceberg", iceberg="visits"), pipeline(tmp_path))
    assert problem.hint == "web.visits"
