"""A topic as a table that is kept in the storage, beside the same topic read as a whole."""

import io
import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from moldau.pipelines.file.files import load
from moldau.pipelines.kinds import Context
from moldau.pipelines.run import tables
from moldau.pipelines.run.display import Display
from moldau.pipelines.run.runner import CONTINUOUS, ONCE, Run, Stop
from moldau.pipelines.sources import kept_table
from moldau.pipelines.sources.kept_table import Kept
from moldau.pipelines.sources.topic import KIND
from tests.pipelines.clusters import Cluster, Record
from tests.pipelines.specs import pipeline, source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMEOUT_S = 120.0
FEW = 3
SCHEMA = "id INT, town STRING"
PIPELINE = """
name: {name}
bootstrap: {bootstrap}
trigger: 10 milliseconds
sources:
  orders: {{topic: {orders}, schema: "id INT, customer INT"}}
  customers: {{topic: {customers}, as: table, schema: "id INT, town STRING"}}
views:
  placed: SELECT o.id, c.town FROM orders o LEFT JOIN customers c ON o.customer = c.id
sinks:
  out: {{from: placed, sqlite: out.db, table: placed, key: id, newest_by: none}}
"""


@pytest.fixture(autouse=True)
def _few_records_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_table, "TAIL_MAX", FEW)
    monkeypatch.setattr(tables, "LOOK_S", 0.05)


def customer(number: int, town: str | None, partition: int = 0) -> Record:
    value = None if town is None else json.dumps({"id": number, "town": town}).encode()
    return Record(value, str(number).encode(), partition=partition)


class Table:
    """The customers, as a table that is kept, and read anew."""

    def __init__(self, spark: "SparkSession", cluster: Cluster, storage: Path, **options: Any) -> None:
        spec = pipeline(storage, cluster.bootstrap)
        self.context = Context(spark, spec, storage, keeps_tables=True)
        self.source = source("topic", "customers", schema=SCHEMA, **{"as": "table", **options})
        self.directory = storage / "tables" / "customers"

    def kept(self) -> dict[str, str | None]:
        return self._towns(self.context)

    def whole(self) -> dict[str, str | None]:
        return self._towns(replace(self.context, keeps_tables=False))

    def note(self) -> Kept | None:
        return Kept.load(self.directory)

    def _towns(self, context: Context) -> dict[str, str | None]:
        rows = KIND.read(self.source, context).rows
        assert not rows.isStreaming
        return {row["_key"]: row["town"] for row in rows.collect()}


@pytest.fixture
def customers(moldau_cluster_only: Cluster) -> str:
    topic = moldau_cluster_only.new_topic("customers", partitions=2)
    moldau_cluster_only.send(topic, [customer(n, f"town {n}", n % 2) for n in range(6)])
    return topic


def test_a_kept_table_is_what_the_topic_read_as_a_whole_is(
    spark: "SparkSession", moldau_cluster_only: Cluster, storage: Path, customers: str
) -> None:
    table = Table(spark, moldau_cluster_only, storage, topic=customers)
    assert table.kept() == table.whole() == {str(n): f"town {n}" for n in range(6)}
    first = table.note()
    assert first is not None
    assert first.offsets == {customers: {0: 3, 1: 3}}
    changes = [
        customer(1, "a new town", 1),
        customer(0, None),
        Record(b"{no json", b"3", partition=1),
    ]
    moldau_cluster_only.send(customers, changes)
    assert table.kept() == table.whole() == {"1": "a new town", "2": "town 2", "4": "town 4", "5": "town 5"}
    assert table.note() == first, "a few changes were not read from the topic alone"
    moldau_cluster_only.send(customers, [customer(7, "town 7"), customer(0, "back"), customer(1, None, 1)])
    assert table.kept() == table.whole() == {"0": "back", "2": "town 2", "4": "town 4", "5": "town 5", "7": "town 7"}
    second = table.note()
    assert second is not None
    assert second.offsets == {customers: {0: 6, 1: 6}}
    assert [path.name for path in table.directory.glob("rows-*")] == [second.directory]
    assert table.kept() == table.whole()


def test_records_of_an_open_transaction_are_not_passed_over(
    spark: "SparkSession", moldau_cluster_only: Cluster, storage: Path, customers: str
) -> None:
    producer = Producer({**moldau_cluster_only.settings, "transactional.id": f"{customers}-writer"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(customers, b'{"id": 0, "town": "committed"}', b"0", 0)
    producer.flush()
    moldau_cluster_only.send(customers, [customer(8, "after it")])
    table = Table(spark, moldau_cluster_only, storage, topic=customers)
    assert table.kept() == {str(n): f"town {n}" for n in range(6)}
    producer.commit_transaction()
    assert (
        table.kept()
        == table.whole()
        == {str(n): f"town {n}" for n in range(1, 6)} | {"0": "committed", "8": "after it"}
    )


@pytest.mark.parametrize("trouble", ["another schema", "too old", "records gone"])
def test_files_that_cannot_be_trusted_are_made_anew(
    spark: "SparkSession", moldau_cluster_only: Cluster, storage: Path, customers: str, trouble: str
) -> None:
    table = Table(spark, moldau_cluster_only, storage, topic=customers)
    table.kept()
    kept = table.note()
    assert kept is not None
    (table.directory / "rows-half").mkdir()  # of a run that was killed
    if trouble == "another schema":
        table = Table(spark, moldau_cluster_only, storage, topic=customers, required=["town"])
    elif trouble == "too old":
        replace(kept, as_of_ms=0).save(table.directory)
        moldau_cluster_only.send(customers, [customer(2, None)])
    else:
        moldau_cluster_only.send(customers, [customer(n, "later") for n in (2, 4)])
        moldau_cluster_only.delete_before(customers, {0: 4})
    assert table.kept() == table.whole()
    now = table.note()
    assert {path.name for path in table.directory.glob("rows-*")} == ({now.directory} if now else set())
    assert now is None or now.directory != kept.directory


def test_a_note_that_is_half_or_whose_files_are_not_all_there_counts_for_nothing(tmp_path: Path) -> None:
    kept = Kept({}, {"customers": {0: 3}}, "rows-1", 1, 0)
    kept.save(tmp_path)
    assert Kept.load(tmp_path) is None
    (tmp_path / "rows-1").mkdir()
    (tmp_path / "rows-1" / "a.parquet").touch()
    assert Kept.load(tmp_path) == kept
    (tmp_path / "kept.json").write_text('{"made_of": ')
    assert Kept.load(tmp_path) is None


def test_rows_whose_records_retention_has_deleted_leave_the_table(
    spark: "SparkSession", moldau_cluster_only: Cluster, storage: Path, customers: str
) -> None:
    table = Table(spark, moldau_cluster_only, storage, topic=customers)
    table.kept()
    moldau_cluster_only.delete_before(customers, {0: 2})
    assert table.kept() == table.whole() == {str(n): f"town {n}" for n in (1, 3, 4, 5)}


# --- in a run


class Joined:
    """A pipeline that joins orders with customers into SQLite."""

    def __init__(self, spark: "SparkSession", cluster: Cluster, directory: Path, customers: str) -> None:
        self.spark, self.cluster, self.customers = spark, cluster, customers
        self.orders = cluster.new_topic("orders")
        file = directory / "joined.yaml"
        text = PIPELINE.format(name=self.orders, bootstrap=cluster.bootstrap, orders=self.orders, customers=customers)
        file.write_text(text)
        self.spec = load(str(file))
        self.database = directory / "out.db"
        self.sent = 0
        self.said = io.StringIO()

    def order(self, customer: int) -> int:
        self.sent += 1
        self.cluster.send(self.orders, [json.dumps({"id": self.sent, "customer": customer})])
        return self.sent

    def run(self, mode: str, stop: Stop | None = None) -> None:
        Run(self.spec, self.spark, mode, stop or Stop(), Display(self.said, live=False)).to_the_end()

    def placed(self) -> dict[int, str | None]:
        if not self.database.exists():
            return {}
        with sqlite3.connect(self.database) as database:
            found = database.execute("SELECT name FROM sqlite_master WHERE name = 'placed'").fetchall()
            return dict(database.execute("SELECT id, town FROM placed")) if found else {}

    @contextmanager
    def running(self) -> Iterator[None]:
        stop = Stop()
        failed: list[BaseException] = []

        def work() -> None:
            try:
                self.run(CONTINUOUS, stop)
            except BaseException as error:  # raised where the test is
                failed.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            stop.ask()
            thread.join(TIMEOUT_S)
        assert not failed, failed


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_run_joins_the_table_as_it_is_while_it_changes_and_is_laid_down_anew(
    spark: "SparkSession", moldau_cluster_only: Cluster, tmp_path: Path, customers: str
) -> None:
    joined = Joined(spark, moldau_cluster_only, tmp_path, customers)
    directory = joined.spec.storage / "tables" / "customers"
    expected: dict[int, str | None] = {joined.order(1): "town 1", joined.order(99): None}
    with joined.running():
        until(lambda: joined.placed() == expected)
        first = Kept.load(directory)
        assert first is not None
        moldau_cluster_only.send(customers, [customer(1, "moved", 1)])
        expected[joined.order(1)] = "moved"
        until(lambda: joined.placed() == expected)
        moldau_cluster_only.send(customers, [customer(n, "later", n % 2) for n in (2, 3, 4, 99)])
        until(lambda: (now := Kept.load(directory)) is not None and now.directory != first.directory)
        moldau_cluster_only.grow(customers, 3)
        moldau_cluster_only.send(customers, [customer(50, "in a new partition", 2), customer(5, None, 1)])
        until(lambda: (now := Kept.load(directory)) is not None and now.directory != first.directory)
        expected |= {joined.order(99): "later", joined.order(5): None, joined.order(1): "moved"}
        until(lambda: joined.placed() == expected)
    expected[joined.order(50)] = "in a new partition"
    joined.run(ONCE)
    assert joined.placed() == expected
