"""A view that is changed while its sink goes on from the state that it has kept."""

import io
import json
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

from moldau.pipelines.file.files import load
from moldau.pipelines.run.display import Display
from moldau.pipelines.run.runner import ONCE, Run
from tests.pipelines.clusters import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_run_says_that_state_was_kept_by_another_key_or_of_other_values(
    spark: "SparkSession", moldau_cluster_only: Cluster, tmp_path: Path
) -> None:
    topic = moldau_cluster_only.new_topic("orders")
    file = tmp_path / "p.yaml"
    file.write_text(f"""
name: of-{topic}
bootstrap: {moldau_cluster_only.bootstrap}
sources: {{orders: {{topic: {topic}, schema: "id INT, town INT"}}}}
views: {{counts: "SELECT town AS k, count(*) AS n FROM orders WHERE id > 0 GROUP BY town"}}
sinks: {{out: {{from: counts, sqlite: out.db, table: counts, key: k}}}}
""")

    def run(old: str = "", new: str = "") -> str:
        file.write_text(file.read_text().replace(old, new) if old else file.read_text())
        moldau_cluster_only.send(topic, [json.dumps({"id": 2, "town": 1})])
        said = io.StringIO()
        Run(load(file), spark, ONCE, display=Display(said, live=False)).to_the_end()
        return said.getvalue()

    assert "state was kept" not in run()
    assert "state was kept" not in run("id > 0", "id > 1"), "that is another question to the rows to come"
    file.write_text(file.read_text().replace("town AS k", "id AS k"))
    said = run("GROUP BY town", "GROUP BY id")
    words = "out: its state was kept for orders.town AS k, count(1) AS n by orders.town, and goes on for orders.id AS "
    assert words in said.replace("`", "")
    with sqlite3.connect(tmp_path / "out.db") as database:
        assert database.execute("SELECT * FROM counts ORDER BY k").fetchall() == [(1, 2), (2, 1)]
    assert "state was kept" not in run()
