"""`files`: the rows in the files of a directory, and in files that come later.

Lines of JSON, CSV and text are decoded as the values of records are, so that a bad one becomes a dead letter: its topic
is the file. Parquet files are read as they are. A file must be complete when it appears: move it there when it is.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from moldau.pipelines.file.options import Option, choice, flag, names, text, whole
from moldau.pipelines.file.problems import Problem
from moldau.pipelines.file.spec import PipelineSpec, SourceSpec
from moldau.pipelines.formats.decoding import decode
from moldau.pipelines.kinds import Context, Reading

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader
    from pyspark.sql.streaming.readwriter import DataStreamReader

MAX_FILES_PER_BATCH = 100
_WILD = "*?[{"


class Files:
    options: tuple[Option, ...] = (
        Option("files", text, "the directory, or a pattern such as `in/*.json`", required=True),
        Option("format", choice("json", "csv", "text", "parquet"), "what the files hold", default="json"),
        Option("header", flag, "the first line of each file is no data: it names the columns", default=False),
        Option("required", names, "fields without which a line is bad"),
        Option("max_files_per_batch", whole, "files that a batch takes at most", default=MAX_FILES_PER_BATCH),
    )

    def check(self, source: SourceSpec, pipeline: PipelineSpec) -> Iterator[Problem]:  # noqa: ARG002
        path = _path(source)
        if "://" not in path and not any(letter in path for letter in _WILD) and not Path(path).exists():
            place = source.places.get("files", source.place)
            yield Problem(place, f"source {source.name!r}: there is no directory {path}")
        for option in ("header", "required"):
            if source.options["format"] == "parquet" and source.options[option]:
                place = source.places.get(option, source.place)
                yield Problem(place, f"source {source.name!r}: parquet files take no {option!r}")

    def read(self, source: SourceSpec, context: Context) -> Reading:
        if source.options["format"] == "parquet":
            return Reading(_parquet(source, context))
        reading = decode(_lines(source, context), source, context)
        return Reading(_named(reading.rows), reading.bad)


KIND = Files()


def _path(source: SourceSpec) -> str:
    """The path: a relative one is beside the pipeline's file, wherever the command is run; an address stays as it
    is."""
    written: str = source.options["files"]
    return written if "://" in written else str(Path(source.place.file).resolve().parent / written)


def _reader(source: SourceSpec, context: Context) -> "DataFrameReader | DataStreamReader":
    if source.options["as"] == "table":
        return context.spark.read
    stream = context.spark.readStream
    bound = source.options["max_files_per_batch"]
    return stream.option("maxFilesPerTrigger", bound) if bound else stream


def _parquet(source: SourceSpec, context: Context) -> "DataFrame":
    """The rows of Parquet files. A stream wants its schema beforehand: the files that are there have it."""
    path = _path(source)
    reader = _reader(source, context).schema(context.spark.read.parquet(path).schema)
    return reader.parquet(path)


def _lines(source: SourceSpec, context: Context) -> "DataFrame":
    """Records made of lines: the file is the topic, the file's time the timestamp."""
    from pyspark.sql import functions as F

    path = _path(source)
    # The first line of a file is known only to who has the whole file.
    read = _reader(source, context).text(path, wholetext=source.options["header"])
    found = read.select(
        "value",
        F.col("_metadata.file_path").alias("topic"),
        F.col("_metadata.file_modification_time").alias("timestamp"),
    )
    if source.options["header"]:
        lines = F.posexplode(F.split("value", r"\r?\n")).alias("offset", "value")
        found = found.select(lines, "topic", "timestamp").where("offset > 0")
    return found.where("value != ''").select(
        F.lit(None).cast("binary").alias("key"),
        F.col("value").cast("binary").alias("value"),
        "topic",
        F.lit(None).cast("int").alias("partition"),
        F.lit(None).cast("bigint").alias("offset"),
        "timestamp",
        F.lit(None).cast("array<struct<key:string,value:binary>>").alias("headers"),
    )


def _named(rows: "DataFrame") -> "DataFrame":
    """Rows with `_file` and `_timestamp` instead of the columns that only records have."""
    return rows.drop("_key", "_partition", "_offset", "_headers").withColumnRenamed("_topic", "_file")
