"""`files`: the rows in the files of a directory, and in files that come later.

Lines of JSON and text, and the records of CSV, are decoded as the values of records are, so that a bad one becomes a
dead letter: its topic is the file. Parquet files are read as they are. A file must be complete when it appears: move it
there when it is.

A record of CSV may have line breaks in quotes, and the first record of a file may name the columns: only who has the
whole file knows. So a CSV file is read by one task, as a whole; `multiline: false` lets Spark divide it.
"""

import codecs
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moldau.pipelines.file.options import Option, choice, flag, names, text, whole
from moldau.pipelines.file.problems import Problem
from moldau.pipelines.file.spec import PipelineSpec, SourceSpec
from moldau.pipelines.formats import csv_format, ddl
from moldau.pipelines.formats.csv_records import CsvRecords
from moldau.pipelines.formats.decoding import decode
from moldau.pipelines.kinds import Context, Reading

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # no type information
    from pyspark.sql import DataFrame, DataFrameReader
    from pyspark.sql.streaming.readwriter import DataStreamReader

MAX_FILES_PER_BATCH = 100
ANY_AGE = "36500d"
"""Age up to which a file is read. Spark's own week is counted back from the newest file that was read, and a file of
before is passed over without a word: one that was moved into the directory has its old time."""
RECORDS_AT_ONCE = 10_000
WILD = "*?[{"
"""Signs of a pattern."""
_RECORDS = "value BINARY, topic STRING, timestamp TIMESTAMP, reason STRING"
_OF_CSV = ("header", "multiline", "encoding")


def encoding(value: Any) -> str:
    """The name of an encoding."""
    try:
        "a".encode(text(value))  # some codecs are of no text
        return codecs.lookup(text(value)).name
    except LookupError:
        raise ValueError("an encoding such as UTF-8, ISO-8859-1 or windows-1252") from None


class Files:
    options: tuple[Option, ...] = (
        Option("files", text, "the directory, or a pattern such as `in/*.json`", required=True),
        Option("format", choice("json", "csv", "text", "parquet"), "what the files hold", default="json"),
        Option("header", flag, "csv: the first record of each file names its columns, in any order", default=False),
        Option("encoding", encoding, "csv: how texts are written", default="utf-8"),
        Option(
            "multiline",
            flag,
            "csv: fields in quotes may have line breaks, so a file is read as a whole; false: a line is a record, and "
            "Spark divides large files",
            default=True,
        ),
        Option("required", names, "fields without which a line is bad"),
        Option("max_files_per_batch", whole, "files that a batch takes at most", default=MAX_FILES_PER_BATCH),
    )

    def check(self, source: SourceSpec, pipeline: PipelineSpec) -> Iterator[Problem]:  # noqa: ARG002
        path = path_of(source)
        if "://" not in path and not any(letter in path for letter in WILD) and not Path(path).exists():
            place = source.places.get("files", source.place)
            yield Problem(place, f"source {source.name!r}: there is no directory {path}")
        for option, words in _misfits(source):
            yield Problem(source.places.get(option, source.place), f"source {source.name!r}: {words}")

    def read(self, source: SourceSpec, context: Context) -> Reading:
        if source.options["format"] == "parquet":
            return Reading(_parquet(source, context))
        whole = source.options["format"] == "csv" and source.options["multiline"]
        reading = decode((_records if whole else _lines)(source, context), source, context)
        return Reading(_named(reading.rows), reading.bad)


KIND = Files()


def _misfits(source: SourceSpec) -> Iterator[tuple[str, str]]:
    """Options that do not go together, each with words that say so."""
    kind = source.options["format"]
    for option in _OF_CSV:
        if kind != "csv" and option in source.places:
            yield option, f"{kind} files take no {option!r}"
    if kind == "parquet" and source.options["required"]:
        yield "required", "parquet files take no 'required'"
    if not source.options["multiline"]:
        for option in ("header", "encoding"):
            if option in source.places:
                yield option, f"{option!r} needs the whole file, and 'multiline: false' divides it"


def path_of(source: SourceSpec) -> str:
    """The path: a relative one is beside the pipeline's file, wherever the command is run; an address stays as it
    is."""
    written: str = source.options["files"]
    return written if "://" in written else str(Path(source.place.file).resolve().parent / written)


def _reader(source: SourceSpec, context: Context) -> "DataFrameReader | DataStreamReader":
    if source.options["as"] == "table":
        return context.spark.read
    stream = context.spark.readStream.option("maxFileAge", ANY_AGE)
    bound = source.options["max_files_per_batch"]
    return stream.option("maxFilesPerTrigger", bound) if bound else stream


def _parquet(source: SourceSpec, context: Context) -> "DataFrame":
    """The rows of Parquet files. A stream wants its schema beforehand: the files that are there have it, the newer ones
    perhaps more of it."""
    from pyspark.sql.types import StructField, StructType

    path = path_of(source)
    found = context.spark.read.option("mergeSchema", "true").parquet(path).schema
    # what is never null in one file may not be there in another
    nullable = StructType([StructField(field.name, field.dataType) for field in found.fields])
    return _reader(source, context).schema(nullable).parquet(path)


def _lines(source: SourceSpec, context: Context) -> "DataFrame":
    """Records made of lines: the file is the topic, the file's time the timestamp."""
    return _as_records(_text(source, context, whole=False).where("value != ''"))


def _records(source: SourceSpec, context: Context) -> "DataFrame":
    """Records of CSV, found in whole files."""
    from pyspark.sql import functions as F

    options = source.options
    columns = tuple(field.name for field in ddl.fields(options["schema"])) if options["schema"] else ()
    required = options["required"]
    finder = CsvRecords(
        columns,
        tuple(name for name in columns if required is None or name in required),
        options["header"],
        options["separator"],
        options["quote"],
        csv_format.escape(source),
        options["null"] or "",
        options["encoding"],
    )
    files = _text(source, context, whole=True).withColumn("value", F.col("value").cast("binary"))
    return _as_records(files.mapInArrow(partial(_find, finder), _RECORDS))


def _text(source: SourceSpec, context: Context, whole: bool) -> "DataFrame":
    from pyspark.sql import functions as F

    return (
        _reader(source, context)
        .text(path_of(source), wholetext=whole)
        .select(
            "value",
            F.col("_metadata.file_path").alias("topic"),
            F.col("_metadata.file_modification_time").alias("timestamp"),
        )
    )


def _as_records(found: "DataFrame") -> "DataFrame":
    """The columns of Kafka's records around values of files."""
    from pyspark.sql import functions as F

    return found.select(
        F.lit(None).cast("binary").alias("key"),
        F.col("value").cast("binary").alias("value"),
        "topic",
        F.lit(None).cast("int").alias("partition"),
        F.lit(None).cast("bigint").alias("offset"),
        "timestamp",
        F.lit(None).cast("array<struct<key:string,value:binary>>").alias("headers"),
        *(["reason"] if "reason" in found.columns else []),
    )


def _find(finder: CsvRecords, files: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    """Find the records of files, in a worker: as many at once as make a batch of moderate size."""
    import pyarrow as pa

    for batch in files:
        for content, path, at in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            records = finder.find(content)
            while part := list(islice(records, RECORDS_AT_ONCE)):
                values, reasons = zip(*part, strict=True)
                yield pa.RecordBatch.from_arrays(
                    [
                        pa.array(values, pa.binary()),
                        pa.repeat(pa.scalar(path, pa.string()), len(part)),
                        pa.repeat(pa.scalar(at, batch.schema.field("timestamp").type), len(part)),
                        pa.array(reasons, pa.string()),
                    ],
                    names=["value", "topic", "timestamp", "reason"],
                )


def _named(rows: "DataFrame") -> "DataFrame":
    """Rows with `_file` and `_timestamp` instead of the columns that only records have."""
    return rows.drop("_key", "_partition", "_offset", "_headers").withColumnRenamed("_topic", "_file")
