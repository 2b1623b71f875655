"""The place that a sink writes to, as a value that can be compared, and places that do not go together."""

from collections.abc import Iterator
from typing import Any

from moldau.pipelines.file.problems import Problem
from moldau.pipelines.file.spec import PipelineSpec, SinkSpec
from moldau.pipelines.kinds import sink_kind
from moldau.pipelines.run.graph import sources_of
from moldau.pipelines.run.groups import readers
from moldau.pipelines.sinks.batches import beside
from moldau.pipelines.topics import cluster_of

IN_FILES = ("sqlite", "parquet", "delta", "iceberg")
"""Kinds whose first option is a path."""
TARGET = ("table", "collection", "bootstrap")
"""Options that, besides the first one, tell one place from another."""


def place_written(sink: SinkSpec) -> tuple[Any, ...]:
    first = sink.options.get(sink_kind(sink.kind).options[0].name)
    if isinstance(first, str) and sink.kind in IN_FILES:
        first = beside(sink, first)
    return (first, *(sink.options.get(name) for name in TARGET))


def problems(spec: PipelineSpec) -> Iterator[Problem]:
    """Problems of a pipeline that would read what it writes, without end, and of two sinks in a place that takes one.
    Asks nobody."""
    yield from _loops(spec)
    yield from _shared(spec)


def _loops(spec: PipelineSpec) -> Iterator[Problem]:
    for sink in spec.sinks.values():
        if sink.kind == "topic":
            topic, cluster = sink.options["topic"], cluster_of(spec, sink.options)
            for source in sources_of(spec, sink):
                if any(reader.cluster == cluster and reader.reads(topic) for reader in readers(spec, [source])):
                    words = f"sink {sink.name!r} writes to {topic!r}, which its source {source.name!r} reads"
                    place = sink.places.get("topic", sink.place)
                    yield Problem(place, f"{words}: it would go round without end", "another topic")
    if spec.dead_letters is not None:
        cluster = cluster_of(spec)
        for source in spec.sources.values():
            if any(each.cluster == cluster and each.reads(spec.dead_letters) for each in readers(spec, [source])):
                words = f"source {source.name!r} reads {spec.dead_letters!r}, the pipeline's own dead letters"
                place = source.places.get("topic", source.places.get("pattern", source.place))
                yield Problem(place, f"{words}: what cannot be read would go round without end", "another topic")


def _shared(spec: PipelineSpec) -> Iterator[Problem]:
    """Spark notes the batches of a directory by number only: of two queries one would be taken for done."""
    first: dict[tuple[Any, ...], SinkSpec] = {}
    for sink in spec.sinks.values():
        if sink.kind == "parquet":
            other = first.setdefault(place_written(sink), sink)
            if other is not sink:
                words = (
                    f"sink {sink.name!r} writes to the directory of {other.name!r}: rows of one of them would be lost"
                )
                place = sink.places.get("parquet", sink.place)
                yield Problem(place, words, f"one sink with `from: [{other.flows[0]}, {sink.flows[0]}]`")
