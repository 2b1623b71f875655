"""Columns of Parquet files that a sink adds to a directory: as those that are there have them.

Each file has its own schema, so that nothing but this keeps a directory readable. A column that is never NULL in one
file and is not in another fails the reader that wants both, so all may be NULL; and one of another type is refused.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from moldau.pipelines.file.problems import Problem
from moldau.pipelines.file.spec import SinkSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def nullable(rows: "DataFrame") -> "DataFrame":
    """The rows with columns that may be NULL."""
    from pyspark.sql import functions as F

    made = []
    for field in rows.schema.fields:
        column = F.col("`" + field.name.replace("`", "``") + "`")
        # the optimiser would see through any condition that is always true, but for chance
        made.append(column if field.nullable else F.when(F.rand() >= 0, column).alias(field.name))
    return rows.select(*made)


def other_types(sink: SinkSpec, rows: "DataFrame", directory: str) -> Iterator[Problem]:
    """Problems of columns that the files in the directory have with another type."""
    from pyspark.errors import AnalysisException

    try:
        there = rows.sparkSession.read.parquet(directory).schema
    except AnalysisException:  # there is nothing yet
        return
    of_path = sink.options["partition_by"] or ()
    types = {field.name: field.dataType.simpleString() for field in there.fields if field.name not in of_path}
    for field in rows.schema.fields:
        new = field.dataType.simpleString()
        old = types.get(field.name, new)
        if old != new:
            words = f"column {field.name!r} is {new.upper()}, and {old.upper()} in the files of {directory}"
            hint = "nobody could read both: cast it, call it otherwise, or name another directory"
            yield Problem(sink.places.get("parquet", sink.place), f"sink {sink.name!r}: {words}", hint)
