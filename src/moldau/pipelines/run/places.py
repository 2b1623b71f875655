"""The place that a sink writes to, as a value that can be compared."""

from typing import Any

from moldau.pipelines.file.spec import SinkSpec
from moldau.pipelines.kinds import sink_kind
from moldau.pipelines.sinks.batches import beside

IN_FILES = ("sqlite", "parquet", "delta", "iceberg")
"""Kinds whose first option is a path."""
TARGET = ("table", "collection", "bootstrap")
"""Options that, besides the first one, tell one place from another."""


def place_written(sink: SinkSpec) -> tuple[Any, ...]:
    first = sink.options.get(sink_kind(sink.kind).options[0].name)
    if isinstance(first, str) and sink.kind in IN_FILES:
        first = beside(sink, first)
    return (first, *(sink.options.get(name) for name in TARGET))
