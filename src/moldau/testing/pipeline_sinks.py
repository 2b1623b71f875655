"""Sinks of a test: tables in memory, which take rows as the sinks do that they stand for."""

from typing import TYPE_CHECKING, Any

from moldau.pipelines.file.spec import SinkSpec
from moldau.pipelines.kinds import Context
from moldau.pipelines.sinks import batches, order
from moldau.pipelines.sinks.batches import DELETED, Batch

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # no type information
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter


class Kept:
    """The rows of a sink: by key if it has one, else in the order they came."""

    def __init__(self, sink: SinkSpec) -> None:
        self._sink = sink
        self._key = tuple(sink.options.get("key") or ())
        self._newest_by = order.named(sink)
        self._rows: dict[Any, dict[str, Any]] = {}
        self._count = 0

    def attach(self, sink: SinkSpec, rows: "DataFrame", context: Context) -> "DataStreamWriter":
        return batches.attach(sink, batches.select(sink, rows), context, self)

    def write(self, rows: "pa.Table", batch: Batch) -> bool:  # noqa: ARG002 - the protocol's
        batches.refuse_null_keys(rows, self._key, batches.owner(self._sink))
        if self._sink.options["mode"] == "complete":
            self._rows.clear()
        for row in batches.utc(rows).to_pylist():
            self._take(row)
        return True

    def rows(self) -> list[dict[str, Any]]:
        return [self._rows[key] for key in (sorted(self._rows) if self._key else self._rows)]

    def _take(self, row: dict[str, Any]) -> None:
        deleted = row.pop(DELETED, False)
        self._count += 1
        key = tuple(row[name] for name in self._key) or self._count
        if key in self._rows and self._version(row) < self._version(self._rows[key]):
            return
        if deleted:
            self._rows.pop(key, None)
        else:
            self._rows[key] = row

    def _version(self, row: dict[str, Any]) -> tuple[Any, ...]:
        """The values of `newest_by`; none is the oldest."""
        return tuple((row[name] is not None, row[name]) for name in self._newest_by)
