"""A pipeline as it was written, from either front end, and how the spec is made of it.

The law: nothing is refused halfway. Every problem is noted with its place, and entries that are sound go into the spec,
so that one look at a file finds everything that must be repaired.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moldau.pipelines import kinds
from moldau.pipelines.file.options import Choice, Given, Option, mapping, parse_options, text, watermark
from moldau.pipelines.file.problems import Place, Problem, near, suggestion
from moldau.pipelines.file.spec import PipelineSpec, SinkSpec, SourceSpec, ViewSpec
from moldau.pipelines.sql_names import tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SQL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
FILE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
INTERVAL = re.compile(r"\d+ (millisecond|second|minute|hour|day)s?")


NAME_MAX = 120
"""Letters of a name: topics of up to 249 and file names of up to 255 are made with it."""


def file_name(value: Any) -> str:
    """A name that can be part of a file's name: names of pipelines and sinks become directories and consumer groups."""
    if not isinstance(value, str) or not FILE_NAME.fullmatch(value):
        raise ValueError("a name of letters, digits, '.', '_' and '-'")
    if len(value) > NAME_MAX:
        raise ValueError(f"a name of {NAME_MAX} letters at most")
    return value


def interval(value: Any) -> str:
    if not isinstance(value, str) or not INTERVAL.fullmatch(value.strip()):
        raise ValueError("a time such as `1 second` or `500 milliseconds`")
    return value.strip()


def directory(value: Any) -> str:
    """A directory of this machine: Spark's own notes could be elsewhere, but ours are files."""
    if "://" in text(value):
        raise ValueError("a directory, on this machine or mounted, and no address")
    return text(value)


def spark_settings(value: Any) -> dict[str, str]:
    """Settings of Spark, which passes over those of other names without a word."""
    given = mapping(value)
    for name in given:
        if not name.startswith("spark."):
            raise ValueError(f"settings whose names begin with `spark.`, and {name!r} does not")
    return given


PIPELINE_OPTIONS = (
    Option("name", file_name, "the pipeline's name; consumer groups begin with it", required=True),
    Option("bootstrap", text, "the cluster; `--bootstrap-server` overrides it", default="localhost:9092"),
    Option("client", mapping, "properties of Kafka clients for all topics, in Java's names", default={}),
    Option(
        "dead_letters",
        text,
        "topic for records that cannot be read, default `NAME.dead-letters`; `none`: such a record ends the run",
    ),
    Option("storage", directory, "directory of checkpoints and fixed schemas; default `.moldau/NAME` beside the file"),
    Option("spark", spark_settings, "settings of Spark, such as `spark.sql.shuffle.partitions: 4`", default={}),
    Option("trigger", interval, "the least time between two batches of a continuous run", default="1 second"),
)
VIEW_OPTIONS = (
    Option("watermark", watermark, "a time that the view computes, and how late a row may come, such as `at 1 day`"),
)


@dataclass(frozen=True, slots=True)
class Entry:
    """A source or a sink."""

    name: str
    given: Mapping[str, Given]
    place: Place


@dataclass(frozen=True, slots=True)
class ViewEntry:
    """A view as it was written; `parameters` are the inputs of a function."""

    name: str
    place: Place
    sql: str | None = None
    sql_place: Place | None = None
    function: "Callable[..., DataFrame] | None" = None
    parameters: tuple[str, ...] = ()
    watermark: Given | None = None


@dataclass(slots=True)
class Draft:
    """A pipeline as it was written; `problems` are those that the front end found."""

    place: Place
    given: dict[str, Given] = field(default_factory=dict)
    sources: list[Entry] = field(default_factory=list)
    views: list[ViewEntry] = field(default_factory=list)
    sinks: list[Entry] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def names(self) -> set[str]:
        """The names that a view or a sink may read."""
        return {source.name for source in self.sources} | {view.name for view in self.views}


def build(draft: Draft, bootstrap: str | None = None) -> tuple[PipelineSpec, list[Problem]]:
    """The spec of all sound entries, and the problems of the others."""
    values, problems = parse_options("the pipeline", PIPELINE_OPTIONS, draft.given, draft.place)
    problems = [*draft.problems, *problems, *_clashes(draft), *_bad_names(draft)]
    if not draft.sinks and not draft.problems:
        problems.append(Problem(draft.place, "the pipeline writes nothing: it has no sinks"))
    sources = [_source(entry, problems) for entry in draft.sources]
    sinks = [_sink(entry, problems) for entry in draft.sinks]
    name = values["name"] or "pipeline"
    spec = PipelineSpec(
        name=name,
        place=draft.place,
        storage=_storage(draft.place.file, values["storage"] or f".moldau/{name}"),
        bootstrap=bootstrap or values["bootstrap"],
        client=values["client"],
        dead_letters=None if values["dead_letters"] == "none" else values["dead_letters"] or f"{name}.dead-letters",
        spark=values["spark"],
        trigger=values["trigger"],
        sources={source.name: source for source in sources if source},
        views={view.name: _view(view, draft.names(), problems) for view in draft.views},
        sinks={sink.name: sink for sink in sinks if sink},
    )
    return spec, problems


def _storage(file: str, written: str) -> Path:
    """The storage directory: a relative one is beside the pipeline's file, wherever the command is run."""
    return Path(file).resolve().parent / written


def _clashes(draft: Draft) -> Iterable[Problem]:
    """Problems of two entries with one name: Spark does not distinguish `Visits` and `visits`."""
    sources = [("source", source.name, source.place) for source in draft.sources]
    views = [("view", view.name, view.place) for view in draft.views]
    sinks = [("sink", sink.name, sink.place) for sink in draft.sinks]
    for group in ([*sources, *views], sinks):
        seen: dict[str, Place] = {}
        for word, name, place in sorted(group, key=lambda item: item[2].line):
            first = seen.setdefault(name.lower(), place)
            if first is not place:
                where = f"in line {first.line}" if first.file == place.file else f"at {first}"
                yield Problem(place, f"{word} {name!r}: the name is taken, {where}")


def _bad_names(draft: Draft) -> Iterable[Problem]:
    sources = [("source", source.name, source.place) for source in draft.sources]
    views = [("view", view.name, view.place) for view in draft.views]
    for word, name, place in [*sources, *views]:
        if not SQL_NAME.fullmatch(name):
            better = re.sub(r"\W", "_", name, flags=re.ASCII)
            hint = f"such as {better!r}" if SQL_NAME.fullmatch(better) else ""
            yield Problem(place, f"{word} {name!r}: a name that SQL can use has letters, digits and '_' only", hint)
    for sink in draft.sinks:
        if not FILE_NAME.fullmatch(sink.name):
            yield Problem(sink.place, f"sink {sink.name!r}: its name may have letters, digits, '.', '_' and '-' only")


def _view(view: ViewEntry, known: set[str], problems: list[Problem]) -> ViewSpec:
    inputs = view.parameters
    if view.sql is not None:
        spelled = {name.lower(): name for name in known}
        read = (spelled.get(table.name.lower()) for table in tables(view.sql))
        inputs = tuple(dict.fromkeys(name for name in read if name))
    given = {"watermark": view.watermark} if view.watermark else {}
    options, wrong = parse_options(f"view {view.name!r}", VIEW_OPTIONS, given, view.place)
    problems.extend(wrong)
    return ViewSpec(view.name, view.place, view.sql, view.function, inputs, view.sql_place, options["watermark"])


def _source(entry: Entry, problems: list[Problem]) -> SourceSpec | None:
    owner = f"source {entry.name!r}"
    names = {**{name: name for name in kinds.source_names()}, **kinds.OTHER_NAMES}
    parsed = _parsed(owner, entry, names, kinds.source_kind, kinds.COMMON_SOURCE_OPTIONS, problems)
    if parsed is None:
        return None
    kind, options = parsed
    return SourceSpec(entry.name, kind, options, entry.place, _places(entry))


def _sink(entry: Entry, problems: list[Problem]) -> SinkSpec | None:
    owner = f"sink {entry.name!r}"
    names = {name: name for name in kinds.sink_names()}
    parsed = _parsed(owner, entry, names, kinds.sink_kind, kinds.COMMON_SINK_OPTIONS, problems)
    if parsed is None:
        return None
    kind, options = parsed
    flows = options.pop("from")
    options["mode"] = options["mode"] or ("update" if options.get("key") else "append")
    lack = "" if kind in kinds.RETELLING else _lack(kind, options)
    if lack:
        problems.append(Problem(entry.given["mode"].place, f"{owner}: mode {options['mode']!r} does not go: {lack}"))
        return None
    return SinkSpec(entry.name, kind, options, flows, entry.place, _places(entry))


def _lack(kind: str, options: Mapping[str, Any]) -> str:
    """The reason why the mode does not go with the sink; empty if it does. A sink that knows keys can also replace all
    its rows."""
    if options["mode"] != "append" and "key" not in options:
        return f"{kind} can only append"
    if options["mode"] == "update" and not options["key"]:
        return f"{kind} needs a 'key' for it"
    return ""


def _places(entry: Entry) -> dict[str, Place]:
    return {name: given.place for name, given in entry.given.items()}


def _parsed(
    owner: str,
    entry: Entry,
    kind_names: Mapping[str, str],
    find: Callable[[str], Any],
    common: tuple[Option, ...],
    problems: list[Problem],
) -> tuple[str, dict[str, Any]] | None:
    """The kind and the options, or None after its problems were noted."""
    kind = _kind_of(owner, entry, kind_names, find, problems)
    if kind is None:
        return None
    declared = (*find(kind).options, *common)
    format_problem = _unknown_format(owner, entry, declared)
    if format_problem:
        # the other options cannot be judged before the format is known
        problems.append(format_problem)
        return None
    values, wrong = parse_options(owner, (*declared, *_format_options(entry, declared)), entry.given, entry.place)
    problems.extend(wrong)
    return None if wrong else (kind, values)


def _kind_of(
    owner: str, entry: Entry, kind_names: Mapping[str, str], find: Callable[[str], Any], problems: list[Problem]
) -> str | None:
    named = list(dict.fromkeys(kind_names[name] for name in entry.given if name in kind_names))
    usable = [kind for kind in named if _importable(owner, entry, kind, find, problems)]
    if len(usable) < len(named):
        return None
    # one kind may have an option with another kind's name
    whole = [kind for kind in usable if {option.name for option in find(kind).options} >= set(named)]
    if len(named) == 1 or len(whole) == 1:
        return (whole or named)[0]
    if named:
        problems.append(Problem(entry.place, f"{owner} is of several kinds: {', '.join(named)}", "it can have one"))
        return None
    hints = (near(name, kind_names) for name in entry.given)
    hint = next((hint for hint in hints if hint), f"one of: {', '.join(sorted(kind_names))}")
    problems.append(Problem(entry.place, f"{owner} does not say what kind it is", hint))
    return None


def _importable(owner: str, entry: Entry, kind: str, find: Callable[[str], Any], problems: list[Problem]) -> bool:
    try:
        find(kind)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("moldau"):
            raise
        problems.append(
            Problem(entry.place, f"{owner}: {kind} needs the package {error.name!r}", "pip install 'moldau[pipelines]'")
        )
        return False
    except kinds.BadKind as error:
        problems.append(Problem(entry.place, f"{owner}: {error}"))
        return False
    return True


def _format_name(entry: Entry, declared: tuple[Option, ...]) -> Any:
    option = next((option for option in declared if option.name == "format"), None)
    if option is None:
        return None
    return entry.given["format"].value if "format" in entry.given else option.default


def _unknown_format(owner: str, entry: Entry, declared: tuple[Option, ...]) -> Problem | None:
    name = _format_name(entry, declared)
    if name is None or name in kinds.FORMATS:
        return None
    option = next(option for option in declared if option.name == "format")
    known = option.parse.allowed if isinstance(option.parse, Choice) else tuple(kinds.FORMATS)
    if name in known:
        return None
    return Problem(entry.given["format"].place, f"{owner}: there is no format {name!r}", suggestion(str(name), known))


def _format_options(entry: Entry, declared: tuple[Option, ...]) -> tuple[Option, ...]:
    """The options of the entry's format, except those that the kind declares itself."""
    name = _format_name(entry, declared)
    if name not in kinds.FORMATS:
        return ()
    taken = {option.name for option in declared}
    return tuple(option for option in kinds.format_kind(name).options if option.name not in taken)
