"""Order of the versions of a row: which of several rows of one key is the newest.

Rows come as they were read as long as nothing moves them between Spark's tasks. A join, an aggregation or any other
shuffle does, and afterwards the last row of a key may be an old one. So either the rows say which is newer (columns
that `newest_by` names, or the places in the source that a view has kept), or a key comes once in a batch (an
aggregation by the sink's key), or the sink is refused. Sinks that keep rows compare the columns of `newest_by` with the
row that is there, too, so that a version that comes batches late changes nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from moldau.pipelines.file.options import Option, names
from moldau.pipelines.file.problems import PipelineError, Problem
from moldau.pipelines.file.spec import SinkSpec

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # no type information
    from pyspark.sql import Column, DataFrame

VERSION = "__version_"
"""Beginning of the names of columns that say which row is newer; they are not written."""
NONE = "none"
PLACES = (("_lsn", "_number"), ("_partition", "_offset"))
"""Columns that say where a row was read; those of one source that the rows still have tell the order."""
NESTED = ("struct", "array", "map", "variant")


def columns(value: Any) -> tuple[str, ...]:
    """The columns, none for `none`."""
    given = names(value)
    return () if given == (NONE,) else given


NEWEST_BY = Option(
    "newest_by",
    columns,
    "columns that tell which of two rows of a key is the newer one, such as `updated_at`; `none`: that does not matter",
)


def named(sink: SinkSpec) -> tuple[str, ...]:
    """The columns of `newest_by`, which sinks that keep rows write and compare."""
    return tuple(sink.options.get("newest_by") or ())


def check(sink: SinkSpec) -> "list[Problem]":
    """Problems of `newest_by` by the file alone."""
    if named(sink) and not sink.options.get("key"):
        place = sink.places.get("newest_by", sink.place)
        return [Problem(place, f"sink {sink.name!r}: 'newest_by' needs 'key'", "the newest of which rows?")]
    return []


def versions(sink: SinkSpec, rows: "DataFrame") -> tuple[str, ...]:
    """The columns by which the rows of a batch are put in order; none where they are in order, or need none."""
    key = sink.options.get("key")
    if not key or sink.options.get("newest_by") == ():
        return ()
    given = named(sink)
    if not given:
        shown = getattr(rows, "_jdf", None) is not None
        return () if shown and lost_by(rows, key) is None else _places(rows)
    types = {found.name: found.dataType.typeName() for found in rows.schema.fields}
    for name in given:
        if types.get(name, NESTED[0]) in NESTED:
            words = f"its rows have no column {name!r}" if name not in types else f"{name!r} is a {types[name]}"
            place = sink.places.get("newest_by", sink.place)
            raise PipelineError(
                [Problem(place, f"sink {sink.name!r}: {words}: 'newest_by' needs a number, time or text")]
            )
    return given


def refusal(sink: SinkSpec, rows: "DataFrame") -> Problem | None:
    """The problem of a sink that is to keep the newest row of a key, where nothing says which one that is."""
    key = sink.options.get("key")
    if not key or sink.options.get("newest_by") is not None or _places(rows) or not set(key) <= set(rows.columns):
        return None
    lost = lost_by(rows, key)
    if lost is None:
        return None
    words = (
        f"sink {sink.name!r}: after {lost} the rows of a key come in any order, and nothing says which is the newest"
    )
    hint = (
        "name what grows with each version (`newest_by: updated_at`), or keep `_partition` and `_offset` in the view; "
        "`newest_by: none` if a key comes once in a batch, or any row will do"
    )
    return Problem(sink.places.get("key", sink.place), words, hint)


def _places(rows: "DataFrame") -> tuple[str, ...]:
    return next((place for place in PLACES if set(place) <= set(rows.columns)), ())


def with_versions(chosen: "list[Column]", by: Sequence[str]) -> "list[Column]":
    """The columns, and those that tell the order."""
    from pyspark.sql import functions as F

    return [*chosen, *(F.col(f"`{name}`").alias(f"{VERSION}{number}") for number, name in enumerate(by))]


def in_order(rows: "pa.Table") -> "pa.Table":
    """The rows, the newest last, without the columns that told so; a row without a version is the oldest."""
    import pyarrow as pa
    import pyarrow.compute as pc  # type: ignore[import-untyped]  # no type information

    by = [name for name in rows.column_names if name.startswith(VERSION)]
    if not by:
        return rows
    told = [column for name in by for column in (rows.column(name).is_valid(), rows.column(name))]
    keys = pa.table(told, names=[str(number) for number in range(len(told))])
    found = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names])
    return rows.take(found).drop_columns(by)


def tasks_in_order(rows: "DataFrame") -> "DataFrame":
    """The rows of each task of a batch, the newest last, without the columns that told so."""
    by = [name for name in rows.columns if name.startswith(VERSION)]
    return rows.sortWithinPartitions(*by).drop(*by) if by else rows


def not_older(by: Sequence[str], old: Callable[[str], str], new: Callable[[str], str]) -> str:
    """SQL that is true where the new row is not older than the old one; a row without a version is the oldest."""
    words = "TRUE"
    for name in reversed(by):
        was, now = old(name), new(name)
        words = f"({was} IS NULL OR {now} > {was} OR ({now} = {was} AND {words}))"
    return words


# --- Spark's plan

CARRYING = frozenset(
    {
        *(
            "CollectMetrics",
            "EventTimeWatermark",
            "Filter",
            "Generate",
            "Project",
            "ResolvedHint",
            "SubqueryAlias",
            "View",
        ),
        *("MapElements", "MapInArrow", "MapInPandas", "MapPartitions", "PythonMapInArrow", "TypedFilter"),
        *("DeserializeToObject", "SerializeFromObject"),
    }
)
"""Operations that leave rows in their order; any other may not."""
WORDS = {
    "Join": "a join",
    "Aggregate": "an aggregation",
    "Deduplicate": "a deduplication",
    "DeduplicateWithinWatermark": "a deduplication",
    "Distinct": "DISTINCT",
}
ENDS_OF_WINDOW = ("start", "end")

Traced = tuple[int, str]
"""A column that is followed down the plan: Spark's id of it, and the field of it that is meant (empty: all of it)."""


def lost_by(rows: "DataFrame", key: Sequence[str]) -> str | None:
    """The operation after which rows of one key are in no order; None if they are, or if a key comes once in a batch.
    Spark Connect shows no plan: None."""
    frame = getattr(rows, "_jdf", None)
    if frame is None:
        return None
    plan = frame.queryExecution().analyzed()
    traced = [(found.exprId().id(), "") for found in _all(plan.output()) if found.name() in key]
    return Walk().lost(plan, traced)


@dataclass(slots=True)
class Walk:
    """Walk down a plan, to the first operation that says whether its rows are in order."""

    _defined: dict[int, Any] = field(default_factory=dict)
    """The plans that a query names WITH ... AS."""

    def lost(self, plan: Any, traced: list[Traced]) -> str | None:
        kind = str(plan.nodeName())
        if not plan.isStreaming():
            return None
        if kind == "WithCTE":
            self._defined.update({each.id(): each.child() for each in _all(plan.cteDefs())})
            return self.lost(plan.plan(), traced)
        inner = [self._defined[plan.cteId()]] if kind == "CTERelationRef" else _all(plan.children())
        if kind in ("Union", "CTERelationRef"):
            found = [self.lost(each, _by_position(plan, each, traced)) for each in inner]
            return next(filter(None, found), None)
        if kind in ("Aggregate", "Deduplicate", "Distinct"):
            return None if _comes_once(plan, kind, traced) else WORDS[kind]
        if not inner:
            return None
        if kind not in CARRYING or len(inner) > 1:
            return WORDS.get(kind, kind)
        return self.lost(inner[0], _through(plan, traced) if kind == "Project" else traced)


def _all(found: Any) -> list[Any]:
    """The elements of a sequence of Scala's."""
    return [found.apply(number) for number in range(found.size())]


def _by_position(plan: Any, inner: Any, traced: list[Traced]) -> list[Traced]:
    outside = [each.exprId().id() for each in _all(plan.output())]
    inside = [each.exprId().id() for each in _all(inner.output())]
    return [(inside[outside.index(number)], part) for number, part in traced if number in outside]


def _through(project: Any, traced: list[Traced]) -> list[Traced]:
    """The columns as they are called below a projection; computed ones are lost sight of."""
    made = {each.exprId().id(): each for each in _all(project.projectList())}
    found = [_origin(made[number], part) for number, part in traced if number in made]
    return [each for each in found if each is not None]


def _origin(expression: Any, part: str) -> Traced | None:
    inner = expression.child() if _class(expression) == "Alias" else expression
    if _class(inner) == "GetStructField" and not part:
        inner, part = inner.child(), inner.extractFieldName()
    return (inner.exprId().id(), part) if _class(inner) == "AttributeReference" else None


def _class(expression: Any) -> str:
    return str(expression.getClass().getSimpleName())


def _comes_once(plan: Any, kind: str, traced: list[Traced]) -> bool:
    """Whether the key has all by which the rows are grouped. Of a window of time one end is enough."""
    if kind != "Aggregate":
        by = _all(plan.keys() if kind == "Deduplicate" else plan.output())
        return {each.exprId().id() for each in by} <= {number for number, part in traced if not part}
    made = {each.exprId().id(): each for each in _all(plan.aggregateExpressions())}
    parts = [_part(made[number], part) for number, part in traced if number in made]
    return all(any(each.semanticEquals(by) for each in parts) for by in _all(plan.groupingExpressions()))


def _part(expression: Any, part: str) -> Any:
    """The expression that a column stands for; of an end of a window, the window."""
    inner = expression.child() if _class(expression) == "Alias" else expression
    if not part and _class(inner) == "GetStructField" and inner.extractFieldName() in ENDS_OF_WINDOW:
        return inner.child()
    return inner
