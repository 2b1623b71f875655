"""What a kind of source, format or sink must be able to do, and the list of those there are.

Modules are imported when a pipeline names them: a pipeline without MongoDB needs no MongoDB client.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from moldau.pipelines.file.options import Option, choice, names, watermark
from moldau.pipelines.file.problems import Problem
from moldau.pipelines.file.spec import PipelineSpec, SinkSpec, SourceSpec

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class Context:
    """What reading and writing need to know of the run. `storage` is the pipeline's, or a replay's own."""

    spark: "SparkSession"
    pipeline: PipelineSpec
    storage: Path


@dataclass(frozen=True, slots=True)
class Reading:
    """A source opened: its rows, and those that could not be decoded (None: the source has none).

    `bad` has the columns key, value, headers, topic, partition, offset, timestamp (Spark's for Kafka) and `reason`.
    """

    rows: "DataFrame"
    bad: "DataFrame | None" = None


class SourceKind(Protocol):
    """`options[0]` is the key that names the kind in a file, e.g. `topic: visits`."""

    options: tuple[Option, ...]

    def check(self, source: SourceSpec, pipeline: PipelineSpec) -> Iterator[Problem]:
        """What the options do not show: combinations, and topics or tables that are not there. Starts no Spark."""

    def read(self, source: SourceSpec, context: Context) -> Reading:
        """Open it: a streaming data frame, or a static one if the source is read as a table."""


class FormatKind(Protocol):
    """How the value of a record becomes columns, and back."""

    options: tuple[Option, ...]

    def check(self, source: SourceSpec, pipeline: PipelineSpec) -> Iterator[Problem]:
        """As a source's."""

    def decode(self, value: "Column", source: SourceSpec, context: Context) -> "Column":
        """A struct with all that is in a value, in a shape of the format's own; worked out once for each record."""

    def split(self, decoded: "Column", value: "Column", fields: "StructType") -> "tuple[Column, Column]":
        """Of that struct (`fields` are its types): a struct of the value's fields, and a text that says why there are
        none (null: there are).
        """

    def encode(self, row: "Column", fields: "StructType", sink: SinkSpec, context: Context) -> "Column":
        """Bytes of a struct of the value's fields; `fields` are its types."""


class SinkKind(Protocol):
    """`options[0]` is the key that names the kind, as for sources."""

    options: tuple[Option, ...]
    guarantee: str
    """`exactly once` or `at least once`, with the condition if there is one; shown when a run begins."""

    def check(self, sink: SinkSpec, pipeline: PipelineSpec) -> Iterator[Problem]:
        """As a source's."""

    def attach(self, sink: SinkSpec, rows: "DataFrame", context: Context) -> "DataStreamWriter":
        """A writer for the rows, complete but for name, trigger, checkpoint and output mode: these are the runner's."""


COMMON_SOURCE_OPTIONS = (
    Option("as", choice("stream", "table"), "read as a stream, or as a table of what is there now", default="stream"),
    Option("watermark", watermark, "event-time column and how late a row may come, such as `at 1 day`"),
)
COMMON_SINK_OPTIONS = (
    Option("from", names, "the views or sources whose rows it takes", required=True),
    Option(
        "mode",
        choice("append", "update", "complete"),
        "Spark's output mode; update where the sink has a key, else append",
    ),
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
"""Sinks that may be told a row again as it changes. The others need a key for it."""


def source_kind(name: str) -> SourceKind:
    kind: SourceKind = _kind(SOURCES[name])
    return kind


def format_kind(name: str) -> FormatKind:
    kind: FormatKind = _kind(FORMATS[name])
    return kind


def sink_kind(name: str) -> SinkKind:
    kind: SinkKind = _kind(SINKS[name])
    return kind


def _kind(module: str) -> Any:
    """Each module of a kind has one object of it, called `KIND`."""
    return import_module(module).KIND
