"""PostgreSQL's catalogue: the facts of a table, and how its types become Spark's.

Types without a twin in Spark (uuid, json, enums, intervals, addresses ...) are read as PostgreSQL writes them, as text.
A numeric without precision is DECIMAL(38, 18), its NaN is NULL. `infinity` of dates and times is the last (the first)
that Python knows: 9999-12-31 and 0001-01-01; with a time zone a day less, so that it stays one in every zone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql
from psycopg.types.datetime import DateLoader, TimestampLoader, TimestamptzLoader

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # no type information

CONNECT_TIMEOUT_S = 10
NUMERIC, TEXT, TEXT_ARRAY = 1700, 25, 1009
DIGITS_MAX, DEFAULT_SCALE = 38, 18
SPARK_TYPES = {
    16: "BOOLEAN",
    17: "BINARY",
    20: "BIGINT",
    21: "SMALLINT",
    23: "INT",
    26: "BIGINT",
    700: "FLOAT",
    701: "DOUBLE",
    1082: "DATE",
    1114: "TIMESTAMP_NTZ",
    1184: "TIMESTAMP",
}
"""Spark's types by the type's oid; these are the same in every database."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column. `oid` and `modifier` are those of the type under a domain; `element`: that of an array's elements, else
    0."""

    name: str
    oid: int
    modifier: int
    element: int
    key: bool

    @property
    def spark_type(self) -> str:
        return f"ARRAY<{self._scalar(self.element)}>" if self.element else self._scalar(self.oid)

    @property
    def loaded_as(self) -> int:
        """The type that psycopg is to read the text as."""
        if self.spark_type == "STRING":
            return TEXT
        return TEXT_ARRAY if self.spark_type == "ARRAY<STRING>" else self.oid

    @property
    def selected(self) -> sql.Composable:
        """The column in a SELECT list."""
        casts = {TEXT: sql.SQL("::text"), TEXT_ARRAY: sql.SQL("::text[]")}
        return sql.Identifier(self.name) + casts.get(self.loaded_as, sql.SQL(""))

    @property
    def digits(self) -> tuple[int, int]:
        """Precision and scale of a numeric."""
        precision, scale = (self.modifier - 4) >> 16 & 0xFFFF, (self.modifier - 4) & 0x7FF
        if self.modifier < 0 or precision > DIGITS_MAX or scale > precision:
            return DIGITS_MAX, DEFAULT_SCALE
        return precision, scale

    def _scalar(self, oid: int) -> str:
        if oid == NUMERIC:
            return "DECIMAL({}, {})".format(*self.digits)
        return SPARK_TYPES.get(oid, "STRING")


@dataclass(frozen=True, slots=True)
class TableFacts:
    """Facts of a table; `identity` is pg_class.relreplident."""

    oid: int
    schema: str
    name: str
    identity: str
    columns: tuple[Column, ...]

    @property
    def identifier(self) -> sql.Identifier:
        return sql.Identifier(self.schema, self.name)

    @property
    def ddl(self) -> str:
        """Spark's schema."""
        return ", ".join(f"`{column.name.replace('`', '``')}` {column.spark_type}" for column in self.columns)

    @property
    def key(self) -> tuple[Column, ...]:
        return tuple(column for column in self.columns if column.key)


def connect(url: str, **settings: Any) -> "psycopg.Connection[tuple[Any, ...]]":
    """A session whose texts have the form that `loaders` reads."""
    database = psycopg.connect(url, autocommit=True, connect_timeout=CONNECT_TIMEOUT_S, **settings)
    database.execute("SET TimeZone TO 'UTC'")
    database.execute("SET DateStyle TO 'ISO'")
    database.execute("SET IntervalStyle TO 'iso_8601'")
    database.execute("SET bytea_output TO 'hex'")
    database.execute("SET client_encoding TO 'UTF8'")
    for name, loader in (("date", _Date), ("timestamp", _Timestamp), ("timestamptz", _Timestamptz)):
        database.adapters.register_loader(name, loader)
    return database


def facts(database: "psycopg.Connection[Any]", written: str, generated: bool = True) -> TableFacts | None:
    """The facts of a table; None if there is no such table. `generated`: with the columns that PostgreSQL computes
    itself."""
    name = sql.Identifier(*written.split(".", 1)).as_string(database)
    found = database.execute(
        """SELECT c.oid, nspname::text, relname::text, relreplident::text
        FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
        WHERE c.oid = to_regclass(%s) AND relkind IN ('r', 'p', 'v', 'm', 'f')""",
        (name,),
    ).fetchone()
    if found is None:
        return None
    oid, schema, table, identity = found
    return TableFacts(oid, schema, table, identity, _columns(database, oid, generated))


def _columns(database: "psycopg.Connection[Any]", table: int, generated: bool) -> tuple[Column, ...]:
    rows = database.execute(
        """SELECT attname::text, base.oid,
            CASE WHEN declared.typtype = 'd' THEN declared.typtypmod ELSE atttypmod END,
            CASE WHEN base.typcategory = 'A' THEN base.typelem ELSE 0 END,
            coalesce(attnum = ANY (indkey), false)
        FROM pg_attribute
        JOIN pg_type declared ON declared.oid = atttypid
        JOIN pg_type base
            ON base.oid = CASE WHEN declared.typtype = 'd' THEN declared.typbasetype ELSE declared.oid END
        LEFT JOIN pg_index ON indrelid = attrelid AND indisprimary
        WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped AND (%s OR attgenerated = '')
        ORDER BY attnum""",
        (table, generated),
    )
    return tuple(Column(*row) for row in rows)


def arrow_type(spark_type: str) -> "pa.DataType":
    import pyarrow as pa

    if spark_type.startswith("ARRAY<"):
        return pa.list_(arrow_type(spark_type[6:-1]))
    if spark_type.startswith("DECIMAL"):
        precision, scale = spark_type[8:-1].split(", ")
        return pa.decimal128(int(precision), int(scale))
    return {
        "BOOLEAN": pa.bool_(),
        "BINARY": pa.binary(),
        "BIGINT": pa.int64(),
        "SMALLINT": pa.int16(),
        "INT": pa.int32(),
        "FLOAT": pa.float32(),
        "DOUBLE": pa.float64(),
        "DATE": pa.date32(),
        "TIMESTAMP_NTZ": pa.timestamp("us"),
        "TIMESTAMP": pa.timestamp("us", "UTC"),
        "STRING": pa.string(),
    }[spark_type]


def record_batch(columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[Any]]) -> "pa.RecordBatch":
    """An Arrow batch. `columns`: names and Spark's types; the rows' values as psycopg gives them."""
    import pyarrow as pa

    values = zip(*rows, strict=True) if rows else ((),) * len(columns)
    arrays = [_array(spark_type, list(of_column)) for (_, spark_type), of_column in zip(columns, values, strict=True)]
    schema = pa.schema([(name, arrow_type(spark_type)) for name, spark_type in columns])
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(spark_type: str, values: list[Any]) -> "pa.Array":
    import pyarrow as pa

    arrow = arrow_type(spark_type)
    fit = _fitted(arrow)
    return pa.array(values if fit is None else [fit(value) for value in values], arrow)


def _fitted(arrow: "pa.DataType") -> Callable[[Any], Any] | None:
    """A function that brings decimals to the scale of the column, since those of a numeric without precision have
    any."""
    import pyarrow as pa

    if pa.types.is_list(arrow):
        fit = _fitted(arrow.value_type)
        return None if fit is None else lambda values: None if values is None else [fit(value) for value in values]
    if not pa.types.is_decimal(arrow):
        return None
    step, context = Decimal(1).scaleb(-arrow.scale), Context(prec=arrow.precision)

    def fitted(value: Decimal | None) -> Decimal | None:
        return None if value is None or not value.is_finite() else value.quantize(step, context=context)

    return fitted


class _Date(DateLoader):
    def load(self, data: Any) -> date:
        return {b"infinity": date.max, b"-infinity": date.min}.get(bytes(data)) or super().load(data)


class _Timestamp(TimestampLoader):
    def load(self, data: Any) -> datetime:
        return {b"infinity": datetime.max, b"-infinity": datetime.min}.get(bytes(data)) or super().load(data)


class _Timestamptz(TimestamptzLoader):
    def load(self, data: Any) -> datetime:
        last, first = datetime.max - timedelta(days=1), datetime.min + timedelta(days=1)
        ends = {b"infinity": last.replace(tzinfo=UTC), b"-infinity": first.replace(tzinfo=UTC)}
        return ends.get(bytes(data)) or super().load(data)
