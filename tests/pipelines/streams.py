"""Helpers that run a stream to its end in a test."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

TIMEOUT_S = 300


def run_to_end(writer: "DataStreamWriter", checkpoint: Path, mode: str = "append") -> "StreamingQuery":
    """Run the stream over everything that is there now, with Spark's `availableNow`; returns the ended query."""
    query = writer.option("checkpointLocation", str(checkpoint)).outputMode(mode).trigger(availableNow=True).start()
    if not query.awaitTermination(TIMEOUT_S):
        query.stop()
        raise TimeoutError(f"the query did not end within {TIMEOUT_S} s: {query.lastProgress}")
    return query


class Batches:
    """Rows of a stream as they came, batch by batch: `foreachBatch(batches)`."""

    def __init__(self) -> None:
        self.found: list[list[dict[str, Any]]] = []

    def __call__(self, rows: "DataFrame", number: int) -> None:  # noqa: ARG002
        self.found.append([row.asDict(recursive=True) for row in rows.collect()])

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row for batch in self.found for row in batch]


def rows_of(stream: "DataFrame", checkpoint: Path) -> list[dict[str, Any]]:
    """All rows that a stream has now."""
    batches = Batches()
    run_to_end(stream.writeStream.foreachBatch(batches), checkpoint)
    return batches.rows
