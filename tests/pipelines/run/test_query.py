"""Questions to a pipeline that has run: its sinks, its tables, its state."""

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from moldau.cli.pipeline import main
from moldau.pipelines.file.files import load
from moldau.pipelines.file.spec import PipelineSpec
from moldau.pipelines.run.display import Display
from moldau.pipelines.run.query import QueryError, ask, askable
from moldau.pipelines.run.runner import ONCE, Run
from tests.pipelines.clusters import Cluster, Record
from tests.pipelines.postgres_server import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE = """
name: {name}
bootstrap: {bootstrap}
sources:
  orders: {{topic: {orders}, schema: "id INT, customer INT, amount INT", max_per_batch: 2}}
  customers: {{topic: {customers}, as: table, schema: "id INT, town STRING"}}
views:
  towns: |
    SELECT c.town, count(*) AS orders, sum(o.amount) AS amount
    FROM orders o JOIN customers c ON o.customer = c.id GROUP BY c.town
sinks:
  lite: {{from: towns, sqlite: out.db, table: towns, key: town}}
  post: {{from: towns, postgres: "{postgres}", table: {table}, key: town}}
  lake: {{from: towns, delta: lake, key: town}}
  ice:
    {{from: towns, iceberg: web.towns, key: town,
      catalog: {{type: sql, uri: "sqlite:///{here}/ice.db", warehouse: "{here}/ice"}}}}
  files: {{from: orders, parquet: files, partition_by: customer}}
  compacted: {{from: towns, topic: {orders}-towns, key: town, create: {{cleanup.policy: compact}}}}
"""
TOWNS = [{"town": "Brno", "orders": 2, "amount": 30}, {"town": "Praha", "orders": 1, "amount": 5}]


@pytest.fixture(scope="module")
def spec(
    spark: "SparkSession",
    moldau_cluster_only: Cluster,
    server: Server,
    tmp_path_factory: pytest.TempPathFactory,
) -> PipelineSpec:
    """A pipeline that has run, with a sink of each kind."""
    orders, customers = moldau_cluster_only.new_topic("asked"), moldau_cluster_only.new_topic("asked-customers")
    towns = [b'{"id": 1, "town": "Brno"}', b'{"id": 2, "town": "Praha"}']
    moldau_cluster_only.send(customers, [Record(town, str(n).encode()) for n, town in enumerate(towns, 1)])
    placed = [{"id": 1, "customer": 1, "amount": 10}, {"id": 2, "customer": 2, "amount": 5}]
    placed.append({"id": 3, "customer": 1, "amount": 20})
    moldau_cluster_only.send(orders, [json.dumps(each) for each in placed])
    here = tmp_path_factory.mktemp("asked")
    (here / "ice").mkdir()
    file = here / "asked.yaml"
    file.write_text(
        FILE.format(
            name=orders,
            bootstrap=moldau_cluster_only.bootstrap,
            orders=orders,
            customers=customers,
            postgres=server.url,
            table=orders.replace("-", "_"),
            here=here,
        )
    )
    made = load(str(file))
    Run(made, spark, ONCE, display=Display(io.StringIO(), live=False)).to_the_end()
    return made


def by_town(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: str(row["town"]))


def test_a_sink_of_any_kind_shows_its_rows_and_the_row_of_a_key(spec: PipelineSpec) -> None:
    for name in ("lite", "post", "lake", "ice", "compacted"):
        assert by_town(ask(spec, name, (), 20)) == TOWNS, name
        assert ask(spec, name, ("Praha",), 20) == [TOWNS[1]], name
        assert ask(spec, name, ("Wien",), 20) == [], name
        assert len(ask(spec, name, (), 1)) == 1, name
    assert sorted(row["id"] for row in ask(spec, "files", (), 20)) == [1, 2, 3]


def test_the_state_and_a_joined_table_are_asked_by_name(spark: "SparkSession", spec: PipelineSpec) -> None:
    found = by_town(ask(spec, "lite.state", (), 20, spark))
    assert [(row["town"], row["count"], row["sum"]) for row in found] == [("Brno", 2, 30), ("Praha", 1, 5)]
    assert [row["town"] for row in ask(spec, "lite.state", ("Praha",), 20, spark)] == ["Praha"]
    assert [row["town"] for row in ask(spec, "customers", ("2",), 20, spark)] == ["Praha"]


def test_what_cannot_be_asked_is_told_with_what_can(spec: PipelineSpec) -> None:
    assert askable(spec)["lite"] == "sink, sqlite"
    with pytest.raises(QueryError, match=r"there is no table 'lote' to ask \(did you mean 'lite'\?\)"):
        ask(spec, "lote", (), 20)
    with pytest.raises(QueryError, match=r"there are: customers, lite, post, lake, ice, files, compacted, lite\.state"):
        ask(spec, "zzz", (), 20)
    with pytest.raises(QueryError, match="its key is town: 2 given"):
        ask(spec, "lite", ("a", "b"), 20)
    with pytest.raises(QueryError, match="it has no `key`"):
        ask(spec, "files", ("1",), 20)


def test_a_store_that_is_not_there_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "never.yaml"
    file.write_text("name: never\nsources: {r: {rate: 1}}\nsinks: {out: {from: r, sqlite: no.db, table: t}}\n")
    assert main(["query", str(file), "out"]) == 1
    said = capsys.readouterr()
    assert (said.out, said.err) == (
        "",
        f"error: sink 'out': SQLite says: unable to open database file ({tmp_path}/no.db)\n",
    )


def test_the_command_shows_a_table_or_a_json_object_a_line(
    spec: PipelineSpec, capsys: pytest.CaptureFixture[str]
) -> None:
    file = spec.place.file
    assert main(["query", file, "lite", "Brno"]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["town", "orders", "amount"],
        ["Brno", "2", "30"],
    ]
    assert main(["query", file, "lite", "--json", "--limit", "1"]) == 0
    assert json.loads(capsys.readouterr().out) in TOWNS
    assert main(["query", file]) == 0
    assert "lite.state" in capsys.readouterr().out
    assert main(["query", file, "lite", "Wien"]) == 0
    assert capsys.readouterr().err == "no row of this key\n"
