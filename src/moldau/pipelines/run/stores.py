"""Rows of a sink, read where they are, without Spark: one reader for each kind of store that can be asked.

A key is given as texts, one for each column of the sink's `key`; each store compares it in the column's own type.
"""

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from moldau.pipelines.file.spec import PipelineSpec, SinkSpec
from moldau.pipelines.run.failures import explain
from moldau.pipelines.secrets import without_secrets
from moldau.pipelines.sinks.batches import beside
from moldau.pipelines.topics import REQUEST_TIMEOUT_S, ClusterError, cluster_of

Row = dict[str, Any]
Key = Sequence[tuple[str, str]]
"""Columns of a key with the texts of their values."""
POLL_S = 0.5


class StoreError(Exception):
    """Error: the store cannot be read; the message is one line."""


def rows(spec: PipelineSpec, sink: SinkSpec, key: Sequence[str], limit: int) -> list[Row]:
    """Rows of a sink, at most so many; with a key, those of it. Raises StoreError."""
    columns = sink.options.get("key") or ()
    if len(key) > len(columns):
        words = f"its key is {', '.join(columns)}" if columns else "it has no `key`, so no row can be asked for by one"
        raise StoreError(f"{words}: {len(key)} given")
    try:
        return READERS[sink.kind](spec, sink, list(zip(columns, key, strict=False)), limit)
    except (StoreError, ModuleNotFoundError):
        raise
    except Exception as error:  # whatever else a driver raises is about this store
        raise StoreError(without_secrets(explain(error))) from error


def _sqlite(_: PipelineSpec, sink: SinkSpec, key: Key, limit: int) -> list[Row]:
    path = Path(beside(sink, sink.options["sqlite"]))
    where = " AND ".join(f"{_quoted(name)} = ?" for name, _ in key) or "TRUE"
    query = f"SELECT * FROM {_quoted(sink.options['table'])} WHERE {where} LIMIT ?"
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
            found = database.execute(query, (*(value for _, value in key), limit))
            names = [column[0] for column in found.description]
            return [dict(zip(names, row, strict=True)) for row in found]
    except sqlite3.Error as error:
        raise StoreError(f"SQLite says: {error} ({path})") from error


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _postgres(_: PipelineSpec, sink: SinkSpec, key: Key, limit: int) -> list[Row]:
    import psycopg
    from psycopg import sql
    from psycopg.rows import dict_row

    from moldau.pipelines.sinks.postgres import CONNECT_TIMEOUT_S, Table, first_line

    conditions = [sql.SQL("{} = %s").format(sql.Identifier(name)) for name, _ in key]
    where = sql.SQL(" AND ").join(conditions) if conditions else sql.SQL("TRUE")
    table = Table.named(sink.options["table"]).identifier
    query = sql.SQL("SELECT * FROM {} WHERE {} LIMIT %s").format(table, where)
    try:
        with psycopg.connect(
            sink.options["postgres"], connect_timeout=CONNECT_TIMEOUT_S, row_factory=dict_row
        ) as database:
            return list(database.execute(query, (*(value for _, value in key), limit)))
    except psycopg.Error as error:
        raise StoreError(f"PostgreSQL says: {first_line(error)}") from error


def _mongodb(_: PipelineSpec, sink: SinkSpec, key: Key, limit: int) -> list[Row]:
    from pymongo import MongoClient
    from pymongo.errors import PyMongoError

    wanted = {name: {"$in": [value, *_as_json(value)]} for name, value in key}
    client: MongoClient[Row] = MongoClient(
        sink.options["mongodb"], serverSelectionTimeoutMS=int(REQUEST_TIMEOUT_S * 1000)
    )
    try:
        with client:
            collection = client.get_default_database()[sink.options["collection"]]
            return list(collection.find(wanted, {"_id": False}).limit(limit))
    except PyMongoError as error:
        raise StoreError(f"MongoDB says: {' '.join(str(error).split())[:200]}") from error


def _as_json(text: str) -> list[Any]:
    """The number or truth that a text is, too."""
    try:
        return [json.loads(text)]
    except ValueError:
        return []


# --- lakes


def _delta(_: PipelineSpec, sink: SinkSpec, key: Key, limit: int) -> list[Row]:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        table = DeltaTable(beside(sink, sink.options["delta"]), storage_options=sink.options["storage"] or None)
        return _of_dataset(table.to_pyarrow_dataset(), key, limit)
    except (DeltaError, ValueError) as error:
        raise StoreError(f"Delta says: {str(error).strip()}") from error


def _iceberg(_: PipelineSpec, sink: SinkSpec, key: Key, limit: int) -> list[Row]:
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import NoSuchTableError
    from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, EqualTo

    try:
        table = load_catalog("default", **dict(sink.options["catalog"])).load_table(sink.options["iceberg"])
        wanted: BooleanExpression = AlwaysTrue()
        equal: Any = EqualTo  # which has another signature for type checkers
        for name, value in key:
            wanted = And(wanted, equal(name, value))
        found: list[Row] = table.scan(row_filter=wanted, limit=limit).to_arrow().to_pylist()
    except (NoSuchTableError, ValueError) as error:
        raise StoreError(f"Iceberg says: {' '.join(str(error).split())}") from error
    return found


def _parquet(_: PipelineSpec, sink: SinkSpec, key: Key, limit: int) -> list[Row]:
    """The files that Spark has noted as written; others are of a batch that is not over."""
    import pyarrow.dataset as ds  # type: ignore[import-untyped]  # no type information

    place = beside(sink, sink.options["parquet"])
    if "://" in place:
        raise StoreError("files at an address can be asked with Spark's own reader only")
    files = _noted_files(Path(place))
    if not files:
        raise StoreError(f"there are no files in {place} yet")
    return _of_dataset(ds.dataset(files, format="parquet", partitioning="hive", partition_base_dir=place), key, limit)


def _noted_files(directory: Path) -> list[str]:
    """The files that the log of Spark's file sink names. A compacted entry holds all before it."""
    log = directory / "_spark_metadata"
    numbers = sorted(
        (int(path.name.partition(".")[0]), path) for path in log.glob("*") if path.name.partition(".")[0].isdigit()
    )
    compacted = max((number for number, path in numbers if path.suffix == ".compact"), default=-1)
    found: list[str] = []
    for number, path in numbers:
        if number > compacted or (number == compacted and path.suffix == ".compact"):
            entries = (json.loads(line) for line in path.read_text("utf-8").splitlines()[1:])
            found.extend(entry["path"].removeprefix("file://") for entry in entries if entry["action"] == "add")
    return found


def _of_dataset(dataset: Any, key: Key, limit: int) -> list[Row]:
    """Rows of a dataset. The key is compared batch by batch: the statistics of Delta's files have types, views of
    texts, that pyarrow cannot compare. One thread, and to the end: a scan that is left alone may end the process."""
    import pyarrow.compute as pc  # type: ignore[import-untyped]  # no type information

    scan = dataset.scanner(use_threads=False)
    if not key:
        return scan.head(limit).to_pylist()  # type: ignore[no-any-return]
    wanted = [(name, _scalar(name, value, dataset.schema.field(name).type)) for name, value in key]
    found: list[Row] = []
    for rows in scan.to_batches():
        same = rows
        for name, value in wanted:
            same = same.filter(pc.equal(same.column(name).cast(value.type), value))
        found.extend(same.slice(0, max(0, limit - len(found))).to_pylist())
    return found


def _scalar(name: str, value: str, kind: Any) -> Any:
    import pyarrow as pa

    try:
        return pa.scalar(value).cast(pa.string() if pa.types.is_string_view(kind) else kind)
    except pa.ArrowInvalid as error:
        raise StoreError(f"{value!r} is no value of {name!r}: {error}") from error


# --- topics


def _topic(spec: PipelineSpec, sink: SinkSpec, key: Key, limit: int) -> list[Row]:
    """The newest record of each key, without those that were deleted; of a topic without a key all records."""
    columns = sink.options.get("key") or ()
    found: dict[Any, Row | None] = {}
    try:
        for number, (record_key, value) in enumerate(_records(spec, sink)):
            found[record_key if columns else number] = value
            if not columns and len(found) >= limit:
                break
    except ClusterError as error:
        raise StoreError(str(error)) from error
    live = (row for row in found.values() if row is not None)
    wanted = [row for row in live if all(str(row.get(name)) == value for name, value in key)]
    return wanted[:limit]


def _records(spec: PipelineSpec, sink: SinkSpec) -> Iterator[tuple[bytes | None, Row | None]]:
    """The key and the row of each record that is there now."""
    from confluent_kafka import TopicPartition

    cluster, topic = cluster_of(spec, sink.options), sink.options["topic"]
    partitions = cluster.topics().get(topic)
    if partitions is None:
        raise StoreError(f"there is no topic {topic!r} at {cluster.bootstrap}")
    begins, ends = cluster.bounds({topic: partitions})
    for partition in partitions:
        position, end = begins[topic][partition], ends[topic][partition]
        with cluster.consumer() as consumer:
            consumer.assign([TopicPartition(topic, partition, position)])
            while position < end:
                for message in consumer.consume(10_000, POLL_S):
                    if message.error() is None and (message.offset() or 0) < end:
                        key, value = message.key(), message.value()
                        yield _bytes(key), _row(_bytes(key), _bytes(value), sink)
                place = consumer.position([TopicPartition(topic, partition)])[0].offset
                position = max(position, place)


def _bytes(found: str | bytes | None) -> bytes | None:
    return found.encode() if isinstance(found, str) else found


def _row(key: bytes | None, value: bytes | None, sink: SinkSpec) -> Row | None:
    """The row of a record's JSON; another format is shown as text."""
    if value is None:
        return None
    try:
        made = json.loads(value)
    except ValueError:
        made = value.decode(errors="replace")
    row = made if isinstance(made, dict) else {"value": made}
    columns: Sequence[str] = sink.options.get("key") or ()
    if len(columns) == 1 and key is not None:
        row.setdefault(columns[0], key.decode(errors="replace"))
    return row


READERS: Mapping[str, Callable[[PipelineSpec, SinkSpec, Key, int], list[Row]]] = {
    "topic": _topic,
    "postgres": _postgres,
    "sqlite": _sqlite,
    "mongodb": _mongodb,
    "parquet": _parquet,
    "delta": _delta,
    "iceberg": _iceberg,
}
