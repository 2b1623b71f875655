"""The example of a pipeline in Python runs and counts right; that of visits is in `test_check_frames`."""

import io
import shutil
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

from moldau.pipelines.file.files import load
from moldau.pipelines.run.display import Display
from moldau.pipelines.run.runner import ONCE, Run
from tests.pipelines.clusters import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SALES = Path(__file__).parents[2] / "examples" / "sales.py"


def test_sales_are_summed_by_town(spark: "SparkSession", moldau_cluster_only: Cluster, tmp_path: Path) -> None:
    topic = moldau_cluster_only.new_topic("orders")
    moldau_cluster_only.send(
        topic,
        [
            '{"town": "Praha", "price": 12.50, "pieces": 2}',
            '{"town": "Brno", "price": 3, "pieces": 1}',
            '{"town": "Praha", "price": 0, "pieces": 9}',
            '{"town": "Praha", "price": 1.25, "pieces": 1}',
        ],
    )
    file = Path(shutil.copy(SALES, tmp_path))
    spec = load(file, moldau_cluster_only.bootstrap, {"sources.orders.topic": topic})
    Run(spec, spark, ONCE, display=Display(io.StringIO(), live=False)).to_the_end()
    with sqlite3.connect(tmp_path / "sales.db") as table:
        assert dict(table.execute("SELECT town, total FROM sales").fetchall()) == {"Praha": 26.25, "Brno": 3.0}
