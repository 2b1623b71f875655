"""`parquet`: files in a directory, a few for each batch.

Exactly once: Spark notes the files of each batch in `_spark_metadata` beside them, and readers that know it see no
others. That note belongs to one checkpoint. A new checkpoint begins at batch 0 again, which the note has already: Spark
would take those batches for written and drop their rows without a word. So a directory with such a note is refused.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from moldau.pipelines.file.options import Option, names, text
from moldau.pipelines.file.problems import PipelineError, Problem
from moldau.pipelines.file.spec import PipelineSpec, SinkSpec
from moldau.pipelines.kinds import Context
from moldau.pipelines.sinks.batches import COLUMNS, beside, chosen

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter


class Parquet:
    guarantee = "exactly once"
    options: tuple[Option, ...] = (
        Option("parquet", text, "the directory", required=True),
        Option("partition_by", names, "columns that become directories, such as `day=2026-11-16`"),
        COLUMNS,
    )

    def check(self, sink: SinkSpec, pipeline: PipelineSpec) -> Iterator[Problem]:
        yield from _of_another_checkpoint(sink, pipeline.storage)

    def attach(self, sink: SinkSpec, rows: "DataFrame", context: Context) -> "DataStreamWriter":
        problems = list(_of_another_checkpoint(sink, context.storage))
        if problems:
            raise PipelineError(problems)
        writer = rows.select(*chosen(sink, rows.columns)).writeStream.format("parquet")
        if sink.options["partition_by"]:
            writer = writer.partitionBy(*sink.options["partition_by"])
        return writer.option("path", beside(sink, sink.options["parquet"]))


KIND = Parquet()


def _of_another_checkpoint(sink: SinkSpec, storage: Path) -> Iterator[Problem]:
    directory = Path(beside(sink, sink.options["parquet"]))
    if (directory / "_spark_metadata").exists() and not (storage / "checkpoints" / sink.name).exists():
        message = f"sink {sink.name!r}: {directory} has files of another checkpoint, so that new ones would be lost"
        yield Problem(sink.places.get("parquet", sink.place), message, "name another directory, or move that one away")
