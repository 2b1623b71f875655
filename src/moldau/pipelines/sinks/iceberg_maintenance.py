"""Maintenance of an Iceberg table: small data files merged, snapshots thinned out, and files removed that none has.

pyiceberg can replace files by others in one snapshot, and expire snapshots, but leaves their files behind. The order:
snapshots are expired first, then the files are removed that no snapshot has any more. A run that is killed in between
leaves files that nobody reads, never a snapshot without its files.

Each batch is a snapshot, and each snapshot is in the metadata that each commit writes anew. So of what is older than an
hour only the last snapshot of each hour stays. Those with a tag or a branch stay for ever.
"""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import FileScanTask, Table
    from pyiceberg.table.snapshots import Snapshot

HISTORY = timedelta(days=5)
"""Age of the oldest snapshot that stays, where neither the sink nor the table says one; it is Iceberg's default."""
AGE_PROPERTY = "history.expire.max-snapshot-age-ms"
HOUR_MS = 3_600_000
NEW_TABLE = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "100"}
"""Properties of a table that we make: of its metadata, a file for each commit, the last hundred stay."""


def compact(table: "Table", target_bytes: int) -> int:
    """Merge files that are smaller than that, within their partitions; returns how many."""
    from pyiceberg.io.pyarrow import ArrowScan, _dataframe_to_data_files

    groups = list(_groups(table, target_bytes))
    if not groups:
        return 0
    with table.transaction() as transaction:
        summary = {"moldau.compaction": "true"}
        with transaction.update_snapshot(snapshot_properties=summary).overwrite() as replaced:
            for tasks in groups:
                scan = ArrowScan(table.metadata, table.io, table.schema(), _everything())
                for made in _dataframe_to_data_files(table.metadata, scan.to_table(tasks), table.io):
                    replaced.append_data_file(made)
                for task in tasks:
                    replaced.delete_data_file(task.file)
    return sum(map(len, groups))


def _everything() -> Any:
    from pyiceberg.expressions import AlwaysTrue

    return AlwaysTrue()


def _groups(table: "Table", target_bytes: int) -> "Iterator[list[FileScanTask]]":
    """Small files that become one, two or more of them: of one partition, as the table is divided now. Files of which
    another program has deleted rows are left to that program."""
    spec = table.spec().spec_id
    small = [
        task
        for task in table.scan().plan_files()
        if task.file.file_size_in_bytes < target_bytes and not task.delete_files and task.file.spec_id == spec
    ]
    for _, tasks in groupby(sorted(small, key=_partition), key=_partition):
        yield from (group for group in _packed(list(tasks), target_bytes) if len(group) > 1)


def _partition(task: "FileScanTask") -> str:
    return repr(task.file.partition)


def _packed(tasks: "list[FileScanTask]", target_bytes: int) -> "Iterator[list[FileScanTask]]":
    group: list[FileScanTask] = []
    size = 0
    for task in tasks:
        if group and size + task.file.file_size_in_bytes > target_bytes:
            yield group
            group, size = [], 0
        group.append(task)
        size += task.file.file_size_in_bytes
    yield group


def expire(table: "Table", history: timedelta | None, now_ms: int) -> int:
    """Remove old snapshots and the files that only they have; returns how many snapshots."""
    from pyiceberg.catalog import delete_files

    said = table.properties.get(AGE_PROPERTY)
    kept = history or (timedelta(milliseconds=int(said)) if said else HISTORY)
    named = {ref.snapshot_id for ref in table.metadata.refs.values()}
    gone = [snapshot for snapshot in _old(table.snapshots(), kept, now_ms) if snapshot.snapshot_id not in named]
    if not gone:
        return 0
    left = set(_files(table, gone))
    table.maintenance.expire_snapshots().by_ids([snapshot.snapshot_id for snapshot in gone]).commit()
    table.refresh()
    left.difference_update(_files(table, table.snapshots()))
    delete_files(table.io, left, "expired")
    return len(gone)


def _old(snapshots: "Iterable[Snapshot]", history: timedelta, now_ms: int) -> "Iterator[Snapshot]":
    """The snapshots that may go: past `history`, or more than an hour old and not the last of their hour."""
    ordered = sorted(snapshots, key=lambda snapshot: snapshot.timestamp_ms)
    last = {snapshot.timestamp_ms // HOUR_MS: snapshot.snapshot_id for snapshot in ordered}
    for snapshot in ordered:
        age_ms = now_ms - snapshot.timestamp_ms
        is_last = last[snapshot.timestamp_ms // HOUR_MS] == snapshot.snapshot_id
        if age_ms > history.total_seconds() * 1000 or (age_ms > HOUR_MS and not is_last):
            yield snapshot


def _files(table: "Table", snapshots: "Iterable[Snapshot]") -> Iterator[str]:
    """The files of snapshots: lists of manifests, manifests, and data."""
    seen: set[str] = set()
    for snapshot in snapshots:
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path in seen:
                continue
            seen.add(manifest.manifest_path)
            yield manifest.manifest_path
            yield from (_path(entry.data_file) for entry in manifest.fetch_manifest_entry(table.io))


def _path(file: "DataFile") -> str:
    return str(file.file_path)
