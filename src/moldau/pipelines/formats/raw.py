"""`raw`: the value's bytes as they are, in a column `value`. A record without a value is a row like any other."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from moldau.pipelines.file.options import Option
from moldau.pipelines.file.problems import Problem
from moldau.pipelines.file.spec import PipelineSpec, SinkSpec, SourceSpec
from moldau.pipelines.formats.decoding import schema_problems
from moldau.pipelines.formats.one_column import only_column
from moldau.pipelines.kinds import Context

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType


class Raw:
    options: tuple[Option, ...] = ()

    def check(self, source: SourceSpec, pipeline: PipelineSpec) -> Iterator[Problem]:  # noqa: ARG002
        return schema_problems(source, ["value"])

    def decode(self, value: "Column", source: SourceSpec, context: Context) -> "Column":  # noqa: ARG002
        from pyspark.sql import functions as F

        return F.struct(value.alias("value"))

    def split(self, decoded: "Column", value: "Column", fields: "StructType") -> "tuple[Column, Column]":  # noqa: ARG002
        from pyspark.sql import functions as F

        return decoded, F.lit(None).cast("string")

    def encode(self, row: "Column", fields: "StructType", sink: SinkSpec, context: Context) -> "Column":  # noqa: ARG002
        """The sink's only column: bytes, or a text in UTF-8."""
        return row[only_column(fields, sink, ("binary", "string"))].cast("binary")


KIND = Raw()
