"""Rows into an Iceberg table, by pyiceberg and its catalogs: no jar is needed, whatever the version of Spark.

Exactly once: the number of the batch is a property of the table, set in the commit that brings its rows (and in the
snapshot's summary, to be read by people). With a key rows are upserted, which reads the files that may hold them: for
tables of moderate size. Mode complete overwrites. Columns that the table lacks are added to it before the batch that
has them. An upsert writes whole rows, so rows that lack a column of the table are refused: they would empty it. Small
files are merged behind a batch (`maintenance.py`).
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from moldau.pipelines.file.options import Option, mapping, text
from moldau.pipelines.file.problems import PipelineError, Problem
from moldau.pipelines.file.spec import PipelineSpec, SinkSpec
from moldau.pipelines.kinds import Context
from moldau.pipelines.sinks import batches, iceberg_maintenance, lakes, maintenance, order
from moldau.pipelines.sinks.batches import COLUMNS, DELETE_WHEN, DELETED, KEY, Batch, Owner
from moldau.pipelines.sinks.delta import variants_as_json
from moldau.pipelines.sinks.iceberg_partitions import Partition, fields, lacks_package, partitions
from moldau.pipelines.sinks.ledger import refuse_rollback
from moldau.pipelines.sinks.maintenance import COMPACT, HISTORY
from moldau.pipelines.sinks.order import NEWEST_BY

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # no type information
    from pyiceberg.catalog import Catalog
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

PROPERTY = "moldau.batch."


class IcebergSink:
    options = (
        Option("iceberg", text, "the table with its namespace: `web.visits`; made if it is not there", required=True),
        Option(
            "catalog", mapping, "the catalog's properties as pyiceberg calls them: type, uri, warehouse", default={}
        ),
        KEY,
        COLUMNS,
        DELETE_WHEN,
        NEWEST_BY,
        Option(
            "partition_by",
            partitions,
            "how a new table is divided: columns, or year, month, day or hour of one, such as `day(at)`,"
            " `bucket(16, id)`, `truncate(4, code)`",
        ),
        COMPACT,
        HISTORY,
    )
    guarantee = "exactly once"

    def check(self, sink: SinkSpec, pipeline: PipelineSpec) -> Iterator[Problem]:  # noqa: ARG002 - the protocol's
        yield from batches.check_deletions(sink)
        if "." not in sink.options["iceberg"]:
            place = sink.places.get("iceberg", sink.place)
            yield Problem(place, f"sink {sink.name!r}: the table needs its namespace", f"web.{sink.options['iceberg']}")
        if lacks_package(sink.options["partition_by"] or ()):
            place = sink.places.get("partition_by", sink.place)
            message = f"sink {sink.name!r}: to divide by anything but whole columns pyiceberg needs pyiceberg-core"
            yield Problem(place, message, "pip install 'pyiceberg[pyiceberg-core]', or compute a column in a view")

    def attach(self, sink: SinkSpec, rows: "DataFrame", context: Context) -> "DataStreamWriter":
        return batches.attach(sink, batches.select(sink, rows, variants_as_json), context, writer(sink))


KIND = IcebergSink()


def writer(sink: SinkSpec) -> "IcebergWriter":
    return IcebergWriter(
        batches.owner(sink),
        sink.options["iceberg"],
        dict(sink.options["catalog"]),
        tuple(sink.options["key"] or ()),
        replace=sink.options["mode"] == "complete",
        newest_by=order.named(sink),
        partition_by=tuple(sink.options["partition_by"] or ()),
        compact=sink.options["compact"],
        history=sink.options["history"],
    )


@dataclass(frozen=True, slots=True)
class IcebergWriter:
    """Writer to an Iceberg table. Without properties `catalog` is pyiceberg's own default one (its file, or the
    environment)."""

    sink: Owner
    table: str
    catalog: dict[str, str]
    key: tuple[str, ...] = ()
    replace: bool = False
    newest_by: tuple[str, ...] = ()
    partition_by: tuple[Partition, ...] = ()
    compact: int = 0
    history: timedelta | None = None

    def write(self, rows: "pa.Table", batch: Batch) -> bool:
        from pyiceberg.exceptions import ValidationError

        batches.refuse_null_keys(rows, self.key, self.sink)
        try:
            return self._write(batches.utc(rows), batch)
        except PipelineError:
            raise
        except Exception as error:  # also those of a catalog's database or server, which are not all installed
            if lakes.may_pass(error):  # if another writer was first, the next attempt sees what it wrote
                raise self.sink.away(f"Iceberg says: {lakes.words(error)}") from error
            if isinstance(error, ValueError | ValidationError):
                raise self.sink.error(f"Iceberg says: {str(error).strip()}") from error
            raise

    def _write(self, rows: "pa.Table", batch: Batch) -> bool:
        from pyiceberg.catalog import load_catalog

        table = self._table(load_catalog("default", **self.catalog), rows, batch)
        last = table.properties.get(PROPERTY + batch.owner)
        if last is not None and batch.number <= int(last):
            refuse_rollback(int(last), batch, self.sink)
            return False
        summary = {
            "moldau.query": batch.query,
            "moldau.checkpoint": batch.checkpoint,
            "moldau.batch": str(batch.number),
        }
        self._fit(table, rows)
        with table.transaction() as transaction:
            if self.replace:
                transaction.overwrite(_kept(rows, self.key), snapshot_properties=summary)
            elif self.key:
                self._upsert(table, transaction, batches.newest(rows, self.key), summary)
            else:
                transaction.append(rows, snapshot_properties=summary)
            transaction.set_properties({PROPERTY + batch.owner: str(batch.number)})
        self._maintain(table, batch)
        return True

    def _maintain(self, table: Any, batch: Batch) -> None:
        from pyiceberg.exceptions import CommitFailedException, ValidationException

        target = maintenance.target_bytes(self.compact, batch.number)
        if not target:
            return
        errors = (CommitFailedException, ValidationException, OSError, ValueError)
        compact, expire = iceberg_maintenance.compact, iceberg_maintenance.expire
        maintenance.try_to("merge small files", batch.query, lambda: compact(table, target), errors)
        if target == maintenance.LARGE_BYTES:
            now_ms = time.time_ns() // 1_000_000
            maintenance.try_to("expire snapshots", batch.query, lambda: expire(table, self.history, now_ms), errors)

    def _fit(self, table: Any, rows: "pa.Table") -> None:
        """Add the columns that the table lacks, in a commit of its own."""
        rows = _written(rows)
        there = [field.name for field in table.schema().fields]
        lacking = [name for name in there if name not in rows.column_names]
        if self.key and not self.replace and lacking:
            hint = f"add it in the view: CAST(NULL AS ...) AS {lacking[0]}; or drop it from the table"
            raise self.sink.error(f"the table {self.table} has a column {lacking[0]!r} that the rows lack", hint)
        if not set(rows.column_names) <= set(there):
            with table.update_schema() as update:
                update.union_by_name(rows.schema)

    def _upsert(self, table: Any, transaction: Any, rows: "pa.Table", summary: dict[str, str]) -> None:
        """Put rows in the place of those with their keys, and nothing in the place of rows that are to go. pyiceberg's
        own upsert leaves alone what has not changed, but deletes nothing, and fails on files from before a column was
        added."""
        from pyiceberg.table.upsert_util import create_match_filter

        newest = self._not_older(table, rows)
        kept, there = _kept(newest, self.key), table.current_snapshot()
        other = there is not None and there.schema_id != table.schema().schema_id
        if newest.num_rows and (other or kept.num_rows < newest.num_rows):
            same = create_match_filter(newest, list(self.key))
            transaction.overwrite(kept, overwrite_filter=same, snapshot_properties=summary)
        else:
            transaction.upsert(kept, list(self.key), snapshot_properties=summary)

    def _not_older(self, table: Any, rows: "pa.Table") -> "pa.Table":
        """The rows but for those of which the table has a newer version."""
        from pyiceberg.table.upsert_util import create_match_filter

        if not self.newest_by or not rows.num_rows:
            return rows
        keys = create_match_filter(rows, list(self.key))
        there = table.scan(row_filter=keys, selected_fields=(*self.key, *self.newest_by)).to_arrow()
        known = dict(zip(_tuples(there, self.key), _versions(there, self.newest_by), strict=True))
        offered = zip(_tuples(rows, self.key), _versions(rows, self.newest_by), strict=True)
        return rows.filter([known.get(key, ()) <= version for key, version in offered])

    def _table(self, catalog: "Catalog", rows: "pa.Table", batch: Batch) -> Any:
        """The table, made with its partitions in one commit if it is not there."""
        from pyiceberg.exceptions import TableAlreadyExistsError

        catalog.create_namespace_if_not_exists(self.table.rpartition(".")[0])
        if not catalog.table_exists(self.table):
            properties = iceberg_maintenance.NEW_TABLE if self.compact else {}
            try:
                with (
                    catalog.create_table_transaction(self.table, _written(rows).schema, properties=properties) as made,
                    made.update_spec() as division,
                ):
                    for column, transform, name in fields(self.partition_by):
                        division.add_field(column, transform, name)
                if batch.number and not self.replace:
                    batches.tell_made_anew(batch.query, f"the table {self.table}")
            except TableAlreadyExistsError:  # another writer was first, and its table is as good
                pass
        return catalog.load_table(self.table)


def _written(rows: "pa.Table") -> "pa.Table":
    """The rows without the column that says which of them delete."""
    return rows.drop_columns([DELETED]) if DELETED in rows.column_names else rows


def _kept(rows: "pa.Table", key: "Sequence[str]") -> "pa.Table":
    """The newest row of each key that does not delete, or all rows where none may."""
    import pyarrow.compute as pc  # type: ignore[import-untyped]  # no type information

    if DELETED not in rows.column_names:
        return rows
    newest = batches.newest(rows, key)
    return _written(newest.filter(pc.invert(newest.column(DELETED))))


def _tuples(rows: "pa.Table", names: "Sequence[str]") -> "list[tuple[Any, ...]]":
    return list(zip(*(rows.column(name).to_pylist() for name in names), strict=True))


def _versions(rows: "pa.Table", names: "Sequence[str]") -> "list[tuple[Any, ...]]":
    """The versions in a shape that can be compared; none is the oldest."""
    return [
        tuple((value is not None, value) if value is not None else (False,) for value in row)
        for row in _tuples(rows, names)
    ]
