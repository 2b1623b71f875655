"""`text`: the value as UTF-8, in a column `value`."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from moldau.pipelines.file.options import Option
from moldau.pipelines.file.problems import Problem
from moldau.pipelines.file.spec import PipelineSpec, SinkSpec, SourceSpec
from moldau.pipelines.formats.decoding import schema_problems
from moldau.pipelines.formats.one_column import NO_VALUE, NOT_UTF8, only_column
from moldau.pipelines.kinds import Context

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType


class Text:
    options: tuple[Option, ...] = ()

    def check(self, source: SourceSpec, pipeline: PipelineSpec) -> Iterator[Problem]:  # noqa: ARG002
        return schema_problems(source, ["value"])

    def decode(self, value: "Column", source: SourceSpec, context: Context) -> "Column":  # noqa: ARG002
        from pyspark.sql import functions as F

        return F.struct(value.cast("string").alias("value"))

    def split(self, decoded: "Column", value: "Column", fields: "StructType") -> "tuple[Column, Column]":  # noqa: ARG002
        from pyspark.sql import functions as F

        reason = F.when(value.isNull(), F.lit(NO_VALUE)).when(~F.is_valid_utf8(decoded["value"]), F.lit(NOT_UTF8))
        return decoded, reason

    def encode(self, row: "Column", fields: "StructType", sink: SinkSpec, context: Context) -> "Column":  # noqa: ARG002
        """The sink's only column, as Spark writes it: a number or a time too."""
        return row[only_column(fields, sink, ())].cast("string").cast("binary")


KIND = Text()
