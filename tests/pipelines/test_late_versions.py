"""Sinks that keep rows by key and compare versions: a row that comes batches late changes nothing, and a place that is
gone is told of."""

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]  # no type information
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pymongo import MongoClient

from moldau.pipelines.sinks import order
from moldau.pipelines.sinks.batches import DELETED, BatchWriter, Owner
from moldau.pipelines.sinks.delta import DeltaWriter
from moldau.pipelines.sinks.iceberg import IcebergWriter
from moldau.pipelines.sinks.mongodb import MongoWriter
from moldau.pipelines.sinks.postgres import PostgresWriter, Table
from moldau.pipelines.sinks.sqlite import SqliteWriter
from tests.pipelines import mongo_server
from tests.pipelines.batch_sinks import batch
from tests.pipelines.postgres_server import Server
from tests.pipelines.specs import PLACE

OWNER = Owner("out", PLACE)
KEY, BY = ("id",), ("day", "version")
COLUMNS = (("id", "bigint"), ("name", "text"), ("day", "bigint"), ("version", "bigint"))

Row = tuple[int, str, int | None, int | None]
Place = tuple[BatchWriter, Callable[[], list[Row]]]


@pytest.fixture(scope="module")
def mongo() -> Iterator[str]:
    with mongo_server.running() as address:
        yield address


@pytest.fixture(params=["sqlite", "delta", "iceberg", "postgres", "mongodb"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A writer, and what it has written."""
    make: dict[str, Callable[[], Place]] = {
        "sqlite": lambda: _sqlite(tmp_path),
        "delta": lambda: _delta(tmp_path),
        "iceberg": lambda: _iceberg(tmp_path),
        "postgres": lambda: _postgres(request.getfixturevalue("server")),
        "mongodb": lambda: _mongodb(request.getfixturevalue("mongo")),
    }
    return make[request.param]()


def _sqlite(directory: Path) -> Place:
    import sqlite3

    def rows() -> list[Row]:
        with sqlite3.connect(directory / "out.db") as database:
            return database.execute("SELECT * FROM t ORDER BY id").fetchall()

    return SqliteWriter(OWNER, str(directory / "out.db"), "t", KEY, COLUMNS, newest_by=BY), rows


def _delta(directory: Path) -> Place:
    path = str(directory / "lake")
    return DeltaWriter(OWNER, path, KEY, newest_by=BY), lambda: _of_arrow(DeltaTable(path).to_pyarrow_table())


def _iceberg(directory: Path) -> Place:
    catalog = {"type": "sql", "uri": f"sqlite:///{directory}/catalog.db", "warehouse": f"file://{directory}"}

    def rows() -> list[Row]:
        return _of_arrow(load_catalog("default", **catalog).load_table("web.t").scan().to_arrow())

    return IcebergWriter(OWNER, "web.t", catalog, KEY, newest_by=BY), rows


def _postgres(server: Server) -> Place:
    server.run("CREATE SCHEMA IF NOT EXISTS late", "DROP TABLE IF EXISTS late.t, late.moldau_batches")
    writer = PostgresWriter(OWNER, server.url, Table.named("late.t"), KEY, COLUMNS, newest_by=BY)
    return writer, lambda: server.rows("SELECT * FROM late.t ORDER BY id")


def _client(server: str) -> "MongoClient[dict[str, Any]]":
    return MongoClient(f"{server}/late")


def _mongodb(server: str) -> Place:
    def rows() -> list[Row]:
        with _client(server) as client:
            found = client.get_default_database()["t"].find().sort("id")
            return [(row["id"], row["name"], row["day"], row["version"]) for row in found]

    with _client(server) as client:
        client.get_default_database().drop_collection("t")
    return MongoWriter(OWNER, f"{server}/late", "t", KEY, BY), rows


def _of_arrow(found: pa.Table) -> list[Row]:
    return sorted(tuple(row.values()) for row in found.to_pylist())


def _arrow(rows: Sequence[Row], **more: list[Any]) -> pa.Table:
    types = [pa.int64(), pa.string(), pa.int64(), pa.int64()]
    columns = [pa.array(values, kind) for values, kind in zip(zip(*rows, strict=True), types, strict=True)]
    return pa.table([*columns, *more.values()], names=["id", "name", "day", "version", *more])


def test_a_version_that_comes_late_does_not_take_the_place_of_a_newer_one(place: Place) -> None:
    writer, rows = place
    writer.write(_arrow([(1, "a2", 1, 2), (2, "b1", 1, 9), (3, "c1", 1, 1), (4, "d", None, None)]), batch(0))
    late = [(1, "a1", 1, 1), (2, "b2", 2, 1), (3, "c1 again", 1, 1), (4, "d1", 1, 1), (5, "e1", 1, 1)]
    writer.write(_arrow(late), batch(1))
    expected = [(1, "a2", 1, 2), (2, "b2", 2, 1), (3, "c1 again", 1, 1), (4, "d1", 1, 1), (5, "e1", 1, 1)]
    assert rows() == expected
    writer.write(_arrow([(5, "e0", None, None), (1, "a0", 0, 9)]), batch(2))
    assert rows() == expected


def test_a_deletion_that_comes_late_deletes_nothing_newer(place: Place) -> None:
    writer, rows = place
    writer.write(_arrow([(1, "a2", 1, 2), (2, "b1", 1, 1)], **{DELETED: [False, False]}), batch(0))
    writer.write(_arrow([(1, "a1", 1, 1), (2, "b2", 1, 2)], **{DELETED: [True, True]}), batch(1))
    assert rows() == [(1, "a2", 1, 2)]


def test_a_place_that_is_made_anew_is_told_of(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    writer, rows = place
    writer.write(_arrow([(1, "a", 1, 1)]), batch(7))
    [told] = caplog.messages
    assert re.fullmatch(r"visits\.out: .* was not there and is made anew, without the rows of before", told)
    writer.write(_arrow([(2, "b", 1, 1)]), batch(8))
    assert (len(caplog.messages), len(rows())) == (1, 2)


def test_the_first_batch_may_make_its_place(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    place[0].write(_arrow([(1, "a", 1, 1)]), batch(0))
    assert caplog.messages == []


def test_rows_are_put_in_order_by_their_versions_and_those_without_come_first() -> None:
    rows = _arrow([(1, "new", 2, 1), (1, "old", 1, 2), (1, "none", None, 9), (2, "x", 1, 2)])
    told = rows.append_column("__version_0", rows.column("day")).append_column("__version_1", rows.column("version"))
    found = order.in_order(told)
    assert found.column_names == ["id", "name", "day", "version"]
    assert found.column("name").to_pylist() == ["none", "old", "x", "new"]
    assert order.in_order(rows) is rows
