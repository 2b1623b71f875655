"""Batches for a sink that writes batch by batch: `foreachBatch`, in the driver, one Arrow table a batch.

A batch is known by its query, by the checkpoint it belongs to and by its number. Spark begins a batch again after a
crash, with the same number, and only the last one; a sink that remembers the number beside the rows sees the replay. A
new checkpoint (a reset, a replay into another place) begins at 0 again and is no replay: Spark gives each an id.

Spark does not sync its files. If a power cut took the plan of a batch that a sink has, Spark would plan that number
anew, with other rows, and the sink would take them for a replay. So the plan is synced before the sink has the batch.
"""

import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from moldau.pipelines.file.options import Option, names, text
from moldau.pipelines.file.problems import PipelineError, Place, Problem, suggestion
from moldau.pipelines.file.spec import SinkSpec
from moldau.pipelines.formats import decoding
from moldau.pipelines.kinds import Context
from moldau.pipelines.sinks import order, patience
from moldau.pipelines.sinks.patience import Away, patiently

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # no type information
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import DataType

DELETED = "__deleted"
"""Column that says that the row's key is to be deleted; there if the sink has `delete_when`."""

KEY = Option("key", names, "the columns that identify a row: a new row replaces the old one; without: rows are added")
COLUMNS = Option("columns", names, "the columns to write; all, but for those with `_` in front")
DELETE_WHEN = Option("delete_when", text, "a condition in SQL: a row that meets it deletes the row of its key")


logger = logging.getLogger(patience.__name__)


@dataclass(frozen=True, slots=True)
class Batch:
    """Identity of a batch; `checkpoint` is the id that Spark gave the checkpoint, the same through all restarts."""

    query: str
    checkpoint: str
    number: int

    @property
    def owner(self) -> str:
        """Name under which batches are counted: a text for stores that keep one number a name."""
        return f"{self.query}/{self.checkpoint}"


@dataclass(frozen=True, slots=True)
class Owner:
    """The sink that a writer works for, named in messages. Can be pickled, unlike a whole pipeline."""

    name: str
    place: Place

    def error(self, message: str, hint: str = "") -> PipelineError:
        return PipelineError([Problem(self.place, f"sink {self.name!r}: {message}", hint)])

    def away(self, message: str) -> Away:
        """The error of a store that does not answer now, and may later."""
        return Away(self.error(message).problems)


class BatchWriter(Protocol):
    """Writer of a batch as a whole, or not at all if it was written before. Can be pickled: Spark Connect does that."""

    def write(self, rows: "pa.Table", batch: Batch) -> bool:
        """Write the batch; False if it was there."""


@dataclass(frozen=True, slots=True)
class EachBatch:
    """The function for `foreachBatch`."""

    query: str
    checkpoint: Path
    writer: BatchWriter

    def __call__(self, rows: "DataFrame", number: int) -> None:
        sync_plan(self.checkpoint, number)
        batch = Batch(self.query, checkpoint_id(self.checkpoint), number)
        patiently(self.query, partial(self.writer.write, order.in_order(rows.toArrow()), batch))


def tell_made_anew(query: str, place: str) -> None:
    """Tell that a sink's place, to which batches were written before, was not there and is made once more: what was in
    it is gone, and nobody else will say so."""
    logger.warning("%s: %s was not there and is made anew, without the rows of before", query, place)


def sync_plan(checkpoint: Path, number: int) -> None:
    """Make Spark's notes from before the batch durable: the checkpoint's id, the offsets, a source's files."""
    sources = checkpoint.glob(f"sources/*/{number}")
    for file in (checkpoint / "metadata", checkpoint / "offsets" / str(number), *sources):
        sync(file)
        sync(file.parent)


def sync(path: Path) -> None:
    """Make a file durable, or the names in a directory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def checkpoint_id(checkpoint: Path) -> str:
    """Spark's id of the checkpoint, which it writes before the first batch."""
    return str(json.loads((checkpoint / "metadata").read_text("utf-8"))["id"])


def owner(sink: SinkSpec) -> Owner:
    return Owner(sink.name, sink.place)


def attach(sink: SinkSpec, rows: "DataFrame", context: Context, writer: BatchWriter) -> "DataStreamWriter":
    each = EachBatch(f"{context.pipeline.name}.{sink.name}", context.storage / "checkpoints" / sink.name, writer)
    return rows.writeStream.foreachBatch(each)


def chosen(sink: SinkSpec, available: Sequence[str]) -> list[str]:
    """The columns to write, those of the key and of `newest_by` first if they would not be there otherwise."""
    key = (*(sink.options.get("key") or ()), *order.named(sink))
    columns = list(sink.options.get("columns") or (name for name in available if not name.startswith("_")))
    columns = [name for name in key if name not in columns] + columns
    lacking = [name for name in columns if name not in available]
    if lacking:
        place = sink.places.get("key" if lacking[0] in key else "columns", sink.place)
        message = f"sink {sink.name!r}: its rows have no column {lacking[0]!r}"
        raise PipelineError([Problem(place, message, suggestion(lacking[0], available))])
    return columns


def select(
    sink: SinkSpec, rows: "DataFrame", convert: "Callable[[Column, DataType], Column] | None" = None
) -> "DataFrame":
    """The columns to write, each converted where the store has no such type, `DELETED` if rows may delete, and those
    that tell the order of rows that are not in theirs."""
    from pyspark.sql import functions as F

    types = {field.name: field.dataType for field in rows.schema.fields}
    columns = [_column(name, types[name], convert) for name in chosen(sink, rows.columns)]
    condition = deletes_when(sink, rows.columns)
    if condition:
        columns.append(F.coalesce(F.expr(condition), F.lit(False)).alias(DELETED))
    return rows.select(*order.with_versions(columns, order.versions(sink, rows)))


def deletes_when(sink: SinkSpec, available: Sequence[str]) -> str | None:
    """The condition under which a row deletes: the sink's, or that it was made of a tombstone."""
    given: str | None = sink.options.get("delete_when")
    by_key = "delete_when" in sink.options and sink.options.get("key")
    return given or (decoding.DELETED if by_key and decoding.DELETED in available else None)


def _column(name: str, data_type: "DataType", convert: "Callable[[Column, DataType], Column] | None") -> "Column":
    from pyspark.sql import functions as F

    column = F.col("`" + name.replace("`", "``") + "`")
    return column if convert is None else convert(column, data_type).alias(name)


def nested_as_json(column: "Column", data_type: "DataType") -> "Column":
    """Arrays, structs, maps and variants as JSON text; intervals as text."""
    from pyspark.sql import functions as F

    if data_type.typeName() in ("array", "struct", "map", "variant"):
        return F.to_json(column, {"ignoreNullFields": "false"})
    return column.cast("string") if "interval" in data_type.typeName() else column


def beside(sink: SinkSpec, written: str) -> str:
    """The path: a relative one is beside the pipeline's file, wherever the command is run; an address stays as it
    is."""
    return written if "://" in written else str(Path(sink.place.file).resolve().parent / written)


def utc(rows: "pa.Table") -> "pa.Table":
    """The rows with timestamps in UTC instead of the session's time zone: the same moments, and the table formats
    insist on it."""
    import pyarrow as pa

    def plain(data_type: Any) -> Any:
        if pa.types.is_timestamp(data_type) and data_type.tz is not None:
            return pa.timestamp("us", "UTC")
        if pa.types.is_struct(data_type):
            return pa.struct([field.with_type(plain(field.type)) for field in data_type])
        if pa.types.is_map(data_type):
            return pa.map_(plain(data_type.key_type), data_type.item_field.with_type(plain(data_type.item_type)))
        if pa.types.is_list(data_type):
            return pa.list_(data_type.value_field.with_type(plain(data_type.value_type)))
        return data_type

    return rows.cast(pa.schema([field.with_type(plain(field.type)) for field in rows.schema]))


def newest(rows: "pa.Table", key: Sequence[str]) -> "pa.Table":
    """The last row of each key, in the order of their keys' last rows."""
    if rows.num_rows == 0:
        return rows
    identities = zip(*(rows.column(name).to_pylist() for name in key), strict=True)
    last = {identity: position for position, identity in enumerate(identities)}
    return rows if len(last) == rows.num_rows else rows.take(sorted(last.values()))


def refuse_null_keys(rows: "pa.Table", key: Sequence[str], sink: Owner) -> None:
    for name in key:
        if rows.column(name).null_count:
            hint = f"leave them out in a view: WHERE {name} IS NOT NULL"
            raise sink.error(f"{rows.column(name).null_count} rows have no {name!r}, which is of the key", hint)


def check_deletions(sink: SinkSpec) -> Iterator[Problem]:
    """Problems of any sink whose rows may delete or come in another order."""
    yield from order.check(sink)
    if sink.options["delete_when"] and not sink.options["key"]:
        place = sink.places.get("delete_when", sink.place)
        yield Problem(place, f"sink {sink.name!r}: 'delete_when' needs 'key'", "which row is to be deleted?")
