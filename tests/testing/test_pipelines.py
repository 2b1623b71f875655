"""Tests of pipelines as a user writes them, on examples of our own and on pipelines with all kinds of places."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from moldau.pipelines.file.problems import PipelineError
from moldau.testing.pipelines import pipeline

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"

EVERYWHERE = """
name: everywhere
bootstrap: kafka.example:9092
client: {security.protocol: SSL}
sources:
  orders: {topic: orders, format: avro, registry: "http://registry.example:8081", tombstones: [id]}
  towns: {postgres: "postgresql://db.example/shop", table: towns, as: table}
  old: {files: /nowhere/at/all, format: csv, header: true, schema: "id INT, town INT"}
views:
  named: SELECT orders.id, name, _partition, _offset, _deleted FROM orders LEFT JOIN towns ON town = towns.id
  older: SELECT id, town FROM old
sinks:
  table: {from: named, postgres: "postgresql://db.example/shop", table: named, key: id}
  lake: {from: older, delta: "s3://lake/old"}
  out: {from: older, topic: out, format: avro, registry: "http://registry.example:8081"}
"""


def by_id(row: dict[str, Any]) -> int:
    return int(row["id"])


@pytest.mark.foreign
def test_the_test_on_the_page_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    part = (ROOT / "docs" / "pipelines.md").read_text().partition("## Testing it")[2]
    [written] = re.findall(r"```python\n(.*?)```", part.partition("\n## ")[0], re.DOTALL)
    names: dict[str, Any] = {}
    exec(written, names)
    monkeypatch.chdir(EXAMPLES)
    names["test_visits_are_counted_by_day"]()


@pytest.mark.foreign
def test_rows_are_given_and_sinks_compared_over_several_runs() -> None:
    visit = {"organisation": "acme", "page": "/", "at": datetime(2026, 11, 16, 8, tzinfo=UTC)}
    with pipeline(EXAMPLES / "visits.yaml") as visits:
        visits.give("visits", [visit, {**visit, "_key": "k"}, {"page": "/"}, "{bad", {**visit, "organisation": "bolt"}])
        visits.run()
        counts = [
            {"organisation": "acme", "day": "2026-11-16", "visits": 2},
            {"organisation": "bolt", "day": "2026-11-16", "visits": 1},
        ]
        assert visits.rows("table") == visits.rows("visits-by-day") == counts
        letters = {letter.value: letter for letter in visits.dead_letters()}
        assert set(letters) == {b'{"page": "/"}', b"{bad"}
        assert {letter.source for letter in letters.values()} == {"visits"}
        assert letters[b'{"page": "/"}'].reason == "missing field 'organisation'"
        visits.give("visits", [visit])
        visits.run()
        assert [row["visits"] for row in visits.rows("table")] == [3, 1]
        acme = b'{"organisation":"acme","day":"2026-11-16"}'
        assert [record.key for record in visits.records("visits-by-day")].count(acme) == 2  # one for each run


@pytest.mark.foreign
def test_databases_registries_and_directories_are_not_asked(tmp_path: Path) -> None:
    file = tmp_path / "everywhere.yaml"
    file.write_text(EVERYWHERE)
    with pipeline(file, schemas={"orders": "id INT, town INT", "towns": "id INT, name STRING"}) as found:
        found.give("orders", [{"id": 1, "town": 7, "_key": "1"}, {"id": 2, "town": 8, "_key": "2"}])
        found.give("towns", [{"id": 7, "name": "Brno"}])
        found.give("old", [{"id": 5, "town": None}, {"town": 3, "id": 4}])
        found.run()
        assert found.rows("table") == [{"id": 1, "name": "Brno"}, {"id": 2, "name": None}]
        assert (
            sorted(found.rows("lake"), key=by_id)
            == sorted(found.rows("out"), key=by_id)
            == [{"id": 4, "town": 3}, {"id": 5, "town": None}]
        )
        found.give("orders", [{"_key": "1", "_deleted": True}])
        found.run()
        assert found.rows("table") == [{"id": 2, "name": None}]
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.foreign
def test_rows_of_a_database_come_in_the_order_in_which_they_are_given(tmp_path: Path) -> None:
    file = tmp_path / "capture.yaml"
    file.write_text("""
name: capture
sources: {orders: {postgres: "postgresql://db.example/shop", table: orders}}
sinks: {copy: {from: orders, sqlite: out.db, table: orders, key: id}}
""")
    with pipeline(file, schemas={"orders": "id INT, version INT"}) as capture:
        capture.give("orders", [{"id": 0, "version": 1}])
        capture.give("orders", [{"id": number, "version": 2} for number in range(300)])
        capture.run()
        assert capture.rows("copy")[0] == {"id": 0, "version": 2}


def test_what_a_test_mistypes_is_named(tmp_path: Path) -> None:
    with pipeline(EXAMPLES / "visits.yaml") as visits:
        with pytest.raises(ValueError, match=r"no source 'vists' \(did you mean 'visits'\?\)"):
            visits.give("vists", [])
        with pytest.raises(ValueError, match=r"no sink 'tabel' \(did you mean 'table'\?\)"):
            visits.rows("tabel")
        with pytest.raises(ValueError, match="sink 'table' is sqlite, and has no records"):
            visits.records("table")
        with pytest.raises(TypeError, match="nothing that JSON has"):
            visits.give("visits", [{"organisation": object()}])
    with (
        pytest.raises(ValueError, match="there is no source 'vists'"),
        pipeline(EXAMPLES / "visits.yaml", {"vists": "a INT"}),
    ):
        pass
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("name: wrong\nsinks: {out: {from: nothing, topic: out}}\n")
    with pytest.raises(PipelineError, match="nothing"), pipeline(wrong):
        pass
