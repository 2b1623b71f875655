"""The newest row of a key after a join, an aggregation and other shuffles."""

import io
import json
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from moldau.pipelines.file.files import load
from moldau.pipelines.file.problems import PipelineError
from moldau.pipelines.file.spec import SinkSpec
from moldau.pipelines.kinds import sink_kind
from moldau.pipelines.run.display import Display
from moldau.pipelines.run.runner import ONCE, Run
from moldau.pipelines.sinks import batches, order, sqlite
from tests.pipelines.clusters import Cluster, Record
from tests.pipelines.specs import pipeline, sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = 40
PIPELINE = """
name: {name}
bootstrap: {bootstrap}
sources:
  orders: {{topic: {orders}, schema: "id INT, customer STRING, version INT"}}
  customers: {{topic: {customers}, schema: name STRING, as: table}}
views:
  joined: |
    SELECT o.id, o.version, o._partition, o._offset FROM orders o JOIN customers c ON o.customer = c._key
  bare: SELECT id, version FROM joined
sinks:
  table: {{from: joined, sqlite: out.db, table: orders, key: id}}
  compacted: {{from: joined, topic: {out}, key: id, create: {{cleanup.policy: compact}}}}
  whole: {{from: bare, topic: {out}-2, key: id, create: true, newest_by: version, delivery: exactly once}}
  delta: {{from: bare, delta: lake, key: id, newest_by: version}}
  iceberg: {{from: bare, iceberg: web.orders, catalog: {catalog}, key: id, newest_by: version}}
"""


def _order(number: int, version: int) -> Record:
    value = {"id": number, "customer": f"c{(number + version) % 7}", "version": version}
    return Record(json.dumps(value).encode(), str(number).encode())


def _last(cluster: Cluster, topic: str) -> dict[int, int]:
    found = (json.loads(record.value or b"") for record in cluster.read(topic))
    return {row["id"]: row["version"] for row in found}


def test_after_a_join_the_newest_version_of_a_key_is_kept_and_a_late_one_is_not(
    spark: "SparkSession", moldau_cluster_only: Cluster, tmp_path: Path
) -> None:
    cluster = moldau_cluster_only
    orders, customers = cluster.new_topic("orders"), cluster.new_topic("customers")
    cluster.send(customers, [Record(b'{"name": "x"}', f"c{number}".encode()) for number in range(7)])
    cluster.send(orders, [_order(number, version) for version in (1, 2) for number in range(ORDERS)])
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}"}
    names = {"name": orders, "bootstrap": cluster.bootstrap, "orders": orders, "customers": customers}
    file = tmp_path / "orders.yaml"
    file.write_text(PIPELINE.format(**names, out=f"{orders}-out", catalog=json.dumps(catalog)))

    def run() -> None:
        Run(load(file), spark, ONCE, display=Display(io.StringIO(), live=False)).to_the_end()

    def lakes() -> list[dict[int, int]]:
        iceberg = load_catalog("default", **catalog).load_table("web.orders").scan().to_arrow()
        found = (DeltaTable(str(tmp_path / "lake")).to_pyarrow_table(), iceberg)
        return [{row["id"]: row["version"] for row in each.to_pylist()} for each in found]

    run()
    newest = dict.fromkeys(range(ORDERS), 2)
    with sqlite3.connect(tmp_path / "out.db") as database:
        assert dict(database.execute("SELECT id, version FROM orders").fetchall()) == newest
    assert [_last(cluster, f"{orders}-out"), _last(cluster, f"{orders}-out-2")] == [newest, newest]
    assert lakes() == [newest, newest]

    cluster.send(orders, [_order(number, version) for version in (1, 3) for number in range(version)])
    run()
    assert lakes() == [{**newest, 0: 3, 1: 3, 2: 3}] * 2

    # without a column that says which is newer
    file.write_text(file.read_text().replace(", newest_by: version", ""))
    with pytest.raises(PipelineError) as refused:
        run()
    told = str(refused.value)
    assert "sink 'delta': after a join the rows of a key come in any order" in told
    assert ("'iceberg'" in told, "'whole'" in told, "'table'" in told, "'compacted'" in told) == (
        True,
        False,
        False,
        False,
    )


@pytest.mark.parametrize(
    ("query", "key", "lost"),
    [
        ("SELECT value + 1 AS k FROM ticks WHERE value > 3", "k", None),
        ("SELECT explode(array(value, 1)) AS k FROM ticks UNION ALL SELECT value FROM ticks", "k", None),
        ("SELECT value AS k, count(*) AS n FROM ticks GROUP BY value", "k", None),
        ("SELECT value % 7 AS k, count(*) AS n FROM ticks GROUP BY value % 7", "k", None),
        ("SELECT n, k FROM (SELECT value AS k, count(*) AS n FROM ticks GROUP BY value) WHERE n > 1", "k", None),
        ("WITH c AS (SELECT value AS k, count(*) AS n FROM ticks GROUP BY value) SELECT * FROM c", "k", None),
        ("SELECT window.start AS s, value AS k FROM ticks GROUP BY value, window(timestamp, '1 day')", "k,s", None),
        ("SELECT window.start AS s, value AS k FROM ticks GROUP BY value, window(timestamp, '1 day')", "k", "an aggr"),
        ("SELECT value % 7 AS k FROM (SELECT value FROM ticks GROUP BY value)", "k", "an aggregation"),
        ("SELECT date(t) AS k FROM (SELECT timestamp AS t, count(*) FROM ticks GROUP BY timestamp)", "k", "an aggr"),
        ("SELECT DISTINCT value AS k FROM ticks", "k", None),
        ("SELECT DISTINCT value AS k, timestamp FROM ticks", "k", "DISTINCT"),
        ("SELECT a.value AS k FROM ticks a JOIN names b ON a.value = b.id", "k", "a join"),
        ("WITH c AS (SELECT a.value AS k FROM ticks a JOIN names b ON a.value = b.id) SELECT * FROM c", "k", "a join"),
        ("SELECT value AS k FROM ticks UNION ALL SELECT value FROM ticks JOIN names ON id = value", "k", "a join"),
        ("SELECT /*+ REPARTITION(3) */ value AS k FROM ticks", "k", "Repartition"),
    ],
)
def test_what_loses_the_order_of_rows_is_found_in_the_plan(
    spark: "SparkSession", query: str, key: str, lost: str | None
) -> None:
    spark.readStream.format("rate").load().createOrReplaceTempView("ticks")
    spark.sql("SELECT id, count(*) AS n FROM range(3) GROUP BY id").createOrReplaceTempView("names")
    found = order.lost_by(spark.sql(query), key.split(","))
    assert (found or "").startswith(lost) if lost else found is None, found


def test_a_window_and_a_deduplication_in_python_are_understood_too(spark: "SparkSession") -> None:
    from pyspark.sql import functions as F

    ticks = spark.readStream.format("rate").load().withWatermark("timestamp", "1 minute")
    counts = ticks.groupBy("value", F.window("timestamp", "1 day")).agg(F.count("*").alias("n"))
    assert order.lost_by(counts.select("value", F.col("window.end").alias("day"), "n"), ["value", "day"]) is None
    assert order.lost_by(ticks.dropDuplicates(["value"]), ["value"]) is None
    assert order.lost_by(ticks.dropDuplicates(["timestamp"]), ["value"]) == "a deduplication"
    assert order.lost_by(ticks.dropDuplicatesWithinWatermark(["value"]), ["value"]) == "a deduplication"


def test_columns_that_cannot_tell_the_order_are_refused(spark: "SparkSession", tmp_path: Path) -> None:
    rows = spark.sql("SELECT 1 AS id, array(1) AS list, 1.5 AS price")

    def out(**options: Any) -> SinkSpec:
        return sink("sqlite", sqlite=str(tmp_path / "x.db"), table="t", mode="append", **options)

    with pytest.raises(PipelineError, match="'list' is a array: 'newest_by' needs a number, time or text"):
        batches.select(out(key="id", newest_by="list"), rows)
    with pytest.raises(PipelineError, match="SQLite keeps it as text"):
        sqlite.writer(out(key="id", newest_by="price"), rows)
    [problem] = sink_kind("sqlite").check(out(newest_by="id"), pipeline(tmp_path))
    assert problem.message == "sink 'out': 'newest_by' needs 'key'"
