"""State that a sink has kept by one key, and that its view now asks by another.

Spark compares the types of a state, not their meaning: counts by customer go on as counts by town, if both are numbers,
and the rows of both are mixed. So a run that goes on says so where the words of the view's operators are others. What
they mean only their author knows: a column may just have a new name.
"""

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from moldau.pipelines.run.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FILE = "state.json"


def told(storage: Storage, rows: "Mapping[str, DataFrame]") -> Iterator[str]:
    """Lines about the sinks whose state has another meaning than in the run before; what it is now is noted."""
    file = storage.path / FILE
    known: dict[str, list[str]] = json.loads(file.read_text("utf-8")) if file.exists() else {}
    going_on = storage.checkpoints()
    now = {name: list(_kept(frame)) for name, frame in rows.items()}
    storage.path.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({**known, **now}, indent=1), encoding="utf-8")
    for name, operators in now.items():
        before = known.get(name, operators)
        if name in going_on and before != operators:
            yield (
                f"{name}: its state was kept for {'; '.join(before) or 'nothing'}, and goes on for "
                f"{'; '.join(operators) or 'nothing'}: if these do not mean the same, begin anew with "
                "`moldau pipeline reset`"
            )


def _kept(rows: "DataFrame") -> Iterator[str]:
    """The operators that keep state, in words. Spark Connect shows no plan: none."""
    frame = getattr(rows, "_jdf", None)
    if frame is not None:
        yield from _of_plan(frame.queryExecution().analyzed())


def _of_plan(plan: Any) -> Iterator[str]:
    if not plan.isStreaming():
        return
    kind, inner = str(plan.nodeName()), _all(plan.children())
    if kind == "WithCTE":
        inner = [plan.plan(), *(each.child() for each in _all(plan.cteDefs()))]
    if kind == "Aggregate":
        by = ", ".join(_words(plan.groupingExpressions()))
        yield f"{', '.join(_words(plan.aggregateExpressions()))}{f' by {by}' if by else ''}"
    elif kind in ("Deduplicate", "DeduplicateWithinWatermark"):
        yield f"one row of each {', '.join(_words(plan.keys()))}"
    elif kind == "Join" and all(each.isStreaming() for each in inner):
        yield f"a join by {', '.join(_words(plan.condition().toList()))}"
    for each in inner:
        yield from _of_plan(each)


def _words(expressions: Any) -> list[str]:
    return [str(each.sql()) for each in _all(expressions)]


def _all(found: Any) -> list[Any]:
    """The elements of a sequence of Scala's."""
    return [found.apply(number) for number in range(found.size())]
