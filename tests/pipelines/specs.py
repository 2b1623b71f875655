"""Specs for tests, made without a file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from moldau.pipelines.file.options import Given, Option, parse_options
from moldau.pipelines.file.problems import PipelineError, Place
from moldau.pipelines.file.spec import PipelineSpec, SinkSpec, SourceSpec
from moldau.pipelines.kinds import (
    COMMON_SINK_OPTIONS,
    COMMON_SOURCE_OPTIONS,
    FORMATS,
    format_kind,
    sink_kind,
    source_kind,
)

PLACE = Place("pipeline.yaml", 1)


def pipeline(storage: Path, bootstrap: str = "127.0.0.1:1", name: str = "visits", **changes: Any) -> PipelineSpec:
    """An empty pipeline, except for `changes`."""
    made: dict[str, Any] = {
        "client": {},
        "dead_letters": f"{name}.dead-letters",
        "spark": {},
        "trigger": "1 second",
        "sources": {},
        "views": {},
        "sinks": {},
        **changes,
    }
    return PipelineSpec(name=name, place=PLACE, storage=storage, bootstrap=bootstrap, **made)


def source(kind: str, name: str = "rows", **options: Any) -> SourceSpec:
    """A source with its options parsed and its defaults filled in, as a file would give it."""
    declared = (*source_kind(kind).options, *COMMON_SOURCE_OPTIONS)
    values, places = _parsed(f"source {name!r}", declared, options)
    return SourceSpec(name, kind, values, PLACE, places)


def sink(kind: str, name: str = "out", flows: tuple[str, ...] = ("rows",), **options: Any) -> SinkSpec:
    """A sink with its options parsed and its defaults filled in, as a file would give it."""
    declared = (*sink_kind(kind).options, *COMMON_SINK_OPTIONS)
    values, places = _parsed(f"sink {name!r}", declared, {"from": list(flows), **options})
    return SinkSpec(name, kind, values, flows, PLACE, places)


def _parsed(
    owner: str, declared: tuple[Option, ...], options: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Place]]:
    named = options.get("format") or next((option.default for option in declared if option.name == "format"), None)
    if named in FORMATS:
        known = {option.name for option in declared}
        declared = (*declared, *(option for option in format_kind(named).options if option.name not in known))
    given = {name: Given(value, PLACE) for name, value in options.items()}
    values, problems = parse_options(owner, declared, given, PLACE)
    if problems:
        raise PipelineError(problems)
    return values, dict.fromkeys(options, PLACE)
