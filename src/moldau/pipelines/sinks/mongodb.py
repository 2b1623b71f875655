"""Rows into a MongoDB collection: exactly once, since a batch that is written again is written over itself.

With a key a row sets the fields of the document that has its key, or makes one; in mode complete documents with other
keys are removed afterwards. Without, a document's `_id` is made of query, checkpoint, batch and the row's number in it:
the batch begun again puts its rows where they were. Structs are documents, maps too, decimals Decimal128, dates the
midnight (UTC) that begins them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from moldau.pipelines.file.options import Option, text
from moldau.pipelines.file.problems import Problem
from moldau.pipelines.file.spec import PipelineSpec, SinkSpec
from moldau.pipelines.kinds import Context
from moldau.pipelines.sinks import batches, order
from moldau.pipelines.sinks.batches import COLUMNS, DELETE_WHEN, DELETED, KEY, Batch, Owner
from moldau.pipelines.sinks.delta import variants_as_json
from moldau.pipelines.sinks.order import NEWEST_BY

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # no type information
    from pymongo import DeleteOne, ReplaceOne, UpdateOne
    from pymongo.collection import Collection
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    Document = dict[str, Any]
    Write = UpdateOne | ReplaceOne[Document] | DeleteOne

TIMEOUT_MS = 10_000
KEYS_AT_ONCE = 1000
WRITES_MAX = 10_000
"""Writes in one call; the client divides them further as the server wants it."""


class MongoSink:
    options = (
        Option("mongodb", text, "the server: mongodb://host:27017/database", required=True),
        Option("collection", text, "the collection, made if it is not there", required=True),
        KEY,
        COLUMNS,
        DELETE_WHEN,
        NEWEST_BY,
    )
    guarantee = "exactly once (a batch that is begun again is written over itself)"

    def check(self, sink: SinkSpec, pipeline: PipelineSpec) -> Iterator[Problem]:  # noqa: ARG002 - the protocol's
        from pymongo.errors import InvalidURI, PyMongoError
        from pymongo.uri_parser import parse_uri

        yield from batches.check_deletions(sink)
        place = sink.places.get("mongodb", sink.place)
        try:
            if not parse_uri(sink.options["mongodb"])["database"]:
                yield Problem(place, f"sink {sink.name!r}: which database? name it: mongodb://host:27017/database")
        except (InvalidURI, PyMongoError) as error:
            yield Problem(place, f"sink {sink.name!r}: {error}")
        if sink.options["mode"] == "complete" and not sink.options["key"]:
            message = f"sink {sink.name!r}: mode complete needs 'key': a collection cannot be replaced in one step"
            yield Problem(sink.places.get("mode", sink.place), message)

    def attach(self, sink: SinkSpec, rows: "DataFrame", context: Context) -> "DataStreamWriter":
        return batches.attach(sink, batches.select(sink, rows, variants_as_json), context, writer(sink))


KIND = MongoSink()


def writer(sink: SinkSpec) -> "MongoWriter":
    return MongoWriter(
        batches.owner(sink),
        sink.options["mongodb"],
        sink.options["collection"],
        tuple(sink.options["key"] or ()),
        order.named(sink),
        replace=sink.options["mode"] == "complete",
    )


@dataclass(frozen=True, slots=True)
class MongoWriter:
    sink: Owner
    url: str
    collection: str
    key: tuple[str, ...] = ()
    newest_by: tuple[str, ...] = ()
    replace: bool = False

    def write(self, rows: "pa.Table", batch: Batch) -> bool:
        from pymongo import MongoClient
        from pymongo.errors import BulkWriteError, ConnectionFailure, PyMongoError

        batches.refuse_null_keys(rows, self.key, self.sink)
        client: MongoClient[Document] = MongoClient(self.url, serverSelectionTimeoutMS=TIMEOUT_MS)
        try:
            with client:
                collection = client.get_default_database()[self.collection]
                if self.key and not self.replace:
                    self._tell_if_gone(collection, batch)
                if self.key:
                    self._index(collection)
                for writes in _parts(self._writes(rows, batch)):
                    collection.bulk_write(writes)
                if self.replace:
                    self._remove_others(collection, rows)
        except BulkWriteError as error:
            first = (error.details or {}).get("writeErrors", [{}])[0]
            raise self.sink.error(f"MongoDB says: {first.get('errmsg', error)}") from error
        except PyMongoError as error:
            failed = self.sink.away if isinstance(error, ConnectionFailure) else self.sink.error
            raise failed(f"MongoDB says: {error}") from error
        return True

    def _tell_if_gone(self, collection: "Collection[Document]", batch: Batch) -> None:
        if batch.number and not collection.database.list_collection_names(filter={"name": collection.name}):
            batches.tell_made_anew(batch.query, f"the collection {self.collection}")

    def _remove_others(self, collection: "Collection[Document]", rows: "pa.Table") -> None:
        """Remove the documents whose keys no row has. The server finds those that stay, by its own rules of what is
        equal."""
        from bson import encode
        from pymongo import DeleteOne

        queries = [{name: {"$eq": row[name]} for name in self.key} for row in documents(rows.select(self.key))]
        parts = (queries[begin : begin + KEYS_AT_ONCE] for begin in range(0, len(queries), KEYS_AT_ONCE))
        kept = {encode(found) for part in parts for found in collection.find({"$or": part}, {"_id": 1})}
        others = (found for found in collection.find({}, {"_id": 1}) if encode(found) not in kept)
        for writes in _parts(DeleteOne(found) for found in others):
            collection.bulk_write(writes)

    def _index(self, collection: "Collection[Document]") -> None:
        """Make an index of the key: without it each row would be sought in the whole collection, and two writers could
        make two documents."""
        if self.key != ("_id",):
            collection.create_index([(name, 1) for name in self.key], unique=True)

    def _writes(self, rows: "pa.Table", batch: Batch) -> "Iterator[Write]":
        from pymongo import DeleteOne, ReplaceOne, UpdateOne

        for number, row in enumerate(documents(rows)):
            deleted = row.pop(DELETED, False)
            if not self.key:
                identity = f"{batch.owner}/{batch.number}/{number}"
                yield ReplaceOne({"_id": identity}, {**row, "_id": identity}, upsert=True)
                continue
            same: Document = {name: {"$eq": row[name]} for name in self.key}  # a map {"$gt": ""} as a key is no query
            newer = same | _not_older(self.newest_by, row)
            if deleted:
                yield DeleteOne(newer)
                continue
            rest = {name: value for name, value in row.items() if name not in self.key}
            key = {name: row[name] for name in self.key}
            if self.newest_by or not rest:
                yield UpdateOne(same, {"$setOnInsert": key}, upsert=True)
            if rest:
                yield UpdateOne(newer, {"$set": rest}, upsert=not self.newest_by)


def _not_older(by: "Sequence[str]", row: "Document") -> "Document":
    """A query for documents that are not newer than the row; one without a version is the oldest."""
    query: Document = {}
    for name in reversed(by):
        same = {"$and": [{name: {"$eq": row[name]}}, query]} if query else {name: {"$eq": row[name]}}
        query = {"$or": [{name: None}, {name: {"$lt": row[name]}}, same]}
    return query


def documents(rows: "pa.Table") -> "Iterator[Document]":
    """Rows as MongoDB takes them."""
    columns = [_values(rows.column(name)) for name in rows.column_names]
    for values in zip(*columns, strict=True):
        yield dict(zip(rows.column_names, values, strict=True))


def _values(column: "pa.ChunkedArray") -> list[Any]:
    return [_value(value, column.type) for value in column.to_pylist()]


def _value(value: Any, arrow_type: "pa.DataType") -> Any:
    import pyarrow as pa

    if value is None:
        return None
    if pa.types.is_struct(arrow_type):
        return {field.name: _value(value[field.name], field.type) for field in arrow_type}
    if pa.types.is_map(arrow_type):
        return {str(key): _value(item, arrow_type.item_type) for key, item in value}
    if pa.types.is_list(arrow_type):
        return [_value(item, arrow_type.value_type) for item in value]
    return _scalar(value)


def _scalar(value: Any) -> Any:
    from bson import Decimal128

    if isinstance(value, Decimal):
        return Decimal128(value)
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    return value


def _parts(writes: "Iterator[Write]") -> "Iterator[list[Write]]":
    part: list[Write] = []
    for write in writes:
        part.append(write)
        if len(part) == WRITES_MAX:
            yield part
            part = []
    if part:
        yield part
