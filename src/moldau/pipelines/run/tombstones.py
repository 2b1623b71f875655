"""Rows made of tombstones on their way to a sink: a view that never looks at `_deleted` makes rows of NULLs of them.

A view may ask for it (`WHERE NOT _deleted`), pass it on, so that the sink deletes, or call it otherwise. Whoever only
leaves the column out has most likely forgotten it, and would find a row of NULLs in the place of one that is to go.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from moldau.pipelines.file.problems import Problem
from moldau.pipelines.file.spec import PipelineSpec, SinkSpec, SourceSpec
from moldau.pipelines.formats.decoding import DELETED, METADATA
from moldau.pipelines.sinks import order
from moldau.pipelines.sinks.batches import deletes_when

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from moldau.pipelines.run.graph import Frames

PASSING = frozenset({"Project", "SubqueryAlias", "View", "EventTimeWatermark", "Union", "WithCTE", "CTERelationRef"})
"""Operators that pass columns on, or leave them out, without looking at them."""


def problem(spec: PipelineSpec, sink: SinkSpec, rows: "DataFrame", names: set[str], frames: "Frames") -> Problem | None:
    """The problem of a sink that would write rows of NULLs. `names` are the sources and views upstream of it."""
    written = DELETED in (sink.options.get("columns") or ())
    if written or deletes_when(sink, rows.columns):
        return _undated(spec, sink, rows, names, frames)
    if DELETED in rows.columns:
        words = f"sink {sink.name!r}: a row made of a tombstone would be written as one of NULLs"
        if "delete_when" in sink.options:
            return Problem(sink.place, words, f"give it a `key`, or name {DELETED!r} among its `columns`")
        return Problem(sink.place, words, f"leave them out in a view without the column: WHERE NOT {DELETED}")
    for source, frame in _with_tombstones(spec, names, frames):
        if _overlooked(rows, frame):
            words = (
                f"sink {sink.name!r}: no view looks at {DELETED!r} of source {source.name!r}: "
                "a tombstone would become a row"
            )
            hint = f"select {DELETED} too, so that the sink deletes, or leave such rows out: WHERE NOT {DELETED}"
            return Problem(sink.places.get("from", sink.place), f"{words} of NULLs", hint)
    return None


def _with_tombstones(spec: PipelineSpec, names: set[str], frames: "Frames") -> "Iterator[tuple[SourceSpec, DataFrame]]":
    for name in sorted(names & set(spec.sources)):
        source, frame = spec.sources[name], frames.of(name)
        if source.options.get("tombstones") and source.options.get("as") != "table" and frame is not None:
            yield source, frame


def _undated(
    spec: PipelineSpec, sink: SinkSpec, rows: "DataFrame", names: set[str], frames: "Frames"
) -> Problem | None:
    """The problem of a sink that is to tell a newer row by a field that no tombstone has: it would be the oldest row of
    its key, and delete nothing."""
    by = order.named(sink)
    plan = getattr(rows, "_jdf", None)
    if not by or plan is None or by[0] not in rows.columns or deletes_when(sink, rows.columns) != DELETED:
        return None
    analyzed = plan.queryExecution().analyzed()
    [number] = [each.exprId().id() for each in _all(analyzed.output()) if each.name() == by[0]]
    for source, frame in _with_tombstones(spec, names, frames):
        if order.Walk().comes_from(_field_of(source, frame), analyzed, number):
            words = (
                f"sink {sink.name!r}: a tombstone of source {source.name!r} has no {by[0]!r}, and would delete nothing"
            )
            hint = (
                f"`newest_by: _timestamp`, `newest_by: [_partition, _offset]`, or coalesce({by[0]}, ...) in a view: "
                "what tells a newer row must be in tombstones, too"
            )
            return Problem(sink.places.get("newest_by", sink.place), words, hint)
    return None


def _field_of(source: SourceSpec, frame: "DataFrame") -> "Callable[[Any, int], bool]":
    """A test for columns that are fields of the source's values, and not of the keys, which tombstones have."""
    begin = frame._jdf.queryExecution().analyzed()
    apart = {*METADATA, DELETED, *source.options["tombstones"]}
    fields = {each.exprId().id() for each in _all(begin.output()) if each.name() not in apart}
    return lambda plan, number: number in fields and plan.fastEquals(begin)


def _overlooked(rows: "DataFrame", source: "DataFrame") -> bool:
    """Whether nothing between a source and the rows looks at its column. Spark Connect shows no plan: False."""
    plan, origin = getattr(rows, "_jdf", None), getattr(source, "_jdf", None)
    if plan is None or origin is None:
        return False
    begin = origin.queryExecution().analyzed()
    [number] = [each.exprId().id() for each in _all(begin.output()) if each.name() == DELETED] or [None]
    return number is not None and not _looks(plan.queryExecution().analyzed(), begin, number)


def _looks(plan: Any, source: Any, number: int) -> bool:
    """Whether an operator of the plan, above the source, looks at the column of that id."""
    if not plan.isStreaming() or plan.fastEquals(source):
        return False
    kind, inner = str(plan.nodeName()), _all(plan.children())
    if kind == "WithCTE":
        inner = [plan.plan(), *(each.child() for each in _all(plan.cteDefs()))]
    if kind == "Project":
        looks = any(_looks_at(each, number) for each in _all(plan.projectList()))
    elif kind in PASSING:
        looks = False
    elif _all(plan.expressions()):
        looks = any(_refers(each, number) for each in _all(plan.expressions()))
    else:  # a function of the user's gets whole rows
        looks = any(each.exprId().id() == number for child in inner for each in _all(child.output()))
    return looks or any(_looks(each, source, number) for each in inner)


def _looks_at(expression: Any, number: int) -> bool:
    return str(expression.getClass().getSimpleName()) != "AttributeReference" and _refers(expression, number)


def _refers(expression: Any, number: int) -> bool:
    found = expression.references().toSeq()
    return any(each.exprId().id() == number for each in _all(found))


def _all(found: Any) -> list[Any]:
    """The elements of a sequence of Scala's."""
    return [found.apply(number) for number in range(found.size())]
