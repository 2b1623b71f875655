"""Checks of a whole pipeline, made before anything starts; all problems are reported together.

First come checks without Spark (`check`): names, cycles, and those of each kind for its options, topics and tables.
Then come checks of data frames that Spark has analysed but not started (`check_frames`): columns. A problem that only
follows from another one is not reported.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from moldau.pipelines import kinds
from moldau.pipelines.file.problems import PipelineError, Place, Problem, suggestion
from moldau.pipelines.file.python_file import last_line_in
from moldau.pipelines.file.spec import PipelineSpec, SinkSpec, SourceSpec, ViewSpec
from moldau.pipelines.run import places
from moldau.pipelines.run.failures import explain
from moldau.pipelines.run.transforming import applied
from moldau.pipelines.sinks import topic_route
from moldau.pipelines.sql_names import tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NOTHING = "which is no source or view"
COLUMN = "UNRESOLVED_COLUMN"
"""Start of Spark's names for a missing column."""
COLUMN_OPTIONS = ("key", "headers", "columns", "partition_by", "newest_by", "route")
CONDITION_OPTION = "delete_when"
ITS_OWN_PLACE = re.compile(r"( on search path \[[^]]*\]\.)?[; (]+line (?P<line>\d+),? pos \d+\)?")
"""Place in the SQL that Spark adds to a message: its line counts from the start of the SQL, not of the file."""
OWN_TABLES = ("spark.sql.defaultCatalog", "spark.sql.catalogImplementation")
"""Words after which a name in SQL may be a table of Spark's catalogue, which only Spark knows."""


def check(spec: PipelineSpec, broken: Iterable[str] = ()) -> list[Problem]:
    """Problems that can be found without Spark. `broken`: names of entries that are not in the spec, for their own
    problems."""
    return in_order([*check_names(spec, broken), *check_kinds(spec)])


def in_order(problems: Iterable[Problem]) -> list[Problem]:
    """The problems by place, each once."""
    return sorted(dict.fromkeys(problems), key=lambda problem: (problem.place.file, problem.place.line))


def check_names(spec: PipelineSpec, broken: Iterable[str] = ()) -> Iterator[Problem]:
    """Problems of names: one that is read and is not there, and views that read themselves. Asks nobody."""
    known = {*spec.sources, *spec.views, *broken}
    for view in spec.views.values():
        yield from _unknown_inputs(view, known, spec)
    for sink in spec.sinks.values():
        for flow in sink.flows:
            if flow not in known:
                place = sink.places.get("from", sink.place)
                yield Problem(place, f"sink {sink.name!r} takes rows from {flow!r}, {NOTHING}", suggestion(flow, known))
    yield from _cycles(spec)
    yield from places.problems(spec)


def _unknown_inputs(view: ViewSpec, known: set[str], spec: PipelineSpec) -> Iterator[Problem]:
    others = known - {view.name}
    if view.function is not None:
        for name in view.inputs:
            if name not in known:
                yield Problem(view.place, f"view {view.name!r} reads {name!r}, {NOTHING}", suggestion(name, others))
    elif view.sql is not None and not any(setting in spec.spark for setting in OWN_TABLES):
        spelled = {name.lower() for name in known}
        for table in tables(view.sql):
            if not table.own and table.name.lower() not in spelled:
                place = _line_of_sql(view, table.line)
                yield Problem(
                    place, f"view {view.name!r} reads {table.name!r}, {NOTHING}", suggestion(table.name, others)
                )


def _cycles(spec: PipelineSpec) -> Iterator[Problem]:
    """Each circle of views once, reported at the one that was written first."""
    done: set[str] = set()
    for name in sorted(spec.views, key=lambda name: spec.views[name].place.line):
        circle = _circle(spec, name, (), done)
        if circle:
            way = " -> ".join((*circle, circle[0]))
            yield Problem(spec.views[circle[0]].place, f"view {circle[0]!r} reads itself: {way}")


def _circle(spec: PipelineSpec, name: str, way: tuple[str, ...], done: set[str]) -> tuple[str, ...]:
    if name in way:
        return way[way.index(name) :]
    if name in done or name not in spec.views:
        return ()
    found = (_circle(spec, name_of_input, (*way, name), done) for name_of_input in spec.views[name].inputs)
    circle = next((circle for circle in found if circle), ())
    done.add(name)
    return circle


def check_kinds(spec: PipelineSpec) -> Iterator[Problem]:
    """Problems that each kind of source, format and sink finds: it may ask clusters, registries and databases."""
    for source in spec.sources.values():
        yield from kinds.source_kind(source.kind).check(source, spec)
        if source.options.get("format") in kinds.FORMATS:
            yield from kinds.format_kind(source.options["format"]).check(source, spec)
    for sink in spec.sinks.values():
        yield from kinds.sink_kind(sink.kind).check(sink, spec)


def check_frames(spec: PipelineSpec, frames: "Mapping[str, DataFrame | Exception]") -> list[Problem]:
    """Problems that Spark's analysis shows. `frames`: each source and view, or the error that it met in place of a data
    frame; one whose inputs have failed is left out."""
    problems: list[Problem] = []
    for name, found in frames.items():
        if isinstance(found, PipelineError):
            problems.extend(found.problems)
        elif isinstance(found, Exception):
            problems.append(_refusal(spec.views.get(name) or spec.sources[name], found))
    for sink in spec.sinks.values():
        there = {flow: frame for flow in sink.flows if (frame := _frame(frames, flow)) is not None}
        try:
            flows = {flow: applied(sink, frame) for flow, frame in there.items()}
        except PipelineError as error:
            problems.extend(error.problems)
            continue
        problems.extend(_missing_columns(sink, {flow: frame.columns for flow, frame in flows.items()}))
        problems.extend(_bad_conditions(sink, flows.values()))
    return in_order(problems)


def _frame(frames: "Mapping[str, DataFrame | Exception]", name: str) -> "DataFrame | None":
    frame = frames.get(name)
    return None if isinstance(frame, Exception) else frame


def _missing_columns(sink: SinkSpec, columns: Mapping[str, list[str]]) -> Iterator[Problem]:
    for option in COLUMN_OPTIONS:
        place = sink.places.get(option, sink.place)
        for flow, there in columns.items():
            for name in _column_names(option, sink.options.get(option)):
                if name not in there:
                    message = f"sink {sink.name!r}: {flow!r} has no column {name!r} for its {option!r}"
                    yield Problem(place, message, suggestion(name, there))


def _bad_conditions(sink: SinkSpec, flows: "Iterable[DataFrame]") -> Iterator[Problem]:
    condition = sink.options.get(CONDITION_OPTION)
    if not condition:
        return
    for frame in flows:
        try:
            frame.where(condition)
        except Exception as error:  # whatever Spark's analysis raises is about the condition
            message, hint = _words(error)
            place = sink.places.get(CONDITION_OPTION, sink.place)
            yield Problem(place, f"sink {sink.name!r}: {CONDITION_OPTION!r}: {message}", hint)


def _column_names(option: str, value: Any) -> Iterable[str]:
    """Names of columns in an option: it is a list of them or of what has one (`column`), says what each is for, or has
    them in a text."""
    if option == "route":
        return topic_route.columns(value or "")
    if isinstance(value, Mapping):
        return [str(name) for name in value.values()]
    return [str(getattr(each, "column", each)) for each in value] if isinstance(value, list | tuple) else ()


def _refusal(owner: ViewSpec | SourceSpec, error: Exception) -> Problem:
    """Spark's error about a view or a source, or that of the view's own function, in a line."""
    word = f"view {owner.name!r}" if isinstance(owner, ViewSpec) else f"source {owner.name!r}"
    message, hint = _words(error)
    return Problem(_place_of(owner, error), f"{word}: {message}", hint)


def _place_of(owner: ViewSpec | SourceSpec, error: Exception) -> Place:
    if isinstance(owner, SourceSpec):
        return owner.places.get("watermark", owner.place) if _condition(error).startswith(COLUMN) else owner.place
    if owner.sql is None:
        return last_line_in(owner.place.file, error) or owner.place
    return _line_of_sql(owner, _line_in_sql(owner.sql, error))


def _line_of_sql(view: ViewSpec, line: int) -> Place:
    return Place(view.sql_place.file, view.sql_place.line + line) if view.sql_place else view.place


def _condition(error: Exception) -> str:
    """Spark's name for an error; empty for other errors."""
    found = getattr(error, "getCondition", None) or getattr(error, "getErrorClass", None)
    return str(found() or "") if found else ""


def _line_in_sql(sql: str, error: Exception) -> int:
    """The line of an error in the SQL, from 0. Spark counts characters for names that it cannot resolve, and lines for
    text that it cannot parse."""
    contexts = error.getQueryContext() if hasattr(error, "getQueryContext") else []
    if contexts:
        return sql.count("\n", 0, contexts[0].startIndex())
    told = ITS_OWN_PLACE.search(str(error))
    return int(told["line"]) - 1 if told else 0


def _words(error: Exception) -> tuple[str, str]:
    """The message and a hint."""
    details = error.getMessageParameters() or {} if hasattr(error, "getMessageParameters") else {}
    if _condition(error).startswith(COLUMN) and "objectName" in details:
        proposals = re.findall(r"`([^`]+)`(?=,|$)", details.get("proposal", ""))[:3]
        wanted = details["objectName"].replace("`", "")
        return f"there is no column {wanted!r}", _did_you_mean(proposals)
    return ITS_OWN_PLACE.sub("", explain(error)), ""


def _did_you_mean(proposals: list[str]) -> str:
    return f"did you mean {' or '.join(repr(name) for name in proposals)}?" if proposals else ""
