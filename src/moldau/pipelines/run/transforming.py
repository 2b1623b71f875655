"""Transforms: small changes of rows, as options of sources and sinks, one after another.

They are what Kafka Connect's single-message transforms are used for most. A source's change its rows before anything
else sees them, a sink's right before they are written; whatever else is to be done is SQL in a view. Columns with `_`
in front (a record's key, place and headers) stay, whatever a transform does to the others.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from moldau.pipelines.file.problems import PipelineError, Problem, suggestion
from moldau.pipelines.file.spec import SinkSpec, SourceSpec
from moldau.pipelines.file.transforms import DEBEZIUM, OPTION
from moldau.pipelines.formats.decoding import DELETED

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

ENVELOPE = ("before", "after", "op")
"""Fields of a change as Debezium writes it."""
CHANGES = ("c", "r", "u", "d")
"""Changes of Debezium's that are of a row."""
OP = "_op"
HEADERS = "_headers"
EMPTY = {"string": "''", "boolean": "false", "byte": "0", "short": "0", "integer": "0", "long": "0"}
"""Values of a masked column by its type; 0 for other numbers, and NULL for the rest."""
NUMBERS = ("float", "double", "decimal")


class Unfit(Exception):
    """Error: the transform does not go with the columns; the hint may say which they are."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def applied(owner: SourceSpec | SinkSpec, rows: "DataFrame") -> "DataFrame":
    """The rows after all transforms of their source or sink. Raises PipelineError if one does not go with their
    columns."""
    for each in owner.options.get(OPTION.name) or ():
        try:
            rows = APPLY[each.name](rows, each.given)
        except Unfit as error:
            word = "source" if isinstance(owner, SourceSpec) else "sink"
            message = f"{word} {owner.name!r}: its transform {each.name!r} {error}"
            raise PipelineError([Problem(owner.places.get(OPTION.name, owner.place), message, error.hint)]) from None
    return rows


def _column(name: str) -> "Column":
    from pyspark.sql import functions as F

    return F.col("`" + name.replace("`", "``") + "`")


def _kinds(rows: "DataFrame") -> "dict[str, DataType]":
    return {field.name: field.dataType for field in rows.schema.fields}


def _needed(rows: "DataFrame", wanted: "Mapping[str, Any] | tuple[str, ...]") -> None:
    for name in wanted:
        if name not in rows.columns:
            raise Unfit(f"names {name!r}, which is no column", suggestion(name, rows.columns))


def _changed(rows: "DataFrame", made: "Mapping[str, Column]") -> "DataFrame":
    """The rows with some columns computed anew, in their old places."""
    return rows.select(*(made.get(name, _column(name)).alias(name) for name in rows.columns))


def _rename(rows: "DataFrame", given: Mapping[str, str]) -> "DataFrame":
    _needed(rows, given)
    new = [given.get(name, name) for name in rows.columns]
    double = next((name for name in new if [each.lower() for each in new].count(name.lower()) > 1), None)
    if double is not None:
        raise Unfit(f"makes a second column {double!r}")
    return rows.select(*(_column(name).alias(given.get(name, name)) for name in rows.columns))


def _drop(rows: "DataFrame", given: tuple[str, ...]) -> "DataFrame":
    _needed(rows, given)
    return rows.select(*(_column(name) for name in rows.columns if name not in given))


def _cast(rows: "DataFrame", given: Mapping[str, str]) -> "DataFrame":
    _needed(rows, given)
    return _changed(rows, {name: _column(name).cast(kind) for name, kind in given.items()})


def _mask(rows: "DataFrame", given: Mapping[str, str | None]) -> "DataFrame":
    from pyspark.sql import functions as F

    _needed(rows, given)
    kinds, made = _kinds(rows), {}
    for name, words in given.items():
        kind = kinds[name].typeName()
        empty = EMPTY.get(kind, "0" if kind in NUMBERS else "NULL")
        value = F.expr(empty) if words is None else F.lit(words)
        # NULL stays NULL: that there is none is no secret
        made[name] = F.when(_column(name).isNotNull(), value.cast(kinds[name]))
    return _changed(rows, made)


def _header(rows: "DataFrame", given: Mapping[str, str]) -> "DataFrame":
    """The rows with a column for the text of a header, the last of its name."""
    from pyspark.sql import functions as F

    if HEADERS not in rows.columns:
        raise Unfit(f"needs the column {HEADERS!r}", "keep it in the view")
    taken = next((name for name in given if name in rows.columns), None)
    if taken is not None:
        raise Unfit(f"makes a second column {taken!r}")
    made = []
    for name, header in given.items():
        of_name = F.filter(_column(HEADERS), _is_called(header))
        made.append(F.try_element_at(of_name, F.lit(-1))["value"].cast("string").alias(name))
    own = [name for name in rows.columns if not name.startswith("_")]
    return rows.select(*map(_column, own), *made, *(_column(name) for name in rows.columns if name not in own))


def _is_called(header: str) -> "Callable[[Column], Column]":
    return lambda each: each["key"] == header


def _unwrap(rows: "DataFrame", given: str) -> "DataFrame":
    """The rows with the fields of a struct in place of all columns; `debezium`: of the state after a change."""
    from pyspark.sql import functions as F

    if given == DEBEZIUM:
        _needed(rows, ENVELOPE)
        gone = F.coalesce(_column("op") == "d", F.lit(False))
        fields = _struct(rows, "after")
        if _struct(rows, "before") != fields:
            raise Unfit("needs the same fields in 'before' and 'after'")
        rows = rows.where(_is_of_a_row(_column("op")))
        state = F.when(gone, _column("before")).otherwise(_column("after"))
        return _inner(rows, state, fields, {OP: _column("op"), DELETED: gone})
    return _inner(rows, _column(given), _struct(rows, given), {})


def _is_of_a_row(op: "Column") -> "Column":
    """A condition that is true for a change of Debezium's that has a row, and an error for one that has none, such as a
    truncation: it would become a row of NULLs."""
    from pyspark.sql import functions as F

    words = F.concat(F.lit("a change of Debezium that has no row: op "), F.coalesce(op, F.lit("NULL")))
    return F.when(op.isin(*CHANGES), F.lit(True)).otherwise(F.raise_error(words).cast("boolean"))


def _struct(rows: "DataFrame", name: str) -> list[str]:
    """The names of the fields of a struct."""
    _needed(rows, (name,))
    kind = _kinds(rows)[name]
    if kind.typeName() != "struct":
        raise Unfit(f"needs a struct, and {name!r} is {kind.simpleString().upper()}")
    return list(kind.names)  # type: ignore[attr-defined]  # of a struct


def _inner(rows: "DataFrame", struct: "Column", fields: list[str], more: "Mapping[str, Column]") -> "DataFrame":
    kept = [name for name in rows.columns if name.startswith("_") and name not in more]
    taken = next((name for name in fields if name in kept or name in more), None)
    if taken is not None:
        raise Unfit(f"makes a second column {taken!r}")
    made = [struct[name].alias(name) for name in fields]
    return rows.select(*made, *map(_column, kept), *(column.alias(name) for name, column in more.items()))


APPLY: "Mapping[str, Callable[[DataFrame, Any], DataFrame]]" = {
    "unwrap": _unwrap,
    "rename": _rename,
    "drop": _drop,
    "cast": _cast,
    "mask": _mask,
    "header": _header,
}
