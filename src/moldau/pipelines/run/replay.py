"""Replay: the rows of a sink computed again from some time on, into another place, while production goes on untouched.

A replay is a pipeline of its own made of the same file: the sink's flow, topics read from the time, one sink to write,
a storage under the pipeline's and a consumer group of its own. It reads the fixed schemas of production and nothing
else, and it writes no dead letters: the records in question have theirs.

A stream gives out a window, and a row that found no partner, when its watermark has passed: for the last ones of a day
that is read again nothing ever comes that would move it. Where a sink takes only such rows, they are computed as a
whole, laid down in the replay's storage, and streamed from there into the sink as any others.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from moldau.pipelines.file.draft import Draft, Entry, build
from moldau.pipelines.file.options import Given
from moldau.pipelines.file.problems import PipelineError, Place, Problem, suggestion
from moldau.pipelines.file.spec import PipelineSpec, SinkSpec, SourceSpec
from moldau.pipelines.kinds import Context, sink_kind, sink_names
from moldau.pipelines.run import graph
from moldau.pipelines.run.graph import needed, sources_of
from moldau.pipelines.run.places import place_written
from moldau.pipelines.run.storage import Storage
from moldau.pipelines.sinks import order

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PLACE = Place("command line", 1)
INHERITED = ("key", "mode", "columns", "delete_when", "newest_by", "headers", "transforms")
"""Options of the production sink that hold for the other place too, where its kind has them."""


@dataclass(frozen=True, slots=True)
class Window:
    """Window of the records' times: from the first on, up to the second and without it."""

    begin: datetime
    end: datetime | None = None

    def shape(self, source: SourceSpec, rows: "DataFrame") -> "DataFrame":
        """The rows of the window. A topic's offset for a time is that of the first such record; older ones may come
        after it."""
        from pyspark.sql import functions as F

        if source.kind != "topic" or source.options.get("as") == "table":
            return rows
        rows = rows.where(F.col("_timestamp") >= F.lit(self.begin))
        return rows.where(F.col("_timestamp") < F.lit(self.end)) if self.end else rows


AT_ONCE = frozenset({"Deduplicate", "DeduplicateWithinWatermark"})
"""Operations with state that keep no row back. Of the second one Spark can compute nothing as a whole."""
STREAMED_ONLY = frozenset({"FlatMapGroupsInPandasWithState"})
"""Operations of which Spark can compute nothing as a whole, and that may keep rows for later."""
LAID_DOWN = "rows"
"""Directory of rows that were computed as a whole."""


def _at_once(rows: "DataFrame", apart: frozenset[str]) -> bool:
    """Whether a stream keeps none of the rows back, but for what operations `apart` keep. Spark Connect shows no plan:
    False."""
    shown = getattr(rows, "_jdf", None) is not None
    return shown and order.lost_by(rows, (), apart) in (None, order.FILES)


def settled(
    spec: PipelineSpec,
    sink: SinkSpec,
    rows: "DataFrame",
    context: Context,
    shape: "graph.Shape",
    say: Callable[[str], None],
) -> "DataFrame":
    """The rows of a replay for its sink: as a stream gives them out, or computed as a whole where it would keep some
    back. A replay that was killed between the two finds them there."""
    from pyspark.sql import functions as F

    if graph.output_mode(sink, rows) != "append" or _at_once(rows, AT_ONCE):
        return rows
    if _at_once(rows, AT_ONCE | STREAMED_ONLY):
        say(f"{sink.name}: rows that a function of yours keeps for a timeout are not in the replay")
        return rows
    directory = context.storage / LAID_DOWN
    whole = graph.rows_of(sink, graph.build(spec, replace(context, whole=True), shape))
    if not (directory / "_SUCCESS").exists():
        by = order.versions(sink, rows)
        made = whole.coalesce(1).sortWithinPartitions(*map(F.col, by)) if by else whole
        made.write.mode("overwrite").parquet(str(directory))
    return context.spark.readStream.schema(whole.schema).option("maxFilesPerTrigger", 1).parquet(str(directory))


def moment(text: str) -> datetime:
    """The moment of a text: ISO 8601, UTC unless it says otherwise; or milliseconds since 1970. Raises ValueError."""
    if text.isdigit():
        return datetime.fromtimestamp(int(text) / 1000, UTC)
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def target(text: str) -> dict[str, Any]:
    """The options in a text like `sqlite=out.db,table=visits,key=[a,b]`; a comma between brackets is part of the
    value."""
    import yaml

    options: dict[str, Any] = {}
    for part in _parts(text):
        name, equals, value = part.partition("=")
        if not equals or not name.strip():
            raise ValueError(f"{part!r} is not of the form OPTION=VALUE")
        is_yaml = value[:1] in "[{" or value.isdigit() or value in ("true", "false")
        options[name.strip()] = yaml.safe_load(value) if is_yaml else value
    return options


def _parts(text: str) -> Iterator[str]:
    depth, begin = 0, 0
    for position, sign in enumerate(text):
        depth += (sign in "[{") - (sign in "]}")
        if sign == "," and depth == 0:
            yield text[begin:position]
            begin = position + 1
    yield text[begin:]


def plan(
    draft: Draft, production: PipelineSpec, sink_name: str | None, to: Mapping[str, Any], window: Window, name: str
) -> PipelineSpec:
    """The replay called `name` of a sink of `production`, the spec of the same draft. Raises PipelineError."""
    sink = _chosen(production, sink_name)
    _refuse_other_streams(production, sink)
    entry = Entry(f"replay.{name}", _options(draft, sink, to), PLACE)
    # The watermark of a replay is its own, and so are all offsets
    sources = [_from_time(source, window) for source in draft.sources]
    spec, problems = build(replace(draft, sources=sources, sinks=[entry]), production.bootstrap)
    if problems:
        raise PipelineError(problems)
    [made] = spec.sinks.values()
    _refuse_production(production, made)
    return needed(replace(spec, storage=Storage(production.storage).replays / name))


def new_name(production: PipelineSpec, now: datetime) -> str:
    """A name for a new replay: the time, and a number if there are several of one second."""
    replays, name = Storage(production.storage).replays, now.strftime("%Y%m%d-%H%M%S")
    taken = (f"{name}-{number}" for number in range(2, 1000))
    return name if not (replays / name).exists() else next(each for each in taken if not (replays / each).exists())


def _chosen(production: PipelineSpec, name: str | None) -> SinkSpec:
    if name is None and len(production.sinks) == 1:
        return next(iter(production.sinks.values()))
    if name is None:
        raise PipelineError([Problem(PLACE, "which sink? name it with --sink", suggestion("", production.sinks))])
    if name not in production.sinks:
        raise PipelineError([Problem(PLACE, f"there is no sink {name!r}", suggestion(name, production.sinks))])
    return production.sinks[name]


def _refuse_other_streams(production: PipelineSpec, sink: SinkSpec) -> None:
    problems = [
        Problem(source.place, f"source {source.name!r} ({source.kind}) cannot be read from a time: only topics can")
        for source in sources_of(production, sink)
        if source.kind != "topic" and source.options.get("as") != "table"
    ]
    if problems:
        raise PipelineError(problems)


def _options(draft: Draft, sink: SinkSpec, to: Mapping[str, Any]) -> dict[str, Given]:
    """The options asked for, and beside them the production sink's that still make sense."""
    written = next(entry.given for entry in draft.sinks if entry.name == sink.name)
    kind = next((name for name in to if name in sink_names()), None)
    known = {"mode", "transforms", *(option.name for option in sink_kind(kind).options)} if kind else set()
    kept = {
        name: given
        for name, given in written.items()
        # a route would lead the rows to production's topics
        if name in known and name not in (kind, "route") and (name in INHERITED or kind == sink.kind)
    }
    given = {name: Given(value, PLACE) for name, value in to.items()}
    return {"from": Given(list(sink.flows), PLACE), **kept, **given}


def _from_time(source: Entry, window: Window) -> Entry:
    given = dict(source.given)
    table = given.get("as")
    if ("topic" in given or "pattern" in given) and (table is None or table.value != "table"):
        begin_ms = int(window.begin.timestamp() * 1000)
        given["starting"] = Given({"timestamp": begin_ms}, given["starting"].place if "starting" in given else PLACE)
    return replace(source, given=given)


def _refuse_production(production: PipelineSpec, made: SinkSpec) -> None:
    """Refuse a place that production writes to or reads from."""
    for sink in production.sinks.values():
        if sink.kind == made.kind and place_written(sink) == place_written(made):
            raise PipelineError([Problem(PLACE, f"--to is where sink {sink.name!r} of production writes")])
    if made.kind == "topic":
        for source in production.sources.values():
            pattern = source.options.get("pattern")
            matches = pattern is not None and re.fullmatch(pattern, made.options["topic"])
            if matches or made.options["topic"] in (source.options.get("topic") or ()):
                raise PipelineError([Problem(PLACE, f"--to is a topic that source {source.name!r} reads")])
