"""Data frames of a spec: sources opened, views made of them in the order they need each other, rows for each sink.

Nothing starts here: `check` builds the same frames only for Spark's analysis. A source or a view that fails is reported
with its error, and its readers are left out: their failure would say nothing new.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

from moldau.pipelines.file.problems import PipelineError, Place, Problem
from moldau.pipelines.file.spec import PipelineSpec, SinkSpec, SourceSpec, ViewSpec
from moldau.pipelines.formats import times
from moldau.pipelines.formats.decoding import DELETED
from moldau.pipelines.kinds import Context, Reading, source_kind
from moldau.pipelines.run import aside, tombstones, transforming
from moldau.pipelines.run.failures import explain
from moldau.pipelines.sinks import order
from moldau.pipelines.sinks.batches import deletes_when
from moldau.pipelines.sinks.topic import is_compacted, keeps_newest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    Shape = Callable[[SourceSpec, "DataFrame"], "DataFrame"]


@dataclass(slots=True)
class Frames:
    """The frames of a pipeline. `found`: every source and view without a broken input, as a data frame or the error met
    instead of it."""

    found: "dict[str, DataFrame | Exception]" = field(default_factory=dict)
    readings: dict[str, Reading] = field(default_factory=dict)

    def of(self, name: str) -> "DataFrame | None":
        frame = self.found.get(name)
        return None if isinstance(frame, Exception) else frame

    def errors(self) -> list[Exception]:
        return [frame for frame in self.found.values() if isinstance(frame, Exception)]


def build(spec: PipelineSpec, context: Context, shape: "Shape | None" = None) -> Frames:
    """The frames of a spec without a cycle (`check`). `shape` may narrow the rows of a source before anything else sees
    them."""
    frames = Frames()
    for source in spec.sources.values():
        try:
            frames.readings[source.name] = reading = source_kind(source.kind).read(source, context)
            rows = aside.left_out(source, reading.rows, context.storage)
            rows = transforming.applied(source, shape(source, rows) if shape else rows)
            frames.found[source.name] = _named(source.name, _with_watermark(source.options.get("watermark"), rows))
        except Exception as error:  # whatever a driver or Spark raises is about this source
            frames.found[source.name] = error
    for view in views_in_order(spec):
        inputs = [frames.of(name) for name in view.inputs]
        if any(frame is None for frame in inputs):
            continue
        try:
            rows = _view(view, [frame for frame in inputs if frame is not None], context)
            frames.found[view.name] = _named(view.name, _with_watermark(view.watermark, rows))
        except Exception as error:  # the view's own function may raise anything
            frames.found[view.name] = error
    return frames


def views_in_order(spec: PipelineSpec) -> list[ViewSpec]:
    """The views, each after the views that it reads."""
    needs = {view.name: [name for name in view.inputs if name in spec.views] for view in spec.views.values()}
    return [spec.views[name] for name in TopologicalSorter(needs).static_order()]


def _with_watermark(watermark: tuple[str, str] | None, rows: "DataFrame") -> "DataFrame":
    return rows.withWatermark(*watermark) if watermark else rows


def _named(name: str, frame: "DataFrame") -> "DataFrame":
    """The frame, known to SQL by its name."""
    frame.createOrReplaceTempView(f"`{name}`")
    return frame


def _view(view: ViewSpec, inputs: "list[DataFrame]", context: Context) -> "DataFrame":
    if view.sql is not None:
        return context.spark.sql(view.sql)
    if view.function is None:
        raise ValueError("it has neither SQL nor a function")
    frame = view.function(*inputs)
    if not hasattr(frame, "createOrReplaceTempView"):
        raise TypeError(f"the function must return a data frame, not {type(frame).__name__}")
    return frame


# --- what a sink takes


def upstream(spec: PipelineSpec, sink: SinkSpec) -> set[str]:
    """The names of all sources and views whose rows come to the sink."""
    found: set[str] = set()
    waiting = list(sink.flows)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(spec.views[name].inputs if name in spec.views else ())
    return found


def sources_of(spec: PipelineSpec, sink: SinkSpec) -> list[SourceSpec]:
    names = upstream(spec, sink)
    return [source for source in spec.sources.values() if source.name in names]


def needed(spec: PipelineSpec, sinks: Iterable[SinkSpec] | None = None) -> PipelineSpec:
    """The spec without parts that no sink reads: a run opens no source for nothing."""
    kept = spec.sinks if sinks is None else {sink.name: sink for sink in sinks}
    names = {name for sink in kept.values() for name in upstream(spec, sink)}
    return replace(
        spec,
        sources={name: source for name, source in spec.sources.items() if name in names},
        views={name: view for name, view in spec.views.items() if name in names},
        sinks=kept,
    )


def rows_of(sink: SinkSpec, frames: Frames) -> "DataFrame":
    """The union, by the columns' names, of the sink's flows, after its transforms."""
    flows = [frame for frame in map(frames.of, sink.flows) if frame is not None]
    rows = flows[0]
    for other in flows[1:]:
        rows = rows.unionByName(other)
    return transforming.applied(sink, rows)


def check_sinks(spec: PipelineSpec, frames: Frames) -> "tuple[dict[str, DataFrame], list[Problem]]":
    """The rows of each sink, and why some have none. A sink with a flow that failed is passed over: that flow is
    reported."""
    found: dict[str, DataFrame] = {}
    problems: list[Problem] = []
    for sink in spec.sinks.values():
        if any(frames.of(flow) is None for flow in sink.flows):
            continue
        problem = _unlike_flows(sink, frames)
        if problem is None:
            try:
                found[sink.name] = rows_of(sink, frames)
            except PipelineError as error:
                problems.extend(error.problems)
                continue
            except Exception as error:  # Spark's analysis of the union
                problem = Problem(_from(sink), f"sink {sink.name!r}: its flows do not go together: {explain(error)}")
            else:
                problem = _refusal(spec, sink, found[sink.name], frames)
        problems.extend([problem] if problem else ())
    return found, problems


def _refusal(spec: PipelineSpec, sink: SinkSpec, rows: "DataFrame", frames: Frames) -> Problem | None:
    """The first problem of a sink's rows."""
    return (
        _unwritable(sink, rows)
        or tombstones.problem(spec, sink, rows, upstream(spec, sink), frames)
        or _in_no_order(spec, sink, rows)
    )


def _from(sink: SinkSpec) -> Place:
    return sink.places.get("from", sink.place)


def _unlike_flows(sink: SinkSpec, frames: Frames) -> Problem | None:
    columns = {flow: set(frame.columns) for flow in sink.flows if (frame := frames.of(flow)) is not None}
    first = sink.flows[0]
    for other, there in columns.items():
        differing = columns[first] ^ there
        if differing:
            listed = ", ".join(repr(name) for name in sorted(differing))
            words = f"{first!r} and {other!r} must have the same columns, but differ in {listed}"
            return Problem(_from(sink), f"sink {sink.name!r}: {words}")
    return None


def _unwritable(sink: SinkSpec, rows: "DataFrame") -> Problem | None:
    if not rows.isStreaming:
        return Problem(_from(sink), f"sink {sink.name!r} gets no stream: all that it takes is read as a table")
    return mode_refusal(sink, rows)


def _in_no_order(spec: PipelineSpec, sink: SinkSpec, rows: "DataFrame") -> Problem | None:
    """The problem if rows of a key come in any order. A topic that is not compacted keeps all of them."""
    problem = order.refusal(sink, rows)
    return problem if problem and (sink.kind != "topic" or keeps_newest(sink, spec)) else None


def hidden_order(spec: PipelineSpec, sink: SinkSpec, rows: "DataFrame") -> str | None:
    """A line for a sink of which nobody can say whether the newest row of a key comes last."""
    if sink.kind == "topic" and not keeps_newest(sink, spec):
        return None
    operation = order.hidden_by(sink, rows)
    if operation is None:
        return None
    return f"whether the newest row of a key comes last after {operation} Spark Connect does not show: name `newest_by`"


# --- values that no sink can keep


def guarded(spec: PipelineSpec, sink: SinkSpec, rows: "DataFrame") -> "DataFrame":
    """The rows, of which one that the sink could not keep is an error of its record: a time outside the years that
    stores have, or no key. Without this a store's client fails, and nobody knows at which record."""
    from pyspark.sql import functions as F

    columns = {field.name: (F.col("`" + field.name.replace("`", "``") + "`"), field.dataType) for field in rows.schema}
    faults = [
        F.when(wrong, F.lit(f"the column {name!r} is a time outside the years 1 to 9999"))
        for name, (column, kind) in columns.items()
        if (wrong := times.outside(column, kind)) is not None
    ]
    faults.extend(
        F.when(columns[name][0].isNull(), F.lit(f"the row has no {name!r}, which is of the sink's key"))
        for name in _never_null(spec, sink)
        if name in columns
    )
    by = order.named(sink)[:1]
    if by and by[0] in columns and deletes_when(sink, rows.columns) == DELETED:
        undated = F.col(DELETED) & columns[by[0]][0].isNull()
        faults.append(F.when(undated, F.lit(f"a tombstone has no {by[0]!r}, by which the newest row is known")))
    if not faults:
        return rows
    # rand() keeps the question here: below a join it would be asked of rows that do not come to the sink
    fault = F.coalesce(*faults, F.when(F.rand() < 0, F.lit("")))
    return rows.where(F.when(fault.isNull(), F.lit(True)).otherwise(F.raise_error(fault).cast("boolean")))


def _never_null(spec: PipelineSpec, sink: SinkSpec) -> tuple[str, ...]:
    """The columns without which the sink cannot keep a row: its key. A topic takes records without one, unless it is
    compacted; a key of several columns is a JSON object, and always there."""
    key = tuple(sink.options.get("key") or ())
    return key if sink.kind != "topic" or (len(key) == 1 and is_compacted(sink, spec)) else ()


# --- output modes


def output_mode(sink: SinkSpec, rows: "DataFrame") -> str:
    """The output mode that was written; where none was, append if Spark cannot update such rows (those of an outer
    join)."""
    mode: str = sink.options["mode"]
    if "mode" in sink.places or mode == "append" or _refused_in(mode, rows) is None:
        return mode
    return mode if _refused_in("append", rows) else "append"


def mode_refusal(sink: SinkSpec, rows: "DataFrame") -> Problem | None:
    """The problem if Spark would refuse the mode; it would say so only when a query starts."""
    mode = output_mode(sink, rows)
    error = _refused_in(mode, rows)
    if error is None:
        return None
    hint = "give the source a `watermark`, or the sink a `key` or another `mode`" if mode == "append" else ""
    return Problem(sink.places.get("mode", sink.place), f"sink {sink.name!r}: {explain(error)}", hint)


def _refused_in(mode: str, rows: "DataFrame") -> Exception | None:
    plan, jvm = getattr(rows, "_jdf", None), getattr(rows.sparkSession, "_jvm", None)
    if plan is None or jvm is None:
        return None  # Spark Connect: its server will say
    rule = getattr(jvm, "org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker")
    modes = getattr(jvm, "org.apache.spark.sql.streaming.OutputMode")
    try:
        rule.checkForStreaming(plan.queryExecution().analyzed(), getattr(modes, mode.capitalize())())
    except Exception as error:  # AnalysisException in one version, another in the next: any is a refusal
        return error
    return None
