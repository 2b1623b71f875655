"""A PostgreSQL table as a table and as a stream of its changes, on a server of our own."""

import itertools
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from moldau.pipelines.file.problems import Problem
from moldau.pipelines.file.spec import PipelineSpec
from moldau.pipelines.kinds import Context, source_kind
from moldau.pipelines.run.reset import reset
from moldau.pipelines.sources import postgres
from tests.pipelines import postgres_server
from tests.pipelines.postgres_server import Server
from tests.pipelines.specs import pipeline, source
from tests.pipelines.streams import Batches, run_to_end

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_numbers = itertools.count()


@pytest.fixture
def table() -> str:
    return f"visits_{next(_numbers)}"


def opened(spark: "SparkSession", spec: PipelineSpec, server: Server, table: str, **options: Any) -> "DataFrame":
    made = source("postgres", postgres=server.url, table=table, **options)
    return source_kind("postgres").read(made, Context(spark, spec, spec.storage)).rows


def batches_of(rows: "DataFrame", storage: Path, name: str = "out") -> list[list[dict[str, Any]]]:
    found = Batches()
    run_to_end(rows.writeStream.foreachBatch(found), storage / "checkpoints" / name)
    return [batch for batch in found.found if batch]


def brief(rows: list[dict[str, Any]], *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row[column] for column in ("_op", *columns)) for row in rows]


def flat(batches: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch]


def test_a_table_is_read_with_its_types_in_one_part_or_several(
    spark: "SparkSession", server: Server, table: str, storage: Path
) -> None:
    server.run(
        "CREATE TYPE mood AS ENUM ('well', 'ill')",
        "CREATE DOMAIN price AS numeric(8, 2)",
        f"""CREATE TABLE {table} (id int PRIMARY KEY, f boolean, l bigint, d float8, n numeric, p price, s varchar(9),
            b bytea, day date, at timestamptz, ntz timestamp, tags text[], numbers numeric(4, 1)[], j jsonb, u uuid,
            m mood, lasts interval, twice int GENERATED ALWAYS AS (id * 2) STORED)""",
        f"""INSERT INTO {table} VALUES (-5, true, 9000000000, 'NaN', 1.5, 2.25, 'ü', '\\x00ff', '2026-01-31',
            '2026-01-31 13:00+01', '2026-01-31 12:00', ARRAY['a,b', NULL], ARRAY[1.5], '{{"k": 1}}',
            '6c6c4f3a-95d8-4a2e-8f8e-0d7d2f5f4a10', 'well', '1 day')""",
        f"INSERT INTO {table} (id, n, day, at, ntz) VALUES (7, 'NaN', 'infinity', '-infinity', 'infinity')",
        f"INSERT INTO {table} (id) SELECT generate_series(8, 20)",
    )
    rows = opened(spark, pipeline(storage), server, table, **{"as": "table", "partitions": 3})
    first, second, *rest = sorted((row.asDict() for row in rows.collect()), key=lambda row: int(row["id"]))
    assert str(first.pop("d")) == "nan"
    assert first.pop("at").astimezone(UTC) == datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert first == {
        "id": -5,
        "f": True,
        "l": 9_000_000_000,
        "n": Decimal("1.5"),
        "p": Decimal("2.25"),
        "s": "ü",
        "b": bytearray(b"\x00\xff"),
        "day": date(2026, 1, 31),
        "ntz": datetime(2026, 1, 31, 12),
        "tags": ["a,b", None],
        "numbers": [Decimal("1.5")],
        "j": '{"k": 1}',
        "m": "well",
        "lasts": "P1D",
        "u": "6c6c4f3a-95d8-4a2e-8f8e-0d7d2f5f4a10",
        "twice": -10,
    }
    assert second["n"] is None
    assert second["day"] == date.max
    assert second["ntz"] == datetime.max
    assert second["at"].year == 1
    assert [row["id"] for row in rest] == list(range(8, 21))
    server.run(f"DELETE FROM {table}")
    assert rows.count() == 0


def test_a_stream_begins_with_the_rows_and_goes_on_with_their_changes(
    spark: "SparkSession", server: Server, table: str, storage: Path
) -> None:
    server.run(
        f"CREATE TABLE {table} (id int PRIMARY KEY, page text, at timestamptz, g int GENERATED ALWAYS AS (1) STORED)",
        f"INSERT INTO {table} (id, page) SELECT n, 'p' || n FROM generate_series(1, 5) n",
    )
    spec = pipeline(storage)
    rows = opened(spark, spec, server, table, max_per_batch=2)
    assert rows.columns == ["id", "page", "at", "_op", "_lsn", "_number", "_commit_timestamp"]
    found = batches_of(rows, storage)
    assert [len(batch) for batch in found] == [2, 2, 1]
    assert brief(flat(found), "id", "page") == [("r", n, f"p{n}") for n in range(1, 6)]

    server.run(
        f"INSERT INTO {table} (id, page, at) VALUES (6, 'p6', '2026-01-31 13:00+01')",
        f"UPDATE {table} SET page = 'new' WHERE id < 4",
        f"UPDATE {table} SET id = 10 WHERE id = 5",
        f"DELETE FROM {table} WHERE id = 1",
        f"INSERT INTO {table} (id) VALUES (99)",
        f"DELETE FROM {table} WHERE id = 99",
    )
    found = batches_of(rows, storage)
    assert brief(found[0], "id", "page") == [("c", 6, "p6"), *(("u", n, "new") for n in (1, 2, 3))]  # not cut in two
    expected = [("d", 5, None), ("c", 10, "p5"), ("d", 1, None), ("c", 99, None), ("d", 99, None)]
    assert brief(flat(found[1:]), "id", "page") == expected
    positions = [(row["_lsn"], row["_number"]) for row in flat(found)]
    assert positions == sorted(set(positions)), "the order is told by them alone"
    assert found[0][0]["at"].astimezone(UTC) == datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert abs((datetime.now(UTC) - found[0][0]["_commit_timestamp"].astimezone(UTC)).total_seconds()) < 600
    assert batches_of(rows, storage) == []


def test_a_batch_begun_again_has_the_same_changes(
    spark: "SparkSession", server: Server, table: str, storage: Path
) -> None:
    server.run(f"CREATE TABLE {table} (id int PRIMARY KEY)", f"INSERT INTO {table} VALUES (1), (2)")
    rows = opened(spark, pipeline(storage), server, table)
    first = batches_of(rows, storage)
    _forget_commit(storage, 0)
    server.run(f"INSERT INTO {table} VALUES (3)")
    again = batches_of(rows, storage)
    assert again[0] == first[0]
    assert brief(flat(again[1:]), "id") == [("c", 3)]
    _forget_commit(storage, 1)
    server.run(f"DELETE FROM {table}")
    assert brief(flat(batches_of(rows, storage)), "id") == [("c", 3), ("d", 1), ("d", 2), ("d", 3)]


def _forget_commit(storage: Path, number: int) -> None:
    for name in (f"{number}", f".{number}.crc"):
        (storage / "checkpoints" / "out" / "commits" / name).unlink(missing_ok=True)


def test_large_values_that_an_update_left_alone_are_there(
    spark: "SparkSession", server: Server, table: str, storage: Path
) -> None:
    large = "x" * 10_000
    server.run(
        f"CREATE TABLE {table} (id int PRIMARY KEY, page text, body text)",
        f"ALTER TABLE {table} ALTER body SET STORAGE EXTERNAL",
        f"INSERT INTO {table} VALUES (1, 'a', '{large}'), (2, 'a', '{large}')",
    )
    rows = opened(spark, pipeline(storage), server, table, snapshot=False)
    assert batches_of(rows, storage) == []
    server.run(f"UPDATE {table} SET page = 'b'", f"DELETE FROM {table} WHERE id = 2")
    found = flat(batches_of(rows, storage))
    # PostgreSQL has not sent the large value: it comes from the table, where one of the two rows is no more
    assert brief(found, "id", "page", "body") == [("u", 1, "b", large), ("u", 2, "b", None), ("d", 2, None, None)]
    server.run(f"ALTER TABLE {table} REPLICA IDENTITY FULL")
    server.run(f"UPDATE {table} SET page = 'c'", f"DELETE FROM {table}")
    found = flat(batches_of(rows, storage))
    assert brief(found, "id", "page", "body") == [("u", 1, "c", large), ("d", 1, "c", large)]


def test_each_query_has_its_own_slot_and_an_abandoned_one_is_dropped(
    spark: "SparkSession", server: Server, table: str, storage: Path
) -> None:
    server.run(f"CREATE TABLE {table} (id int PRIMARY KEY)", f"INSERT INTO {table} VALUES (1)")
    made = source("postgres", name=table, postgres=server.url, table=table)
    spec = pipeline(storage, sources={table: made})
    rows = source_kind("postgres").read(made, Context(spark, spec, storage)).rows
    assert len(flat(batches_of(rows, storage, "one"))) == 1
    assert len(flat(batches_of(rows, storage, "other"))) == 1
    slots = f"SELECT slot_name FROM pg_replication_slots WHERE slot_name LIKE 'moldau_visits_{table}_%'"
    assert len(server.rows(slots)) == 2
    assert postgres.release_abandoned(spec) == []
    (storage / "checkpoints" / "one").rename(storage / "gone")
    assert len(postgres.release_abandoned(spec)) == 1
    assert len(server.rows(slots)) == 1
    server.run(f"INSERT INTO {table} VALUES (2)")
    assert brief(flat(batches_of(rows, storage, "other")), "id") == [("c", 2)]
    [(slot,)] = server.rows(slots)
    said: list[str] = []
    reset(spec, None, said.append)
    assert said == [f"replication slot {slot!r} is dropped"]
    assert server.rows(slots) == []


def test_a_slot_that_is_gone_is_told_with_what_to_do(
    spark: "SparkSession", server: Server, table: str, storage: Path
) -> None:
    server.run(f"CREATE TABLE {table} (id int PRIMARY KEY)")
    rows = opened(spark, pipeline(storage), server, table)
    assert batches_of(rows, storage) == []
    for (slot,) in server.rows("SELECT slot_name FROM pg_replication_slots WHERE NOT active"):
        server.rows(f"SELECT pg_drop_replication_slot('{slot}')")
    server.run(f"INSERT INTO {table} VALUES (1)")
    with pytest.raises(Exception, match=r"(?s)source 'rows': the replication slot .* changes may be lost.*reset"):
        batches_of(rows, storage)


def test_a_truncation_ends_the_run_and_a_new_column_or_another_table_of_the_publication_does_not(
    spark: "SparkSession", server: Server, table: str, storage: Path
) -> None:
    server.run(
        f"CREATE TABLE {table} (id int PRIMARY KEY)",
        f"CREATE TABLE {table}_other (id int PRIMARY KEY)",
        f"CREATE PUBLICATION of_{table} FOR TABLE {table}, {table}_other WITH (publish = 'insert, update, delete')",
    )
    rows = opened(spark, pipeline(storage), server, table, publication=f"of_{table}")
    with pytest.raises(Exception, match=r"(?s)does not tell when the table is truncated .ALTER PUBLICATION .* SET"):
        batches_of(rows, storage)
    server.run(f"ALTER PUBLICATION of_{table} SET (publish = 'insert, update, delete, truncate')")
    assert batches_of(rows, storage) == []
    server.run(f"INSERT INTO {table} VALUES (1)", f"ALTER TABLE {table} ADD COLUMN name text")
    server.run(
        f"INSERT INTO {table} VALUES (2, 'b')", f"INSERT INTO {table}_other VALUES (7)", f"TRUNCATE {table}_other"
    )
    assert brief(flat(batches_of(rows, storage)), "id") == [("c", 1), ("c", 2)]
    server.run(f"TRUNCATE {table}", f"INSERT INTO {table} VALUES (3, 'c')")
    with pytest.raises(Exception, match=rf"(?s)the table {table} was truncated at .* pipeline reset.*truncate: skip"):
        batches_of(rows, storage)
    rows = opened(spark, pipeline(storage), server, table, publication=f"of_{table}", truncate="skip")
    assert brief(flat(batches_of(rows, storage)), "id", "name") == [("c", 3, "c")]


def problems(server: Server, tmp_path: Path, **options: Any) -> list[Problem]:
    made = source("postgres", **{"postgres": server.url, **options})
    return list(source_kind("postgres").check(made, pipeline(tmp_path)))


def test_the_check_says_what_the_database_lacks(server: Server, table: str, tmp_path: Path) -> None:
    server.run(f"CREATE TABLE {table} (id text)", "CREATE ROLE reader LOGIN")
    [missing] = problems(server, tmp_path, table="nowhere")
    assert "there is no table 'nowhere'" in missing.message
    assert table in missing.hint
    [keyless] = problems(server, tmp_path, table=table)
    assert "no primary key" in keyless.message
    assert "REPLICA IDENTITY FULL" in keyless.message
    server.run(f"ALTER TABLE {table} ADD PRIMARY KEY (id)")
    assert problems(server, tmp_path, table=table) == []
    [role] = problems(server, tmp_path, table=table, postgres=server.url_of("reader"))
    assert role.hint == "ALTER ROLE reader REPLICATION"
    [parts] = problems(server, tmp_path, table=table, partitions=2, **{"as": "table"})
    assert "one integer column" in parts.message
    [address] = problems(server, tmp_path, table=table, postgres="postgresql://me:secret@127.0.0.1:1/x")
    assert "secret" not in str(address)


def test_a_server_without_logical_replication_is_named(tmp_path: Path) -> None:
    with postgres_server.running("wal_level=replica") as server:
        server.run("CREATE TABLE t (id int PRIMARY KEY)")
        [problem] = problems(server, tmp_path, table="t")
        assert "needs wal_level logical, the server has replica" in problem.message
        assert problems(server, tmp_path, table="t", **{"as": "table"}) == []
