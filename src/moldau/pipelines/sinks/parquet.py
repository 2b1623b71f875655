"""`parquet`: files in a directory, a few for each batch.

Exactly once: Spark notes the files of each batch in `_spark_metadata` beside them, and readers that know it see no
others. That note belongs to one checkpoint. A new checkpoint begins at batch 0 again, which the note has already: Spark
would take those batches for written and drop their rows without a word. So a directory is refused whose note has a
batch that the checkpoint has not come to: it is that of another checkpoint, or of a newer copy of this one.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from moldau.pipelines.file.options import Option, names, text
from moldau.pipelines.file.problems import PipelineError, Problem
from moldau.pipelines.file.spec import PipelineSpec, SinkSpec
from moldau.pipelines.kinds import Context
from moldau.pipelines.sinks.batches import COLUMNS, beside, chosen, tell_made_anew
from moldau.pipelines.sinks.parquet_columns import nullable, other_types

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter


class Parquet:
    guarantee = "exactly once"
    options: tuple[Option, ...] = (
        Option("parquet", text, "the directory", required=True),
        Option("partition_by", names, "columns that become directories, such as `day=2026-11-16`"),
        COLUMNS,
    )

    def check(self, sink: SinkSpec, pipeline: PipelineSpec) -> Iterator[Problem]:
        yield from _of_another_checkpoint(sink, pipeline.storage, None)

    def attach(self, sink: SinkSpec, rows: "DataFrame", context: Context) -> "DataStreamWriter":
        made = nullable(rows.select(*chosen(sink, rows.columns)))
        directory = beside(sink, sink.options["parquet"])
        problems = list(_of_another_checkpoint(sink, context.storage, context.spark))
        if not problems:  # or the files are none of ours
            problems += other_types(sink, made, directory)
        if problems:
            raise PipelineError(problems)
        committed = context.storage / "checkpoints" / sink.name / "commits"
        if _batches(_names(str(committed), None)) >= 0 and not _names(f"{directory}/_spark_metadata", context.spark):
            tell_made_anew(f"{context.pipeline.name}.{sink.name}", directory)
        writer = made.writeStream.format("parquet")
        if sink.options["partition_by"]:
            writer = writer.partitionBy(*sink.options["partition_by"])
        return writer.option("path", directory)


KIND = Parquet()


def _of_another_checkpoint(sink: SinkSpec, storage: Path, spark: "SparkSession | None") -> Iterator[Problem]:
    directory = beside(sink, sink.options["parquet"])
    written = _batches(_names(f"{directory}/_spark_metadata", spark))
    if written > _batches(_names(str(storage / "checkpoints" / sink.name / "offsets"), None)):
        message = f"sink {sink.name!r}: {directory} has files of another checkpoint, so that new ones would be lost"
        yield Problem(sink.places.get("parquet", sink.place), message, "name another directory, or move that one away")


def _batches(names: Iterable[str]) -> int:
    """The number of the last batch in a log of Spark's: `7`, or `9.compact`."""
    numbers = (name.partition(".")[0] for name in names)
    return max((int(number) for number in numbers if number.isdigit()), default=-1)


def _names(directory: str, spark: "SparkSession | None") -> list[str]:
    """The names in a directory; none if it is not there. Spark is asked about addresses, if there is one to ask."""
    jvm, context = getattr(spark, "_jvm", None), getattr(spark, "_jsc", None)
    if "://" in directory and jvm is not None and context is not None:
        there = jvm.org.apache.hadoop.fs.Path(directory)
        files = there.getFileSystem(context.hadoopConfiguration())
        return [each.getPath().getName() for each in files.listStatus(there)] if files.exists(there) else []
    path = Path(directory.removeprefix("file://"))
    return [entry.name for entry in path.iterdir()] if path.is_dir() else []
