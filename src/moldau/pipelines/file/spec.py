"""The one model behind pipelines in Python and in YAML: checked, with defaults filled in.

A pipeline reads sources, makes views of them and writes views (or sources) to sinks. Each sink is one streaming query:
several flows into one sink are one query over their union, because two queries that write one file sink lose rows
silently.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moldau.pipelines.file.problems import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """A source; `options` are those of its kind and of its format, parsed; `places` says where each was written."""

    name: str
    kind: str
    options: Mapping[str, Any]
    place: Place
    places: Mapping[str, Place] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ViewSpec:
    """Spark SQL, or a function of data frames whose parameters are named after its inputs."""

    name: str
    place: Place
    sql: str | None = None
    function: "Callable[..., DataFrame] | None" = None
    inputs: tuple[str, ...] = ()
    """The sources and views that it reads: named after FROM and JOIN in its SQL, or its function's parameters."""
    sql_place: Place | None = None
    """Place of the first line of its SQL; None: unknown."""
    watermark: tuple[str, str] | None = None
    """A column that it computes, and how late a row may come."""


@dataclass(frozen=True, slots=True)
class SinkSpec:
    """A sink, which the rows of `flows` (names of views or sources) go to."""

    name: str
    kind: str
    options: Mapping[str, Any]
    flows: tuple[str, ...]
    place: Place
    places: Mapping[str, Place] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PipelineSpec:
    """The whole of a file. `storage` holds checkpoints, fixed schemas and the state of the run."""

    name: str
    place: Place
    storage: Path
    bootstrap: str
    client: Mapping[str, str]
    """Properties of Kafka clients for every topic of the pipeline, such as `security.protocol`, in Java's names."""
    dead_letters: str | None
    """The topic for records that cannot be decoded; None: such a record ends the run."""
    spark: Mapping[str, str]
    trigger: str
    """The least time between two batches of a continuous run, such as `1 second`."""
    sources: Mapping[str, SourceSpec]
    views: Mapping[str, ViewSpec]
    sinks: Mapping[str, SinkSpec]
