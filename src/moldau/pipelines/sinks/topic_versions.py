"""Versions of the keys that a compacted topic has, so that a row that comes batches late does not become the newest.

A table has the version beside the row; a topic can only be added to, and nobody may look a key up in it. So the newest
version of each key that was handed on is kept in a file of the checkpoint, in the order of `newest_by`.

The law: versions are noted before their rows are written. A batch that is begun again finds its own versions there: a
row is late only if its key has a greater one, so all that matters of the batch is written again. A key that was deleted
keeps its version.
"""

import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moldau.pipelines.sinks.batches import Owner
from moldau.pipelines.sinks.order import VERSION

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # no type information
    from pyspark.sql import DataFrame

FILE = "versions.db"
KEYS_AT_ONCE = 500
CREATE = "CREATE TABLE IF NOT EXISTS versions (key BLOB PRIMARY KEY, version TEXT NOT NULL) WITHOUT ROWID"

Version = tuple[tuple[bool, Any], ...]
"""Values of the columns of `newest_by`, each after whether there is one: none is the oldest."""


@dataclass(frozen=True, slots=True)
class WithoutLate:
    """The function for `foreachBatch` that hands a batch on without the rows that come late."""

    sink: Owner
    checkpoint: Path
    write: "Callable[[DataFrame, int], None]"

    def __call__(self, rows: "DataFrame", number: int) -> None:
        kept = rows.persist()
        try:
            self.write(self._in_time(kept), number)
        finally:
            kept.unpersist()

    def _in_time(self, rows: "DataFrame") -> "DataFrame":
        from pyspark.sql import functions as F

        names = ["key", *(name for name in rows.columns if name.startswith(VERSION))]
        offered = rows.where("key IS NOT NULL").select(*names).toArrow()
        late = offered.filter(self.note(offered))
        if not late.num_rows:
            return rows
        found = F.broadcast(rows.sparkSession.createDataFrame(late).alias("late"))
        same = [F.col(f"rows.{name}").eqNullSafe(F.col(f"late.{name}")) for name in names]
        return rows.alias("rows").join(found, same, "left_anti")

    def note(self, offered: "pa.Table") -> list[bool]:
        """Note the versions of a batch (`key` and columns of versions); for each row whether it comes late."""
        keys = offered.column("key").to_pylist()
        columns = [offered.column(number) for number in range(1, offered.num_columns)]
        versions: list[Version] = list(zip(*map(_comparable, columns), strict=True))
        if not keys:
            return []
        self.checkpoint.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(self.checkpoint / FILE)) as file, file:
            file.execute(CREATE)
            known = _known(file, list(dict.fromkeys(keys)), [_reads_decimals(column) for column in columns])
            try:
                late = [key in known and version < known[key] for key, version in zip(keys, versions, strict=True)]
                newer: dict[bytes, Version] = {}
                for key, version in zip(keys, versions, strict=True):
                    if version > newer.get(key, known.get(key, ())):
                        newer[key] = version
            except TypeError as error:
                words = f"its versions ('newest_by') cannot be compared with those of before: {error}"
                raise self.sink.error(words, "begin anew with `moldau pipeline reset --sink`") from error
            entries = [(key, json.dumps(version, default=str)) for key, version in newer.items()]
            file.executemany("INSERT OR REPLACE INTO versions VALUES (?, ?)", entries)
        return late


def _known(file: sqlite3.Connection, keys: Sequence[bytes], decimals: Sequence[bool]) -> dict[bytes, Version]:
    found: dict[bytes, Version] = {}
    for begin in range(0, len(keys), KEYS_AT_ONCE):
        some = keys[begin : begin + KEYS_AT_ONCE]
        query = f"SELECT key, version FROM versions WHERE key IN ({', '.join('?' * len(some))})"
        for key, told in file.execute(query, some):
            found[key] = tuple(
                (there, Decimal(value) if exact and there else value)
                for (there, value), exact in zip(json.loads(told), decimals, strict=True)
            )
    return found


def _reads_decimals(column: "pa.ChunkedArray") -> bool:
    import pyarrow as pa

    return bool(pa.types.is_decimal(column.type))


def _comparable(column: "pa.ChunkedArray") -> list[tuple[bool, Any]]:
    """The values as JSON can keep them, in their order: times as numbers, bytes as hexadecimal digits."""
    import pyarrow as pa

    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    elif pa.types.is_date(column.type):
        column = column.cast(pa.int32())
    values = column.to_pylist()
    return [(value is not None, value.hex() if isinstance(value, bytes) else value) for value in values]
