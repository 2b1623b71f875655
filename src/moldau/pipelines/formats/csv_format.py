"""`csv`: one record a value, its columns in the schema's order."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from moldau.pipelines.file.options import Option, text
from moldau.pipelines.file.problems import PipelineError, Problem
from moldau.pipelines.file.spec import PipelineSpec, SinkSpec, SourceSpec
from moldau.pipelines.formats import ddl, times
from moldau.pipelines.formats.decoding import schema_problems
from moldau.pipelines.formats.one_column import NO_VALUE, NOT_UTF8
from moldau.pipelines.kinds import Context

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

CORRUPT = "__corrupt"


def schema(value: Any) -> str:
    words = text(value).strip()
    ddl.fields(words)
    return words


def character(value: Any) -> str:
    if not isinstance(value, str) or len(value) != 1:
        raise ValueError("one character")
    return value


class Csv:
    options = (
        Option("schema", schema, "the fields in Spark's DDL, in their order"),
        Option("separator", character, "what stands between two fields", default=","),
        Option("quote", character, "what a field with a separator in it stands in", default='"'),
        Option("escape", character, "what makes a quote inside a quoted field a letter; default: the quote, twice"),
        Option("null", text, "the text of a null; default: an empty field, in quotes or not, as Spark has it"),
        times.OPTION,
        Option("date_format", text, "Spark's pattern for dates, where they are not as in ISO 8601"),
    )

    def check(self, source: SourceSpec, pipeline: PipelineSpec) -> Iterator[Problem]:  # noqa: ARG002
        given = source.options.get("schema")
        if given is None:
            yield _no_schema(source)
        else:
            yield from schema_problems(source, (field.name for field in ddl.fields(given)))

    def decode(self, value: "Column", source: SourceSpec, context: Context) -> "Column":  # noqa: ARG002
        from pyspark.sql import functions as F
        from pyspark.sql.types import StringType, StructType

        if source.options.get("schema") is None:
            raise PipelineError([_no_schema(source)])
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT, **_dialect(source)}
        options["multiLine"] = "true"  # a line break in quotes stays as it was written
        fields, unit, words = StructType.fromDDL(source.options["schema"]), times.unit_of(source), value.cast("string")
        if unit is None or not isinstance(fields, StructType):
            return F.from_csv(words, f"{source.options['schema']}, {CORRUPT} STRING", options)
        texts = StructType([*times.as_texts(fields)]).add(CORRUPT, StringType())
        return times.of_texts(F.from_csv(words, texts.toDDL(), options), fields, unit, CORRUPT, words)

    def split(self, decoded: "Column", value: "Column", fields: "StructType") -> "tuple[Column, Column]":
        from pyspark.sql import functions as F

        names = [name for name in fields.names if name != CORRUPT]
        words = value.cast("string")
        reason = (
            F.when(value.isNull(), F.lit(NO_VALUE))
            .when(~F.is_valid_utf8(words), F.lit(NOT_UTF8))
            .when(F.trim(words) == "", F.lit("an empty line"))
            .when(
                decoded.isNull() | decoded[CORRUPT].isNotNull(),
                F.lit(f"does not fit the schema of {len(names)} fields ({', '.join(names)})"),
            )
        )
        for name in names:
            outside = times.outside(decoded[name], fields[name].dataType)
            if outside is not None:
                reason = reason.when(outside, F.lit(times.words_outside(name)))
        return F.struct(*(decoded[name].alias(name) for name in names)), reason

    def encode(self, row: "Column", fields: "StructType", sink: SinkSpec, context: Context) -> "Column":  # noqa: ARG002
        from pyspark.sql import functions as F

        unit = times.unit_of(sink)
        return F.to_csv(times.as_numbers(row, fields, unit) if unit else row, _dialect(sink)).cast("binary")


def _dialect(spec: SourceSpec | SinkSpec) -> dict[str, str]:
    given = {
        "sep": "separator",
        "quote": "quote",
        "nullValue": "null",
        "timestampFormat": "timestamp_format",
        "dateFormat": "date_format",
    }
    unit = times.unit_of(spec)
    found = {name: is_so for name, option in given.items() if (is_so := spec.options.get(option)) and is_so != unit}
    return {**found, "escape": escape(spec)}


def escape(spec: SourceSpec | SinkSpec) -> str:
    """The sign before a quote that is a letter; as RFC 4180 has it, another quote."""
    return str(spec.options.get("escape") or spec.options["quote"])


def _no_schema(source: SourceSpec) -> Problem:
    return Problem(source.place, f"source {source.name!r} needs 'schema'", "such as `name STRING, at TIMESTAMP`")


KIND = Csv()
