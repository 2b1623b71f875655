"""The tree in its SQLite file: rows and transactions, nothing of locks, sockets or time.

Law: every change is made inside `transaction`, which begins with SQLite's write lock and therefore sees every change
before it and no change beside it. Nothing here waits: when another process has the lock, sqlite3's error passes
through, and `is_busy` tells it from others. Schema changes go through `PRAGMA user_version`.
"""

import os
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from moldau.cluster.store import (
    BadVersion,
    Check,
    Create,
    Delete,
    NoChildrenForEphemerals,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Put,
    parent_of,
)
from moldau.core.invariants import invariant

IN_MEMORY = ":memory:"
CHANGES_MAX = 20_000
"""Paths that the change log keeps at least; a session that has fallen behind further reads everything again."""
_WAL_BYTES_MAX = 16 * 1024 * 1024
_BUSY_CODES = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)

_FIRST_SCHEMA = """
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
_SEVERAL_PROCESSES = """
DELETE FROM node WHERE session IS NOT NULL;  -- of the one process that had the file before
CREATE TABLE session (id INTEGER PRIMARY KEY, pid INTEGER NOT NULL);
CREATE TABLE change (
    number INTEGER PRIMARY KEY,  -- changes up to and with this transaction
    before INTEGER NOT NULL,     -- changes before it
    paths BLOB NOT NULL          -- with a zero byte between them
);
INSERT INTO counter VALUES ('change', 0);
"""
_MIGRATIONS = (_FIRST_SCHEMA, _SEVERAL_PROCESSES)
"""Scripts that lead from each schema version to the next one."""


def is_busy(error: Exception) -> bool:
    """Whether another process was in the way: trying again helps, and nothing has happened."""
    return isinstance(error, sqlite3.OperationalError) and (error.sqlite_errorcode & 0xFF) in _BUSY_CODES


class LoggedChanges(NamedTuple):
    """The entries of the change log since some number."""

    number: int
    paths: list[str]
    complete: bool
    """Whether nothing is missing. False when the log has been trimmed in between: any path may have changed."""


class Tree:
    """A connection with the file at `path`."""

    def __init__(self, path: str, *, durable: bool) -> None:
        if path != IN_MEMORY:
            _create_private(path)
        self._database = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
        self._durable = durable
        self._changed: list[str] = []

    def prepare(self) -> None:
        """Switch to the write-ahead log and bring the schema up to date; can be repeated after a busy error."""
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES_MAX}")
        self._database.execute(f"PRAGMA synchronous = {'FULL' if self._durable else 'OFF'}")
        with self.transaction():
            (version,) = self._database.execute("PRAGMA user_version").fetchone()
            latest = len(_MIGRATIONS)
            invariant(version <= latest, f"the metadata store has schema {version}, a later one than ours ({latest})")
            for migration in _MIGRATIONS[version:]:
                for statement in _statements(migration):
                    self._database.execute(statement)
            if version < latest:
                self._database.execute(f"PRAGMA user_version = {latest}")

    def close(self) -> None:
        self._database.close()

    def transaction(self) -> "_Transaction":
        """A block that writes: all of it, or none if it raises."""
        return _Transaction(self._database, "BEGIN IMMEDIATE")

    def snapshot(self) -> "_Transaction":
        """A block whose reads belong together."""
        return _Transaction(self._database, "BEGIN")

    def get(self, path: str) -> Node | None:
        row = self._database.execute("SELECT data, version, created FROM node WHERE path = ?", (path,)).fetchone()
        return Node(*row) if row else None

    def children(self, path: str) -> list[str]:
        """The names of the children. Raises NoNode."""
        if self.get(path) is None:
            raise NoNode(path)
        rows = self._database.execute("SELECT path FROM node WHERE parent = ? ORDER BY path", (path,))
        start = len(path) if path == "/" else len(path) + 1
        return [child[start:] for (child,) in rows]

    def apply(self, operations: Sequence[Operation], session: int) -> tuple[list[str | int | None], list[str]]:
        """Apply operations inside a transaction: each one's result, and the changed paths in order. Raises
        StoreError."""
        self._changed = []
        transaction = self._next("transaction")
        results = [self._apply(operation, transaction, session) for operation in operations]
        return results, self._changed

    def log(self, changed: Sequence[str]) -> None:
        """Log changes for the other sessions, inside the transaction that made them."""
        if not changed:
            return
        number = self._next("change", len(changed))
        paths = "\0".join(changed).encode()
        self._database.execute("INSERT INTO change VALUES (?, ?, ?)", (number, number - len(changed), paths))
        self._database.execute("DELETE FROM change WHERE number <= ?", (number - CHANGES_MAX,))

    def changes(self) -> int:
        """The number of the last entry in the change log."""
        (number,) = self._database.execute("SELECT value FROM counter WHERE name = 'change'").fetchone()
        return int(number)

    def changes_since(self, since: int) -> LoggedChanges:
        """The changes that were logged after the number `since`."""
        select = "SELECT number, before, paths FROM change WHERE number > ? ORDER BY number"
        rows = self._database.execute(select, (since,)).fetchall()
        if not rows:
            return LoggedChanges(since, [], True)
        paths = [path for _number, _before, blob in rows for path in blob.decode().split("\0")]
        return LoggedChanges(rows[-1][0], paths, rows[0][1] <= since)

    def sessions(self) -> dict[int, int]:
        """The processes of all live sessions, by session."""
        return dict(self._database.execute("SELECT id, pid FROM session ORDER BY id").fetchall())

    def has_session(self, session: int) -> bool:
        return self._database.execute("SELECT 1 FROM session WHERE id = ?", (session,)).fetchone() is not None

    def next_session(self) -> int:
        """A number that no session had before. Inside a transaction."""
        return self._next("session")

    def add_session(self, session: int, pid: int) -> None:
        self._database.execute("INSERT INTO session VALUES (?, ?)", (session, pid))

    def end_sessions(self, sessions: Iterable[int]) -> list[str]:
        """Remove sessions with their ephemeral nodes, whose paths it returns. Inside a transaction."""
        gone: list[str] = []
        for session in sessions:
            rows = self._database.execute("DELETE FROM node WHERE session = ? RETURNING path", (session,)).fetchall()
            self._database.execute("DELETE FROM session WHERE id = ?", (session,))
            gone += sorted(path for (path,) in rows)
        return gone

    def _apply(self, operation: Operation, transaction: int, session: int) -> str | int | None:
        match operation:
            case Put(path, data, expected_version):
                return self._put(path, data, expected_version)
            case Create():
                return self._create(operation, transaction, session)
            case Delete(path, expected_version):
                self._delete(path, expected_version)
            case Check(path, expected_version):
                self._require(path, expected_version)
        return None

    def _require(self, path: str, expected_version: int | None) -> int:
        row = self._database.execute("SELECT version FROM node WHERE path = ?", (path,)).fetchone()
        if row is None:
            raise NoNode(path)
        if expected_version is not None and row[0] != expected_version:
            raise BadVersion(path)
        return int(row[0])

    def _create(self, operation: Create, transaction: int, session: int) -> str:
        path, parent = operation.path, parent_of(operation.path)
        self._check_parent(parent)
        if operation.sequence:
            path = f"{path}{self._next_sequence(parent):010d}"
        owner = session if operation.ephemeral else None
        try:
            self._database.execute(
                "INSERT INTO node VALUES (?, ?, ?, 0, ?, 0, ?)", (path, parent, operation.data, transaction, owner)
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
        version = self._require(path, expected_version) + 1
        self._database.execute("UPDATE node SET data = ?, version = ? WHERE path = ?", (data, version, path))
        self._changed.append(path)
        return version

    def _delete(self, path: str, expected_version: int | None) -> None:
        self._require(path, expected_version)
        if self._database.execute("SELECT 1 FROM node WHERE parent = ? LIMIT 1", (path,)).fetchone():
            raise NotEmpty(path)
        self._database.execute("DELETE FROM node WHERE path = ?", (path,))
        self._changed.append(path)

    def _next(self, counter: str, step: int = 1) -> int:
        update = "UPDATE counter SET value = value + ? WHERE name = ? RETURNING value"
        (value,) = self._database.execute(update, (step, counter)).fetchone()
        return int(value)


class _Transaction:
    """Block that commits at its end, and rolls back if it raises."""

    def __init__(self, database: sqlite3.Connection, begin: str) -> None:
        self._database = database
        self._begin = begin

    def __enter__(self) -> None:
        self._database.execute(self._begin)

    def __exit__(self, kind: type[BaseException] | None, *_details: object) -> None:
        if kind is None:
            self._commit()
        elif self._database.in_transaction:  # SQLite rolls back by itself after some errors, a full disk for one
            self._database.execute("ROLLBACK")

    def _commit(self) -> None:
        try:
            self._database.execute("COMMIT")
        except sqlite3.OperationalError:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise


def _create_private(path: str) -> None:
    """Create the file for its owner alone, as the tree may hold credentials. An existing file keeps its mode, and
    SQLite gives its side files the same one."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _statements(script: str) -> list[str]:
    """The single statements of a script: `executescript` would commit the transaction around it."""
    found, statement = [], ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            found.append(statement)
            statement = ""
    return found
