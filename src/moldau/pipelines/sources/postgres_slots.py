"""Replication slots of a table's change streams: made with a snapshot of the table, read, moved on, dropped.

Each streaming query has a slot of its own, named in the offsets of its checkpoint: the slot keeps the changes that the
query has not read for good, and two readers of one slot would move it under each other. A slot that nobody moves makes
PostgreSQL keep its log for ever, so each is noted in the pipeline's storage before it is made, and dropped when no
checkpoint names it any more. The rows that were there when the slot began are put aside in files: a batch that is
begun again must find the same rows.
"""

import json
import shutil
import time
import uuid
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import errors, sql

from moldau.pipelines.sources.postgres_catalog import TableFacts, connect, record_batch
from moldau.pipelines.sources.postgres_output import Message, decode

NAME_MAX = 63
BUSY_TIMEOUT_S = 30.0
"""Seconds to wait for a slot that another session reads: the session of a killed driver ends when it sees that."""
FETCH_ROWS = 10_000
OWN = "moldau_"
"""Beginning of the names of publications that are made here."""
PUBLISHED = "insert, update, delete, truncate"
FAIL, SKIP = "fail", "skip"
"""Ways to take a truncation."""


class PostgresFailure(Exception):
    """Error: the stream cannot go on; says what to do."""


@dataclass(frozen=True, slots=True)
class Feed:
    """Facts that the readers of one source share, in the driver and in the workers. `run` is that of this process
    tree."""

    url: str
    table: str
    source: str
    pipeline: str
    publication: str
    storage: Path
    run: str
    snapshot: bool
    rows_max: int
    truncate: str

    @property
    def noted(self) -> Path:
        return self.storage / "postgres"

    def note(self, slot: str) -> Path:
        return self.noted / f"{slot}.json"

    def spool(self, slot: str, number: int) -> Path:
        return self.noted / slot / f"{number:06}.arrow"

    def facts(self, database: "psycopg.Connection[Any]") -> TableFacts:
        from moldau.pipelines.sources.postgres_catalog import facts

        found = facts(database, self.table, generated=False)
        if found is None:
            raise PostgresFailure(f"source {self.source!r}: there is no table {self.table}")
        return found


def lsn(text: str) -> int:
    """The number of a text like `16/B374D848`, which compares rightly."""
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) + int(low, 16)


def lsn_text(number: int) -> str:
    return f"{number >> 32:X}/{number & 0xFFFFFFFF:X}"


# --- beginning


def begin(feed: Feed) -> tuple[str, int, str]:
    """Make a new slot: its name, the number of files with the rows that were there, and the start of its changes."""
    release_abandoned(feed)
    slot = _slot_name(feed)
    feed.noted.mkdir(parents=True, exist_ok=True)
    with connect(feed.url) as database:
        table = feed.facts(database)
        _refuse_others(database, feed)
        feed.note(slot).write_text(json.dumps({"source": feed.source, "run": feed.run, "table": table.oid}))
        make_publication(database, feed, table)
        # Only the replication protocol gives a snapshot of exactly the moment at which the changes begin
        with psycopg.connect(feed.url, autocommit=True, replication="database") as walsender:
            start, snapshot = _make_slot(walsender, feed, slot)
            files = _put_aside(database, feed, table, slot, snapshot, start) if feed.snapshot else 0
    return slot, files, start


def _slot_name(feed: Feed) -> str:
    """A name for a slot: PostgreSQL allows small letters, digits and `_`."""
    return f"{_own_words(feed)[: NAME_MAX - 13]}_{uuid.uuid4().hex[:12]}"


def _own_words(feed: Feed) -> str:
    words = f"moldau_{feed.pipeline}_{feed.source}".lower()
    return "".join(sign if sign.isascii() and (sign.isalnum() or sign == "_") else "_" for sign in words)


def _refuse_others(database: "psycopg.Connection[Any]", feed: Feed) -> None:
    """Refuse to begin beside slots of this name that are not of this storage: all changes would be captured twice.
    Names that had to be cut may be of anybody."""
    words = _own_words(feed)
    query = "SELECT slot_name FROM pg_replication_slots WHERE database = current_database() AND slot_name ~ %s"
    found = database.execute(query, (f"^{words}_[0-9a-f]{{12}}$",)).fetchall() if len(words) <= NAME_MAX - 13 else []
    others = [slot for (slot,) in found if not feed.note(slot).exists()]
    if others:
        raise PostgresFailure(
            f"source {feed.source!r}: the replication slot {others[0]} is of another pipeline that is called "
            f"{feed.pipeline!r}, or of a storage that is gone (give this one another `name`; bring the storage along; "
            f"or, if nobody needs it: SELECT pg_drop_replication_slot('{others[0]}'))"
        )


def _make_slot(walsender: "psycopg.Connection[Any]", feed: Feed, slot: str) -> tuple[str, str]:
    command = f"CREATE_REPLICATION_SLOT {slot} LOGICAL pgoutput EXPORT_SNAPSHOT".encode()
    result = walsender.pgconn.exec_(command)  # the protocol of replication has no prepared statements
    row = [result.get_value(0, column) for column in (1, 2)] if result.ntuples else []
    if len(row) != 2 or row[0] is None or row[1] is None:
        said = result.get_error_message().strip()
        raise PostgresFailure(f"source {feed.source!r}: PostgreSQL makes no replication slot: {said}{_remedy(said)}")
    return row[0].decode(), row[1].decode()


def _remedy(said: str) -> str:
    if "wal_level" in said:
        return " (set wal_level = logical in postgresql.conf and restart the server)"
    if "permission" in said or "must be" in said:
        return " (ALTER ROLE ... REPLICATION gives the right)"
    return " (raise max_replication_slots and restart the server)" if "max_replication_slots" in said else ""


def make_publication(database: "psycopg.Connection[Any]", feed: Feed, table: TableFacts) -> None:
    """Publish this table alone, and see that its truncations are published. Must be done before the slot begins."""
    refusal = identity_refusal(table)
    if refusal:
        raise PostgresFailure(f"source {feed.source!r}: {refusal}")
    # A partitioned table is published as itself, or as all of its partitions
    query = """WITH published AS (SELECT format('%%I.%%I', schemaname, tablename)::regclass::oid AS oid
            FROM pg_publication_tables WHERE pubname = %(name)s)
        SELECT %(table)s IN (TABLE published) OR coalesce((SELECT bool_and(relid IN (TABLE published))
            FROM pg_partition_tree(%(table)s::oid::regclass) WHERE isleaf), false)
        FROM pg_publication WHERE pubname = %(name)s"""
    found = database.execute(query, {"table": table.oid, "name": feed.publication}).fetchone()
    if found is not None and found[0]:
        _publish_truncations(database, feed, table)
        return
    if found is not None:
        words = sql.SQL("ALTER PUBLICATION {} ADD TABLE {}")
    else:
        words = sql.SQL(f"CREATE PUBLICATION {{}} FOR TABLE {{}} WITH (publish = '{PUBLISHED}')")
    command = words.format(sql.Identifier(feed.publication), table.identifier)
    try:
        database.execute(command)
    except errors.DuplicateObject:
        return  # another query of this pipeline was first
    except errors.InsufficientPrivilege as error:
        said = f"the table's owner has to say once: {command.as_string(database)}"
        raise PostgresFailure(f"source {feed.source!r}: {str(error).strip()} ({said})") from error


def _publish_truncations(database: "psycopg.Connection[Any]", feed: Feed, table: TableFacts) -> None:
    """See that a publication has truncations, also those of a partition alone, which one that publishes by the root has
    not: without them a copy would keep rows that are gone. One of somebody else is left as it is, for it may have other
    readers."""
    query = """SELECT pubtruncate, pubviaroot AND EXISTS (SELECT FROM pg_partitioned_table WHERE partrelid = %s)
        FROM pg_publication WHERE pubname = %s"""
    truncations, by_root = database.execute(query, (table.oid, feed.publication)).fetchone() or (True, False)
    if (truncations and not by_root) or feed.truncate == SKIP:
        return
    lacking = "when a partition of it is truncated" if truncations else "when the table is truncated"
    settings = f"publish = '{PUBLISHED}'" + (", publish_via_partition_root = false" if by_root else "")
    command = f"ALTER PUBLICATION {sql.Identifier(feed.publication).as_string(database)} SET ({settings})"
    if not feed.publication.startswith(OWN):
        words = f"the publication {feed.publication} does not tell {lacking}"
        raise PostgresFailure(f"source {feed.source!r}: {words} ({command}; or `truncate: {SKIP}`)")
    database.execute(sql.SQL(command))


def identity_refusal(table: TableFacts) -> str | None:
    """The reason to refuse a table whose rows have no identity: once it is published, PostgreSQL refuses UPDATE and
    DELETE on it."""
    if table.identity in ("f", "i") or (table.identity == "d" and table.key):
        return None
    return (
        f"the table {table.schema}.{table.name} has no primary key, so its changes cannot say which row they are of "
        f"(add one, or: ALTER TABLE {table.schema}.{table.name} REPLICA IDENTITY FULL)"
    )


def _put_aside(
    database: "psycopg.Connection[Any]", feed: Feed, table: TableFacts, slot: str, snapshot: str, start: str
) -> int:
    """Write the rows of the start into files of `rows_max` rows; returns the number of files."""
    directory = feed.spool(slot, 0).parent
    directory.mkdir(parents=True)
    names = sql.SQL(", ").join(column.selected for column in table.columns)
    columns = stream_columns(table)
    at = lsn(start)
    with database.transaction():
        database.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        database.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(snapshot)))
        with database.cursor("rows") as cursor:
            cursor.execute(sql.SQL("SELECT {} FROM {}").format(names, table.identifier))
            number = 0
            while rows := cursor.fetchmany(feed.rows_max):
                _write(feed.spool(slot, number), record_batch(columns, [(*row, "r", at, 0, None) for row in rows]))
                number += 1
    return number


def _write(path: Path, batch: Any) -> None:
    import pyarrow as pa  # type: ignore[import-untyped]  # no type information

    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write_table(pa.Table.from_batches([batch]), max_chunksize=FETCH_ROWS)


def stream_columns(table: TableFacts) -> list[tuple[str, str]]:
    """The table's columns, then those that describe the change."""
    own = [(column.name, column.spark_type) for column in table.columns]
    return [*own, ("_op", "STRING"), ("_lsn", "BIGINT"), ("_number", "BIGINT"), ("_commit_timestamp", "TIMESTAMP")]


# --- going on


def refuse_another(database: "psycopg.Connection[Any]", feed: Feed, slot: str) -> None:
    """End the run if its table is not the one that the slot began with: no change of another one would come."""
    try:
        began_with = json.loads(feed.note(slot).read_text()).get("table")
    except FileNotFoundError:
        return
    now = feed.facts(database).oid
    if began_with not in (None, now):
        raise PostgresFailure(
            f"source {feed.source!r}: the table {feed.table} was dropped and made anew, or another one has its name: "
            "its rows would not be captured (empty the copies and begin anew with `moldau pipeline reset`)"
        )


def changes(database: "psycopg.Connection[Any]", feed: Feed, slot: str, upto: str) -> Generator[Message]:
    """The messages that the slot holds, from its own position on: whole transactions, in the order of their commits."""
    query = "SELECT data FROM pg_logical_slot_peek_binary_changes(%s, %s, %s, VARIADIC %s)"
    for (data,) in _peek(database, query, feed, slot, upto, None):
        message = decode(data)
        if message is not None:
            yield message


def ends(
    database: "psycopg.Connection[Any]", feed: Feed, slot: str, upto: str, messages_max: int | None
) -> tuple[list[tuple[int, int]], bool]:
    """The end and the number of changed rows of each transaction that the slot holds; whether these are all."""
    query = """SELECT lsn::text, get_byte(data, 0) FROM
        pg_logical_slot_peek_binary_changes(%s, %s, %s, VARIADIC %s)"""
    found, rows, messages = [], 0, 0
    for position, kind in _peek(database, query, feed, slot, upto, messages_max):
        messages += 1
        rows += kind in b"IUDT"
        if kind == ord("C"):
            found.append((lsn(position), rows))
            rows = 0
    return found, messages_max is None or messages < messages_max


def _peek(
    database: "psycopg.Connection[Any]", query: Any, feed: Feed, slot: str, upto: str, messages_max: int | None
) -> Iterator[tuple[Any, ...]]:
    """Read a slot row by row, since a transaction may be larger than the memory."""
    publication = sql.Identifier(feed.publication).as_string(database)
    plugin = ["proto_version", "1", "publication_names", publication]
    with database.cursor() as cursor:
        found: Iterator[tuple[Any, ...]] = iter(())
        first: tuple[Any, ...] | None = None

        def ask() -> None:
            nonlocal found, first
            found = iter(cursor.stream(query, (slot, upto, messages_max, plugin), binary=True))
            first = next(found, None)

        _patiently(ask, feed, slot)
        if first is not None:
            yield first
        yield from found


def move(feed: Feed, slot: str, position: str) -> None:
    """Move the slot on: it need not keep anything before the position."""
    with connect(feed.url) as database:
        query = "SELECT confirmed_flush_lsn < %s::pg_lsn FROM pg_replication_slots WHERE slot_name = %s"
        behind = database.execute(query, (position, slot)).fetchone()
        if behind is not None and behind[0]:
            advance = "SELECT pg_replication_slot_advance(%s, %s)"
            _patiently(lambda: database.execute(advance, (slot, position)), feed, slot)


def _patiently(ask: Callable[[], Any], feed: Feed, slot: str) -> None:
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            ask()
        except errors.ObjectInUse:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        except (errors.UndefinedObject, errors.ObjectNotInPrerequisiteState) as error:
            said = str(error).strip().partition("\n")[0]
            raise PostgresFailure(
                f"source {feed.source!r}: the replication slot {slot} cannot be read, changes may be lost: {said} "
                "(begin anew, with all rows: `moldau pipeline reset`)"
            ) from error
        else:
            return


# --- ending


def release_abandoned(feed: Feed) -> list[str]:
    """Drop the source's slots that no checkpoint names, unless this run has made them; returns their names."""
    named = _named_in_checkpoints(feed.storage)
    abandoned = []
    for note in sorted(feed.noted.glob("*.json")):
        known = json.loads(note.read_text() or "{}")
        if note.stem not in named and known.get("source") == feed.source and known.get("run") != feed.run:
            release(feed, note.stem)
            abandoned.append(note.stem)
    return abandoned


def release(feed: Feed, slot: str) -> None:
    with connect(feed.url) as database:
        query = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s"
        _patiently(lambda: database.execute(query, (slot,)), feed, slot)
    shutil.rmtree(feed.noted / slot, ignore_errors=True)
    feed.note(slot).unlink(missing_ok=True)


def _named_in_checkpoints(storage: Path) -> set[str]:
    """The slots in the offsets that Spark keeps: a line of JSON for each source of the query."""
    named = set()
    for path in storage.glob("checkpoints/*/offsets/*"):
        for line in path.read_text("utf-8", "replace").splitlines():
            if '"slot"' in line:
                named.add(str(json.loads(line).get("slot")))
    return named
