"""Rows into a PostgreSQL table: exactly once, since the ledger's entry is of the rows' transaction.

A batch is copied into a temporary table with the target's own types, so that PostgreSQL reads each value as its column
says (a text may become a uuid, an enum, jsonb), and from there upserted by key, or added where there is no key. Mode
complete replaces all rows. Arrays, structs and maps are jsonb. NaN and Infinity are kept. PostgreSQL keeps no NUL
character in a text: the run ends and says where it is, since to drop it would change data behind its owner's back.
"""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from moldau.pipelines.file.options import Option, text
from moldau.pipelines.file.problems import Problem, suggestion
from moldau.pipelines.file.spec import PipelineSpec, SinkSpec
from moldau.pipelines.kinds import Context
from moldau.pipelines.sinks import batches, ledger, order
from moldau.pipelines.sinks.batches import COLUMNS, DELETE_WHEN, DELETED, KEY, Batch, Owner
from moldau.pipelines.sinks.order import NEWEST_BY, not_older

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa  # type: ignore[import-untyped]  # no type information
    from psycopg import sql
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import DataType

CONNECT_TIMEOUT_S = 10
LOCK = 0x6D6F6C646175
"""Lock for making the ledger: two queries at the same moment would meet in PostgreSQL's catalogue."""

TYPES = {
    "boolean": "boolean",
    "byte": "smallint",
    "short": "smallint",
    "integer": "integer",
    "long": "bigint",
    "float": "real",
    "double": "double precision",
    "binary": "bytea",
    "date": "date",
    "timestamp": "timestamp with time zone",
    "timestamp_ntz": "timestamp without time zone",
    **dict.fromkeys(("array", "struct", "map", "variant"), "jsonb"),
}
"""PostgreSQL's types by Spark's name of the type; numeric for decimals, text for all others."""


class PostgresSink:
    options = (
        Option("postgres", text, "the database: postgresql://user@host:5432/database", required=True),
        Option("table", text, "the table, with its schema if need be; made if it is not there", required=True),
        KEY,
        COLUMNS,
        DELETE_WHEN,
        NEWEST_BY,
    )
    guarantee = "exactly once"

    def check(self, sink: SinkSpec, pipeline: PipelineSpec) -> Iterator[Problem]:  # noqa: ARG002 - the protocol's
        import psycopg

        yield from batches.check_deletions(sink)
        table, key = Table.named(sink.options["table"]), sink.options["key"]
        try:
            with psycopg.connect(sink.options["postgres"], connect_timeout=CONNECT_TIMEOUT_S) as database:
                if key and table.columns(database) and set(key) not in table.unique(database):
                    message, hint = _no_unique(table, key)
                    yield Problem(sink.places.get("key", sink.place), f"sink {sink.name!r}: {message}", hint)
        except psycopg.Error as error:
            place = sink.places.get("postgres", sink.place)
            yield Problem(place, f"sink {sink.name!r}: PostgreSQL says: {first_line(error)}")

    def attach(self, sink: SinkSpec, rows: "DataFrame", context: Context) -> "DataStreamWriter":
        return batches.attach(sink, batches.select(sink, rows, batches.nested_as_json), context, writer(sink, rows))


KIND = PostgresSink()


def writer(sink: SinkSpec, rows: "DataFrame") -> "PostgresWriter":
    types = {field.name: sql_type(field.dataType) for field in rows.schema.fields}
    return PostgresWriter(
        batches.owner(sink),
        sink.options["postgres"],
        Table.named(sink.options["table"]),
        tuple(sink.options["key"] or ()),
        tuple((name, types[name]) for name in batches.chosen(sink, rows.columns)),
        replace=sink.options["mode"] == "complete",
        newest_by=order.named(sink),
    )


def sql_type(data_type: "DataType") -> str:
    from pyspark.sql.types import DecimalType

    if isinstance(data_type, DecimalType):
        return f"numeric({data_type.precision}, {data_type.scale})"
    return TYPES.get(data_type.typeName(), "text")


def first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


@dataclass(frozen=True, slots=True)
class Table:
    """A name as it was written: with its schema, or one that the search path finds."""

    parts: tuple[str, ...]

    @classmethod
    def named(cls, written: str) -> "Table":
        return cls(tuple(written.split(".", 1)))

    def __str__(self) -> str:
        return ".".join(self.parts)

    @property
    def identifier(self) -> "sql.Identifier":
        from psycopg import sql

        return sql.Identifier(*self.parts)

    def beside(self, name: str) -> "Table":
        """The table of another name in the same schema."""
        return Table((*self.parts[:-1], name))

    def oid(self, database: "psycopg.Connection[Any]") -> int | None:
        """The table's oid; None if there is no such table."""
        quoted = self.identifier.as_string(database)
        row = database.execute("SELECT to_regclass(%s)::oid", (quoted,)).fetchone()
        return None if row is None or row[0] is None else int(row[0])

    def columns(self, database: "psycopg.Connection[Any]") -> list[str]:
        """The table's columns; none if there is no such table."""
        query = (
            "SELECT attname FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
        )
        return [row[0] for row in database.execute(query, (self.oid(database),))]

    def unique(self, database: "psycopg.Connection[Any]") -> list[set[str]]:
        """The sets of columns that identify a row, as ON CONFLICT can use them."""
        query = """SELECT array_agg(attname::text) FROM pg_index
            JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY (indkey[0:indnkeyatts - 1])
            WHERE indrelid = %s AND indisunique AND indimmediate AND indpred IS NULL AND indexprs IS NULL
            GROUP BY indexrelid"""
        return [set(row[0]) for row in database.execute(query, (self.oid(database),))]


@dataclass(frozen=True, slots=True)
class PostgresWriter:
    """Writer to a table; `columns` are names and types, the latter for a table that is to be made."""

    sink: Owner
    url: str
    table: Table
    key: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]
    replace: bool = False
    newest_by: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.columns]

    def write(self, rows: "pa.Table", batch: Batch) -> bool:
        import psycopg

        batches.refuse_null_keys(rows, self.key, self.sink)
        _refuse_nul(rows, self.sink)
        try:
            with psycopg.connect(self.url, connect_timeout=CONNECT_TIMEOUT_S) as database:
                database.execute("SET LOCAL client_encoding TO 'UTF8'")
                self._prepare(database, batch)
                written = self._enter(database, batch)
                if written:
                    self._write_rows(database, rows)
        except psycopg.Error as error:
            said = "; ".join(line for line in str(error).strip().splitlines() if line)
            failed = self.sink.away if isinstance(error, psycopg.OperationalError) else self.sink.error
            raise failed(f"PostgreSQL says: {said}") from error
        return written

    def _prepare(self, database: "psycopg.Connection[Any]", batch: Batch) -> None:
        from psycopg import sql

        book = self.table.beside(ledger.TABLE)
        existing = self.table.columns(database)
        if book.oid(database) is None or not existing:
            database.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
            database.execute(
                sql.SQL(ledger.CREATE).format(table=book.identifier, moment=sql.SQL("timestamp with time zone"))
            )
            database.execute(_create(self.table, self.columns, self.key))
            if batch.number and not existing and not self.replace:
                batches.tell_made_anew(batch.query, f"the table {self.table}")
            existing = self.table.columns(database)
        for name, declared in self.columns:
            if name not in existing:
                hint = f'ALTER TABLE {self.table} ADD COLUMN "{name}" {declared}, or name the `columns`'
                message = f"the table {self.table} has no column {name!r}"
                raise self.sink.error(message, "; ".join((suggestion(name, existing), hint)))
        if self.key and set(self.key) not in self.table.unique(database):
            raise self.sink.error(*_no_unique(self.table, self.key))

    def _enter(self, database: "psycopg.Connection[Any]", batch: Batch) -> bool:
        from psycopg import sql

        book, mark, names = (
            self.table.beside(ledger.TABLE).identifier,
            sql.Placeholder(),
            (batch.query, batch.checkpoint),
        )
        if database.execute(sql.SQL(ledger.ENTER).format(table=book, mark=mark), (*names, batch.number)).rowcount:
            return True
        row = database.execute(sql.SQL(ledger.LAST).format(table=book, mark=mark), names).fetchone()
        ledger.refuse_rollback(row[0] if row else batch.number, batch, self.sink)
        return False

    def _write_rows(self, database: "psycopg.Connection[Any]", rows: "pa.Table") -> None:
        from psycopg import sql

        words = {
            "target": self.table.identifier,
            "names": _list(self.names),
            "key": _list(self.key),
            "same": sql.SQL(" AND ").join(
                sql.SQL("target.{0} = batch.{0}").format(sql.Identifier(name)) for name in self.key
            ),
        }
        if self.replace:
            database.execute(sql.SQL("DELETE FROM {target}").format(**words))
        if not self.key:
            _copy(
                database, sql.SQL("COPY {target} ({names}) FROM STDIN (FORMAT csv)").format(**words), rows, self.names
            )
            return
        create = """CREATE TEMPORARY TABLE moldau_batch ON COMMIT DROP AS
            SELECT {names}, 0::bigint AS __position, false AS __deleted FROM {target} WITH NO DATA"""
        database.execute(sql.SQL(create).format(**words))
        _copy(database, sql.SQL("COPY moldau_batch FROM STDIN (FORMAT csv)"), _numbered(rows, self.names), None)
        newest = "SELECT DISTINCT ON ({key}) * FROM moldau_batch ORDER BY {key}, __position DESC"
        if DELETED in rows.column_names:
            delete = f"DELETE FROM {{target}} AS target USING ({newest}) AS batch WHERE {{same}} AND __deleted AND "
            database.execute(sql.SQL(delete).format(**words) + self._newer("batch"))
        insert = "INSERT INTO {target} AS target ({names}) SELECT {names} "
        insert += f"FROM ({newest}) AS batch WHERE NOT __deleted "
        database.execute(sql.SQL(insert).format(**words) + self._on_conflict())

    def _on_conflict(self) -> "sql.Composed":
        from psycopg import sql

        changes = [
            sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in self.names if name not in self.key
        ]
        action = sql.SQL("UPDATE SET ") + sql.SQL(", ").join(changes) if changes else sql.SQL("NOTHING")
        if changes and self.newest_by:
            action = action + sql.SQL(" WHERE ") + self._newer("excluded")
        return sql.SQL("ON CONFLICT ({key}) DO {action}").format(key=_list(self.key), action=action)

    def _newer(self, new: str) -> "sql.SQL":
        from psycopg import sql

        return sql.SQL(
            not_older(self.newest_by, lambda name: f"target.{_quote(name)}", lambda name: f"{new}.{_quote(name)}")
        )


def _no_unique(table: Table, key: Sequence[str]) -> tuple[str, str]:
    names = ", ".join(f'"{name}"' for name in key)
    message = f"the table {table} has no primary key or unique constraint on ({', '.join(key)}), which `key` needs"
    return message, f"ALTER TABLE {table} ADD UNIQUE ({names})"


def _create(table: Table, columns: Sequence[tuple[str, str]], key: Sequence[str]) -> "sql.Composed":
    from psycopg import sql

    parts: list[sql.Composable] = [
        sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(declared)) for name, declared in columns
    ]
    if key:
        parts.append(sql.SQL("PRIMARY KEY ({})").format(_list(key)))
    made = sql.SQL("CREATE TABLE IF NOT EXISTS {} ({})")
    return made.format(table.identifier, sql.SQL(", ").join(parts))


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _list(names: Sequence[str]) -> "sql.Composed":
    from psycopg import sql

    return sql.SQL(", ").join(sql.Identifier(name) for name in names)


def _numbered(rows: "pa.Table", names: Sequence[str]) -> "pa.Table":
    import pyarrow as pa

    deleted = rows.column(DELETED) if DELETED in rows.column_names else pa.repeat(False, rows.num_rows)
    return (
        rows.select(names).append_column("__position", pa.array(range(rows.num_rows))).append_column(DELETED, deleted)
    )


def _copy(
    database: "psycopg.Connection[Any]",
    command: "sql.SQL | sql.Composed",
    rows: "pa.Table",
    names: Sequence[str] | None,
) -> None:
    """Copy rows as CSV, which Arrow writes as a whole: texts in quotes, NULL as nothing."""
    from pyarrow import csv

    plain = _as_csv_takes_it(rows if names is None else rows.select(names))
    if plain.num_rows == 0:
        return
    buffer = io.BytesIO()
    csv.write_csv(plain, buffer, csv.WriteOptions(include_header=False))
    with database.cursor() as cursor, cursor.copy(command) as copy:
        copy.write(buffer.getbuffer())


def _as_csv_takes_it(rows: "pa.Table") -> "pa.Table":
    import pyarrow as pa

    for position, field in enumerate(rows.schema):
        column = rows.column(position)
        if pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type):
            texts = [None if value is None else "\\x" + value.hex() for value in column.to_pylist()]
            rows = rows.set_column(position, field.name, pa.array(texts, pa.string()))
        elif pa.types.is_timestamp(field.type) and field.type.tz is not None:
            rows = rows.set_column(position, field.name, column.cast(pa.timestamp("us", "UTC")))
        elif pa.types.is_decimal(field.type) or pa.types.is_null(field.type):
            rows = rows.set_column(position, field.name, column.cast(pa.string()))
    return rows


def _refuse_nul(rows: "pa.Table", sink: Owner) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc  # type: ignore[import-untyped]  # no type information

    for field in rows.schema:
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            found = pc.sum(pc.match_substring(rows.column(field.name), "\x00")).as_py()
            if found:
                hint = f"take it out in a view: translate({field.name}, '\\u0000', '')"
                raise sink.error(
                    f"{found} texts of {field.name!r} have a NUL character, which PostgreSQL cannot keep", hint
                )
