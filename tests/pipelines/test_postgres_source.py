"""A PostgreSQL table as a table and as a stream of its changes, on a server of our own."""

import io
import itertools
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from moldau.pipelines.file.files import load
from moldau.pipelines.file.problems import Problem
from moldau.pipelines.file.spec import PipelineSpec
from moldau.pipelines.kinds import Context, source_kind
from moldau.pipelines.run.display import Display
from moldau.pipelines.run.reset import reset
from moldau.pipelines.run.runner import ONCE, Run
from moldau.pipelines.sources import postgres
from tests.pipelines import postgres_server
from tests.pipelines.clusters import Cluster
from tests.pipelines.postgres_server import Server
from tests.pipelines.specs import pipeline, source
from tests.pipelines.streams import Batches, run_to_end

if TYPE_CHECKING:
    from collections.abc import Callable

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
    rows = opened(spark, pipeline(storage, name=table), server, table, **{"as": "table", "partitions": 3})
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
    spec = pipeline(storage, name=table)
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
    rows = opened(spark, pipeline(storage, name=table), server, table)
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
    rows = opened(spark, pipeline(storage, name=table), server, table, snapshot=False)
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
    spec = pipeline(storage, name=table, sources={table: made})
    rows = source_kind("postgres").read(made, Context(spark, spec, storage)).rows
    assert len(flat(batches_of(rows, storage, "one"))) == 1
    assert len(flat(batches_of(rows, storage, "other"))) == 1
    slots = f"SELECT slot_name FROM pg_replication_slots WHERE slot_name LIKE 'moldau_{table}_{table}_%'"
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


def test_another_pipeline_of_that_name_is_refused_before_it_captures_everything_twice(
    spark: "SparkSession", server: Server, table: str, storage: Path, tmp_path: Path
) -> None:
    server.run(f"CREATE TABLE {table} (id int PRIMARY KEY)")
    assert batches_of(opened(spark, pipeline(storage, name=table), server, table), storage) == []
    elsewhere = opened(spark, pipeline(tmp_path / "elsewhere", name=table), server, table)
    words = (
        rf"(?s)the replication slot moldau_{table}_rows_\w+ is of another pipeline that is called '{table}', or of a"
    )
    with pytest.raises(Exception, match=words):
        batches_of(elsewhere, tmp_path / "elsewhere")
    again = opened(spark, pipeline(storage, name=table), server, table)
    assert batches_of(again, storage, "another sink") == []


def test_a_slot_that_is_gone_is_told_with_what_to_do(
    spark: "SparkSession", server: Server, table: str, storage: Path
) -> None:
    server.run(f"CREATE TABLE {table} (id int PRIMARY KEY)")
    rows = opened(spark, pipeline(storage, name=table), server, table)
    assert batches_of(rows, storage) == []
    for (slot,) in server.rows("SELECT slot_name FROM pg_replication_slots WHERE NOT active"):
        server.rows(f"SELECT pg_drop_replication_slot('{slot}')")
    server.run(f"INSERT INTO {table} VALUES (1)")
    with pytest.raises(Exception, match=r"(?s)source 'rows': the replication slot .* changes may be lost.*reset"):
        batches_of(rows, storage)


class Altered(Run):
    """A run whose table gets a column, and a row that has it, right after its columns were looked at."""

    alter: "Callable[[], None]" = staticmethod(lambda: None)

    def _start(self, *given: Any) -> None:
        type(self).alter()
        super()._start(*given)


def test_a_column_that_is_added_while_a_run_goes_on_is_captured_from_its_first_row_on(
    spark: "SparkSession", server: Server, table: str, moldau_cluster_only: Cluster, tmp_path: Path
) -> None:
    server.run(f"CREATE TABLE {table} (id int PRIMARY KEY)", f"INSERT INTO {table} VALUES (1)")
    file = tmp_path / "capture.yaml"
    file.write_text(f"""
name: of-{table}
bootstrap: {moldau_cluster_only.bootstrap}
sources: {{rows: {{postgres: "{server.url}", table: {table}}}}}
sinks: {{lake: {{from: rows, delta: lake, key: id, newest_by: [_lsn, _number]}}}}
""")
    said = io.StringIO()

    def run(*alter: str) -> None:
        steps = iter([alter])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Altered, "alter", staticmethod(lambda: server.run(*next(steps, ()))))
            Altered(load(file), spark, ONCE, display=Display(said, live=False)).to_the_end()

    run(f"ALTER TABLE {table} ADD note text DEFAULT 'n'")
    run(
        f"INSERT INTO {table} VALUES (2)",
        f"ALTER TABLE {table} ADD name text",
        f"INSERT INTO {table} VALUES (3, '', 'c')",
    )
    found = DeltaTable(str(tmp_path / "lake")).to_pyarrow_table().to_pylist()
    assert sorted((row["id"], row["note"], row["name"]) for row in found) == [
        (1, "n", None),
        (2, "n", None),
        (3, "", "c"),
    ]
    assert f"rows: the column 'note' of {table} has come with a default: rows of before lack it" in said.getvalue()
    server.run(f"ALTER TABLE {table} RENAME name TO label")
    run()
    words = f"rows: the column 'name' of {table} is called 'label' now: rows of before have it under the old name"
    assert said.getvalue().count(words) == 1
    run()
    assert said.getvalue().count(words) == 1
    told = "source 'rows': the captured table has other columns since the queries began: {}: the queries begin again"
    assert all(told.format(name) in said.getvalue() for name in ("note", "name"))


def test_a_truncation_ends_the_run_and_a_new_column_or_another_table_of_the_publication_does_not(
    spark: "SparkSession", server: Server, table: str, storage: Path
) -> None:
    server.run(
        f"CREATE TABLE {table} (id int PRIMARY KEY)",
        f"CREATE TABLE {table}_other (id int PRIMARY KEY)",
        f"CREATE PUBLICATION of_{table} FOR TABLE {table}, {table}_other WITH (publish = 'insert, update, delete')",
    )
    rows = opened(spark, pipeline(storage, name=table), server, table, publication=f"of_{table}")
    with pytest.raises(Exception, match=r"(?s)does not tell when the table is truncated .ALTER PUBLICATION .* SET"):
        batches_of(rows, storage)
    server.run(f"ALTER PUBLICATION of_{table} SET (publish = 'insert, update, delete, truncate')")
    assert batches_of(rows, storage) == []
    server.run(f"INSERT INTO {table} VALUES (1)", f"ALTER TABLE {table} ADD COLUMN name text")
    assert brief(flat(batches_of(rows, storage)), "id") == [("c", 1)]
    server.run(
        f"INSERT INTO {table} VALUES (2, 'b')", f"INSERT INTO {table}_other VALUES (7)", f"TRUNCATE {table}_other"
    )
    rows = opened(spark, pipeline(storage, name=table), server, table, publication=f"of_{table}")
    assert brief(flat(batches_of(rows, storage)), "id", "name") == [("c", 2, "b")]
    server.run(f"TRUNCATE {table}", f"INSERT INTO {table} VALUES (3, 'c')")
    with pytest.raises(Exception, match=rf"(?s)the table {table} was truncated at .* pipeline reset.*truncate: skip"):
        batches_of(rows, storage)
    rows = opened(spark, pipeline(storage, name=table), server, table, publication=f"of_{table}", truncate="skip")
    assert brief(flat(batches_of(rows, storage)), "id", "name") == [("c", 3, "c")]
    server.run(f"ALTER TABLE {table} DROP COLUMN name", f"INSERT INTO {table} VALUES (4)")
    with pytest.raises(Exception, match=r"(?s)has other columns since the queries began: no name any more"):
        batches_of(rows, storage)


def test_changes_of_before_have_the_values_of_columns_that_the_table_got_or_renamed_since(
    spark: "SparkSession", server: Server, table: str, storage: Path
) -> None:
    server.run(
        f"CREATE TABLE {table} (id int PRIMARY KEY, name text, old text)", f"INSERT INTO {table} VALUES (1, 'a')"
    )
    batches_of(opened(spark, pipeline(storage, name=table), server, table), storage)
    server.run(
        f"INSERT INTO {table} VALUES (2, 'b'), (3, 'c')",
        f"ALTER TABLE {table} RENAME name TO label",
        f"ALTER TABLE {table} ADD pieces int DEFAULT 5, DROP old",
        f"DELETE FROM {table} WHERE id = 3",
    )
    rows = opened(spark, pipeline(storage, name=table), server, table)
    found = brief(flat(batches_of(rows, storage)), "id", "label", "pieces")
    assert found == [("c", 2, "b", 5), ("c", 3, None, None), ("d", 3, None, None)]
    server.run(f"INSERT INTO {table} VALUES (4, 'd')", f"ALTER TABLE {table} RENAME id TO number")
    rows = opened(spark, pipeline(storage, name=table), server, table)
    with pytest.raises(Exception, match=r"(?s)a change of before has no 'number', which is of the table's key now"):
        batches_of(rows, storage)


def test_rows_of_the_beginning_have_the_columns_that_the_table_has_when_they_are_read(
    spark: "SparkSession", server: Server, table: str, storage: Path
) -> None:
    server.run(
        f"CREATE TABLE {table} (id int PRIMARY KEY, name text, old text)",
        f"INSERT INTO {table} SELECT n, 'a', 'b' FROM generate_series(1, 4) n",
    )
    before = opened(spark, pipeline(storage, name=table), server, table, max_per_batch=2)
    found = Batches()

    def killed(rows: "DataFrame", number: int) -> None:
        found(rows, number)
        if number:
            raise KeyError(number)

    with pytest.raises(Exception, match="KeyError"):
        run_to_end(before.writeStream.foreachBatch(killed), storage / "checkpoints" / "out")
    server.run(f"ALTER TABLE {table} RENAME name TO label", f"ALTER TABLE {table} DROP old, ADD pieces int DEFAULT 5")
    after = batches_of(opened(spark, pipeline(storage, name=table), server, table, max_per_batch=2), storage)
    assert brief(flat(after), "id", "label", "pieces") == [("r", 3, "a", 5), ("r", 4, "a", 5)]


def test_a_table_that_was_dropped_and_made_anew_ends_the_run(
    spark: "SparkSession", server: Server, table: str, storage: Path
) -> None:
    server.run(f"CREATE TABLE {table} (id int PRIMARY KEY)")
    rows = opened(spark, pipeline(storage, name=table), server, table)
    assert batches_of(rows, storage) == []
    server.run(f"DROP TABLE {table}", f"CREATE TABLE {table} (id int PRIMARY KEY)", f"INSERT INTO {table} VALUES (1)")
    with pytest.raises(Exception, match=rf"(?s)the table {table} was dropped and made anew.*pipeline reset"):
        batches_of(rows, storage)
    server.run(f"DROP TABLE {table}")
    with pytest.raises(Exception, match=rf"there is no table {table}"):
        batches_of(rows, storage)


def test_changes_of_partitions_are_the_tables_and_a_truncation_of_one_ends_the_run(
    spark: "SparkSession", server: Server, table: str, storage: Path
) -> None:
    server.run(
        f"CREATE TABLE {table} (id int PRIMARY KEY, name text) PARTITION BY RANGE (id)",
        f"CREATE TABLE {table}_1 PARTITION OF {table} FOR VALUES FROM (0) TO (10)",
        f"CREATE TABLE {table}_2 (name text, gone int, id int PRIMARY KEY)",
        f"ALTER TABLE {table}_2 DROP gone",
        f"ALTER TABLE {table} ATTACH PARTITION {table}_2 FOR VALUES FROM (10) TO (20)",
        f"INSERT INTO {table} VALUES (1, 'a'), (11, 'b')",
        f"CREATE PUBLICATION of_{table} FOR TABLE {table} WITH (publish_via_partition_root = true)",
    )
    by_root = opened(spark, pipeline(storage, name=table), server, table, publication=f"of_{table}")
    with pytest.raises(Exception, match=r"(?s)does not tell when a partition of it is truncated .ALTER .* = false\)"):
        batches_of(by_root, storage)
    rows = opened(spark, pipeline(storage, name=table), server, table)
    assert sorted(brief(flat(batches_of(rows, storage)), "id", "name")) == [("r", 1, "a"), ("r", 11, "b")]
    server.run(
        f"CREATE TABLE {table}_3 PARTITION OF {table} FOR VALUES FROM (20) TO (30)",
        f"INSERT INTO {table} VALUES (12, 'c'), (22, 'd')",
        f"UPDATE {table} SET id = 2 WHERE id = 12",
    )
    found = brief(flat(batches_of(rows, storage)), "id", "name")
    assert found == [("c", 12, "c"), ("c", 22, "d"), ("d", 12, None), ("c", 2, "c")]
    server.run(f"TRUNCATE {table}_2")
    with pytest.raises(Exception, match=rf"(?s)the table {table} was truncated at .* pipeline reset"):
        batches_of(rows, storage)


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
