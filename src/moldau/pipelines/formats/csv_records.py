"""Records of a CSV file: where each begins and ends, and its fields in the schema's order.

What a field means (quotes, nulls, types) is left to Spark's own parser: fields are handed on as they were written. Only
their borders are found here, by Spark's rules: a quote at a field's beginning holds separators and line breaks until a
quote that a separator or the line's end follows; where there is no such quote it is a letter like any other.
"""

import codecs
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

UNDECODED = "surrogateescape"
"""Error handler for bytes that are no text: they pass as they are, and the record that has them is a bad one."""
NO_TEXT = "moldau-no-text"
"""The same when reading: Python's own gives up at a byte below 128, as in the rest of a torn UTF-16 file."""
NEVER_UTF8 = "\udcff"

NOT_IN_ORDER = r"^the header of its file |^\d+ fields under a header"
"""Reasons of records that are as they were written, their fields not in the schema's order."""


@dataclass(frozen=True, slots=True)
class CsvRecords:
    """Finder of the records in a file. Plain data: it goes to the workers."""

    columns: tuple[str, ...]
    needed: tuple[str, ...]
    """The columns that a header must name; others that it lacks are null."""
    header: bool = False
    separator: str = ","
    quote: str = '"'
    escape: str = '"'
    null: str = ""
    encoding: str = "utf-8"

    def find(self, content: bytes) -> Iterator[tuple[bytes, str | None]]:
        """Each record as UTF-8, its fields in the schema's order, and why it is a bad one (None: it is not)."""
        text = content.decode(self.encoding, NO_TEXT).removeprefix("\ufeff")
        records, field = self._split(text), re.compile(self._field())
        order = None
        if self.header:
            order = Order.of([self._clean(words) for words in _fields(next(records, ""), field)], self)
        for record in records:
            line, reason = order.line(_fields(record, field), record) if order else (record, None)
            yield line.encode("utf-8", UNDECODED), reason

    def _split(self, text: str) -> Iterator[str]:
        record = re.compile(rf"({self._field()}(?:{re.escape(self.separator)}{self._field()})*+)(?:\r\n|\n|\r|\Z)")
        position = 0
        while position < len(text):
            found = record.match(text, position)
            if found is None:  # a pattern that takes nothing up to a line's end always matches
                raise ValueError(f"no CSV record at character {position}")
            position = found.end()
            if found[1]:
                yield found[1]

    def _field(self) -> str:
        separator, quote, escape = (re.escape(sign) for sign in (self.separator, self.quote, self.escape))
        plain, escaped = f"[^{quote}{escape}]*+", rf"{escape}[\s\S]"
        if self.escape == self.quote:
            escaped = quote * 2
        blanks = "" if self.separator == " " else " *+"
        quoted = rf"{quote}{plain}(?:{escaped}{plain})*+{quote}{blanks}(?={separator}|[\r\n]|\Z)"
        return rf"(?:{quoted}|[^{separator}\r\n]*+)"

    def _clean(self, field: str) -> str:
        words = field.strip()
        if len(words) > 1 and words[0] == words[-1] == self.quote:
            return words[1:-1].replace(self.escape + self.quote, self.quote).strip()
        return words


def _no_text(error: UnicodeError) -> tuple[str | bytes, int]:
    try:
        return codecs.lookup_error(UNDECODED)(error)
    except UnicodeDecodeError as undecoded:
        return NEVER_UTF8, undecoded.end


codecs.register_error(NO_TEXT, _no_text)


def _fields(record: str, field: re.Pattern[str]) -> list[str]:
    """The fields of a record as they were written, quotes and all."""
    found, position = [], 0
    while position <= len(record):
        one = field.match(record, position)
        found.append(one[0] if one else "")
        position += len(found[-1]) + 1
    return found


@dataclass(frozen=True, slots=True)
class Order:
    """Order of a file's fields, by its header: the place of each column (None: it is not there), or a refusal."""

    places: tuple[int | None, ...]
    width: int
    separator: str
    null: str
    refusal: str | None = None

    @classmethod
    def of(cls, header: Sequence[str], csv: CsvRecords) -> "Order":
        """The order that a header gives. Spark ignores case in names of columns."""
        names = [name.lower() for name in header]
        places = tuple(names.index(name.lower()) if name.lower() in names else None for name in csv.columns)
        lacking = [name for name in csv.needed if name.lower() not in names]
        twice = [name for name in csv.columns if names.count(name.lower()) > 1]
        refusal = None
        if lacking or twice:
            words = f"does not name {lacking[0]!r}" if lacking else f"names {twice[0]!r} twice"
            told = f"the header of its file {words}: {csv.separator.join(header)}"
            refusal = told.encode("utf-8", "replace").decode()
        return cls(places, len(names), csv.separator, csv.null, refusal)

    def line(self, fields: Sequence[str], record: str) -> tuple[str, str | None]:
        """The record in the schema's order; as it is, with the reason, where it has none."""
        if self.refusal:
            return record, self.refusal
        if len(fields) != self.width:
            return record, f"{len(fields)} fields under a header of {self.width}"
        return self.separator.join(self.null if place is None else fields[place] for place in self.places), None
