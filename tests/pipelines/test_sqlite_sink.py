"""The SQLite sink, on real files."""

import sqlite3
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from moldau.pipelines.file.problems import PipelineError
from moldau.pipelines.file.spec import SinkSpec
from moldau.pipelines.kinds import sink_kind
from moldau.pipelines.sinks import batches, sqlite
from tests.pipelines.batch_sinks import EXPECTED, Stream, batch, frame, made, run_and_begin_again
from tests.pipelines.specs import pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out.db"


def query(path: Path, text: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as database:
        found = database.execute(text).fetchall()
        database.commit()
        return found


def write(spec: SinkSpec, rows: "DataFrame", number: int, checkpoint: str = "first") -> bool:
    selected = batches.select(spec, rows, batches.nested_as_json)
    return sqlite.writer(spec, rows).write(selected.toArrow(), batch(number, checkpoint))


def test_a_batch_written_again_is_skipped_and_a_new_checkpoint_is_no_replay(spark: "SparkSession", path: Path) -> None:
    spec = made("sqlite", sqlite=str(path), table="visits")
    rows = frame(spark, "id BIGINT, name STRING", [(1, "a"), (2, None)])
    assert write(spec, rows, 0)
    assert not write(spec, rows, 0)
    assert write(spec, rows, 1)
    assert write(spec, rows, 0, checkpoint="after a reset")
    assert query(path, "SELECT count(*) FROM visits") == [(6,)]
    with pytest.raises(PipelineError, match=r"has batch 1, but the checkpoint is back at batch 0.*reset"):
        write(spec, rows, 0)


def test_the_last_row_of_a_key_wins_and_some_delete(spark: "SparkSession", path: Path) -> None:
    spec = made("sqlite", sqlite=str(path), table="t", key=["a", "b"], delete_when="_op = 'd'")
    schema = "a BIGINT, b STRING, n INT, _op STRING"
    first = [(1, "x", 1, "c"), (1, "x", 2, "u"), (2, "x", 1, "c"), (3, "x", 1, "d"), (3, "x", 2, "c"), (4, "x", 1, "d")]
    assert write(spec, frame(spark, schema, first).coalesce(1), 0)
    assert query(path, "SELECT * FROM t ORDER BY a") == [(1, "x", 2), (2, "x", 1), (3, "x", 2)]
    assert write(spec, frame(spark, schema, [(2, "x", None, "d"), (1, "x", 5, None)]), 1)
    assert query(path, "SELECT * FROM t ORDER BY a") == [(1, "x", 5), (3, "x", 2)]


def test_mode_complete_replaces_all_rows(spark: "SparkSession", path: Path) -> None:
    spec = made("sqlite", sqlite=str(path), table="t", mode="complete")
    write(spec, frame(spark, "id INT", [(1,), (2,)]), 0)
    write(spec, frame(spark, "id INT", [(3,)]), 1)
    assert query(path, "SELECT id FROM t") == [(3,)]


def test_values_keep_their_meaning(spark: "SparkSession", path: Path) -> None:
    spec = made("sqlite", sqlite=str(path), table="t")
    schema = """f BOOLEAN, i BIGINT, d DOUBLE, n DECIMAL(38, 10), s STRING, b BINARY, day DATE, at TIMESTAMP,
        ntz TIMESTAMP_NTZ, list ARRAY<INT>, doc STRUCT<x: STRING, y: INT>, m MAP<STRING, INT>, nothing STRING"""
    moment = datetime(2026, 1, 31, 12, tzinfo=UTC)
    row = (
        *(True, 2**62, float("inf"), Decimal("12345678901234567890.1234567891"), "a\x00'\"\n", b"\x00\xff"),
        *(date(2026, 1, 31), moment, datetime(2026, 1, 31, 12), [1, None], ("x", None), {"k": 1}, None),
    )
    write(spec, frame(spark, schema, [row, (None,) * 13, (None, None, float("nan"), *(None,) * 10)]), 0)
    whole, empty, nan = query(path, "SELECT * FROM t")
    assert whole == (
        *(1, 2**62, float("inf"), "12345678901234567890.1234567891", "a\x00'\"\n", b"\x00\xff"),
        *("2026-01-31", "2026-01-31T12:00:00.000000Z", "2026-01-31T12:00:00.000000"),
        *("[1,null]", '{"x":"x","y":null}', '{"k":1}', None),
    )
    assert empty == nan == (None,) * 13
    assert query(path, "SELECT strftime('%s', at) FROM t LIMIT 1") == [(str(int(moment.timestamp())),)]


def test_metadata_columns_are_written_only_if_they_are_named(spark: "SparkSession", path: Path) -> None:
    rows = frame(spark, "id INT, _offset BIGINT, _key STRING", [(1, 7, "k")])
    write(made("sqlite", sqlite=str(path), table="plain"), rows, 0)
    write(made("sqlite", sqlite=str(path), table="keyed", name="b", key="_key"), rows, 0, "b")
    write(made("sqlite", sqlite=str(path), table="named", columns="_offset"), rows, 0, "c")
    assert query(path, "SELECT * FROM plain") == [(1,)]
    assert query(path, "SELECT * FROM keyed") == [("k", 1)]
    assert query(path, "SELECT * FROM named") == [(7,)]


@pytest.mark.parametrize(
    ("columns", "options", "name", "words"),
    [
        ("id INT, nam TEXT", {}, "a", r"no column 'name' \(did you mean 'nam'\?; ALTER TABLE"),
        ("id INT, name TEXT", {"key": "id"}, "a", r"no primary key or unique index on \(id\).*CREATE UNIQUE"),
        ("id INT PRIMARY KEY, name TEXT", {"key": "name"}, "a", r"on \(name\)"),
        ("id INT, name TEXT UNIQUE", {"key": "name"}, None, "1 rows have no 'name', which is of the key"),
    ],
)
def test_a_table_that_does_not_fit_is_named_with_what_to_do(
    spark: "SparkSession", path: Path, columns: str, options: dict[str, Any], name: str | None, words: str
) -> None:
    query(path, f"CREATE TABLE t ({columns})")
    spec = made("sqlite", sqlite=str(path), table="t", **options)
    with pytest.raises(PipelineError, match=f"pipeline.yaml:1: sink 'out': .*{words}"):
        write(spec, frame(spark, "id INT, name STRING", [(1, name)]), 0)
    assert query(path, "SELECT count(*) FROM t") == [(0,)]


def test_the_check_looks_at_the_table_that_is_there(path: Path, tmp_path: Path) -> None:
    query(path, "CREATE TABLE t (id INT, name TEXT)")
    check = sink_kind("sqlite").check
    spec = pipeline(tmp_path)
    [problem] = check(made("sqlite", sqlite=str(path), table="t", key="id"), spec)
    assert "CREATE UNIQUE INDEX" in problem.hint
    [problem] = check(made("sqlite", sqlite=str(tmp_path / "no" / "out.db"), table="t"), spec)
    assert "there is no directory" in problem.message
    [problem] = check(made("sqlite", sqlite=str(path), table="new", delete_when="true"), spec)
    assert "'delete_when' needs 'key'" in problem.message
    assert not list(check(made("sqlite", sqlite=str(path), table="new", key="id"), spec))


@pytest.mark.parametrize("key", [None, ["id"]])
def test_a_stream_whose_last_batch_is_begun_again_ends_exact(
    spark: "SparkSession", storage: Path, path: Path, key: list[str] | None
) -> None:
    options = {"key": key} if key else {}
    run_and_begin_again(Stream(spark, storage, made("sqlite", sqlite=str(path), table="visits", **options)))
    assert query(path, "SELECT id, name FROM visits ORDER BY id") == EXPECTED
    assert query(path, "SELECT query, batch FROM moldau_batches") == [("visits.out", 2)]
