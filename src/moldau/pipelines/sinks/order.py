"""Order of the versions of a row: which of several rows of one key is the newest.

Rows come as they were read as long as nothing moves them between Spark's tasks. A join, an aggregation or any other
shuffle does, and afterwards the last row of a key may be an old one; so does Spark with several files, of which it
reads the largest first. So either the rows say which is newer (columns that `newest_by` names, or the places in the
source that a view has kept), or a key comes once in a batch (an aggregation by the sink's key), or the sink is refused.
Sinks that keep rows compare the columns of `newest_by` with the row that is there, too, so that a version that comes
batches late changes nothing.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
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
PLACE_OF_FILE = ("_timestamp", "_file")
"""Columns that put rows of files in order, as long as those of one file are in theirs."""
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
        lost = lost_by(rows, key)
        return () if shown and lost is None else _places(rows, lost)
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
    if not key or sink.options.get("newest_by") is not None or not set(key) <= set(rows.columns):
        return None
    lost = lost_by(rows, key)
    places, late = _places(rows, lost), late_by(rows)
    if lost is None or (places and late is None):
        return None
    if places:
        words = f"sink {sink.name!r}: {late} may give an older row of a key batches after a newer one"
        hint = (
            f"name what is to be kept and compared: `newest_by: [{', '.join(places)}]`, or a column that grows with "
            "each version; `newest_by: none` if a key comes once, or any row will do"
        )
        return Problem(sink.places.get("key", sink.place), words, hint)
    words = (
        f"sink {sink.name!r}: after {lost} the rows of a key come in any order, and nothing says which is the newest"
    )
    hint = (
        f"name what grows with each version (`newest_by: updated_at`), or {WHERE_READ.get(lost, PLACE_OF_RECORD)} "
        "in the view; `newest_by: none` if a key comes once in a batch, or any row will do"
    )
    return Problem(sink.places.get("key", sink.place), words, hint)


def _places(rows: "DataFrame", lost: str | None) -> tuple[str, ...]:
    """The columns of the rows that say where each was read. Those of a table that was joined say nothing."""
    known = (*PLACES, PLACE_OF_FILE) if lost == FILES else PLACES
    found = next((place for place in known if set(place) <= set(rows.columns)), ())
    frame = getattr(rows, "_jdf", None)
    if frame is None or not found:
        return found
    plan = frame.queryExecution().analyzed()
    numbers = [each.exprId().id() for each in _all(plan.output()) if each.name() in found]
    return () if any(Walk().comes_from(_of_table, plan, number) for number in numbers) else found


def _of_table(plan: Any, number: int) -> bool:  # noqa: ARG001 - any column of it
    return not plan.isStreaming()


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
FILES = "a reading of several files"
SUBQUERY = "a subquery that Spark makes a join of"
UNION = "a union of one stream with itself"
PLACE_OF_RECORD = "keep `_partition` and `_offset`"
WHERE_READ = {FILES: "read them one by one (`max_files_per_batch: 1`), or keep `_timestamp` and `_file`"}
WORDS = {
    "Join": "a join",
    "Aggregate": "an aggregation",
    "Deduplicate": "a deduplication",
    "DeduplicateWithinWatermark": "a deduplication",
    "Distinct": "DISTINCT",
}
ANALYZED = "== Analyzed Logical Plan =="
MOVING = re.compile(
    r"^[ :+|~-]*(Join|Union|Repartition\w*|Deduplicate\w*|FlatMapGroups\w*|TransformWithState\w*)\b", re.M
)
"""Operations that move rows, in the words of a plan; an aggregation is most often by the sink's key."""
WITH_STATE = frozenset(
    {
        *("FlatMapGroupsWithState", "FlatMapGroupsInPandasWithState"),
        *("TransformWithState", "TransformWithStateInPandas", "TransformWithStateInPySpark"),
    }
)
"""Operators of the user's own that may keep a row for later."""
ENDS_OF_WINDOW = ("start", "end")
FILE_STREAM, FILE_SOURCE = "StreamingRelation", "FileSource"
"""Name of the plan of a stream of files, and the beginning of its source's name."""
FILES_IN_BATCH = "maxFilesPerTrigger"

Traced = tuple[int, str]
"""A column that is followed down the plan: Spark's id of it, and the field of it that is meant (empty: all of it)."""


def lost_by(rows: "DataFrame", key: Sequence[str], apart: frozenset[str] = frozenset()) -> str | None:
    """The operation after which rows of one key are in no order; None if they are, or if a key comes once in a batch.
    Operations `apart` do not count. Spark Connect shows no plan: None."""
    frame = getattr(rows, "_jdf", None)
    if frame is None:
        return None
    plan = frame.queryExecution().analyzed()
    traced = [(found.exprId().id(), "") for found in _all(plan.output()) if found.name() in key]
    return Walk(apart).lost(plan, traced)


def hidden_by(sink: SinkSpec, rows: "DataFrame") -> str | None:
    """The operation after which rows of a key may come in any order, of a sink that says nothing of it, where Spark
    Connect shows the plan as text only: what the key is to the operation cannot be told from it."""
    asks_nothing = not sink.options.get("key") or sink.options.get("newest_by") is not None
    if asks_nothing or getattr(rows, "_jdf", None) is not None or _places(rows, None):
        return None
    shown = rows._explain_string(extended=True)  # type: ignore[operator]  # of Connect's own class
    found = MOVING.search(shown.partition(ANALYZED)[2].partition("\n== ")[0])
    return WORDS.get(found[1], found[1]) if found else None


def late_by(rows: "DataFrame") -> str | None:
    """The operation that may give a row out batches after a newer one of its key; None if each batch is newer than the
    one before. Spark Connect shows no plan: None."""
    frame = getattr(rows, "_jdf", None)
    return None if frame is None else _late_by(frame.queryExecution().analyzed())


def _late_by(plan: Any) -> str | None:
    if not plan.isStreaming():
        return None
    kind, inner = str(plan.nodeName()), _all(plan.children())
    if kind == "WithCTE":
        inner = [plan.plan(), *(each.child() for each in _all(plan.cteDefs()))]
    if kind == "Join" and all(each.isStreaming() for each in inner):
        return "a join of two streams"
    if kind in WITH_STATE:
        return "an operator with state of its own"
    return next(filter(None, map(_late_by, inner)), None)


@dataclass(slots=True)
class Walk:
    """Walk down a plan, to the first operation that says whether its rows are in order."""

    apart: frozenset[str] = frozenset()
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
            branches = [(each, _by_position(plan, each, traced)) for each in inner]
            found = [self.lost(each, below) for each, below in branches]
            return next(filter(None, found), None) or (UNION if self._meet(branches) else None)
        if kind in self.apart:
            return self.lost(inner[0], traced)
        if kind in ("Aggregate", "Deduplicate", "Distinct"):
            return None if _comes_once(plan, kind, traced) else WORDS[kind]
        if not inner:
            return FILES if kind == FILE_STREAM and _of_several_files(plan) else None
        if kind not in CARRYING or len(inner) > 1:
            return WORDS.get(kind, kind)
        if not plan.subqueries().isEmpty() and any(map(_joins, _all(plan.expressions()))):
            return SUBQUERY
        return self.lost(inner[0], _through(plan, traced) if kind == "Project" else traced)

    def _meet(self, branches: "Sequence[tuple[Any, list[Traced]]]") -> bool:
        """Whether two branches of a union have rows of one key of the same stream: Spark gives out those of the first
        branch first. Branches that write another literal into the key stay apart."""
        streams = [{_stream(leaf) for leaf in self._leaves(plan)} for plan, _ in branches]
        written = [[_literal(plan, number) for number, _ in below] for plan, below in branches]
        return any(
            streams[one] & streams[other] and not any(map(_differ, written[one], written[other]))
            for one, other in combinations(range(len(branches)), 2)
        )

    def _leaves(self, plan: Any) -> Iterator[Any]:
        """The readings of streams in a plan."""
        kind, inner = str(plan.nodeName()), _all(plan.children())
        if kind == "WithCTE":
            self._defined.update({each.id(): each.child() for each in _all(plan.cteDefs())})
            inner = [plan.plan()]
        elif kind == "CTERelationRef":
            inner = [self._defined[plan.cteId()]]
        if not inner and plan.isStreaming():
            yield plan
        for each in inner:
            yield from self._leaves(each)

    def comes_from(self, origin: Callable[[Any, int], bool], plan: Any, number: int) -> bool:
        """Whether the column of that id is, under whatever name, one of a plan of which `origin` is true."""
        if origin(plan, number):
            return True
        kind = str(plan.nodeName())
        if kind == "WithCTE":
            self._defined.update({each.id(): each.child() for each in _all(plan.cteDefs())})
            return self.comes_from(origin, plan.plan(), number)
        inner = [self._defined[plan.cteId()]] if kind == "CTERelationRef" else _all(plan.children())
        traced = _through(plan, [(number, "")]) if kind == "Project" else [(number, "")]
        for each in inner:
            below = _by_position(plan, each, traced) if kind in ("Union", "CTERelationRef") else traced
            there = {column.exprId().id() for column in _all(each.output())}
            if any(column in there and self.comes_from(origin, each, column) for column, _ in below):
                return True
        return False


def _all(found: Any) -> list[Any]:
    """The elements of a sequence of Scala's."""
    return [found.apply(number) for number in range(found.size())]


def _of_several_files(stream: Any) -> bool:
    """Whether a batch of the stream may be of several files: one is in order, and Spark takes the oldest first."""
    options = stream.dataSource().options()
    alone = options.contains(FILES_IN_BATCH) and str(options.apply(FILES_IN_BATCH)) == "1"
    return str(stream.sourceName()).startswith(FILE_SOURCE) and not alone


def _joins(expression: Any) -> bool:
    """Whether an expression has a subquery that Spark computes as a join: one that has one value is computed before."""
    kind = _class(expression)
    if kind in ("Exists", "ListQuery") or (kind == "ScalarSubquery" and expression.isCorrelated()):
        return True
    return any(map(_joins, _all(expression.children())))


def _stream(leaf: Any) -> str:
    """Words that tell a stream from others: what it was opened with."""
    if leaf.nodeName() == FILE_STREAM:
        return str(leaf.dataSource().options())
    return f"{leaf.sourceName()} {leaf.extraOptions().asCaseSensitiveMap()}"


def _literal(plan: Any, number: int) -> str | None:
    """The literal that the column of that id is; None if it is none."""
    made = {"Project": "projectList", "Aggregate": "aggregateExpressions"}.get(str(plan.nodeName()))
    if made is not None:
        columns = {each.exprId().id(): each for each in _all(getattr(plan, made)())}
        inner = columns[number].child() if _class(columns[number]) == "Alias" else columns[number]
        if inner.foldable():
            return str(inner.sql())
        if _class(inner) != "AttributeReference":
            return None
        number = inner.exprId().id()
    below = [
        each for each in _all(plan.children()) if number in {column.exprId().id() for column in _all(each.output())}
    ]
    return _literal(below[0], number) if len(below) == 1 else None


def _differ(one: str | None, other: str | None) -> bool:
    return None not in (one, other) and one != other


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
