"""Kinds of sources, formats and sinks: the protocol of each, and the list of all.

Modules are imported when a pipeline names them: a pipeline without MongoDB needs no MongoDB client. Other packages have
kinds of their own, by entry points (`moldau.pipelines.sources`, `moldau.pipelines.sinks`); a name of ours stays ours.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from moldau.pipelines.file.options import Option, choice, names, watermark
from moldau.pipelines.file.problems import Problem
from moldau.pipelines.file.spec import PipelineSpec, SinkSpec, SourceSpec
from moldau.pipelines.file.transforms import OPTION as TRANSFORMS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import StructType

    from moldau.pipelines.sources.kept_table import KeptTable


Ranges = dict[str, dict[int, tuple[int, int]]]
"""The first offset to read and the one to stop before, by topic and partition."""


@dataclass(frozen=True, slots=True)
class Context:
    """Facts about the run for reading and writing. `storage` is the pipeline's, or a replay's own; `whole`: streams of
    topics are read as what is there now, to be computed as a whole; `ranges`: as these records of each source;
    `keeps_tables`: topics that are tables are kept in the storage; `joined_on`: columns by which they are joined."""

    spark: "SparkSession"
    pipeline: PipelineSpec
    storage: Path
    whole: bool = False
    ranges: "Mapping[str, Ranges] | None" = None
    keeps_tables: bool = False
    joined_on: "Mapping[str, str]" = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reading:
    """An open source: its rows, and the records that could not be decoded (None: the source has none).

    `bad` has the columns key, value, headers, topic, partition, offset, timestamp (Spark's for Kafka) and `reason`.
    """

    rows: "DataFrame"
    bad: "DataFrame | None" = None
    kept: "KeptTable | None" = None
    """The table, if it is kept in the storage."""
    begun: "Callable[[], Iterable[str]]" = tuple
    """Maker of the lines that the source has to say when a run begins."""


class SourceKind(Protocol):
    """Kind of source. `options[0]` is the key that names it in a file, e.g. `topic: visits`."""

    options: tuple[Option, ...]

    def check(self, source: SourceSpec, pipeline: PipelineSpec) -> Iterator[Problem]:
        """Problems that the options alone do not show: combinations, and topics or tables that are not there. Starts no
        Spark."""

    def read(self, source: SourceSpec, context: Context) -> Reading:
        """Open the source: a streaming data frame, or a static one if it is read as a table."""


class FormatKind(Protocol):
    """Kind of format: how the value of a record becomes columns, and back."""

    options: tuple[Option, ...]

    def check(self, source: SourceSpec, pipeline: PipelineSpec) -> Iterator[Problem]:
        """Problems of a source with this format; see `SourceKind.check`."""

    def decode(self, value: "Column", source: SourceSpec, context: Context) -> "Column":
        """A struct with the content of a value, in a shape of the format's own; computed once for each record."""

    def split(self, decoded: "Column", value: "Column", fields: "StructType") -> "tuple[Column, Column]":
        """Two columns made of that struct (`fields` are its types): a struct of the value's fields, and a text that
        says why there are none (null: there are)."""

    def encode(self, row: "Column", fields: "StructType", sink: SinkSpec, context: Context) -> "Column":
        """The bytes of a struct of the value's fields; `fields` are its types."""


class SinkKind(Protocol):
    """Kind of sink. `options[0]` is the key that names it, as for sources."""

    options: tuple[Option, ...]
    guarantee: str
    """`exactly once` or `at least once`, with the condition if there is one; shown when a run begins."""

    def check(self, sink: SinkSpec, pipeline: PipelineSpec) -> Iterator[Problem]:
        """Problems of a sink; see `SourceKind.check`."""

    def attach(self, sink: SinkSpec, rows: "DataFrame", context: Context) -> "DataStreamWriter":
        """A writer for the rows, complete except for name, trigger, checkpoint and output mode: the runner sets
        these."""


COMMON_SOURCE_OPTIONS = (
    Option("as", choice("stream", "table"), "read as a stream, or as a table of what is there now", default="stream"),
    Option("watermark", watermark, "event-time column and how late a row may come, such as `at 1 day`"),
    TRANSFORMS,
)
COMMON_SINK_OPTIONS = (
    Option("from", names, "the views or sources whose rows it takes", required=True),
    Option(
        "mode",
        choice("append", "update", "complete"),
        "Spark's output mode; update where the sink has a key, else append",
    ),
    TRANSFORMS,
)

SOURCES = {
    "topic": "moldau.pipelines.sources.topic",
    "files": "moldau.pipelines.sources.files",
    "postgres": "moldau.pipelines.sources.postgres",
    "rate": "moldau.pipelines.sources.rate",
}
FORMATS = {
    "json": "moldau.pipelines.formats.json_format",
    "avro": "moldau.pipelines.formats.avro",
    "protobuf": "moldau.pipelines.formats.protobuf",
    "text": "moldau.pipelines.formats.text",
    "csv": "moldau.pipelines.formats.csv_format",
    "raw": "moldau.pipelines.formats.raw",
}
SINKS = {
    "topic": "moldau.pipelines.sinks.topic",
    "postgres": "moldau.pipelines.sinks.postgres",
    "sqlite": "moldau.pipelines.sinks.sqlite",
    "mongodb": "moldau.pipelines.sinks.mongodb",
    "parquet": "moldau.pipelines.sinks.parquet",
    "delta": "moldau.pipelines.sinks.delta",
    "iceberg": "moldau.pipelines.sinks.iceberg",
    "http": "moldau.pipelines.sinks.http",
    "console": "moldau.pipelines.sinks.console",
}

OTHER_NAMES = {"pattern": "topic"}
"""Keys that name a kind of source besides its own: `pattern: page-.*` is a topic source too."""
RETELLING = frozenset({"topic", "http", "console"})
"""Sinks that may be given a row again as it changes. The others need a key for it."""


SOURCE_POINTS, SINK_POINTS = "moldau.pipelines.sources", "moldau.pipelines.sinks"
"""Groups of entry points."""


class BadKind(Exception):
    """Error: a kind of another package cannot be used; the message says why."""


def source_names() -> list[str]:
    """The names of all kinds of sources."""
    return [*SOURCES, *(name for name in _points(SOURCE_POINTS) if name not in SOURCES)]


def sink_names() -> list[str]:
    """The names of all kinds of sinks."""
    return [*SINKS, *(name for name in _points(SINK_POINTS) if name not in SINKS)]


def source_kind(name: str) -> SourceKind:
    """The kind of that name. Raises BadKind."""
    kind: SourceKind = _kind(SOURCES[name]) if name in SOURCES else _foreign(SOURCE_POINTS, name, "read")
    return kind


def format_kind(name: str) -> FormatKind:
    kind: FormatKind = _kind(FORMATS[name])
    return kind


def sink_kind(name: str) -> SinkKind:
    """The kind of that name. Raises BadKind."""
    kind: SinkKind = _kind(SINKS[name]) if name in SINKS else _foreign(SINK_POINTS, name, "attach")
    return kind


@cache
def _points(group: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=group)}


@cache
def _foreign(group: str, name: str, does: str) -> Any:
    """The object of an entry point, or `KIND` of a module that it names."""
    point = _points(group)[name]
    where = f"{name!r} of the package {point.dist.name if point.dist else point.value!r}"
    try:
        found = point.load()
    except Exception as error:  # whatever the import of another package raises
        raise BadKind(f"{where} cannot be loaded: {type(error).__name__}: {error}") from error
    found = getattr(found, "KIND", found)
    parts = ("options", "check", does, *(("guarantee",) if group == SINK_POINTS else ()))
    lacks = [part for part in parts if not hasattr(found, part)]
    if lacks:
        raise BadKind(f"{where} has no {lacks[0]!r}: it is no kind of {group.rpartition('.')[2]}")
    if not found.options or found.options[0].name != name:
        raise BadKind(f"{where} must have an option {name!r} as its first")
    return found


def _kind(module: str) -> Any:
    """The object `KIND` of a module; each module of a kind has one."""
    return import_module(module).KIND
