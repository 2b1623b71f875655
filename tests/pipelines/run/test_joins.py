"""Columns by which streams are joined with tables, found in Spark's plans."""

from pathlib import Path
from typing import TYPE_CHECKING

from moldau.pipelines.file.files import load
from moldau.pipelines.kinds import Context
from moldau.pipelines.run import graph, joins
from tests.pipelines.clusters import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE = """
name: joined
bootstrap: {bootstrap}
sources:
  orders: {{topic: {topic}, schema: "id INT, customer INT"}}
  customers: {{topic: {topic}, as: table, schema: "id INT, town STRING"}}
views:
  plain: SELECT o.id, c.town FROM orders o LEFT JOIN customers c ON o.customer = c.id AND o.id > 0
  renamed: SELECT o.id, c.town FROM orders o JOIN (SELECT id AS number, town FROM customers) c ON c.number = o.customer
  computed: SELECT o.id, c.town FROM orders o JOIN customers c ON o.customer = c.id + 1
  counted: SELECT c.town, count(*) AS orders FROM orders o JOIN customers c ON o.customer = c._key GROUP BY c.town
"""


def test_the_column_of_a_join_with_a_table_is_found_through_other_names(
    spark: "SparkSession", moldau_cluster_only: Cluster, tmp_path: Path
) -> None:
    file = tmp_path / "joined.yaml"
    sinks = "sinks: {out: {from: plain, console: 1}}\n"
    text = FILE.format(bootstrap=moldau_cluster_only.bootstrap, topic=moldau_cluster_only.new_topic("joined"))
    file.write_text(text + sinks)
    spec = load(str(file))
    frames = graph.build(spec, Context(spark, spec, spec.storage, keeps_tables=True))
    assert frames.errors() == []

    def found(view: str) -> dict[str, str]:
        frame = frames.of(view)
        assert frame is not None
        return joins.columns(frames, [frame])

    assert found("plain") == {"customers": "id"}
    assert found("renamed") == {"customers": "id"}
    assert found("computed") == {}
    assert found("counted") == {}, "the text of a key was compared as a number"
