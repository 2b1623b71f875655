"""The newest row of a key after a join, an aggregation and other shuffles."""

import io
import json
import os
import sqlite3
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from moldau.pipelines.file.files import load
from moldau.pipelines.file.problems import PipelineError
from moldau.pipelines.file.spec import SinkSpec
from moldau.pipelines.kinds import sink_kind
from moldau.pipelines.run import graph
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
  whole:
    {{from: bare, topic: {out}-2, key: id, create: {{cleanup.policy: compact}}, newest_by: version,
      delivery: exactly once}}
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

    late = [_order(number, 1) for number in range(9, 12)]
    cluster.send(orders, [*(_order(number, version) for version in (1, 3) for number in range(version)), *late])
    run()
    newest |= {0: 3, 1: 3, 2: 3}
    assert [*lakes(), _last(cluster, f"{orders}-out-2")] == [newest] * 3

    # without a column that says which is newer
    file.write_text(file.read_text().replace(", newest_by: version", ""))
    with pytest.raises(PipelineError) as refused:
        run()
    told = str(refused.value)
    assert "sink 'delta': after a join the rows of a key come in any order" in told
    found = [name for name in ("iceberg", "whole", "table", "compacted") if repr(name) in told]
    assert found == ["iceberg", "whole"]


@pytest.mark.parametrize(
    ("query", "key", "lost"),
    [
        ("SELECT value + 1 AS k FROM ticks WHERE value > 3", "k", None),
        ("SELECT explode(array(value, 1)) AS k FROM ticks UNION ALL SELECT value FROM others", "k", None),
        ("SELECT explode(array(value, 1)) AS k FROM ticks UNION ALL SELECT value FROM ticks", "k", "a union of one"),
        ("WITH c AS (SELECT value AS k FROM ticks) TABLE c UNION ALL SELECT k + 1 FROM c", "k", "a union of one"),
        ("SELECT 'a' AS k, value FROM ticks UNION ALL SELECT 'b', value FROM ticks", "k", None),
        ("SELECT 'a' AS k, value FROM ticks UNION ALL SELECT 'a', value FROM ticks", "k", "a union of one"),
        (
            "SELECT 1 AS k, value, count(*) FROM ticks GROUP BY value UNION ALL SELECT 2, 3, 4 FROM ticks",
            "k,value",
            None,
        ),
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
        ("SELECT value AS k FROM ticks WHERE value IN (SELECT id FROM names)", "k", "a subquery"),
        ("SELECT value AS k FROM ticks a WHERE NOT EXISTS (SELECT 1 FROM names WHERE id = a.value)", "k", "a subquery"),
        ("SELECT value AS k, (SELECT max(n) FROM names WHERE id = a.value) FROM ticks a", "k", "a subquery"),
        ("SELECT value AS k, (SELECT max(n) FROM names) AS n FROM ticks", "k", None),
    ],
)
def test_what_loses_the_order_of_rows_is_found_in_the_plan(
    spark: "SparkSession", query: str, key: str, lost: str | None
) -> None:
    spark.readStream.format("rate").load().createOrReplaceTempView("ticks")
    spark.readStream.format("rate").option("rowsPerSecond", 2).load().createOrReplaceTempView("others")
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


def test_two_views_of_one_topic_in_a_sink_keep_the_newest_row_of_a_key_or_are_refused(
    spark: "SparkSession", moldau_cluster_only: Cluster, tmp_path: Path
) -> None:
    topic = moldau_cluster_only.new_topic("events")
    events = [{"id": number, "made": made, "version": 1 + made} for number in range(9) for made in (False, True)]
    moldau_cluster_only.send(topic, [Record(json.dumps(event).encode()) for event in events])
    file = tmp_path / "events.yaml"
    text = f"""
name: {topic}
bootstrap: {moldau_cluster_only.bootstrap}
dead_letters: none
sources: {{events: {{topic: {topic}, schema: "id INT, made BOOLEAN, version INT"}}}}
views:
  made: SELECT id, version FROM events WHERE made
  changed: SELECT id, version FROM events WHERE NOT made
sinks: {{table: {{from: [made, changed], sqlite: out.db, table: events, key: id}}}}
"""
    file.write_text(text)
    with pytest.raises(PipelineError, match=r"sink 'table': after a union of one stream with itself .* in any order"):
        Run(load(file), spark, ONCE, display=Display(io.StringIO(), live=False)).to_the_end()
    file.write_text(text.replace("id, version", "id, version, _partition, _offset"))
    Run(load(file), spark, ONCE, display=Display(io.StringIO(), live=False)).to_the_end()
    with sqlite3.connect(tmp_path / "out.db") as database:
        assert database.execute("SELECT version, count(*) FROM events GROUP BY version").fetchall() == [(2, 9)]


def test_of_several_files_in_a_batch_the_newest_one_has_the_newest_row_of_a_key(
    spark: "SparkSession", tmp_path: Path
) -> None:
    incoming = tmp_path / "in"
    incoming.mkdir()
    # Spark reads the larger one first
    for name, version, rows, at in (("a", 1, 5, 1_900_000_000), ("b", 2, 500, 2_000_000_000)):
        lines = [json.dumps({"id": number, "version": version}) for number in range(rows)]
        (incoming / name).write_text("\n".join([*lines, lines[0].replace("0", "9")]))
        os.utime(incoming / name, (at, at))
    file = tmp_path / "files.yaml"
    file.write_text("""
name: of-files
dead_letters: none
sources: {rows: {files: in, schema: "id INT, version INT"}}
views: {bare: "SELECT id, version FROM rows", placed: "SELECT id, version, _file, _timestamp FROM rows"}
sinks: {out: {from: bare, sqlite: out.db, table: rows, key: id}}
""")
    with pytest.raises(PipelineError) as refused:
        Run(load(file), spark, ONCE, display=Display(io.StringIO(), live=False)).to_the_end()
    assert "sink 'out': after a reading of several files the rows of a key come in any order" in str(refused.value)
    assert "keep `_timestamp` and `_file` in the view" in str(refused.value)
    bare = file.read_text()
    one_by_one = bare.replace("files: in,", "files: in, max_files_per_batch: 1,").replace("out.db", "one.db")
    for text, name in ((bare.replace("from: bare", "from: placed"), "out.db"), (one_by_one, "one.db")):
        file.write_text(text.replace("of-files", f"of-{name}"))
        Run(load(file), spark, ONCE, display=Display(io.StringIO(), live=False)).to_the_end()
        with sqlite3.connect(tmp_path / name) as database:
            assert database.execute("SELECT version, count(*) FROM rows GROUP BY version").fetchall() == [(2, 500)]


def test_the_place_of_a_row_of_a_table_says_nothing_of_the_stream_that_it_is_joined_with(
    spark: "SparkSession",
) -> None:
    placed = "value AS k, value AS _offset, 0 AS _partition"
    spark.readStream.format("rate").load().selectExpr(*placed.split(", ")).createOrReplaceTempView("orders")
    spark.range(3).withColumnRenamed("id", "value").selectExpr(*placed.split(", ")).createOrReplaceTempView("towns")

    def refused(query: str) -> bool:
        return order.refusal(sink("sqlite", sqlite="x.db", table="t", key="k"), spark.sql(query)) is not None

    joined = "FROM orders o JOIN towns t ON o.k = t.k"
    assert not refused(f"SELECT o.* {joined}")
    assert refused(f"SELECT t.* {joined}")
    assert refused(f"WITH c AS (SELECT o.k, t._partition, o._offset {joined}) TABLE c UNION ALL TABLE c")


def test_places_tell_no_order_where_an_older_row_may_come_batches_later(spark: "SparkSession") -> None:
    ticks = "timestamp, value AS k, value AS _offset, 0 AS _partition"
    for name in ("a", "b"):
        rows = spark.readStream.format("rate").load().selectExpr(*ticks.split(", "))
        rows.withWatermark("timestamp", "1 minute").createOrReplaceTempView(name)
    spark.range(3).createOrReplaceTempView("names")
    streams = "SELECT a.* FROM a JOIN b ON a.k = b.k"

    def refused(query: str, **options: Any) -> str:
        problem = order.refusal(sink("sqlite", sqlite="x.db", table="t", key="k", **options), spark.sql(query))
        return "" if problem is None else f"{problem.message} ({problem.hint})"

    assert "a join of two streams may give an older row of a key batches after a newer one" in refused(streams)
    assert "`newest_by: [_partition, _offset]`" in refused(f"WITH c AS ({streams}) SELECT * FROM c WHERE k > 1")
    assert refused(streams, newest_by=["_partition", "_offset"]) == ""
    assert refused("SELECT a.* FROM a JOIN names ON a.k = names.id") == "", "a table keeps nothing for later"
    assert "an operator with state" in (order.late_by(_with_state(spark)) or "")


def _with_state(spark: "SparkSession") -> Any:
    def kept(key: Any, frames: Any, state: Any) -> Any:  # noqa: ARG001 - never called
        yield from frames

    grouped = spark.table("a").groupBy("k")
    return grouped.applyInPandasWithState(kept, "k BIGINT, _offset BIGINT", "n INT", "append", "NoTimeout")


def test_where_spark_connect_shows_a_text_in_place_of_a_plan_a_line_says_what_it_hides(
    spark: "SparkSession", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spark.readStream.format("rate").load().createOrReplaceTempView("ticks")
    spark.range(3).createOrReplaceTempView("names")

    def told(query: str, **options: Any) -> str | None:
        spark.sql(query).explain(extended=True)
        shown = capsys.readouterr().out
        rows = SimpleNamespace(columns=["k"], _explain_string=lambda extended: shown)  # noqa: ARG005 - as Spark's
        out = sink("sqlite", sqlite="x.db", table="t", **{"key": "k", **options})
        return graph.hidden_order(pipeline(tmp_path), out, rows)  # type: ignore[arg-type]  # as of Spark Connect

    joined = "SELECT value AS k FROM ticks JOIN names ON id = value"
    assert told(joined) == (
        "whether the newest row of a key comes last after a join Spark Connect does not show: name `newest_by`"
    )
    assert told(joined, newest_by="none") is told("SELECT value AS k FROM ticks WHERE value > 1") is None
    assert told("SELECT value AS k FROM ticks UNION ALL SELECT value + 1 FROM ticks") is not None


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
