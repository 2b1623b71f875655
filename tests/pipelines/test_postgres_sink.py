"""The PostgreSQL sink, on a server of our own."""

import itertools
import math
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from moldau.pipelines.file.problems import PipelineError
from moldau.pipelines.file.spec import SinkSpec
from moldau.pipelines.kinds import sink_kind
from moldau.pipelines.sinks import batches, postgres
from tests.pipelines.batch_sinks import EXPECTED, Stream, batch, frame, made, run_and_begin_again
from tests.pipelines.postgres_server import Server
from tests.pipelines.specs import pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_numbers = itertools.count()


@pytest.fixture
def table(server: Server) -> str:
    """One in a schema of its own, so that its ledger is its own too."""
    schema = f"s{next(_numbers)}"
    server.run(f"CREATE SCHEMA {schema}")
    return f"{schema}.visits"


def write(spec: SinkSpec, rows: "DataFrame", number: int, checkpoint: str = "first") -> bool:
    selected = batches.select(spec, rows, batches.nested_as_json)
    return postgres.writer(spec, rows).write(selected.toArrow(), batch(number, checkpoint))


def test_a_batch_written_again_is_skipped_and_a_new_checkpoint_is_no_replay(
    spark: "SparkSession", server: Server, table: str
) -> None:
    spec = made("postgres", postgres=server.url, table=table)
    rows = frame(spark, "id BIGINT, name STRING", [(1, "a"), (2, None)])
    assert write(spec, rows, 0)
    assert not write(spec, rows, 0)
    assert write(spec, rows, 1)
    assert write(spec, rows, 0, checkpoint="after a reset")
    assert server.rows(f"SELECT count(*) FROM {table}") == [(6,)]
    with pytest.raises(PipelineError, match=r"has batch 1, but the checkpoint is back at batch 0.*reset"):
        write(spec, rows, 0)


def test_two_writers_of_one_batch_write_it_once(spark: "SparkSession", server: Server, table: str) -> None:
    """A driver that was thought dead, and its successor."""
    spec = made("postgres", postgres=server.url, table=table)
    rows = frame(spark, "id BIGINT", [(number,) for number in range(1000)])
    writer, arrow = postgres.writer(spec, rows), rows.toArrow()
    with ThreadPoolExecutor(4) as pool:
        written = list(pool.map(lambda _: writer.write(arrow, batch(0)), range(4)))
    assert sorted(written) == [False, False, False, True]
    assert server.rows(f"SELECT count(*), count(DISTINCT id) FROM {table}") == [(1000, 1000)]


def test_the_last_row_of_a_key_wins_and_some_delete(spark: "SparkSession", server: Server, table: str) -> None:
    spec = made("postgres", postgres=server.url, table=table, key=["a", "b"], delete_when="_op = 'd'")
    schema = "a BIGINT, b STRING, n INT, _op STRING"
    first = [(1, "x", 1, "c"), (1, "x", 2, "u"), (2, "x", 1, "c"), (3, "x", 1, "d"), (3, "x", 2, "c"), (4, "x", 1, "d")]
    assert write(spec, frame(spark, schema, first).coalesce(1), 0)
    assert server.rows(f"SELECT * FROM {table} ORDER BY a") == [(1, "x", 2), (2, "x", 1), (3, "x", 2)]
    assert write(spec, frame(spark, schema, [(2, "x", None, "d"), (1, "x", 5, None)]), 1)
    assert server.rows(f"SELECT * FROM {table} ORDER BY a") == [(1, "x", 5), (3, "x", 2)]


def test_mode_complete_replaces_all_rows(spark: "SparkSession", server: Server, table: str) -> None:
    spec = made("postgres", postgres=server.url, table=table, mode="complete")
    write(spec, frame(spark, "id INT", [(1,), (2,)]), 0)
    write(spec, frame(spark, "id INT", [(3,)]), 1)
    assert server.rows(f"SELECT id FROM {table}") == [(3,)]


SCHEMA = """f BOOLEAN, i BIGINT, d DOUBLE, n DECIMAL(38, 10), s STRING, b BINARY, day DATE, at TIMESTAMP,
    ntz TIMESTAMP_NTZ, list ARRAY<INT>, doc STRUCT<x: STRING, y: INT>, m MAP<STRING, INT>, nothing STRING"""
ROW = (
    *(True, 2**62, float("inf"), Decimal("12345678901234567890.1234567891"), "a'\"\n\\N,é", b"\x00\xff"),
    *(date(2026, 1, 31), datetime(2026, 1, 31, 12, 0, 0, 5, UTC), datetime(2026, 1, 31, 12)),
    *([1, None], ("x", None), {"k": 1}, None),
)


@pytest.mark.parametrize("key", [None, ["i"]])
def test_values_keep_their_meaning(spark: "SparkSession", server: Server, table: str, key: list[str] | None) -> None:
    spec = made("postgres", postgres=server.url, table=table, **({"key": key} if key else {}))
    nothing = (None, 1, float("nan"), None, "", b"", *(None,) * 7)
    assert write(spec, frame(spark, SCHEMA, [ROW, nothing]), 0)
    empty, whole = server.rows(f"SELECT * FROM {table} ORDER BY i")
    assert whole == (*ROW[:9], [1, None], {"x": "x", "y": None}, {"k": 1}, None)
    assert math.isnan(empty[2])
    assert (*empty[:2], *empty[3:]) == (*nothing[:2], *nothing[3:])
    types = f"""SELECT string_agg(format_type(atttypid, atttypmod), ', ' ORDER BY attnum) FROM pg_attribute
        WHERE attnum > 0 AND attrelid = '{table}'::regclass"""
    assert server.rows(types) == [
        (
            "boolean, bigint, double precision, numeric(38,10), text, bytea, date, timestamp with time zone, "
            "timestamp without time zone, jsonb, jsonb, jsonb, text",
        )
    ]


def test_a_table_that_is_there_reads_the_values_by_its_own_types(
    spark: "SparkSession", server: Server, table: str
) -> None:
    server.run(f"CREATE TABLE {table} (id uuid PRIMARY KEY, day date, note varchar(3), extra int DEFAULT 7)")
    spec = made("postgres", postgres=server.url, table=table, key="id")
    identity = "6c6c4f3a-95d8-4a2e-8f8e-0d7d2f5f4a10"
    rows = [(identity, datetime(2026, 1, 31, tzinfo=UTC), "abc")]
    assert write(spec, frame(spark, "id STRING, day TIMESTAMP, note STRING", rows), 0)
    assert server.rows(f"SELECT id::text, day, note, extra FROM {table}") == [(identity, date(2026, 1, 31), "abc", 7)]
    with pytest.raises(PipelineError, match="PostgreSQL says: value too long for type character varying"):
        write(spec, frame(spark, "id STRING, day TIMESTAMP, note STRING", [(identity, None, "abcd")]), 1)


@pytest.mark.parametrize(
    ("columns", "options", "row", "words"),
    [
        ("id int, nam text", {}, (1, "a"), r"no column 'name' \(did you mean 'nam'\?; ALTER TABLE"),
        ("id int, name text", {"key": "id"}, (1, "a"), r"no primary key or unique constraint on \(id\).*ADD UNIQUE"),
        ("id int, name text UNIQUE", {"key": "name"}, (1, None), "1 rows have no 'name', which is of the key"),
        ("id int, name text", {}, (1, "a\x00b"), r"1 texts of 'name' have a NUL character.*translate\(name"),
        ("id int, name jsonb", {}, (1, '"\\u0000"'), "unsupported Unicode escape sequence.*column name"),
        ("id smallint, name text", {}, (70000, "a"), "out of range for type smallint.*column id"),
    ],
)
def test_what_does_not_fit_is_named_and_nothing_is_written(
    spark: "SparkSession",
    server: Server,
    table: str,
    columns: str,
    options: dict[str, Any],
    row: tuple[Any, ...],
    words: str,
) -> None:
    server.run(f"CREATE TABLE {table} ({columns})")
    spec = made("postgres", postgres=server.url, table=table, **options)
    with pytest.raises(PipelineError, match=f"pipeline.yaml:1: sink 'out': .*{words}"):
        write(spec, frame(spark, "id INT, name STRING", [row]), 0)
    assert server.rows(f"SELECT count(*) FROM {table}") == [(0,)]


def test_the_check_looks_at_the_server_and_the_table(server: Server, table: str, tmp_path: Path) -> None:
    server.run(f"CREATE TABLE {table} (id int, name text)")
    check = sink_kind("postgres").check
    spec = pipeline(tmp_path)
    [problem] = check(made("postgres", postgres=server.url, table=table, key="id"), spec)
    assert "ADD UNIQUE" in problem.hint
    [problem] = check(made("postgres", postgres="postgresql://nobody:secret@127.0.0.1:1/x", table=table), spec)
    assert "connection" in problem.message
    assert "secret" not in str(problem)
    assert not list(check(made("postgres", postgres=server.url, table=table), spec))


@pytest.mark.parametrize("key", [None, ["id"]])
def test_a_stream_whose_last_batch_is_begun_again_ends_exact(
    spark: "SparkSession", storage: Path, server: Server, table: str, key: list[str] | None
) -> None:
    options = {"key": key} if key else {}
    run_and_begin_again(Stream(spark, storage, made("postgres", postgres=server.url, table=table, **options)))
    assert server.rows(f"SELECT id, name FROM {table} ORDER BY id") == EXPECTED
    book = table.replace("visits", "moldau_batches")
    assert server.rows(f"SELECT query, batch FROM {book}") == [("visits.out", 2)]
