"""Records of which a view makes an error: found, set aside, or at least named."""

import io
import json
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from moldau.pipelines.file.files import load
from moldau.pipelines.run import aside, poison
from moldau.pipelines.run.display import Display
from moldau.pipelines.run.poison import Found, Span, search
from moldau.pipelines.run.redrive import redrive
from moldau.pipelines.run.reset import reset
from moldau.pipelines.run.runner import ONCE, Run, RunFailed
from tests.pipelines.clusters import Cluster, Record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIPELINE = """
from pyspark.sql import functions as F

from moldau.pipelines import Pipeline

pipeline = Pipeline("{name}", bootstrap="{bootstrap}"{more})
pipeline.source("orders", topic="{topic}", schema="id INT, amount STRING")


@F.udf("int")
def cents(amount):
    return int(float(amount) * 100)


@pipeline.view
def priced(orders):
    return orders.where("{where}").select("id", cents("amount").alias("cents"))


pipeline.sink("out", from_="priced", sqlite="out.db", table="orders")
"""


def _pipeline(directory: Path, cluster: Cluster, topic: str, where: str = "true", more: str = "") -> Path:
    file = directory / "orders.py"
    words = PIPELINE.format(name=f"of-{topic}", bootstrap=cluster.bootstrap, topic=topic, where=where, more=more)
    file.write_text(words)
    return file


def _order(number: int, amount: str, partition: int = 0) -> Record:
    return Record(json.dumps({"id": number, "amount": amount}).encode(), partition=partition)


def _run(file: Path, spark: "SparkSession") -> str:
    """Words of a run to the end."""
    out = io.StringIO()
    Run(load(file), spark, ONCE, display=Display(out, live=False)).to_the_end()
    return out.getvalue()


def _rows(directory: Path) -> list[tuple[int, int]]:
    with sqlite3.connect(directory / "out.db") as connection:
        return connection.execute("SELECT id, cents FROM orders ORDER BY id").fetchall()


def test_a_record_that_a_function_or_sql_cannot_compute_is_a_dead_letter_and_the_others_go_on(
    spark: "SparkSession", moldau_cluster_only: Cluster, tmp_path: Path
) -> None:
    cluster = moldau_cluster_only
    topic = cluster.new_topic("orders", partitions=2)
    cluster.send(topic, [_order(n, f"{n}.5", n % 2) for n in range(20)])
    cluster.send(topic, [_order(20, "a lot"), _order(21, "1"), _order(22, "7", 1), _order(1000, "1", 1)])
    file = _pipeline(tmp_path, cluster, topic, where="tinyint(id) >= 0")
    line = file.read_text().splitlines().index("    return int(float(amount) * 100)") + 1
    said = _run(file, spark)
    rows = [(n, n * 100 + 50) for n in range(20)] + [(21, 100), (22, 700)]
    assert _rows(tmp_path) == rows
    letters = {dict(letter.headers)["moldau.dlq.offset"]: letter for letter in cluster.read(f"of-{topic}.dead-letters")}
    assert sorted(letters) == [b"10", b"11"]
    why = dict(letters[b"10"].headers)
    assert (why["moldau.dlq.topic"], why["moldau.dlq.partition"]) == (topic.encode(), b"0")
    assert b"could not convert string to float: 'a lot'" in why["moldau.dlq.reason"]
    assert f"orders.py:{line}: return int(float(amount) * 100))".encode() in why["moldau.dlq.reason"]
    assert letters[b"10"].value == _order(20, "a lot").value
    assert b"overflow" in dict(letters[b"11"].headers)["moldau.dlq.reason"]
    assert f"offset 10 of {topic}-0 is a dead letter now" in said

    # the next run leaves them out too, and they come back after the view is mended
    cluster.send(topic, [_order(23, "2")])
    _run(file, spark)
    assert _rows(tmp_path) == [*rows, (23, 200)]
    file.write_text(file.read_text().replace("tinyint(id)", "id").replace("float(amount)", "float(amount[-1:] == 't')"))
    redrive(load(file))
    _run(file, spark)
    assert [number for number, _ in _rows(tmp_path)] == [*range(24), 1000]
    assert len(cluster.read(f"of-{topic}.dead-letters")) == 2


def test_a_run_that_is_killed_between_the_dead_letter_and_its_note_loses_nothing(
    spark: "SparkSession", moldau_cluster_only: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = moldau_cluster_only
    topic = cluster.new_topic("orders")
    cluster.send(topic, [_order(1, "1"), _order(2, ""), _order(3, "3")])
    file = _pipeline(tmp_path, cluster, topic)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(aside, "note", killed)
        with pytest.raises(KeyboardInterrupt):
            _run(file, spark)
    assert "dead letter now" in _run(file, spark)
    assert _rows(tmp_path) == [(1, 100), (3, 300)]
    letters = cluster.read(f"of-{topic}.dead-letters")
    assert {dict(letter.headers)["moldau.dlq.offset"] for letter in letters} == {b"1"}

    # a reset reads everything anew
    reset(load(file), None, lambda _: None)
    file.write_text(file.read_text().replace("float(amount)", "float(amount or 2)"))
    (tmp_path / "out.db").unlink()
    _run(file, spark)
    assert _rows(tmp_path) == [(1, 100), (2, 200), (3, 300)]


def test_records_that_cannot_be_set_aside_are_named(
    spark: "SparkSession", moldau_cluster_only: Cluster, tmp_path: Path
) -> None:
    cluster = moldau_cluster_only
    topic = cluster.new_topic("orders")
    cluster.send(topic, [_order(n, "1" if n % 3 else "x") for n in range(9)])
    file = _pipeline(tmp_path, cluster, topic, more=", dead_letters=None")
    with pytest.raises(RunFailed) as failure:
        _run(file, spark)
    assert str(failure.value).endswith(f"(offset 0 of {topic}-0; offset 3 of {topic}-0; offset 6 of {topic}-0)")
    assert "could not convert string to float: 'x'" in str(failure.value)

    # rows that fail only together
    summed = 'orders.groupBy().agg(F.expr("sum(bigint(9000000000000000000) + id) AS id"))'
    words = _pipeline(tmp_path, cluster, topic).read_text()
    file.write_text(words.replace('orders.where("true").select("id", cents("amount").alias("cents"))', summed))
    file.write_text(file.read_text().replace('table="orders"', 'table="orders", mode="complete"'))
    reset(load(file), None, lambda _: None)
    with pytest.raises(RunFailed, match=rf"overflow.* \(offset 0 to 1 of {topic}-0; "):
        _run(file, spark)
    assert cluster.read(f"of-{topic}.dead-letters") == []


# --- the search, without Spark


def _failing(*bad: int) -> Callable[[Sequence[Span]], str | None]:
    def why(spans: Sequence[Span]) -> str | None:
        return "bad" if any(span.begin <= number < span.end for span in spans for number in bad) else None

    return why


def _found(offset: int, partition: int = 0) -> Found:
    return Found((Span("rows", "in", partition, offset, offset + 1),), "bad")


def test_each_record_is_found_by_halving_in_few_steps() -> None:
    asked = []

    def why(spans: Sequence[Span]) -> str | None:
        asked.append(spans)
        return _failing(7, 99_999)(spans)

    spans = [Span("rows", "in", partition, partition * 50_000, (partition + 1) * 50_000) for partition in range(2)]
    assert search(spans, why) == [_found(7), _found(99_999, 1)]
    assert len(asked) < 2 * 2 * 18
    assert search(spans, _failing()) == []


def test_what_fails_together_only_is_one_thing_and_not_alone() -> None:
    def why(spans: Sequence[Span]) -> str | None:
        return None if _failing(3)(spans) is None or _failing(5)(spans) is None else "both"

    [found] = search([Span("rows", "in", 0, 0, 8)], why)
    assert (str(found), found.alone) == ("offset 0 to 7 of in-0", False)


def test_a_search_has_an_end_where_all_records_fail() -> None:
    assert len(search([Span("rows", "in", 0, 0, 100_000)], lambda _: "bad")) <= poison.AT_ONCE_MAX


OPERATOR = """
import pandas as pd

from moldau.pipelines import Pipeline

pipeline = Pipeline("{name}", bootstrap="{bootstrap}")
pipeline.source("orders", topic="{topic}", schema="id INT, amount STRING")


def summed(key, frames, state):
    total = sum(int(amount) for frame in frames for amount in frame["amount"])
    yield pd.DataFrame({{"id": [key[0]], "total": [total]}})


@pipeline.view
def totals(orders):
    return orders.groupBy("id").applyInPandasWithState(summed, "id INT, total INT", "n INT", "update", "NoTimeout")


pipeline.sink("out", from_="totals", sqlite="out.db", table="orders", key="id", newest_by="none")
"""


def test_an_error_in_an_operator_with_state_names_the_line_of_the_users_file_and_the_batch(
    spark: "SparkSession", moldau_cluster_only: Cluster, tmp_path: Path
) -> None:
    cluster = moldau_cluster_only
    topic = cluster.new_topic("orders")
    cluster.send(topic, [_order(1, "1"), _order(2, "a lot")])
    file = tmp_path / "orders.py"
    file.write_text(OPERATOR.format(name=f"of-{topic}", bootstrap=cluster.bootstrap, topic=topic))
    line = next(n for n, text in enumerate(file.read_text().splitlines(), 1) if "total = sum" in text)
    with pytest.raises(RunFailed) as failed:
        _run(file, spark)
    assert f"invalid literal for int() with base 10: 'a lot' ({file}:{line}: total = sum(" in str(failed.value)
    assert f"offset 0 to 1 of {topic}-0" in str(failed.value)
