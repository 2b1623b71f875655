"""`console`: rows on the terminal, a table for each batch. Through Spark Connect it is the server's terminal."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from moldau.pipelines.file.options import Option, whole
from moldau.pipelines.file.problems import Problem
from moldau.pipelines.file.spec import PipelineSpec, SinkSpec
from moldau.pipelines.kinds import Context
from moldau.pipelines.sinks.batches import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter


class Console:
    guarantee = "at least once"
    options: tuple[Option, ...] = (
        Option("console", whole, "rows of a batch that are shown at most, such as 20", required=True),
        COLUMNS,
    )

    def check(self, sink: SinkSpec, pipeline: PipelineSpec) -> Iterator[Problem]:  # noqa: ARG002
        return iter(())

    def attach(self, sink: SinkSpec, rows: "DataFrame", context: Context) -> "DataStreamWriter":  # noqa: ARG002
        shown = rows.select(*sink.options["columns"]) if sink.options["columns"] else rows
        writer = shown.writeStream.format("console")
        return writer.option("numRows", sink.options["console"]).option("truncate", "false")


KIND = Console()
