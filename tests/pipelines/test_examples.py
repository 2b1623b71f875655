"""The examples of pipelines run and count right; that of visits is in `test_check_frames`."""

import io
import json
import shutil
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from moldau.pipelines.file.files import load
from moldau.pipelines.run.display import Display
from moldau.pipelines.run.runner import ONCE, Run
from tests.pipelines.clusters import Cluster
from tests.pipelines.conftest import WITH_TRANSACTIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[2] / "examples"
SALES = EXAMPLES / "sales.py"


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


@pytest.mark.parametrize("cluster", WITH_TRANSACTIONS, indirect=True, scope="session")
def test_payments_are_passed_on_exactly_once(spark: "SparkSession", cluster: Cluster, tmp_path: Path) -> None:
    topic, out = cluster.new_topic("orders"), f"{cluster.new_topic('payments')}-out"
    file = Path(shutil.copy(EXAMPLES / "payments.yaml", tmp_path))
    spec = load(file, cluster.bootstrap, {"sources.orders.topic": topic, "sinks.payments.topic": out})
    said = io.StringIO()
    for number in range(2):
        order = {"id": number, "account": "a", "amount": 1.5}
        cluster.send(topic, [json.dumps({**order, "state": state}) for state in ("paid", "open")])
        Run(spec, spark, ONCE, display=Display(said, live=False)).to_the_end()
    found = [(record.key, record.value) for record in cluster.read(out)]
    assert found == [(b"a", b'{"id":%d,"account":"a","amount":1.50}' % number) for number in range(2)]
    assert "payments.payments: to topic, exactly once" in said.getvalue()
