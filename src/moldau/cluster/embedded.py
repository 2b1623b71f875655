"""The metadata store of one machine: a SQLite file.

Calls are `async` for the interface's sake and do not wait: a read costs some ten microseconds, a write about one
millisecond for its fsync. Schema changes go through `PRAGMA user_version`.
One process at a time for now: ephemeral nodes found when it opens belong to a process that died, and are dropped.
"""

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress

from moldau.cluster.store import (
    BadVersion,
    Check,
    Create,
    Delete,
    Listener,
    NoChildrenForEphemerals,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Put,
    SessionLost,
    parent_of,
)
from moldau.core.invariants import invariant

_SCHEMA_VERSION = 1
_SCHEMA = """
CREATE TABLE node (
    path TEXT PRIMARY KEY,
    parent TEXT NOT NULL,
    data BLOB NOT NULL,
    version INTEGER NOT NULL,
    created INTEGER NOT NULL,        -- the transaction that made it
    next_sequence INTEGER NOT NULL,  -- the number of its next sequence child
    session INTEGER                  -- whose it is, if ephemeral
) WITHOUT ROWID;
CREATE INDEX node_by_parent ON node (parent, path);
CREATE INDEX node_by_session ON node (session) WHERE session IS NOT NULL;
CREATE TABLE counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO node VALUES ('/', '', x'', 0, 0, 0, NULL);
INSERT INTO counter VALUES ('transaction', 0), ('session', 0);
"""


class EmbeddedStore:
    """A session with the SQLite file at `path`; ":memory:" lives as long as the object."""

    def __init__(self, path: str, *, durable: bool = True) -> None:
        """`durable=False` leaves writes in the page cache: quicker, for tests."""
        self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute(f"PRAGMA synchronous = {'FULL' if durable else 'OFF'}")
        self._watches: list[tuple[str, Listener]] = []
        self._changed: list[str] = []
        self._closed = False
        self._create_schema()
        self._session = self._begin_session()

    def _create_schema(self) -> None:
        (version,) = self._database.execute("PRAGMA user_version").fetchone()
        invariant(version in (0, _SCHEMA_VERSION), f"the metadata store has schema {version}, a later one than ours")
        if version == 0:
            self._database.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {_SCHEMA_VERSION}; COMMIT")

    def _begin_session(self) -> int:
        with _Transaction(self._database):
            self._database.execute("DELETE FROM node WHERE session IS NOT NULL")
            return self._next("session")

    async def get(self, path: str) -> Node | None:
        self._check_open(path)
        return self._get(path)

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        self._check_open("/")
        return [self._get(path) for path in paths]

    async def children(self, path: str) -> list[str]:
        self._check_open(path)
        self._require(path)
        rows = self._database.execute("SELECT path FROM node WHERE parent = ? ORDER BY path", (path,))
        start = len(path) if path == "/" else len(path) + 1
        return [child[start:] for (child,) in rows]

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False) -> str:
        (made,) = await self.multi([Create(path, data, ephemeral, sequence)])
        return str(made)

    async def put(self, path: str, data: bytes, expected_version: int | None = None) -> int:
        (version,) = await self.multi([Put(path, data, expected_version)])
        return int(version or 0)

    async def delete(self, path: str, expected_version: int | None = None) -> None:
        await self.multi([Delete(path, expected_version)])

    async def multi(self, operations: Sequence[Operation]) -> list[str | int | None]:
        self._check_open("/")
        self._changed = []
        with _Transaction(self._database):
            transaction = self._next("transaction")
            results = [self._apply(operation, transaction) for operation in operations]
        self._notify(self._changed)
        return results

    def watch(self, path: str, listener: Listener) -> Callable[[], None]:
        watch = (path, listener)
        self._watches.append(watch)

        def end() -> None:
            with suppress(ValueError):
                self._watches.remove(watch)

        return end

    async def close(self) -> None:
        if self._closed:
            return
        self._watches.clear()
        with _Transaction(self._database):
            self._database.execute("DELETE FROM node WHERE session = ?", (self._session,))
        self._closed = True
        self._database.close()

    def _check_open(self, path: str) -> None:
        if self._closed:
            raise SessionLost(path)

    def _get(self, path: str) -> Node | None:
        row = self._database.execute("SELECT data, version, created FROM node WHERE path = ?", (path,)).fetchone()
        return Node(*row) if row else None

    def _require(self, path: str, expected_version: int | None = None) -> Node:
        node = self._get(path)
        if node is None:
            raise NoNode(path)
        if expected_version is not None and node.version != expected_version:
            raise BadVersion(path)
        return node

    def _apply(self, operation: Operation, transaction: int) -> str | int | None:
        match operation:
            case Create():
                return self._create(operation, transaction)
            case Put(path, data, expected_version):
                return self._put(path, data, expected_version)
            case Delete(path, expected_version):
                self._delete(path, expected_version)
            case Check(path, expected_version):
                self._require(path, expected_version)
        return None

    def _create(self, operation: Create, transaction: int) -> str:
        path, parent = operation.path, parent_of(operation.path)
        self._check_parent(parent)
        if operation.sequence:
            path = f"{path}{self._next_sequence(parent):010d}"
        session = self._session if operation.ephemeral else None
        try:
            self._database.execute(
                "INSERT INTO node VALUES (?, ?, ?, 0, ?, 0, ?)",
                (path, parent, operation.data, transaction, session),
            )
        except sqlite3.IntegrityError:
            raise NodeExists(path) from None
        self._changed.append(path)
        return path

    def _check_parent(self, parent: str) -> None:
        row = self._database.execute("SELECT session FROM node WHERE path = ?", (parent,)).fetchone()
        if row is None:
            raise NoNode(parent)
        if row[0] is not None:
            raise NoChildrenForEphemerals(parent)

    def _next_sequence(self, parent: str) -> int:
        update = "UPDATE node SET next_sequence = next_sequence + 1 WHERE path = ? RETURNING next_sequence - 1"
        (number,) = self._database.execute(update, (parent,)).fetchone()
        return int(number)

    def _put(self, path: str, data: bytes, expected_version: int | None) -> int:
        version = self._require(path, expected_version).version + 1
        self._database.execute("UPDATE node SET data = ?, version = ? WHERE path = ?", (data, version, path))
        self._changed.append(path)
        return version

    def _delete(self, path: str, expected_version: int | None) -> None:
        self._require(path, expected_version)
        if self._database.execute("SELECT 1 FROM node WHERE parent = ? LIMIT 1", (path,)).fetchone():
            raise NotEmpty(path)
        self._database.execute("DELETE FROM node WHERE path = ?", (path,))
        self._changed.append(path)

    def _next(self, counter: str) -> int:
        update = "UPDATE counter SET value = value + 1 WHERE name = ? RETURNING value"
        (value,) = self._database.execute(update, (counter,)).fetchone()
        return int(value)

    def _notify(self, changed: list[str]) -> None:
        for path in changed:
            for watched, listener in tuple(self._watches):
                if path == watched or watched == "/" or path.startswith(f"{watched}/"):
                    listener(path)


class _Transaction:
    """Commit at the end of the block, roll back if it raises."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def __enter__(self) -> None:
        self._database.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, *_details: object) -> None:
        self._database.execute("COMMIT" if kind is None else "ROLLBACK")
