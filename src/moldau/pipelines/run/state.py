"""State that a view keeps for ever: operations on streams that no watermark lets Spark forget rows of.

By Spark's own rules. An aggregation and a deduplication forget a key if a column with a watermark is part of it. A join
of streams forgets rows if such a column is joined on, or the condition bounds the time between both sides. What a
function of the user's keeps by itself (`transformWithState`) is its own business.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from moldau.pipelines.file.problems import Problem
from moldau.pipelines.file.spec import PipelineSpec, ViewSpec
from moldau.pipelines.run import graph

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WATERMARK = "spark.watermarkDelayMs"
"""Spark's mark on a column that has a watermark."""
ANY_TIME_MS = 1 << 40
"""A watermark to ask Spark with. It is past 32 bits, as py4j would make an Integer of less."""
OF_AGGREGATION = "if their number grows without end, group by a window of a column with a watermark, too"
OF_JOIN = "give both a watermark and the join a bound: `b.at BETWEEN a.at AND a.at + INTERVAL 1 HOUR`"
OF_KEYS = "have a column with a watermark among them, or use dropDuplicatesWithinWatermark"


def kept_for_ever(spec: PipelineSpec, frames: graph.Frames) -> list[Problem]:
    """A warning for each view with such an operation of its own. Spark Connect shows no plan: none."""
    found: list[Problem] = []
    for view in spec.views.values():
        frame = frames.of(view.name)
        if getattr(frame, "_jdf", None) is None:
            continue
        inputs = {name: _plan(given) for name in view.inputs if (given := frames.of(name)) is not None}
        told = dict.fromkeys(_told(view, _plan(frame), inputs, frame))
        found.extend(Problem(view.place, f"view {view.name!r}: {words}", hint) for words, hint in told)
    return found


def _plan(frame: "DataFrame | None") -> Any:
    return frame._jdf.queryExecution().analyzed()  # type: ignore[union-attr]


def _told(view: ViewSpec, plan: Any, inputs: dict[str, Any], frame: Any) -> Iterator[tuple[str, str]]:
    """Words and a remedy for each operation between the view and its inputs."""
    if not plan.isStreaming() or _is_input(plan, inputs):
        return
    kind = str(plan.nodeName())
    if kind == "Aggregate":
        by = _all(plan.groupingExpressions())
        if by and not any(map(_has_watermark, by)):
            yield f"its aggregation keeps a row for each {_names(by)} for ever", OF_AGGREGATION
    elif kind in ("Deduplicate", "Distinct"):
        keys = _all(plan.keys() if kind == "Deduplicate" else plan.output())
        if not any(map(_has_watermark, keys)):
            yield f"its deduplication keeps each {_names(keys)} for ever", OF_KEYS
    elif kind == "Join" and plan.left().isStreaming() and plan.right().isStreaming():
        sides = _unbounded_sides(plan, frame.sparkSession._jvm)
        if sides:
            yield f"its join of streams keeps the rows of its {sides} for ever", OF_JOIN
    for inner in _all(plan.children()):
        yield from _told(view, inner, inputs, frame)


def _is_input(plan: Any, inputs: dict[str, Any]) -> bool:
    """Whether the plan is that of an input: named in SQL, or as a frame that a function got."""
    if plan.nodeName() == "SubqueryAlias" and plan.child().nodeName() == "View":
        return str(plan.alias()) in inputs
    return any(plan.sameResult(given) for given in inputs.values())


def _unbounded_sides(join: Any, jvm: Any) -> str:
    """The sides of a join whose rows Spark does not forget, as words."""
    helper = getattr(jvm, "org.apache.spark.sql.catalyst.analysis.StreamingJoinHelper")
    for rule in ("ReplaceExpressions", "RewriteWithExpression"):  # BETWEEN becomes two comparisons
        join = getattr(jvm, f"org.apache.spark.sql.catalyst.optimizer.{rule}").apply(join)
    while join.nodeName() == "Project":  # of what a rule computes only once
        join = join.child()
    if helper.isWatermarkInJoinKeys(join):
        return ""
    time = jvm.scala.Option.apply(ANY_TIME_MS)
    found = []
    for name, side, other in (("left side", join.left(), join.right()), ("right side", join.right(), join.left())):
        marked = any(map(_has_watermark, _all(side.output())))
        bound = helper.getStateValueWatermark(side.outputSet(), other.outputSet(), join.condition(), time)
        if not (marked and bound.isDefined()):
            found.append(name)
    return "two sides" if len(found) == 2 else "".join(found)


def _has_watermark(expression: Any) -> bool:
    """Whether Spark sees a watermark on a column; it does not see one through a function, such as `date(at)`."""
    inner = expression.child() if _class(expression) == "Alias" else expression
    return _class(inner) in ("AttributeReference", "GetStructField") and bool(inner.metadata().contains(WATERMARK))


def _names(expressions: list[Any]) -> str:
    """Columns and expressions in words, a few of them."""
    names = [each.name() if _class(each) == "AttributeReference" else each.sql() for each in expressions]
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


def _class(expression: Any) -> str:
    return str(expression.getClass().getSimpleName())


def _all(found: Any) -> list[Any]:
    """The elements of a sequence of Scala's."""
    return [found.apply(number) for number in range(found.size())]
