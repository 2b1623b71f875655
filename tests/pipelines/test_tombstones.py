"""Records without value that are read, and delete the row of their key."""

import io
import json
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from moldau.pipelines.file.files import load
from moldau.pipelines.file.problems import PipelineError
from moldau.pipelines.run import tombstones
from moldau.pipelines.run.display import Display
from moldau.pipelines.run.runner import ONCE, Run
from tests.pipelines.clusters import Cluster, Record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIPELINE = """
name: {name}
bootstrap: {bootstrap}
sources:
  orders: {{topic: {orders}, schema: "id INT, price DOUBLE", required: [price], tombstones: id}}
  visits: {{topic: {visits}, schema: "page STRING, day DATE, n INT", tombstones: [page, day]}}
views:
  kept: SELECT id, price * 2 AS price, _deleted FROM orders
sinks:
  table: {{from: kept, sqlite: out.db, table: orders, key: id}}
  topic: {{from: kept, topic: {orders}-out, key: id, create: true}}
  days: {{from: visits, sqlite: out.db, table: visits, key: [page, day]}}
"""


def _order(number: int, price: float | None) -> Record:
    value = None if price is None else json.dumps({"id": number, "price": price}).encode()
    return Record(value, str(number).encode())


def _visits(page: str, day: str, number: int | None) -> Record:
    key = {"page": page, "day": day}
    return Record(None if number is None else json.dumps({**key, "n": number}).encode(), json.dumps(key).encode())


def test_a_tombstone_deletes_the_row_of_its_key(
    spark: "SparkSession", moldau_cluster_only: Cluster, tmp_path: Path
) -> None:
    cluster = moldau_cluster_only
    orders, visits = cluster.new_topic("orders"), cluster.new_topic("visits")
    file = tmp_path / "orders.yaml"
    file.write_text(PIPELINE.format(name=orders, bootstrap=cluster.bootstrap, orders=orders, visits=visits))
    cluster.send(orders, [_order(1, 1.5), _order(2, 2.5), Record(None, b"three"), Record(None), _order(1, None)])
    cluster.send(orders, [_order(3, 3.5), _order(4, None), Record(b'{"id": 5}', b"5")])
    days = [_visits("a", "2026-11-16", 1), _visits("a", "2026-11-17", 2), _visits("a", "2026-11-16", None)]
    cluster.send(visits, [*days, Record(None, b'{"page": "a"}')])
    Run(load(file), spark, ONCE, display=Display(io.StringIO(), live=False)).to_the_end()

    with sqlite3.connect(tmp_path / "out.db") as database:
        assert database.execute("SELECT * FROM orders ORDER BY id").fetchall() == [(2, 5.0), (3, 7.0)]
        assert database.execute("SELECT * FROM visits").fetchall() == [("a", "2026-11-17", 2)]
    written = [(record.key, record.value is None) for record in cluster.read(f"{orders}-out")]
    assert written == [(b"1", False), (b"2", False), (b"1", True), (b"3", False), (b"4", True)]
    letters = {dict(letter.headers)["moldau.dlq.reason"].decode() for letter in cluster.read(f"{orders}.dead-letters")}
    assert letters == {
        "a tombstone whose key is no id",
        "the record has no value (a tombstone)",
        "missing field 'price'",
        "a tombstone whose key has no day",
    }

    file.write_text(file.read_text().replace("key: [page, day]}", "mode: append}"))
    with pytest.raises(PipelineError, match="sink 'days': a row made of a tombstone would be written as one of NULLs"):
        Run(load(file), spark, ONCE, display=Display(io.StringIO(), live=False)).to_the_end()

    # a view that has forgotten the column, and one that leaves such rows out
    words = file.read_text().replace("mode: append}", "key: [page, day]}")
    file.write_text(words.replace("price * 2 AS price, _deleted FROM orders", "price * 2 AS price FROM orders"))
    with pytest.raises(
        PipelineError, match=r"sink 'table': no view looks at '_deleted' of source 'orders': .* of NULLs"
    ):
        Run(load(file), spark, ONCE, display=Display(io.StringIO(), live=False)).to_the_end()


def test_a_tombstone_has_no_version_and_is_refused_or_a_dead_letter_where_one_is_asked_for(
    spark: "SparkSession", moldau_cluster_only: Cluster, tmp_path: Path
) -> None:
    cluster = moldau_cluster_only
    orders = cluster.new_topic("orders")
    cluster.send(orders, [_order(1, 1.5), _order(2, 2.5), _order(1, None)])
    file = tmp_path / "orders.yaml"

    def run(version: str, newest_by: str) -> None:
        file.write_text(f"""
name: {orders}
bootstrap: {cluster.bootstrap}
sources: {{orders: {{topic: {orders}, schema: "id INT, price DOUBLE", tombstones: id}}}}
views: {{kept: "SELECT id, {version}, _offset, _deleted FROM orders"}}
sinks:
  table: {{from: kept, sqlite: out.db, table: orders, key: id, newest_by: {newest_by}}}
""")
        Run(load(file), spark, ONCE, display=Display(io.StringIO(), live=False)).to_the_end()

    def ids() -> list[tuple[int]]:
        with sqlite3.connect(tmp_path / "out.db") as database:
            return database.execute("SELECT id FROM orders ORDER BY id").fetchall()

    for version in ("price", "price AS cost"):
        with pytest.raises(
            PipelineError, match=r"a tombstone of source 'orders' has no '\w+', and would delete nothing"
        ):
            run(version, version.rpartition(" ")[2])
    run("price + 1 AS price", "price")
    [letter] = cluster.read(f"{orders}.dead-letters")
    assert dict(letter.headers)["moldau.dlq.reason"] == b"a tombstone has no 'price', by which the newest row is known"
    assert ids() == [(1,), (2,)]
    (tmp_path / "out.db").unlink()
    cluster.send(orders, [_order(2, None), _order(3, 3.5)])
    run("price", "_offset")
    assert ids() == [(3,)]


@pytest.mark.parametrize(
    ("query", "overlooked"),
    [
        ("SELECT id, price FROM orders", True),
        ("SELECT id, price FROM (SELECT * FROM orders WHERE price > 1)", True),
        ("WITH c AS (SELECT * FROM orders) SELECT c.id, town FROM c JOIN towns USING (id)", True),
        ("SELECT id, count(*) AS n FROM orders GROUP BY id", True),
        ("SELECT id, price FROM orders WHERE NOT _deleted", False),
        ("SELECT id, if(_deleted, 0, price) AS price FROM orders", False),
        ("SELECT id, _deleted AS gone FROM orders", False),
        ("SELECT id, count_if(NOT _deleted) AS n FROM orders GROUP BY id", False),
        ("WITH c AS (SELECT * FROM orders WHERE NOT _deleted) SELECT id FROM c", False),
    ],
)
def test_a_view_that_never_looks_at_tombstones_is_found_in_the_plan(
    spark: "SparkSession", query: str, overlooked: bool
) -> None:
    ticks = spark.readStream.format("rate").load()
    orders = ticks.selectExpr("value AS id", "value AS price", "value % 2 = 0 AS _deleted")
    orders.createOrReplaceTempView("orders")
    spark.sql("SELECT id, 'Brno' AS town FROM range(3)").createOrReplaceTempView("towns")
    assert tombstones._overlooked(spark.sql(query), orders) is overlooked
    mapped = orders.mapInPandas(lambda frames: frames, "id BIGINT")
    assert not tombstones._overlooked(mapped, orders), "a function has seen it"
