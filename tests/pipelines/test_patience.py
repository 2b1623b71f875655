"""A store that is away for a while: the batch is tried again, and lines say so."""

import io
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]  # no type information
import pytest

from moldau.pipelines.file.files import load
from moldau.pipelines.file.problems import PipelineError
from moldau.pipelines.run.display import Display
from moldau.pipelines.run.runner import ONCE, Run
from moldau.pipelines.sinks import patience
from moldau.pipelines.sinks.batches import Owner
from moldau.pipelines.sinks.delta import DeltaWriter
from moldau.pipelines.sinks.iceberg import IcebergWriter
from moldau.pipelines.sinks.patience import Away, patiently
from moldau.pipelines.sinks.postgres import PostgresWriter, Table
from moldau.pipelines.sinks.sqlite import SqliteWriter
from tests.pipelines.batch_sinks import batch
from tests.pipelines.clusters import Cluster
from tests.pipelines.postgres_server import Server
from tests.pipelines.specs import PLACE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OWNER = Owner("out", PLACE)
ROWS = pa.table({"id": [1]})


def test_a_store_that_is_away_is_waited_for_in_growing_pauses_and_each_is_told() -> None:
    attempts = iter([0, 0, 0, 1])
    pauses: list[float] = []
    said: list[str] = []

    def write() -> str:
        if not next(attempts):
            raise OWNER.away("no answer from db://me:secret@host")
        return "written"

    with patience.told(said.append, "visits"):
        assert patiently("visits.out", write, pauses.append) == "written"
    assert pauses == [1.0, 2.0, 4.0]
    words = "waits {} s and tries again: sink 'out': no answer from db://***@host"
    assert said == [f"visits.out: {words.format(seconds)}" for seconds in (1, 2, 4)]


def test_patience_ends_after_five_minutes_and_with_the_run() -> None:
    pauses: list[float] = []

    def write() -> None:
        raise OWNER.away("no answer")

    with patience.told(lambda _: None, "visits"), pytest.raises(Away):
        patiently("visits.out", write, pauses.append)
    assert (sum(pauses) >= patience.WAIT_MAX_S, max(pauses)) == (True, patience.PAUSE_MAX_S)
    pauses.clear()
    with patience.told(lambda _: None, "visits"):
        patience.give_up("visits")
        with pytest.raises(Away):
            patiently("visits.out", write, pauses.append)
    assert pauses == []


def test_an_error_that_stays_is_not_waited_for() -> None:
    def write() -> None:
        raise OWNER.error("no such column")

    with pytest.raises(PipelineError, match="no such column"):
        patiently("visits.out", write, lambda _: pytest.fail("it waits"))


def test_a_database_that_does_not_answer_or_is_locked_is_away(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moldau.pipelines.sinks.sqlite.BUSY_TIMEOUT_S", 0.01)
    away = PostgresWriter(OWNER, "postgresql://127.0.0.1:1/x", Table.named("t"), (), (("id", "bigint"),))
    with pytest.raises(Away, match="PostgreSQL says: "):
        away.write(ROWS, batch(0))
    wrong = PostgresWriter(OWNER, server.url, Table.named("nowhere.t"), (), (("id", "bigint"),))
    with pytest.raises(PipelineError) as refused:
        wrong.write(ROWS, batch(0))
    assert not isinstance(refused.value, Away)

    file = str(tmp_path / "out.db")
    writer = SqliteWriter(OWNER, file, "t", (), (("id", "INTEGER"),))
    with sqlite3.connect(file, isolation_level=None) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(Away, match="database is locked"):
            writer.write(ROWS, batch(0))
        other.execute("ROLLBACK")
    assert writer.write(ROWS, batch(0))


def test_a_lake_that_is_locked_or_whose_store_or_catalog_does_not_answer_is_away(tmp_path: Path) -> None:
    nowhere = "http://127.0.0.1:1"
    store = {"AWS_ENDPOINT_URL": nowhere, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "x", "max_retries": "0"}
    secrets = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    delta = DeltaWriter(OWNER, "s3://bucket/table", storage=store | secrets)
    with pytest.raises(Away, match="Delta says: Generic S3 error: Connection refused"):
        delta.write(ROWS, batch(0))
    rest = IcebergWriter(OWNER, "web.t", {"type": "rest", "uri": nowhere})
    with pytest.raises(Away, match="Iceberg says: HTTPConnectionPool"):
        rest.write(ROWS, batch(0))

    uri = f"sqlite:///{tmp_path}/lake.db"
    iceberg = IcebergWriter(OWNER, "web.t", {"type": "sql", "uri": f"{uri}?timeout=0.01", "warehouse": str(tmp_path)})
    assert iceberg.write(ROWS, batch(0))
    with sqlite3.connect(tmp_path / "lake.db", isolation_level=None) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(Away, match=r"Iceberg says: \(sqlite3.OperationalError\) database is locked$"):
            iceberg.write(ROWS, batch(1))
        other.execute("ROLLBACK")
    assert iceberg.write(ROWS, batch(1))
    with pytest.raises(PipelineError, match="Iceberg says: ") as refused:
        IcebergWriter(OWNER, "web.t", {"type": "strange"}).write(ROWS, batch(0))
    assert not isinstance(refused.value, Away)


def test_a_run_goes_on_when_its_store_is_back(
    spark: "SparkSession", moldau_cluster_only: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moldau.pipelines.sinks.sqlite.BUSY_TIMEOUT_S", 0.01)
    topic = moldau_cluster_only.new_topic()
    moldau_cluster_only.send(topic, ["one", "two"])
    file = tmp_path / "p.yaml"
    file.write_text(f"""
name: of-{topic}
bootstrap: {moldau_cluster_only.bootstrap}
dead_letters: none
sources: {{lines: {{topic: {topic}, format: text}}}}
sinks: {{out: {{from: lines, sqlite: out.db, table: t}}}}
""")
    said: list[str] = []
    with sqlite3.connect(tmp_path / "out.db", isolation_level=None, check_same_thread=False) as other:
        other.execute("BEGIN EXCLUSIVE")

        class Released(Display):
            """A display at whose first line about waiting the lock is released."""

            def say(self, line: str) -> None:
                said.append(line)
                if "waits" in line:
                    other.execute("ROLLBACK")

        Run(load(file), spark, ONCE, display=Released(io.StringIO(), live=False)).to_the_end()
        assert other.execute("SELECT value FROM t ORDER BY value").fetchall() == [("one",), ("two",)]
    [waits] = [line for line in said if "waits" in line]
    assert waits == f"of-{topic}.out: waits 1 s and tries again: sink 'out': SQLite says: database is locked"
