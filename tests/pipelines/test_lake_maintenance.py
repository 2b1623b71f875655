"""Files of lake tables: merged, divided, and removed when nobody needs them; readers and batches do not notice."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]  # no type information
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from moldau.pipelines.kinds import sink_kind
from moldau.pipelines.sinks import delta, iceberg, iceberg_maintenance, maintenance
from moldau.pipelines.sinks.batches import BatchWriter
from moldau.pipelines.sinks.iceberg_partitions import Partition, partitions
from tests.pipelines.batch_sinks import batch, made
from tests.pipelines.specs import pipeline

DAYS = [date(2026, 11, 16), date(2026, 11, 17)]


class Lake:
    """A table of one of the two formats."""

    def __init__(self, kind: str, directory: Path) -> None:
        self.kind, self.directory = kind, directory
        self._catalog = {"type": "sql", "uri": f"sqlite:///{directory}/c.db", "warehouse": f"file://{directory}"}

    def writer(self, **options: Any) -> BatchWriter:
        if self.kind == "delta":
            return delta.writer(made("delta", delta=str(self.directory / "t"), **options))
        return iceberg.writer(made("iceberg", iceberg="web.t", catalog=self._catalog, **options))

    def delta(self) -> DeltaTable:
        return DeltaTable(self.directory / "t")

    def iceberg(self) -> Any:
        return load_catalog("default", **self._catalog).load_table("web.t")

    def rows(self) -> list[dict[str, Any]]:
        found = self.delta().to_pyarrow_table() if self.kind == "delta" else self.iceberg().scan().to_arrow()
        return sorted(found.to_pylist(), key=lambda row: row["id"])

    def files(self) -> list[str]:
        """The data files of the newest version."""
        if self.kind == "delta":
            return list(self.delta().file_uris())
        return [task.file.file_path for task in self.iceberg().scan().plan_files()]

    def on_disk(self) -> set[str]:
        return {path.name for path in self.directory.rglob("*.parquet")}


@pytest.fixture(params=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return Lake(request.param, tmp_path)


def rows_of(number: int) -> "pa.Table":
    """Two rows, one of each day."""
    return pa.table({"id": [2 * number, 2 * number + 1], "day": DAYS, "name": ["a", "b"]})


def written(writer: BatchWriter, numbers: range) -> Iterator[int]:
    for number in numbers:
        assert writer.write(rows_of(number), batch(number))
        yield number


def test_small_files_are_merged_after_so_many_batches_and_no_row_is_lost_or_doubled(lake: Lake) -> None:
    writer = lake.writer(compact=5)
    files = [len(lake.files()) for _ in written(writer, range(11))]
    assert files == [1, 2, 3, 4, 1, 2, 3, 4, 5, 1, 2]
    assert [row["id"] for row in lake.rows()] == list(range(22))


def test_a_batch_is_known_as_written_after_a_merge(lake: Lake) -> None:
    writer = lake.writer(compact=3)
    assert [*written(writer, range(3))]
    assert not writer.write(rows_of(2), batch(2))
    assert len(lake.rows()) == 6


def test_files_are_merged_within_their_partitions(lake: Lake) -> None:
    writer = lake.writer(compact=4, partition_by=["day"])
    assert [*written(writer, range(4))]
    assert len(lake.files()) == 2
    assert all(any(f"day={day}" in file for file in lake.files()) for day in DAYS)
    assert [row["id"] for row in lake.rows()] == list(range(8))


def test_upserts_and_deletions_find_their_rows_in_merged_files(lake: Lake) -> None:
    writer = lake.writer(compact=2, key="id", partition_by=["day"])
    assert [*written(writer, range(4))]
    changed = pa.table({"id": [3], "day": [DAYS[1]], "name": ["changed"]})
    assert writer.write(changed, batch(4))
    assert [row["name"] for row in lake.rows()] == ["a", "b", "a", "changed", "a", "b", "a", "b"]


def test_with_compact_0_nothing_is_merged(lake: Lake) -> None:
    assert [*written(lake.writer(compact=0), range(4))]
    assert len(lake.files()) == 4


def test_a_reader_goes_on_with_the_version_that_it_has_begun_with(lake: Lake) -> None:
    writer = lake.writer(compact=5)
    assert [*written(writer, range(4))]
    before = lake.delta().to_pyarrow_dataset() if lake.kind == "delta" else lake.iceberg().scan()
    assert [*written(writer, range(4, 5))]
    found = before.to_table() if lake.kind == "delta" else before.to_arrow()
    assert found.num_rows == 8


def test_a_version_of_before_can_be_read(lake: Lake) -> None:
    writer = lake.writer(compact=3)
    assert [*written(writer, range(3))]
    if lake.kind == "delta":
        assert DeltaTable(lake.directory / "t", version=1).to_pyarrow_table().num_rows == 4
    else:
        second = lake.iceberg().snapshots()[1]
        assert lake.iceberg().scan(snapshot_id=second.snapshot_id).to_arrow().num_rows == 4


def test_old_versions_go_with_their_files(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "LARGE_EVERY", 2)
    writer = lake.writer(compact=3, history="1 hour")
    assert [*written(writer, range(5))]
    later = datetime.now(UTC) + timedelta(hours=3)
    if lake.kind == "delta":
        lake.delta().vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    else:
        assert iceberg_maintenance.expire(lake.iceberg(), timedelta(hours=1), int(later.timestamp() * 1000)) > 0
        assert len(lake.iceberg().snapshots()) == 1
    assert lake.on_disk() == {Path(file).name for file in lake.files()}
    assert [row["id"] for row in lake.rows()] == list(range(10))
    assert [*written(writer, range(5, 6))]
    assert len(lake.files()) == 1
    assert not writer.write(rows_of(5), batch(5))


def test_of_each_hour_the_last_snapshot_stays_and_what_has_a_tag(tmp_path: Path) -> None:
    lake = Lake("iceberg", tmp_path)
    assert [*written(lake.writer(compact=0), range(4))]
    table = lake.iceberg()
    first, _, _, last = table.snapshots()
    table.manage_snapshots().create_tag(first.snapshot_id, "audit").commit()
    hours_later = last.timestamp_ms + 3 * iceberg_maintenance.HOUR_MS
    iceberg_maintenance.expire(lake.iceberg(), timedelta(days=1), hours_later)
    assert {snapshot.snapshot_id for snapshot in lake.iceberg().snapshots()} >= {first.snapshot_id, last.snapshot_id}
    assert len(lake.iceberg().snapshots()) <= 3
    assert lake.iceberg().scan(snapshot_id=first.snapshot_id).to_arrow().num_rows == 2


def test_a_merge_that_another_writer_forestalls_leaves_the_batch_alone(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("the store is full")

    monkeypatch.setattr(iceberg_maintenance, "compact", refuse)
    monkeypatch.setattr("deltalake.table.TableOptimizer.compact", refuse)
    assert [*written(lake.writer(compact=2), range(2))]
    assert "did not merge small files now: the store is full" in caplog.text
    assert len(lake.rows()) == 4


def test_files_grow_in_two_steps() -> None:
    sizes = [maintenance.target_bytes(10, number) for number in range(160)]
    assert [size for size in sizes if size] == [maintenance.SMALL_BYTES] * 15 + [maintenance.LARGE_BYTES]
    assert maintenance.target_bytes(0, 9) == 0


def test_icebergs_transforms_are_read_as_spark_writes_them() -> None:
    assert partitions("town, days(at), bucket(16, id)") == (
        Partition("town"),
        Partition("at", "day"),
        Partition("id", "bucket", 16),
    )
    for wrong in ("weeks(at)", "bucket(id)", ["truncate(0, name)"], 3, ""):
        with pytest.raises(ValueError, match="a "):
            partitions(wrong)
    for wrong in ("soon", "0 days", "7 weeks"):
        with pytest.raises(ValueError, match="a time such as"):
            maintenance.history(wrong)


def test_a_transform_without_its_package_is_refused_with_what_to_install(tmp_path: Path) -> None:
    sink = made("iceberg", iceberg="web.t", partition_by="day(at)")
    [problem] = sink_kind("iceberg").check(sink, pipeline(tmp_path))
    assert "pip install 'pyiceberg[pyiceberg-core]'" in problem.hint


def test_a_partition_of_no_column_is_an_error_with_its_name(tmp_path: Path) -> None:
    writer = Lake("iceberg", tmp_path).writer(partition_by=["dya"])
    with pytest.raises(Exception, match=r"sink 'out': Iceberg says: .*dya"):
        writer.write(rows_of(0), batch(0))
