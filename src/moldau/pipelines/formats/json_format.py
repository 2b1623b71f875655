"""`json`: one JSON object a value. Its schema is given, inferred from samples and then fixed, or a registry's.

Spark's reader (`from_json`) is lenient in ways that lose data, so beside its own verdict a value is bad if it has more
after the object, if a number is too great for its type (1e400 would become Infinity), or if it is not UTF-8. As in
Spark, a STRING field takes any JSON as its text, and fields that the schema does not have are left out. A value framed
by a registry's serialiser is known by its first byte, 0, which no JSON text has.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from moldau.pipelines.file.options import Option, text, whole
from moldau.pipelines.file.problems import PipelineError, Problem
from moldau.pipelines.file.spec import PipelineSpec, SinkSpec, SourceSpec
from moldau.pipelines.formats import ddl, nested, times
from moldau.pipelines.formats.decoding import schema_problems
from moldau.pipelines.formats.json_inference import infer
from moldau.pipelines.formats.json_schema import fields_of, schema_of
from moldau.pipelines.formats.kept_schema import fixed
from moldau.pipelines.formats.one_column import NO_VALUE, NOT_UTF8
from moldau.pipelines.formats.samples import sample_values
from moldau.pipelines.kinds import Context
from moldau.pipelines.schema_registry import (
    REGISTER_OPTION,
    REGISTRY_OPTIONS,
    check_subject,
    newest_of,
    registered,
)

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

FIELDS, TEXT = "fields", "text"
"""Parts of a decoded value: its fields, and the text itself for the questions that Spark does not ask."""
CORRUPT = "__corrupt"
FRAME_BYTES = 5
"""Bytes that a registry's serialisers put in front: a 0 and the schema's id (4 bytes)."""
SHOWN_MAX = 60
"""Characters of a wrong value that the reason shows."""


def schema(value: Any) -> str:
    """The option's text, checked: `infer`, `registry`, or Spark's DDL."""
    words = text(value).strip()
    if words not in ("infer", "registry"):
        ddl.fields(words)
    return words


class Json:
    options = (
        Option("schema", schema, "the fields in Spark's DDL; `infer`: from samples; `registry`: from a registry"),
        Option("samples", whole, "how many records `schema: infer` looks at, from the topic's beginning", default=1000),
        times.OPTION,
        Option("date_format", text, "Spark's pattern for dates, where they are not as in ISO 8601"),
        *REGISTRY_OPTIONS,
        REGISTER_OPTION,
    )

    def check(self, source: SourceSpec, pipeline: PipelineSpec) -> Iterator[Problem]:  # noqa: ARG002
        given = source.options.get("schema")
        if given is None:
            yield _no_schema(source)
        elif given == "registry":
            yield from check_subject(source)
        elif given == "infer":
            if source.kind != "topic":
                yield Problem(source.places["schema"], f"source {source.name!r}: only topics can be sampled")
        else:
            yield from schema_problems(source, (field.name for field in ddl.fields(given)))

    def decode(self, value: "Column", source: SourceSpec, context: Context) -> "Column":
        from pyspark.sql import functions as F
        from pyspark.sql.types import StringType, StructType

        fields, unit = _fields(source, context), times.unit_of(source)
        with_corrupt = StructType([*(times.as_texts(fields) if unit else fields)]).add(CORRUPT, StringType())
        options = {
            "mode": "PERMISSIVE",
            "columnNameOfCorruptRecord": CORRUPT,
            "allowNonNumericNumbers": "false",
            "allowSingleQuotes": "false",
            **_patterns(source),
        }
        words = json_text(value)
        found = F.from_json(words, with_corrupt, options)
        found = times.of_texts(found, fields, unit, CORRUPT, words) if unit else found
        return F.struct(found.alias(FIELDS), words.alias(TEXT))

    def split(self, decoded: "Column", value: "Column", fields: "StructType") -> "tuple[Column, Column]":
        from pyspark.sql import functions as F
        from pyspark.sql.types import StructType

        found, parsed = decoded[FIELDS], fields[FIELDS].dataType
        typed = StructType([field for field in getattr(parsed, "fields", ()) if field.name != CORRUPT])
        data = F.struct(*(found[name].alias(name) for name in typed.names))
        return data, _reason(found, decoded[TEXT], value, typed)

    def encode(self, row: "Column", fields: "StructType", sink: SinkSpec, context: Context) -> "Column":  # noqa: ARG002
        """The value of a row as JSON; null fields are written. With `schema: registry` a value is framed, and its JSON
        Schema registered."""
        from pyspark.sql import functions as F

        unit = times.unit_of(sink)
        row = times.as_numbers(row, fields, unit) if unit else row
        value = F.to_json(row, {"ignoreNullFields": "false", **_patterns(sink)}).cast("binary")
        if sink.options.get("schema") != "registry":
            return value
        if sink.options["register"]:
            schema_id = registered(sink, "JSON", schema_of(fields, sink.options["topic"]))
        else:
            schema_id = newest_of(sink, ("JSON",)).id
        return F.concat(F.lit(b"\0" + schema_id.to_bytes(4, "big")), value)


def _no_schema(source: SourceSpec) -> Problem:
    return Problem(
        source.place,
        f"source {source.name!r} needs 'schema'",
        "the fields, such as `name STRING, at TIMESTAMP`, or `infer`, or `registry`",
    )


def _patterns(spec: SourceSpec | SinkSpec) -> dict[str, str]:
    given = {"timestampFormat": "timestamp_format", "dateFormat": "date_format"}
    unit = times.unit_of(spec)
    return {name: found for name, option in given.items() if (found := spec.options.get(option)) and found != unit}


def _fields(source: SourceSpec, context: Context) -> "StructType":
    from pyspark.sql.types import StructType

    given = source.options.get("schema")
    if given is None:
        raise PipelineError([_no_schema(source)])
    if given == "registry":
        found = fixed(source, context, lambda: newest_of(source, ("JSON",)).as_json())
        return fields_of(found, source)
    if given == "infer":
        inferred = fixed(source, context, lambda: {"spark": infer(sample_values(source, context), source).jsonValue()})
        return StructType.fromJson(inferred["spark"])
    parsed = StructType.fromDDL(given)
    return parsed if isinstance(parsed, StructType) else StructType()


def json_text(value: "Column") -> "Column":
    from pyspark.sql import functions as F

    framed = F.substring(value, 1, 1) == F.lit(b"\0")
    return F.when(framed, F.substring(value, FRAME_BYTES + 1, 2**31 - 1)).otherwise(value).cast("string")


def _reason(decoded: "Column", words: "Column", value: "Column", fields: "StructType") -> "Column":
    from pyspark.sql import functions as F

    wrong = F.when(F.try_parse_json(words).isNull(), F.lit("not JSON")).when(
        ~F.ltrim(words).startswith("{"), F.lit("not a JSON object")
    )
    for field in fields:
        found = F.get_json_object(words, _path(field.name))
        unfit = found.isNotNull() & decoded[field.name].isNull()
        wrong = wrong.when(unfit, _misfit(field.name, field.dataType, found))
    reason = (
        F.when(value.isNull(), F.lit(NO_VALUE))
        .when(~F.is_valid_utf8(words), F.lit(NOT_UTF8))
        .when(decoded.isNull() | decoded[CORRUPT].isNotNull(), wrong.otherwise(F.lit("a field does not fit its type")))
        .when(_has_more(words), F.lit("more than one JSON value"))
    )
    for field in fields:
        infinite = nested.some(decoded[field.name], field.dataType, _infinite)
        if infinite is not None:
            reason = reason.when(infinite, F.lit(f"field {field.name!r} has a number that is too great"))
        outside = times.outside(decoded[field.name], field.dataType)
        if outside is not None:
            reason = reason.when(outside, F.lit(times.words_outside(field.name)))
    return reason


def _misfit(name: str, kind: "DataType", found: "Column") -> "Column":
    from pyspark.sql import functions as F

    cut = F.concat(F.substring(found, 1, SHOWN_MAX), F.lit("..."))
    shown = F.when(F.length(found) > SHOWN_MAX, cut).otherwise(found)
    return F.concat(F.lit(f"field {name!r} is not {kind.simpleString().upper()}: "), shown)


def _path(name: str) -> str:
    return f"$['{name}']" if "'" not in name else f"$.{name}"


def _has_more(words: "Column") -> "Column":
    """Whether text follows the first object, which Spark would drop. The costly question is asked only where there may
    be some."""
    from pyspark.sql import functions as F

    suspect = words.contains("}{") | words.contains("}\n{") | words.contains("} {") | words.contains("}\r\n{")
    whole_text = F.concat(F.lit("["), words, F.lit("]"))
    ends = words.endswith("}") | F.rtrim(F.translate(words, "\r\n\t", "   ")).endswith("}")
    return ~ends | (suspect & F.try_parse_json(whole_text).isNull())


def _infinite(column: "Column", kind: "DataType") -> "Column | None":
    """Whether the column is an infinite number; None: it is no number that can be."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import DoubleType, FloatType

    return F.abs(column) == F.lit(float("inf")) if isinstance(kind, DoubleType | FloatType) else None


KIND = Json()
