"""PostgreSQL for Spark: a table as it is, and a table's changes, as Python data sources. No jar is needed.

The offset of a change stream says which slot it reads, how many files of the first snapshot are read, and up to which
position of PostgreSQL's log. Spark asks for the first offset again when it begins the first batch again; so the first
one is empty, and the slot is made when the end of the first batch is sought.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql
from psycopg.abc import Transformer
from psycopg.adapt import Transformer as TransformerOf
from psycopg.pq import Format
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from moldau.pipelines.sources import postgres_slots as slots
from moldau.pipelines.sources.postgres import OTHER_COLUMNS
from moldau.pipelines.sources.postgres_catalog import Column, TableFacts, connect, facts, record_batch
from moldau.pipelines.sources.postgres_output import (
    UNCHANGED,
    Begin,
    Delete,
    Insert,
    Message,
    Relation,
    Truncate,
    Update,
    Value,
)
from moldau.pipelines.sources.postgres_slots import (
    FETCH_ROWS,
    SKIP,
    Feed,
    PostgresFailure,
    lsn,
    lsn_text,
    stream_columns,
)

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # no type information

QUIET_BYTES_MAX = 16 << 20
"""Bytes of log that PostgreSQL keeps for a table without changes before an empty batch moves the slot on."""
MESSAGES_MIN = 1000
OWN = frozenset({"_op", "_lsn", "_number", "_commit_timestamp"})
NOWHERE = {"slot": "", "read": 0, "of": 0, "lsn": "0/0"}


# --- a table as it is


@dataclass
class KeyRange(InputPartition):
    """Half-open range of the first column of the key; all rows if there are no bounds."""

    low: int | None = None
    high: int | None = None


class PostgresTable(DataSource):
    @classmethod
    def name(cls) -> str:
        return "moldau_postgres_table"

    def reader(self, schema: StructType) -> "TableReader":  # noqa: ARG002 - Spark's
        return TableReader(self.options)


class TableReader(DataSourceReader):
    def __init__(self, options: MutableMapping[str, str]) -> None:
        self._url, self._table = options["url"], options["table"]
        self._partitions = int(options.get("partitions", "1"))

    def partitions(self) -> Sequence[InputPartition]:
        if self._partitions < 2:
            return [KeyRange()]
        with connect(self._url) as database:
            table = self._facts(database)
            query = sql.SQL("SELECT min({0}), max({0}) FROM {1}")
            row = database.execute(query.format(sql.Identifier(table.key[0].name), table.identifier)).fetchone()
        if row is None or row[0] is None:
            return [KeyRange()]
        low, high = row
        step = -(-(high + 1 - low) // self._partitions)
        cuts = range(low + step, high + 1, step)
        return [KeyRange(begin, end) for begin, end in zip((None, *cuts), (*cuts, None), strict=True)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        assert isinstance(partition, KeyRange)
        with connect(self._url) as database, database.transaction():
            table = self._facts(database)
            names = sql.SQL(", ").join(column.selected for column in table.columns)
            query = sql.SQL("SELECT {} FROM {}").format(names, table.identifier) + _between(table, partition)
            columns = [(column.name, column.spark_type) for column in table.columns]
            with database.cursor("rows") as cursor:
                cursor.execute(query)
                while rows := cursor.fetchmany(FETCH_ROWS):
                    yield record_batch(columns, rows)

    def _facts(self, database: "psycopg.Connection[Any]") -> TableFacts:
        found = facts(database, self._table)
        if found is None:
            raise PostgresFailure(f"there is no table {self._table}")
        return found


def _between(table: TableFacts, wanted: KeyRange) -> sql.Composable:
    bounds = [(">=", wanted.low), ("<", wanted.high)]
    conditions = [
        sql.SQL("{} " + sign + " {}").format(sql.Identifier(table.key[0].name), sql.Literal(bound))
        for sign, bound in bounds
        if bound is not None
    ]
    return sql.SQL(" WHERE ") + sql.SQL(" AND ").join(conditions) if conditions else sql.SQL("")


# --- a table's changes


@dataclass
class SpoolPartition(InputPartition):
    """A file of rows that were there at the beginning."""

    path: str


@dataclass
class ChangesPartition(InputPartition):
    """The transactions that end after `after` and not after `upto`."""

    slot: str
    after: str
    upto: str


class PostgresChanges(DataSource):
    @classmethod
    def name(cls) -> str:
        return "moldau_postgres_changes"

    def streamReader(self, schema: StructType) -> "ChangesReader":
        return ChangesReader(feed_of(self.options), schema)


def feed_of(options: Mapping[str, str]) -> Feed:
    return Feed(
        url=options["url"],
        table=options["table"],
        source=options["source"],
        pipeline=options["pipeline"],
        publication=options["publication"],
        storage=Path(options["storage"]),
        run=options["run"],
        snapshot=options["snapshot"] == "true",
        rows_max=int(options["rows_max"]),
        truncate=options["truncate"],
    )


class ChangesReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, feed: Feed, schema: StructType) -> None:
        self._feed = feed
        self._schema = schema
        self._target: str | None = None
        self._quiet_at = ""

    def initialOffset(self) -> dict[str, Any]:
        return NOWHERE

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._feed.rows_max)

    def prepareForTriggerAvailableNow(self) -> None:
        with connect(self._feed.url) as database:
            self._target = _end_of_log(database)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        if not start["slot"]:
            slot, files, position = slots.begin(self._feed)
            start = {"slot": slot, "read": 0, "of": files, "lsn": position}
            return {**start, "read": min(files, 1)}
        if start["read"] < start["of"]:
            whole = isinstance(limit, ReadAllAvailable)
            return {**start, "read": start["of"] if whole else start["read"] + 1}
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return {**start, "lsn": self._next(start["slot"], start["lsn"], rows_max)}

    def _next(self, slot: str, start: str, rows_max: int | None) -> str:
        """The end of the next batch: with a transaction, the one that makes it full."""
        with connect(self._feed.url) as database:
            log_end = self._target or _end_of_log(database)
            if log_end == self._quiet_at or lsn(log_end) <= lsn(start):
                return start
            slots.refuse_another(database, self._feed, slot)
            end = self._end(database, slot, lsn(start), log_end, rows_max)
        if end > lsn(start):
            return lsn_text(end)
        if lsn(log_end) - lsn(start) > QUIET_BYTES_MAX:
            return log_end
        self._quiet_at = log_end
        return start

    def _end(
        self, database: "psycopg.Connection[Any]", slot: str, start: int, log_end: str, rows_max: int | None
    ) -> int:
        """The end of a batch. The slot still holds the batch before, so enough is read that this one is in it."""
        messages_max = None if rows_max is None else max(MESSAGES_MIN, 4 * rows_max)
        while True:
            found, whole = slots.ends(database, self._feed, slot, log_end, messages_max)
            end, rows = start, 0
            for position, changed in found:
                if start < position <= lsn(log_end) and (rows_max is None or rows < rows_max):
                    end, rows = position, rows + changed
            if end > start or whole or messages_max is None:
                return end
            messages_max *= 4

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        read = start["read"] if start["slot"] == end["slot"] else 0
        files = [SpoolPartition(str(self._feed.spool(end["slot"], number))) for number in range(read, end["read"])]
        if start["slot"] != end["slot"] or start["lsn"] == end["lsn"]:
            return files
        return [*files, ChangesPartition(end["slot"], start["lsn"], end["lsn"])]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        if isinstance(partition, SpoolPartition):
            return _read_spool(self._feed, partition.path, self._schema)
        assert isinstance(partition, ChangesPartition)
        return _read_changes(self._feed, partition, self._schema.names)

    def commit(self, end: dict[str, Any]) -> None:
        for number in range(end["read"]):
            self._feed.spool(end["slot"], number).unlink(missing_ok=True)
        slots.move(self._feed, end["slot"], end["lsn"])


def _end_of_log(database: "psycopg.Connection[Any]") -> str:
    row = database.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
    return str(row[0]) if row else "0/0"


def _read_spool(feed: Feed, path: str, wanted: StructType) -> "Iterator[pa.RecordBatch]":
    """The rows that were there at the beginning. Columns that the table has lost since are left out, those that it has
    got are what they are now."""
    import pyarrow as pa

    with ExitStack() as stack:
        file = stack.enter_context(pa.memory_map(path))
        reader = stack.enter_context(pa.ipc.open_file(file))
        there, filler = set(reader.schema.names), None
        if there != set(wanted.names):
            table = feed.facts(stack.enter_context(connect(feed.url)))
            now = {column.name for column in table.columns}
            _refuse_unknown(feed, (there - set(wanted.names)) & now)
            _refuse_gone(feed, set(wanted.names) - now)
            table = replace(table, columns=tuple(column for column in table.columns if column.name in wanted.names))
            filler = Filler(feed, table, stack)
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            yield batch if filler is None else filler.widened(batch, wanted.names)


def _refuse_unknown(feed: Feed, names: Iterable[str]) -> None:
    """End the batch if what comes has columns that the queries do not know: they are begun again."""
    told = ", ".join(sorted(names))
    if told:
        raise PostgresFailure(f"source {feed.source!r}: {OTHER_COLUMNS} {told}")


def _refuse_gone(feed: Feed, names: Iterable[str]) -> None:
    """End the batch if the queries know columns that the table has no more: they are begun again."""
    told = ", ".join(sorted(frozenset(names) - OWN))
    if told:
        raise PostgresFailure(f"source {feed.source!r}: {OTHER_COLUMNS} no {told} any more")


def _read_changes(feed: Feed, wanted: ChangesPartition, names: Sequence[str]) -> "Iterator[pa.RecordBatch]":
    """The changes, in the columns that the queries began with. The table may have got more since then: the changes from
    before are read, and the first one that has them ends the batch, for queries that know them."""
    with ExitStack() as stack:
        database = stack.enter_context(connect(feed.url))
        table = feed.facts(database)
        now = frozenset(column.name for column in table.columns)
        added = now - frozenset(names)
        _refuse_gone(feed, frozenset(names) - now)
        table = replace(table, columns=tuple(column for column in table.columns if column.name in names))
        # The session that peeks is busy with it; a second one fills what PostgreSQL did not send
        rows = Rows(table, TransformerOf(database), Filler(feed, table, stack), _parts_of(table, database), added)
        columns, found = stream_columns(table), []
        # A reading that is not over holds the session's lock: it must end before the session, whatever happens here
        messages = stack.enter_context(closing(slots.changes(database, feed, wanted.slot, wanted.upto)))
        for row in rows.of_changes(messages, wanted):
            found.append(row)
            if len(found) >= FETCH_ROWS:
                yield record_batch(columns, found)
                found = []
        if found:
            yield record_batch(columns, found)


def _parts_of(table: TableFacts, database: "psycopg.Connection[Any]") -> frozenset[int]:
    """The relations whose changes are the table's: itself, and its partitions."""
    found = database.execute("SELECT relid::oid FROM pg_partition_tree(%s::oid::regclass)", (table.oid,))
    return frozenset({table.oid, *(int(row[0]) for row in found)})


@dataclass
class Filler:
    """Filler of values that did not come with a change; it asks the table. They are large ones that an UPDATE left as
    they were, where no old row came with it, and those of columns that the table has got, or calls otherwise, since.

    The value is the present one, not that of the change: later changes of it follow, so that a copy kept by them ends
    right. REPLICA IDENTITY FULL gives the large value of the change.
    """

    feed: Feed
    table: TableFacts
    stack: ExitStack
    _database: "psycopg.Connection[Any] | None" = field(default=None, init=False)

    def filled(self, values: dict[str, Any], lacking: Sequence[Column]) -> dict[str, Any]:
        """The lacking values; NULL for a row that is gone: its end is among the changes to come. NULL, too, where the
        table has no key to ask by."""
        self.refuse_other_key(values)
        if not self.table.key:
            return {**values, **dict.fromkeys(column.name for column in lacking)}
        if self._database is None:
            self._database = self.stack.enter_context(connect(self.feed.url))
        names = sql.SQL(", ").join(column.selected for column in lacking)
        same = sql.SQL(" AND ").join(
            sql.SQL("{} = %s").format(sql.Identifier(column.name)) for column in self.table.key
        )
        query = sql.SQL("SELECT {} FROM {} WHERE ").format(names, self.table.identifier) + same
        row = self._database.execute(query, [values[column.name] for column in self.table.key]).fetchone()
        found = row or (None,) * len(lacking)
        return {**values, **{column.name: value for column, value in zip(lacking, found, strict=True)}}

    def refuse_other_key(self, names: Collection[str]) -> None:
        """End the run if the key of a row has another name than that of the table: nobody knows which row it is."""
        unknown = [column.name for column in self.table.key if column.name not in names]
        if unknown:
            raise PostgresFailure(
                f"source {self.feed.source!r}: a change of before has no {unknown[0]!r}, which is of the table's key "
                "now (call it as before, or begin anew with `moldau pipeline reset`)"
            )

    def widened(self, batch: "pa.RecordBatch", names: Sequence[str]) -> "pa.RecordBatch":
        """The rows in the columns of these names."""
        columns = stream_columns(self.table)
        there = frozenset(batch.schema.names)
        lacking = [column for column in self.table.columns if column.name not in there]
        known = batch.select([name for name in names if name in there]).to_pylist()
        rows = [self.filled(row, lacking) if lacking else row for row in known]
        return record_batch(columns, [tuple(row[name] for name, _ in columns) for row in rows])


class Rows:
    """Maker of rows from messages: the table's columns, `_op`, `_lsn`, `_number`, `_commit_timestamp`."""

    def __init__(
        self,
        table: TableFacts,
        transformer: Transformer,
        filler: Filler,
        relations: frozenset[int],
        added: frozenset[str] = frozenset(),
    ) -> None:
        self._table = table
        self._ours = relations
        self._added = added
        self._filler = filler
        self._loaders = {
            column.name: transformer.get_loader(column.loaded_as, Format.TEXT).load for column in table.columns
        }
        self._relations: dict[int, Relation] = {}

    def of_changes(self, messages: Iterator[Message], wanted: ChangesPartition) -> Iterator[tuple[Any, ...]]:
        after, upto = lsn(wanted.after), lsn(wanted.upto)
        transaction: tuple[int, datetime] | None = None
        numbers = count(1)
        for message in messages:
            match message:
                case Begin(commit_lsn, committed_at):
                    transaction = (commit_lsn, committed_at) if after <= commit_lsn < upto else None
                    numbers = count(1)
                case Relation():
                    self._relations[message.oid] = message
                case Truncate(relations) if transaction is not None and not self._ours.isdisjoint(relations):
                    self._truncated(transaction[0])
                case Insert() | Update() | Delete() if transaction is not None and message.relation in self._ours:
                    at, committed = transaction
                    for op, values in self._changed(message):
                        own = (values.get(column.name) for column in self._table.columns)
                        yield (*own, op, at, next(numbers), committed)

    def _truncated(self, at: int) -> None:
        """End the run: there is no row that could tell of it, and a copy would keep what is gone."""
        feed = self._filler.feed
        if feed.truncate != SKIP:
            raise PostgresFailure(
                f"source {feed.source!r}: the table {feed.table} was truncated at {lsn_text(at)}; empty its copies and "
                f"begin anew with `moldau pipeline reset`, or go on with `truncate: {SKIP}`"
            )

    def _changed(self, message: Insert | Update | Delete) -> Iterator[tuple[str, dict[str, Any]]]:
        relation = self._relations[message.relation]
        wider = self._added.intersection(column.name for column in relation.columns)
        _refuse_unknown(self._filler.feed, wider)
        match message:
            case Insert():
                yield "c", self._values(relation, message.new)
            case Delete():
                yield "d", self._old(relation, message.old, message.old_whole)
            case Update():
                yield from self._update(relation, message)

    def _update(self, relation: Relation, message: Update) -> Iterator[tuple[str, dict[str, Any]]]:
        """The rows of an update. A new key makes a deletion and an insertion for a reader that keeps rows by key."""
        new = message.new
        if message.old is not None and message.old_whole:
            new = tuple(was if now is UNCHANGED else now for was, now in zip(message.old, message.new, strict=True))
        values = self._values(relation, new)
        if message.old is None:
            yield "u", values
            return
        old = self._old(relation, message.old, message.old_whole)
        if all(old.get(column.name) == values.get(column.name) for column in self._table.key):
            yield "u", values
        else:
            yield "d", old
            yield "c", values

    def _old(self, relation: Relation, values: tuple[Value, ...], whole: bool) -> dict[str, Any]:
        """The old row. Columns that did not come with it are not NULL but unknown; Spark has only NULL."""
        columns = zip(relation.columns, values, strict=True)
        self._filler.refuse_other_key([column.name for column in relation.columns])
        return {column.name: self._load(column.name, value) for column, value in columns if whole or column.key}

    def _values(self, relation: Relation, values: tuple[Value, ...]) -> dict[str, Any]:
        sent = dict(zip((column.name for column in relation.columns), values, strict=True))
        found = {name: self._load(name, value) for name, value in sent.items()}
        lacking = [column for column in self._table.columns if sent.get(column.name, UNCHANGED) is UNCHANGED]
        return self._filler.filled(found, lacking) if lacking else found

    def _load(self, name: str, value: Value) -> Any:
        loader = self._loaders.get(name)
        return None if loader is None or value is None or value is UNCHANGED else loader(value)
