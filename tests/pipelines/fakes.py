"""Pipelines of the two fake kinds."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from moldau.pipelines.file.problems import Place
from moldau.pipelines.file.spec import PipelineSpec, SinkSpec, SourceSpec, ViewSpec
from tests.pipelines.specs import pipeline

KINDS = {"source": "tests.pipelines.fake_source", "sink": "tests.pipelines.fake_sink"}


def source(folder: Path, name: str = "rows", **options: Any) -> SourceSpec:
    values = {"folder": str(folder), "schema": None, "as": "stream", "watermark": None, **options}
    return SourceSpec(name, "folder", values, Place("visits.yaml", 2))


def view(name: str, made_by: str | Callable[..., Any], inputs: tuple[str, ...] = ("rows",)) -> ViewSpec:
    place = Place("visits.yaml", 3)
    if isinstance(made_by, str):
        return ViewSpec(name, place, sql=made_by, inputs=inputs, sql_place=place)
    return ViewSpec(name, place, function=made_by, inputs=inputs)


def sink(name: str = "out", flows: tuple[str, ...] = ("rows",), written: Mapping[str, Any] | None = None) -> SinkSpec:
    """A sink; `written` are options that the file names, and the rest has its default."""
    given = dict(written or {})
    mode = given.get("mode") or ("update" if given.get("key") else "append")
    place = Place("visits.yaml", 4)
    return SinkSpec(
        name, "list", {"list": name, "key": None, **given, "mode": mode}, flows, place, dict.fromkeys(given, place)
    )


def spec(storage: Path, *parts: SourceSpec | ViewSpec | SinkSpec, **changes: Any) -> PipelineSpec:
    return pipeline(
        storage,
        sources={part.name: part for part in parts if isinstance(part, SourceSpec)},
        views={part.name: part for part in parts if isinstance(part, ViewSpec)},
        sinks={part.name: part for part in parts if isinstance(part, SinkSpec)},
        **changes,
    )
