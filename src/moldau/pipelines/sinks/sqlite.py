"""Rows into a table of a SQLite file: exactly once, since the ledger's entry is of the rows' transaction.

With a key: upsert, the last row of a key in a batch wins. Without: rows are added. Mode complete replaces all rows.
SQLite has five types of values; the others become text that SQLite's own functions read and that sorts rightly:
decimals in full, timestamps as `2026-01-31T12:00:00.000000Z` in UTC (those without zone without the Z), dates as
`2026-01-31`, arrays, structs and maps as JSON. Booleans are 0 and 1. SQLite keeps NaN as NULL.
"""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moldau.pipelines.file.options import Option, text
from moldau.pipelines.file.problems import Problem, suggestion
from moldau.pipelines.file.spec import PipelineSpec, SinkSpec
from moldau.pipelines.kinds import Context
from moldau.pipelines.sinks import batches, ledger, order
from moldau.pipelines.sinks.batches import COLUMNS, DELETE_WHEN, DELETED, KEY, Batch, Owner
from moldau.pipelines.sinks.order import NEWEST_BY, not_older

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # no type information
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

BUSY_TIMEOUT_S = 60.0
"""Seconds that a batch waits for another program that writes to the file."""

TYPES = {
    **dict.fromkeys(("boolean", "byte", "short", "integer", "long"), "INTEGER"),
    **dict.fromkeys(("float", "double"), "REAL"),
    "binary": "BLOB",
}
"""SQLite's types by Spark's name of the type; TEXT for all others."""


class SqliteSink:
    options = (
        Option("sqlite", text, "the file, made if it is not there", required=True),
        Option("table", text, "the table, made if it is not there", required=True),
        KEY,
        COLUMNS,
        DELETE_WHEN,
        NEWEST_BY,
    )
    guarantee = "exactly once"

    def check(self, sink: SinkSpec, pipeline: PipelineSpec) -> Iterator[Problem]:  # noqa: ARG002 - the protocol's
        yield from batches.check_deletions(sink)
        path = Path(batches.beside(sink, sink.options["sqlite"]))
        if not path.parent.is_dir():
            yield Problem(sink.places.get("sqlite", sink.place), f"there is no directory {path.parent}")
        elif path.exists():
            yield from _check_table(path, sink)

    def attach(self, sink: SinkSpec, rows: "DataFrame", context: Context) -> "DataStreamWriter":
        return batches.attach(sink, batches.select(sink, rows, batches.nested_as_json), context, writer(sink, rows))


KIND = SqliteSink()


def writer(sink: SinkSpec, rows: "DataFrame") -> "SqliteWriter":
    types = {field.name: TYPES.get(field.dataType.typeName(), "TEXT") for field in rows.schema.fields}
    return SqliteWriter(
        batches.owner(sink),
        batches.beside(sink, sink.options["sqlite"]),
        sink.options["table"],
        tuple(sink.options["key"] or ()),
        tuple((name, types[name]) for name in batches.chosen(sink, rows.columns)),
        replace=sink.options["mode"] == "complete",
        newest_by=_comparable(sink, rows),
    )


def _comparable(sink: SinkSpec, rows: "DataFrame") -> tuple[str, ...]:
    """The columns of `newest_by`: not decimals, which SQLite keeps as text."""
    types = {field.name: field.dataType.typeName() for field in rows.schema.fields}
    for name in order.named(sink):
        if types.get(name) == "decimal":
            hint = f"CAST({name} AS DOUBLE) AS {name} in a view"
            raise batches.owner(sink).error(
                f"'newest_by' cannot be the decimal {name!r}: SQLite keeps it as text", hint
            )
    return order.named(sink)


@dataclass(frozen=True, slots=True)
class SqliteWriter:
    """Writer to a table; `columns` are names and types, the latter for a table that is to be made."""

    sink: Owner
    path: str
    table: str
    key: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]
    replace: bool = False
    newest_by: tuple[str, ...] = ()

    def write(self, rows: "pa.Table", batch: Batch) -> bool:
        batches.refuse_null_keys(rows, self.key, self.sink)
        try:
            return self._write(rows, batch)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise
            raise self.sink.away(f"SQLite says: {error}") from error

    def _write(self, rows: "pa.Table", batch: Batch) -> bool:
        with closing(sqlite3.connect(self.path, timeout=BUSY_TIMEOUT_S, isolation_level=None)) as database:
            database.execute("BEGIN IMMEDIATE")
            self._prepare(database, batch)
            written = _enter(database, batch, self.sink)
            if written:
                self._write_rows(database, rows)
            database.execute("COMMIT")
        return written

    def _prepare(self, database: sqlite3.Connection, batch: Batch) -> None:
        database.execute(ledger.CREATE.format(table=ledger.TABLE, moment="text"))
        existing = _columns(database, self.table)
        if not existing:
            database.execute(_create(self.table, self.columns, self.key))
            if batch.number and not self.replace:
                batches.tell_made_anew(batch.query, f"the table {self.table} of {self.path}")
            return
        for name, declared in self.columns:
            if name not in existing:
                hint = f"ALTER TABLE {_quote(self.table)} ADD COLUMN {_quote(name)} {declared}, or name the `columns`"
                raise self.sink.error(
                    f"the table {self.table} has no column {name!r}", "; ".join((suggestion(name, existing), hint))
                )
        if self.key and set(self.key) not in _unique(database, self.table):
            raise self.sink.error(*_no_unique(self.table, self.key))

    def _write_rows(self, database: sqlite3.Connection, rows: "pa.Table") -> None:
        """Write rows in their order: the last row of a key wins."""
        if self.replace:
            database.execute(f"DELETE FROM {_quote(self.table)}")
        names = [name for name, _ in self.columns]
        values = [_values(rows.column(name)) for name in names]
        if DELETED not in rows.column_names:
            database.executemany(self._insert(names), zip(*values, strict=True))
            return
        marked = zip(rows.column(DELETED).to_pylist(), zip(*values, strict=True), strict=True)
        places = [names.index(name) for name in (*self.key, *self.newest_by)]
        for deleted, run in groupby(marked, itemgetter(0)):
            if deleted:
                database.executemany(self._delete(), ([row[place] for place in places] for _, row in run))
            else:
                database.executemany(self._insert(names), (row for _, row in run))

    def _insert(self, names: Sequence[str]) -> str:
        marks = ", ".join("?" * len(names))
        insert = f"INSERT INTO {_quote(self.table)} ({_list(names)}) VALUES ({marks})"
        if not self.key:
            return insert
        changes = ", ".join(f"{_quote(name)} = excluded.{_quote(name)}" for name in names if name not in self.key)
        action = f"UPDATE SET {changes}" if changes else "NOTHING"
        insert = f"{insert} ON CONFLICT ({_list(self.key)}) DO {action}"
        if not self.newest_by or not changes:
            return insert
        old = f"{_quote(self.table)}."
        return (
            f"{insert} WHERE {not_older(self.newest_by, lambda n: old + _quote(n), lambda n: 'excluded.' + _quote(n))}"
        )

    def _delete(self) -> str:
        marks = {name: f"?{number}" for number, name in enumerate((*self.key, *self.newest_by), 1)}
        condition = " AND ".join(f"{_quote(name)} = {marks[name]}" for name in self.key)
        newer = not_older(self.newest_by, _quote, lambda name: marks[name])
        return f"DELETE FROM {_quote(self.table)} WHERE {condition} AND {newer}"


def _enter(database: sqlite3.Connection, batch: Batch, sink: Owner) -> bool:
    names = (batch.query, batch.checkpoint)
    if database.execute(ledger.ENTER.format(table=ledger.TABLE, mark="?"), (*names, batch.number)).rowcount:
        return True
    last = database.execute(ledger.LAST.format(table=ledger.TABLE, mark="?"), names).fetchone()[0]
    ledger.refuse_rollback(last, batch, sink)
    return False


def _check_table(path: Path, sink: SinkSpec) -> Iterator[Problem]:
    """Problems of the table that can be found before the rows are known."""
    key, table = sink.options["key"], sink.options["table"]
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
            if key and _columns(database, table) and set(key) not in _unique(database, table):
                message, hint = _no_unique(table, key)
                yield Problem(sink.places.get("key", sink.place), f"sink {sink.name!r}: {message}", hint)
    except sqlite3.DatabaseError as error:
        yield Problem(sink.places.get("sqlite", sink.place), f"sink {sink.name!r}: {path}: {error}")


def _no_unique(table: str, key: Sequence[str]) -> tuple[str, str]:
    make = f"CREATE UNIQUE INDEX {_quote(table + '_key')} ON {_quote(table)} ({_list(key)})"
    return f"the table {table} has no primary key or unique index on ({', '.join(key)}), which `key` needs", make


def _create(table: str, columns: Sequence[tuple[str, str]], key: Sequence[str]) -> str:
    parts = [f"{_quote(name)} {declared}{' NOT NULL' if name in key else ''}" for name, declared in columns]
    if key:
        parts.append(f"PRIMARY KEY ({_list(key)})")
    return f"CREATE TABLE {_quote(table)} ({', '.join(parts)})"


def _columns(database: sqlite3.Connection, table: str) -> list[str]:
    return [row[0] for row in database.execute("SELECT name FROM pragma_table_info(?)", (table,))]


def _unique(database: sqlite3.Connection, table: str) -> list[set[str]]:
    """The sets of columns that identify a row."""
    found = [{row[0] for row in database.execute("SELECT name FROM pragma_table_info(?) WHERE pk > 0", (table,))}]
    whole = database.execute('SELECT name FROM pragma_index_list(?) WHERE "unique" AND NOT partial', (table,))
    for (index,) in whole.fetchall():
        found.append({row[0] for row in database.execute("SELECT name FROM pragma_index_info(?)", (index,))})
    return found


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _list(names: Sequence[str]) -> str:
    return ", ".join(map(_quote, names))


def _values(column: "pa.ChunkedArray") -> list[Any]:
    convert = _converter(column.type)
    values = column.to_pylist()
    return values if convert is None else [None if value is None else convert(value) for value in values]


def _converter(arrow_type: "pa.DataType") -> Callable[[Any], Any] | None:
    import pyarrow as pa

    if pa.types.is_timestamp(arrow_type):
        return _moment
    if pa.types.is_date(arrow_type):
        return date.isoformat
    if pa.types.is_decimal(arrow_type):
        return _decimal
    return str if pa.types.is_duration(arrow_type) else None


def _moment(value: datetime) -> str:
    if value.tzinfo is None:
        return value.isoformat(timespec="microseconds")
    return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def _decimal(value: Decimal) -> str:
    return f"{value:f}"
