"""A table of PostgreSQL: as it is (`as: table`), or as a stream of its changes through logical replication.

The stream begins with the rows that are there (`_op` r), then follow the changes in the order of their commits: c, u
and d, with the row's columns (a deleted row: its key, or all with REPLICA IDENTITY FULL), `_lsn` (of the commit),
`_number` (of the change in its transaction) and `_commit_timestamp`. An UPDATE that gives a row another key is a d and
a c. A TRUNCATE has no rows: it ends the run, or is skipped. Columns that PostgreSQL computes are not in the stream. One
that is added to the table makes the run begin its queries again at the first change that has it. Needs wal_level =
logical, a role that may replicate, and PySpark 4.2, the first in which a source written in Python hears where a batch
begins.
"""

import os
import uuid
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moldau.pipelines.file.options import Option, choice, flag, text, whole
from moldau.pipelines.file.problems import PipelineError, Problem
from moldau.pipelines.file.spec import PipelineSpec, SourceSpec
from moldau.pipelines.kinds import Context, Reading

if TYPE_CHECKING:
    import psycopg

    from moldau.pipelines.sources.postgres_catalog import TableFacts
    from moldau.pipelines.sources.postgres_slots import Feed

ROWS_MAX = 100_000
INTEGERS = (20, 21, 23)
OTHER_COLUMNS = "the captured table has other columns since the queries began:"
"""Words of the error that makes a run begin its queries again."""
RUN = f"{os.getpid()}-{uuid.uuid4().hex}"
"""Id of this driver's run: its own slots may not be in a checkpoint yet."""


class PostgresSource:
    options = (
        Option("postgres", text, "the database: postgresql://user@host:5432/database", required=True),
        Option("table", text, "the table, with its schema if need be", required=True),
        Option("snapshot", flag, "begin a stream with the rows that are there", default=True),
        Option("publication", text, "the publication of the table; one of its own is made if none is named"),
        Option(
            "truncate",
            choice("fail", "skip"),
            "when the table is truncated: end the run, as copies would keep the rows, or go on without a word",
            default="fail",
        ),
        Option("partitions", whole, "read a table in so many parts, by its key, each by a task of its own", default=1),
        Option("max_per_batch", whole, "rows in a batch of a stream, up to the end of a transaction", default=ROWS_MAX),
    )

    def check(self, source: SourceSpec, pipeline: PipelineSpec) -> Iterator[Problem]:  # noqa: ARG002 - the protocol's
        import psycopg

        from moldau.pipelines.sources.postgres_catalog import connect, facts

        streams = source.options["as"] == "stream"
        try:
            with connect(source.options["postgres"]) as database:
                table = facts(database, source.options["table"], generated=not streams)
                if table is None:
                    yield _problem(source, "table", f"there is no table {source.options['table']!r}", _near(database))
                elif streams:
                    yield from _check_stream(source, database, table)
                elif source.options["partitions"] > 1 and [column.oid in INTEGERS for column in table.key] != [True]:
                    yield _problem(source, "partitions", "needs a primary key of one integer column")
        except psycopg.Error as error:
            said = str(error).strip().partition("\n")[0]
            yield _problem(source, "postgres", f"PostgreSQL says: {said}")

    def read(self, source: SourceSpec, context: Context) -> Reading:
        from moldau.pipelines.sources.postgres_catalog import connect, facts
        from moldau.pipelines.sources.postgres_reading import PostgresTable

        if source.options["as"] == "stream":
            return _read_stream(source, context)
        with connect(source.options["postgres"]) as database:
            table = facts(database, source.options["table"])
        if table is None:
            raise PipelineError([_problem(source, "table", f"there is no table {source.options['table']!r}")])
        context.spark.dataSource.register(PostgresTable)
        reader = context.spark.read.format(PostgresTable.name()).schema(table.ddl)
        names = {"postgres": "url", "table": "table", "partitions": "partitions"}
        return Reading(reader.options(**{spark: str(source.options[ours]) for ours, spark in names.items()}).load())


KIND = PostgresSource()


def release_abandoned(spec: PipelineSpec) -> list[str]:
    """Drop the replication slots of the pipeline's streams that no checkpoint names any more: after a reset."""
    from moldau.pipelines.sources.postgres_slots import release_abandoned as release

    streams = [source for source in spec.sources.values() if source.kind == "postgres"]
    return [
        slot
        for source in streams
        if source.options["as"] == "stream"
        for slot in release(_feed(source, spec, spec.storage, run=""))
    ]


def _read_stream(source: SourceSpec, context: Context) -> Reading:
    from moldau.pipelines.sources import postgres_columns
    from moldau.pipelines.sources.postgres_catalog import connect
    from moldau.pipelines.sources.postgres_reading import PostgresChanges
    from moldau.pipelines.sources.postgres_slots import stream_columns

    feed = _feed(source, context.pipeline, context.storage, RUN)
    with connect(feed.url) as database:
        columns = stream_columns(feed.facts(database))
    context.spark.dataSource.register(PostgresChanges)
    ddl = ", ".join(f"`{name.replace('`', '``')}` {spark_type}" for name, spark_type in columns)
    reader = context.spark.readStream.format(PostgresChanges.name()).schema(ddl)
    options = {name: str(getattr(feed, name)) for name in feed.__slots__} | {"snapshot": str(feed.snapshot).lower()}

    def begun() -> list[str]:
        with connect(feed.url) as database:
            return list(postgres_columns.told(feed, database))

    return Reading(reader.options(**options).load(), begun=begun)


def _feed(source: SourceSpec, pipeline: PipelineSpec, storage: Path, run: str) -> "Feed":
    from moldau.pipelines.sources.postgres_slots import Feed

    table = source.options["table"]
    return Feed(
        url=source.options["postgres"],
        table=table,
        source=source.name,
        pipeline=pipeline.name,
        publication=source.options["publication"] or "moldau_" + table.replace(".", "_"),
        storage=storage.resolve(),
        run=run,
        snapshot=source.options["snapshot"],
        rows_max=max(1, source.options["max_per_batch"]),
        truncate=source.options["truncate"],
    )


def _check_stream(source: SourceSpec, database: "psycopg.Connection[Any]", table: "TableFacts") -> Iterator[Problem]:
    from moldau.pipelines.sources.postgres_slots import identity_refusal

    spark = version("pyspark")
    if tuple(map(int, spark.split(".")[:2])) < (4, 2):
        yield _problem(source, "as", f"a stream of changes needs PySpark 4.2 or newer, this is {spark}")
    level, may = database.execute(
        """SELECT current_setting('wal_level'), rolreplication OR rolsuper
            OR EXISTS (SELECT FROM pg_roles r WHERE rolname = 'rds_replication' AND pg_has_role(r.oid, 'MEMBER'))
        FROM pg_roles WHERE rolname = current_user"""
    ).fetchone() or ("", False)
    if level != "logical":
        hint = "set wal_level = logical in postgresql.conf and restart the server, or read it `as: table`"
        yield _problem(source, "postgres", f"a stream of changes needs wal_level logical, the server has {level}", hint)
    if not may:
        role = database.info.user
        hint = f"ALTER ROLE {role} REPLICATION"
        yield _problem(source, "postgres", f"a stream of changes needs a role that may replicate, {role} may not", hint)
    refusal = identity_refusal(table)
    if refusal:
        yield _problem(source, "table", refusal)


def _problem(source: SourceSpec, option: str, message: str, hint: str = "") -> Problem:
    return Problem(source.places.get(option, source.place), f"source {source.name!r}: {message}", hint)


def _near(database: "psycopg.Connection[Any]") -> str:
    query = """SELECT relname::text FROM pg_class WHERE relkind IN ('r', 'p', 'v', 'm') AND pg_table_is_visible(oid)
        AND relnamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace) ORDER BY 1 LIMIT 20"""
    names = ", ".join(row[0] for row in database.execute(query))
    return f"there are: {names}" if names else ""
