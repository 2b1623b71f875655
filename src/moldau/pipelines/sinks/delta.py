"""Rows into a Delta table, by delta-rs: no jar is needed, whatever the version of Spark.

Exactly once: a commit of the table carries the number of the batch as Delta's own application transaction, so that a
batch that is there is seen. With a key rows are merged, the last row of a key in a batch wins; without they are added;
mode complete overwrites. One pipeline writes; another writer of the same files makes the commit fail, not the data.
Columns that the table lacks are added to it before the batch that has them, as a merge would leave them out in silence
(`delta_columns.py`). Small files are merged behind a batch (`maintenance.py`).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from moldau.pipelines.file.options import Option, mapping, names, text
from moldau.pipelines.file.problems import Problem
from moldau.pipelines.file.spec import PipelineSpec, SinkSpec
from moldau.pipelines.kinds import Context
from moldau.pipelines.sinks import batches, delta_columns, lakes, maintenance, order
from moldau.pipelines.sinks.batches import COLUMNS, DELETE_WHEN, DELETED, KEY, Batch, Owner
from moldau.pipelines.sinks.ledger import refuse_rollback
from moldau.pipelines.sinks.maintenance import COMPACT, HISTORY
from moldau.pipelines.sinks.order import NEWEST_BY, not_older

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # no type information
    from deltalake import CommitProperties, DeltaTable
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import DataType


class DeltaSink:
    options = (
        Option("delta", text, "the table's directory or address; made if it is not there", required=True),
        KEY,
        COLUMNS,
        DELETE_WHEN,
        NEWEST_BY,
        Option("partition_by", names, "the columns by which a new table is divided into directories"),
        COMPACT,
        HISTORY,
        Option("storage", mapping, "settings of the object store, as delta-rs calls them"),
    )
    guarantee = "exactly once"

    def check(self, sink: SinkSpec, pipeline: PipelineSpec) -> Iterator[Problem]:  # noqa: ARG002 - the protocol's
        yield from batches.check_deletions(sink)

    def attach(self, sink: SinkSpec, rows: "DataFrame", context: Context) -> "DataStreamWriter":
        return batches.attach(sink, batches.select(sink, rows, variants_as_json), context, writer(sink))


KIND = DeltaSink()


def writer(sink: SinkSpec) -> "DeltaWriter":
    return DeltaWriter(
        batches.owner(sink),
        batches.beside(sink, sink.options["delta"]),
        tuple(sink.options["key"] or ()),
        tuple(sink.options["partition_by"] or ()),
        dict(sink.options["storage"] or {}),
        replace=sink.options["mode"] == "complete",
        newest_by=order.named(sink),
        compact=sink.options["compact"],
        history=sink.options["history"],
    )


def variants_as_json(column: "Column", data_type: "DataType") -> "Column":
    """The column with variants and intervals as JSON, as neither table format takes Spark's own from Arrow."""
    from pyspark.sql import functions as F

    if data_type.typeName() == "variant":
        return F.to_json(column)
    return column.cast("string") if "interval" in data_type.typeName() else column


@dataclass(frozen=True, slots=True)
class DeltaWriter:
    sink: Owner
    path: str
    key: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    storage: "dict[str, str] | None" = None
    replace: bool = False
    newest_by: tuple[str, ...] = ()
    compact: int = 0
    history: timedelta | None = None

    def write(self, rows: "pa.Table", batch: Batch) -> bool:
        from deltalake import CommitProperties, DeltaTable
        from deltalake.exceptions import DeltaError
        from deltalake.transaction import Transaction

        batches.refuse_null_keys(rows, self.key, self.sink)
        commit = CommitProperties(app_transactions=[Transaction(batch.owner, batch.number)])
        try:
            there = DeltaTable.is_deltatable(self.path, self.storage)
            table = self._table(batches.utc(rows), there)
            last = table.transaction_version(batch.owner) if table is not None else None
            if last is not None and batch.number <= last:
                refuse_rollback(last, batch, self.sink)
                return False
            if table is not None:
                delta_columns.add_lacking(table, batches.utc(rows).schema, DELETED)
            if self.key and not self.replace:
                made = table or DeltaTable(self.path, storage_options=self.storage)
                self._merge(made, batches.utc(rows), commit)
            else:
                self._append(batches.utc(rows), commit)
            if batch.number and not there and not self.replace:
                batches.tell_made_anew(batch.query, self.path)
        except (DeltaError, OSError, ValueError) as error:
            if lakes.may_pass(error):  # if another writer was first, the next attempt sees what it wrote
                raise self.sink.away(f"Delta says: {lakes.words(error)}") from error
            raise self.sink.error(f"Delta says: {str(error).strip()}") from error
        self._maintain(batch)
        return True

    def _maintain(self, batch: Batch) -> None:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        target = maintenance.target_bytes(self.compact, batch.number)
        if not target:
            return

        def compact() -> None:
            DeltaTable(self.path, storage_options=self.storage).optimize.compact(target_size=target)

        def vacuum() -> None:
            table = DeltaTable(self.path, storage_options=self.storage)
            hours = None if self.history is None else math.ceil(self.history / timedelta(hours=1))
            # `full` lists the directory, and so finds what a killed run has left.
            table.vacuum(hours, dry_run=False, enforce_retention_duration=hours is None, full=True)

        maintenance.try_to("merge small files", batch.query, compact, (DeltaError, OSError))
        if target == maintenance.LARGE_BYTES:
            maintenance.try_to("remove old files", batch.query, vacuum, (DeltaError, OSError))

    def _table(self, rows: "pa.Table", there: bool) -> "DeltaTable | None":
        """The table; None if it is not there yet. A merge needs one to merge into."""
        from deltalake import DeltaTable

        if there:
            return DeltaTable(self.path, storage_options=self.storage)
        if not self.key:
            return None
        schema = rows.drop_columns([DELETED]).schema if DELETED in rows.column_names else rows.schema
        return DeltaTable.create(
            self.path, schema=schema, partition_by=list(self.partition_by), storage_options=self.storage
        )

    def _append(self, rows: "pa.Table", commit: "CommitProperties") -> None:
        from deltalake import write_deltalake

        if DELETED in rows.column_names:
            import pyarrow.compute as pc  # type: ignore[import-untyped]  # no type information

            rows = batches.newest(rows, self.key)
            rows = rows.filter(pc.invert(rows.column(DELETED))).drop_columns([DELETED])
        write_deltalake(
            self.path,
            rows,
            mode="overwrite" if self.replace else "append",
            partition_by=list(self.partition_by) or None,
            storage_options=self.storage,
            commit_properties=commit,
        )

    def _merge(self, table: "DeltaTable", rows: "pa.Table", commit: "CommitProperties") -> None:
        same = " AND ".join(f"old.{_quote(name)} = new.{_quote(name)}" for name in self.key)
        values = {_quote(name): f"new.{_quote(name)}" for name in rows.column_names if name != DELETED}
        merge = table.merge(
            batches.newest(rows, self.key), same, source_alias="new", target_alias="old", commit_properties=commit
        )
        newer = not_older(self.newest_by, lambda name: f"old.{_quote(name)}", lambda name: f"new.{_quote(name)}")
        if DELETED not in rows.column_names:
            merge.when_matched_update(values, newer if self.newest_by else None).when_not_matched_insert(
                values
            ).execute()
        else:
            kept, gone = f"NOT new.{DELETED}", f"new.{DELETED}"
            merge = merge.when_matched_delete(f"{gone} AND {newer}").when_matched_update(values, f"{kept} AND {newer}")
            merge.when_not_matched_insert(values, kept).execute()


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
