"""A fake sink for tests of the code around sinks: the rows of each batch in a list of this process."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from moldau.pipelines.file.options import Option, names, text
from moldau.pipelines.file.problems import Problem
from moldau.pipelines.file.spec import PipelineSpec, SinkSpec
from moldau.pipelines.kinds import Context

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

BATCHES: dict[str, list[list[dict[str, Any]]]] = defaultdict(list)
"""Rows by the name that the sink's option gives."""
BEFORE: dict[str, Callable[[int], None]] = {}
"""Functions that are called with the number of a batch before it is kept."""


class ListSink:
    options = (Option("list", text, "the list's name", required=True), Option("key", names, "what identifies a row"))
    guarantee = "as good as a list"

    def check(self, sink: SinkSpec, pipeline: PipelineSpec) -> Iterator[Problem]:  # noqa: ARG002
        return iter(())

    def attach(self, sink: SinkSpec, rows: "DataFrame", context: Context) -> "DataStreamWriter":  # noqa: ARG002
        name = sink.options["list"]

        def keep(batch: "DataFrame", number: int) -> None:
            if name in BEFORE:
                BEFORE[name](number)
            BATCHES[name].append([row.asDict() for row in batch.collect()])

        return rows.writeStream.foreachBatch(keep)


KIND = ListSink()


def kept(name: str) -> list[dict[str, Any]]:
    """All rows of a list."""
    return [row for batch in BATCHES[name] for row in batch]
