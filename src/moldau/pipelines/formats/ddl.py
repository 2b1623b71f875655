"""Spark's way to write a schema (`name STRING, at TIMESTAMP`), understood without Spark.

It understands only the part that a check needs: the fields' names, and whether every type is one. Spark itself reads
the text for the run.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from moldau.pipelines.file.problems import near

TYPES = frozenset(
    {
        *("boolean", "tinyint", "byte", "smallint", "short", "int", "integer", "bigint", "long"),
        *("float", "real", "double", "decimal", "dec", "numeric", "string", "char", "varchar", "binary"),
        *("date", "time", "timestamp", "timestamp_ntz", "timestamp_ltz", "interval", "variant", "void"),
    }
)
INTERVAL_UNITS = frozenset({"year", "month", "day", "hour", "minute", "second"})
TOKEN = re.compile(r"\s+|(?P<quoted>`(?:[^`]|``)+`)|(?P<word>\w+)|(?P<text>'(?:[^'\\]|\\.)*')|(?P<sign>[<>(),:])")


@dataclass(frozen=True, slots=True)
class Field:
    """A field, with its `type` as it was written."""

    name: str
    type: str


def fields(schema: str) -> list[Field]:
    """The fields of a schema. Raises ValueError with words that follow "must be"."""
    reader = _Reader(schema)
    found = [reader.field(",")]
    while reader.next_is(","):
        found.append(reader.field(","))
    if reader.token:
        raise reader.error(f"{reader.token!r} is too much")
    return found


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._split())
        self._place = 0

    def _split(self) -> Iterator[str]:
        place = 0
        while place < len(self._text):
            match = TOKEN.match(self._text, place)
            if match is None:
                raise self.error(f"{self._text[place]!r} does not belong there")
            place = match.end()
            if match.lastgroup:
                yield match.group()

    @property
    def token(self) -> str:
        return self._tokens[self._place] if self._place < len(self._tokens) else ""

    def error(self, words: str) -> ValueError:
        return ValueError(f"a schema such as `name STRING, at TIMESTAMP` ({words})")

    def take(self) -> str:
        token = self.token
        self._place += 1
        return token

    def next_is(self, *tokens: str) -> bool:
        if self.token.lower() in tokens:
            self._place += 1
            return True
        return False

    def expect(self, sign: str) -> None:
        if not self.next_is(sign):
            raise self.error(f"{sign!r} is missing before {self.token!r}" if self.token else f"{sign!r} is missing")

    def field(self, separator: str) -> Field:
        name = self.take()
        if not name or not (name[0] == "`" or re.fullmatch(r"\w+", name)):
            raise self.error(f"no name before {name!r}" if name else f"no field after {separator!r}")
        self.next_is(":")
        start = self._place
        self.type(name)
        written = "".join(self._tokens[start : self._place])
        self._notes()
        return Field(name[1:-1].replace("``", "`") if name[0] == "`" else name, written)

    def _notes(self) -> None:
        if self.next_is("not"):
            self.expect("null")
        if self.next_is("comment"):
            self.take()

    def type(self, owner: str) -> None:
        word = self.take().lower()
        if word == "array":
            self._inside(owner, 1)
        elif word == "map":
            self._inside(owner, 2)
        elif word == "struct":
            self._struct()
        elif word == "interval":
            self._interval()
        elif word in TYPES:
            self._numbers()
        else:
            raise self.error(self._no_type(owner, word))

    def _no_type(self, owner: str, word: str) -> str:
        if not word or word in ",>)":
            return f"the field {owner} has no type"
        hint = near(word, TYPES)
        return f"{word.upper()} is no type" + (f": {hint}" if hint else "")

    def _inside(self, owner: str, count: int) -> None:
        self.expect("<")
        for place in range(count):
            if place:
                self.expect(",")
            self.type(owner)
        self.expect(">")

    def _struct(self) -> None:
        self.expect("<")
        if self.next_is(">"):
            return
        self.field("<")
        while self.next_is(","):
            self.field(",")
        self.expect(">")

    def _interval(self) -> None:
        while self.token.lower() in INTERVAL_UNITS:
            self.take()
            if not self.next_is("to"):
                return

    def _numbers(self) -> None:
        if self.next_is("("):
            while self.token.isdigit():
                self.take()
                if not self.next_is(","):
                    break
            self.expect(")")
