"""PostgreSQL's logical replication messages, as its plugin `pgoutput` writes them (protocol 1): bytes to values.

https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html
"""

import struct
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum

EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
COLUMNS_MAX = 1664
"""Columns of a message, at most: more than a table of PostgreSQL can have."""


class OutputError(ValueError):
    """Error: the bytes are no message of this protocol."""


class Unchanged(Enum):
    """Mark in place of a large value that an UPDATE did not touch: PostgreSQL does not send it."""

    UNCHANGED = "unchanged"


UNCHANGED = Unchanged.UNCHANGED

Value = bytes | None | Unchanged
"""A text in PostgreSQL's output format, NULL, or not sent."""


@dataclass(frozen=True, slots=True)
class Begin:
    """Begin of a transaction. `commit_lsn`: the start of its commit record. Transactions come in the order of their
    commits."""

    commit_lsn: int
    committed_at: datetime
    xid: int


@dataclass(frozen=True, slots=True)
class Commit:
    """End of a transaction. `end_lsn`: the first byte after its commit record."""

    commit_lsn: int
    end_lsn: int
    committed_at: datetime


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A column of a relation; `key`: it is part of the table's replica identity."""

    name: str
    type_oid: int
    key: bool


@dataclass(frozen=True, slots=True)
class Relation:
    """Description of a table: comes before its first change, and again when the table has changed."""

    oid: int
    schema: str
    name: str
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True, slots=True)
class Insert:
    relation: int
    new: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Update:
    """Update of a row. `old`: None if the identity is as before; else the old row, only its identity filled unless
    `old_whole`."""

    relation: int
    old: tuple[Value, ...] | None
    old_whole: bool
    new: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Delete:
    relation: int
    old: tuple[Value, ...]
    old_whole: bool


@dataclass(frozen=True, slots=True)
class Truncate:
    relations: tuple[int, ...]


Message = Begin | Commit | Relation | Insert | Update | Delete | Truncate


def decode(data: bytes) -> Message | None:
    """The message; None for one that changes no row (an origin, a type's name)."""
    reader = _Reader(data)
    message = _decode(reader)
    if message is not None and reader.left:
        raise OutputError(f"{reader.left} bytes after the end of a message {data[:1]!r}")
    return message


def _decode(reader: "_Reader") -> Message | None:
    match reader.byte():
        case b"B":
            return Begin(reader.int64(), reader.moment(), reader.int32())
        case b"C":
            reader.byte()  # flags: none is defined
            return Commit(reader.int64(), reader.int64(), reader.moment())
        case b"R":
            return _relation(reader)
        case b"I":
            oid = reader.int32()
            return Insert(oid, _row(reader, b"N"))
        case b"U":
            return _update(reader)
        case b"D":
            oid, kind = reader.int32(), reader.one_of(b"KO")
            return Delete(oid, _values(reader), kind == b"O")
        case b"T":
            return _truncate(reader)
        case b"O" | b"Y" | b"M":
            return None
        case other:
            raise OutputError(f"unknown kind of message: {other!r}")


def _relation(reader: "_Reader") -> Relation:
    oid, schema, name = reader.int32(), reader.text(), reader.text()
    reader.byte()  # the kind of replica identity: the columns' flags say more
    columns = []
    for _ in range(reader.count()):
        key = reader.byte() == b"\x01"
        column, type_oid = reader.text(), reader.int32()
        reader.int32()  # the type's modifier
        columns.append(RelationColumn(column, type_oid, key))
    return Relation(oid, schema, name, tuple(columns))


def _truncate(reader: "_Reader") -> Truncate:
    count = reader.int32()
    reader.byte()  # flags: CASCADE, RESTART IDENTITY
    if count * 4 != reader.left:
        raise OutputError(f"a truncation of {count} tables in {reader.left} bytes")
    return Truncate(tuple(reader.int32() for _ in range(count)))


def _update(reader: "_Reader") -> Update:
    oid, kind = reader.int32(), reader.one_of(b"KON")
    if kind == b"N":
        return Update(oid, None, False, _values(reader))
    old = _values(reader)
    return Update(oid, old, kind == b"O", _row(reader, b"N"))


def _row(reader: "_Reader", kind: bytes) -> tuple[Value, ...]:
    reader.one_of(kind)
    return _values(reader)


def _values(reader: "_Reader") -> tuple[Value, ...]:
    return tuple(_value(reader) for _ in range(reader.count()))


def _value(reader: "_Reader") -> Value:
    match reader.one_of(b"ntu"):
        case b"t":
            return reader.take(reader.int32())
        case b"u":
            return UNCHANGED
        case _:
            return None


class _Reader:
    """Reader that takes values off the front, and never past the end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._position

    def take(self, size: int) -> bytes:
        if not 0 <= size <= self.left:
            raise OutputError(f"a message {self._data[:1]!r} ends early: {size} bytes wanted, {self.left} left")
        begin, self._position = self._position, self._position + size
        return self._data[begin : self._position]

    def byte(self) -> bytes:
        return self.take(1)

    def one_of(self, kinds: bytes) -> bytes:
        kind = self.byte()
        if kind not in (kinds[n : n + 1] for n in range(len(kinds))):
            raise OutputError(f"one of {kinds!r} expected, not {kind!r}")
        return kind

    def count(self) -> int:
        (count,) = struct.unpack("!h", self.take(2))
        if not 0 <= count <= COLUMNS_MAX:
            raise OutputError(f"{count} columns")
        return int(count)

    def int32(self) -> int:
        return int.from_bytes(self.take(4), "big")

    def int64(self) -> int:
        return int.from_bytes(self.take(8), "big")

    def moment(self) -> datetime:
        (microseconds,) = struct.unpack("!q", self.take(8))
        try:
            return EPOCH + timedelta(microseconds=microseconds)
        except OverflowError as error:
            raise OutputError(f"a time out of range: {microseconds}") from error

    def text(self) -> str:
        end = self._data.find(b"\x00", self._position)
        if end < 0:
            raise OutputError("a name without an end")
        name = self.take(end - self._position)
        self.take(1)
        try:
            return name.decode()
        except UnicodeDecodeError as error:
            raise OutputError(f"a name that is no text: {name!r}") from error
