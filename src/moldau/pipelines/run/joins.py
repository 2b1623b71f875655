"""Columns by which streams are joined with tables, from Spark's plans.

A table that lies in Spark's memory in the order of such a column needs no shuffle for the join. A join by something
else, such as a cast, is as right without.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from moldau.pipelines.run.graph import Frames

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def columns(frames: Frames, rows: "Iterable[DataFrame]") -> dict[str, str]:
    """The column of each source that is kept as a table by which a stream is joined with it, if there is one. Spark
    Connect shows no plan: none."""
    known = {
        each.exprId().id(): (name, str(each.name()))
        for name, reading in frames.readings.items()
        if reading.kept is not None and (frame := frames.of(name)) is not None and getattr(frame, "_jdf", None)
        for each in _all(_plan(frame).output())
    }
    found: dict[str, str] = {}
    for frame in rows if known else ():
        for source, column in _joined(_plan(frame), known):
            found.setdefault(source, column)
    return found


def _plan(frame: "DataFrame") -> Any:
    return frame._jdf.queryExecution().analyzed()


def _joined(plan: Any, known: dict[int, tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Sources and their columns in the conditions of joins between a stream and a table."""
    if not plan.isStreaming():
        return
    if plan.nodeName() == "Join" and plan.condition().isDefined():
        table = next((side for side in (plan.right(), plan.left()) if not side.isStreaming()), None)
        names = _aliases(table) if table is not None else {}
        for number in _compared(plan.condition().get()):
            while number in names and number not in known:
                number = names[number]
            if table is not None and number in known:
                yield known[number]
    for inner in _all(plan.children()):
        yield from _joined(inner, known)


def _aliases(plan: Any) -> dict[int, int]:
    """Other names of columns in a table's plan: the id of each, with that of the column."""
    found: dict[int, int] = {}
    if plan.nodeName() == "Project":
        for each in _all(plan.projectList()):
            if _class(each) == "Alias" and _class(each.child()) == "AttributeReference":
                found[each.exprId().id()] = each.child().exprId().id()
    for inner in _all(plan.children()):
        found.update(_aliases(inner))
    return found


def _compared(condition: Any) -> Iterator[int]:
    """Ids of the columns that a condition says are equal to something."""
    kind = _class(condition)
    if kind == "And":
        yield from _compared(condition.left())
        yield from _compared(condition.right())
    elif kind in ("EqualTo", "EqualNullSafe"):
        for side in (condition.left(), condition.right()):
            if _class(side) == "AttributeReference":
                yield side.exprId().id()


def _class(expression: Any) -> str:
    return str(expression.getClass().getSimpleName())


def _all(found: Any) -> list[Any]:
    """The elements of a sequence of Scala's."""
    return [found.apply(number) for number in range(found.size())]
