"""Records of which a view makes an error (a cast, an overflow, a function of the user's): found in the batch that
failed, written to the dead letters, and left out from then on, so that they do not hold up the others.

The law: a record is set aside only if it fails alone, computed by itself from its topic. First it is a dead letter,
then it is noted, then the run goes on: a crash in between makes the dead letter twice, and loses nothing. The note is
for all sinks of the pipeline, and ends with a reset.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from moldau.pipelines.file.spec import PipelineSpec, SinkSpec, SourceSpec
from moldau.pipelines.kinds import Context, Ranges
from moldau.pipelines.run import aside, dead_letters, graph
from moldau.pipelines.run.failures import chain, explain, line_of_user
from moldau.pipelines.run.groups import readers
from moldau.pipelines.run.progress import Offsets, offsets
from moldau.pipelines.sinks.batches import deletes_when
from moldau.pipelines.sources.topic import read_ranges
from moldau.pipelines.topics import cluster_of

AT_ONCE_MAX = 100
"""Records of one batch that are set aside; if more fail, the view is wrong rather than the records."""
PROBES_MAX = 400
"""Computations of parts of a batch in one search; records that it leaves make the batch fail again."""
NAMED_MAX = 5
"""Places of records that a message has."""
DATA_EXCEPTION = re.compile(r"SQLSTATE: (22\w{3}|P0001)")
"""Errors of SQL that a value may have made: data exceptions, and `raise_error`."""


@dataclass(frozen=True, slots=True)
class Span:
    """Offsets of one partition that a source reads, from `begin` up to, not including, `end`."""

    source: str
    topic: str
    partition: int
    begin: int
    end: int

    def __str__(self) -> str:
        last = f" to {self.end - 1}" if self.end - self.begin > 1 else ""
        return f"offset {self.begin}{last} of {self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Found:
    """Records that fail, and why; `alone` if it is one record."""

    spans: tuple[Span, ...]
    reason: str

    @property
    def alone(self) -> bool:
        return len(self.spans) == 1 and self.spans[0].end - self.spans[0].begin == 1

    def __str__(self) -> str:
        return ", ".join(map(str, self.spans))


def of_values(error: BaseException) -> bool:
    """Whether the error may come from what is in a record, and not from a store, a registry or a cluster."""
    return any(DATA_EXCEPTION.search(str(link)) for link in chain(error)) or line_of_user(error) is not None


# --- search


def search(spans: Sequence[Span], why: Callable[[Sequence[Span]], str | None]) -> list[Found]:
    """The records that fail, each found by halving; spans that fail only together are one entry. Stops at AT_ONCE_MAX
    entries or PROBES_MAX questions. `why` computes spans, and says what is wrong with them if something is."""
    found: list[Found] = []
    probes = 1
    reason = why(spans)
    waiting = [(tuple(spans), reason)] if reason else []
    while waiting and len(found) < AT_ONCE_MAX and probes < PROBES_MAX:
        failing, reason = waiting.pop(0)
        halves = [(half, why(half)) for half in _halves(failing)]
        probes += len(halves)
        worse = [(half, words) for half, words in halves if words]
        if worse:
            waiting[:0] = worse
        else:
            found.append(Found(failing, reason or ""))
    return found


def _halves(spans: tuple[Span, ...]) -> list[tuple[Span, ...]]:
    """Two parts of the spans; none if they are one record."""
    if len(spans) > 1:
        return [spans[: len(spans) // 2], spans[len(spans) // 2 :]]
    [span] = spans
    if span.end - span.begin < 2:
        return []
    middle = (span.begin + span.end) // 2
    return [(replace(span, end=middle),), (replace(span, begin=middle),)]


# --- the batch that failed


@dataclass(frozen=True, slots=True)
class Batch:
    """The last planned batch of a sink; `spans` are those of its topics, none if it reads other streams too."""

    number: int
    spans: tuple[Span, ...] = ()

    def __str__(self) -> str:
        return ", ".join(map(str, self.spans))


def last_batch(spec: PipelineSpec, sink: SinkSpec, checkpoint: Path) -> Batch:
    """The batch that Spark's checkpoint has a plan of. A topic that two sources of the sink read counts with all that
    either of them has read."""
    sources = [source for source in graph.sources_of(spec, sink) if source.options.get("as") != "table"]
    planned = sorted(int(file.name) for file in (checkpoint / "offsets").glob("*") if file.name.isdigit())
    if not planned or any(source.kind != "topic" for source in sources):
        return Batch(-1)
    number = planned[-1]
    ends = _joined(_plan(checkpoint, number), max)
    begins = _joined(_plan(checkpoint, number - 1) if number else _first(checkpoint), min)
    spans = []
    for source in sources:
        [reader] = readers(spec, [source])
        for topic in filter(reader.reads, ends):
            for partition, end in sorted(ends[topic].items()):
                begin = begins.get(topic, {}).get(partition, 0)
                if begin < end:
                    spans.append(Span(source.name, topic, partition, begin, end))
    return Batch(number, tuple(spans))


def _plan(checkpoint: Path, number: int) -> list[str]:
    """The sources' lines in the plan of a batch, after a version and facts about the batch."""
    return (checkpoint / "offsets" / str(number)).read_text("utf-8").splitlines()[2:]


def _first(checkpoint: Path) -> list[str]:
    """The offsets at which the sources began, which Spark keeps beside the plans."""
    files = sorted((checkpoint / "sources").glob("*/0"))
    return ["{" + file.read_text("utf-8").partition("{")[2] for file in files]


def _joined(lines: Iterable[str], chosen: Callable[[int, int], int]) -> Offsets:
    found: Offsets = {}
    for line in lines:
        for topic, partitions in offsets(line).items() if line.startswith("{") else ():
            known = found.setdefault(topic, {})
            for partition, offset in partitions.items():
                known[partition] = chosen(offset, known.get(partition, offset))
    return found


def failing(sink: SinkSpec, batch: Batch, context: Context, stopped: Callable[[], bool]) -> list[Found]:
    """The records of a batch of which no rows can be made, each computed by itself. `stopped` ends the search."""
    only = graph.needed(context.pipeline, [sink])

    def why(spans: Sequence[Span]) -> str | None:
        if stopped():
            return None
        frames = graph.build(only, replace(context, ranges=_ranges(spans)))
        try:
            rows = graph.guarded(only, sink, graph.rows_of(sink, frames))
            condition = deletes_when(sink, rows.columns)
            rows = rows.selectExpr("*", f"({condition}) AS __deletes") if condition else rows
            rows.write.format("noop").mode("overwrite").save()
        except Exception as error:  # the user's function may raise anything
            return explain(error) if of_values(error) else None
        return None

    return search(batch.spans, why) if batch.spans else []


def _ranges(spans: Sequence[Span]) -> dict[str, Ranges]:
    made: dict[str, Ranges] = {}
    for span in spans:
        made.setdefault(span.source, {}).setdefault(span.topic, {})[span.partition] = (span.begin, span.end)
    return made


def places(found: Sequence[Found], batch: Batch) -> str:
    """Words for the records that fail, or else for the batch that they are in: the end of an error's message."""
    if not found:
        return f" (in the batch of {batch})" if batch.spans else ""
    return f" ({'; '.join(map(str, found[:NAMED_MAX]))}{' and more' if len(found) > NAMED_MAX else ''})"


# --- set aside


def set_aside(spec: PipelineSpec, found: Sequence[Found], context: Context) -> None:
    """Make dead letters of records, and note that they are such."""
    for source in spec.sources.values():
        own = {each.spans[0]: each.reason for each in found if each.spans[0].source == source.name}
        if own:
            _to_dead_letters(source, own, context)
    aside.note(context.storage, [(s.source, s.topic, s.partition, s.begin) for each in found for s in each.spans])


def _to_dead_letters(source: SourceSpec, reasons: Mapping[Span, str], context: Context) -> None:
    from pyspark.sql import functions as F

    topic = context.pipeline.dead_letters
    cluster = cluster_of(context.pipeline)
    cluster.create(topic or "", -1, -1, {})
    ranges: Ranges = {}
    for span in reasons:
        begin, end = ranges.setdefault(span.topic, {}).get(span.partition, (span.begin, span.end))
        ranges[span.topic][span.partition] = min(begin, span.begin), max(end, span.end)
    place = F.concat_ws("/", "topic", "partition", "offset")
    by_place = F.create_map(
        *(F.lit(part) for span, why in reasons.items() for part in (f"{span.topic}/{span.partition}/{span.begin}", why))
    )
    raw = read_ranges(source, context, ranges).withColumn("reason", F.try_element_at(by_place, place))
    bad = raw.where(F.col("reason").isNotNull())
    made = dead_letters.letters(source, bad, context).write.format("kafka").options(**cluster.spark_options())
    made.option("topic", topic).save()
