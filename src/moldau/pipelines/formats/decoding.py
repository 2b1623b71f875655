"""Decoding: a record becomes a row, or a bad record with its reason. No record is lost and none ends the run by itself.

A value is decoded once. Spark moves a filter below the projection that it looks at and would decode a second time
there; it does not move one below a generator, so the decoded value passes through `explode` of an array of one.
Required fields are checked here, as Spark's readers take a missing field for null.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from moldau.pipelines.file.problems import PipelineError, Problem, suggestion
from moldau.pipelines.file.spec import SourceSpec
from moldau.pipelines.kinds import Context, Reading, format_kind

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

RAW_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
METADATA = ("_key", "_topic", "_partition", "_offset", "_timestamp", "_headers")
"""Columns beside a value's fields; the names are the raw columns' with `_` in front."""
DELETED = "_deleted"
"""Column that is true in a row made of a record without value; there if the source has `tombstones`."""
DECODED = "__decoded"
KNOWN = "__reason"
CANNOT_BE_DECODED = " cannot be decoded: "
"""Words of the error that ends a run without dead letters, and names the record."""


def decode(raw: "DataFrame", source: SourceSpec, context: Context) -> Reading:
    """The rows and the bad records of `raw`, which has Spark's columns for Kafka (`headers` may lack), and perhaps a
    `reason` that makes a record a bad one. In a pipeline without dead letters nothing is bad: such a record ends the
    run. `required` may name metadata columns too and, with dots, fields of fields."""
    from pyspark.sql import functions as F

    columns = [name for name in RAW_COLUMNS if name in raw.columns]
    kind = format_kind(source.options["format"])
    once = F.explode(F.array(kind.decode(F.col("value"), source, context)))
    known = [F.col("reason").alias(KNOWN)] if "reason" in raw.columns else []
    staged = raw.select(*columns, *known, once.alias(DECODED))
    data, reason = kind.split(F.col(DECODED), F.col("value"), _struct(staged, F.col(DECODED)))
    fields = _struct(staged, data)
    _refuse(source, fields)
    metadata = _metadata(source, columns)
    made = {name: data[name] for name in fields.names}
    reason = F.coalesce(*([F.col(KNOWN)] if known else []), reason, *_missing(source, data, dict(metadata)))
    if source.options.get("tombstones"):
        made, reason = _with_tombstones(source, fields, made, reason)
        metadata.append((DELETED, _is_tombstone()))
    wanted = [column.alias(name) for name, column in (*made.items(), *metadata)]
    if context.pipeline.dead_letters is None:
        return Reading(staged.where(_or_end(reason, source)).select(*wanted))
    bad = staged.where(reason.isNotNull()).select(*columns, reason.alias("reason"))
    return Reading(staged.where(reason.isNull()).select(*wanted), bad)


def _is_tombstone() -> "Column":
    from pyspark.sql import functions as F

    return F.col("value").isNull() & F.col("key").isNotNull()


def _with_tombstones(
    source: SourceSpec, fields: "StructType", made: "dict[str, Column]", reason: "Column"
) -> "tuple[dict[str, Column], Column]":
    """The columns and the reasons where a record without value is a row too: of its key, all else NULL."""
    from pyspark.sql import functions as F

    names, gone = source.options["tombstones"], _is_tombstone()
    types = {field.name: field.dataType for field in fields.fields}
    words = F.col("key").cast("string")
    if len(names) == 1:
        key = {names[0]: words.try_cast(types[names[0]])}
    else:  # as the sinks write a key of several columns
        read = F.from_json(words, type(fields)([fields[name] for name in names]))
        key = {name: read[name] for name in names}
    unread = F.when(key[names[0]].isNull(), F.lit(f"a tombstone whose key is no {' and '.join(names)}"))
    for other in names[1:]:
        unread = F.coalesce(unread, F.when(key[other].isNull(), F.lit(f"a tombstone whose key has no {other}")))
    columns = {
        name: F.when(gone, key.get(name, F.lit(None).cast(types[name]))).otherwise(column)
        for name, column in made.items()
    }
    return columns, F.when(gone, unread).otherwise(reason)


def _or_end(reason: "Column", source: SourceSpec) -> "Column":
    """A column that is true where there is no reason; where there is one it ends the run, and names the record."""
    from pyspark.sql import functions as F

    words = F.concat_ws(
        "",
        F.lit(f"source {source.name!r}: the record at offset "),
        F.col("offset"),
        F.lit(" of "),
        F.col("topic"),
        F.lit("-"),
        F.col("partition"),
        F.lit(CANNOT_BE_DECODED),
        reason,
        F.lit(" (name a topic in 'dead_letters' to set such records aside)"),
    )
    return F.when(reason.isNull(), F.lit(True)).otherwise(F.raise_error(words).cast("boolean"))


def _struct(frame: "DataFrame", column: "Column") -> "StructType":
    from pyspark.sql.types import StructType

    found = frame.select(column.alias("it")).schema["it"].dataType
    if not isinstance(found, StructType):
        raise TypeError(f"a format gave {found.simpleString()} in place of a struct")
    return found


def _metadata(source: SourceSpec, columns: Sequence[str]) -> "list[tuple[str, Column]]":
    from pyspark.sql import functions as F

    found = []
    for name in METADATA:
        raw_name = name.removeprefix("_")
        if raw_name in columns:
            column = F.col(raw_name)
            text = name == "_key" and source.options.get("key") != "raw"
            found.append((name, column.cast("string") if text else column))
    return found


def _missing(source: SourceSpec, data: "Column", metadata: "dict[str, Column]") -> "Iterator[Column]":
    from pyspark.sql import functions as F

    for name in source.options.get("required") or ():
        yield F.when(metadata.get(name, field_of(data, name)).isNull(), F.lit(f"missing field {name!r}"))


def field_of(data: "Column", name: str) -> "Column":
    """The column of a field: `user.id` is the field `id` of the field `user`."""
    for part in name.split("."):
        data = data[part]
    return data


def _refuse(source: SourceSpec, fields: "StructType") -> None:
    problems = [*clashes(source, fields.names), *_not_there(source, fields), *_unknown_tombstones(source, fields)]
    if problems:
        raise PipelineError(problems)


def clashes(source: SourceSpec, names: Iterable[str]) -> Iterator[Problem]:
    """Fields whose name is that of a metadata column or of another field: Spark ignores case in names."""
    place = source.places.get("schema", source.place)
    seen: dict[str, str] = {}
    for name in names:
        if name.lower() in METADATA:
            yield Problem(place, f"source {source.name!r}: its field {name!r} has the name of a metadata column")
        other = seen.setdefault(name.lower(), name)
        if other is not name:
            yield Problem(place, f"source {source.name!r}: its fields {other!r} and {name!r} differ in case only")


def unknown_required(source: SourceSpec, names: Iterable[str]) -> Iterator[Problem]:
    """Required fields that the schema's top level does not have."""
    there = [*names, *METADATA]
    for name in source.options.get("required") or ():
        if name.partition(".")[0] not in there:
            place = source.places.get("required", source.place)
            message = f"source {source.name!r}: there is no field {name!r} that could be required"
            yield Problem(place, message, suggestion(name, there))


def _unknown_tombstones(source: SourceSpec, fields: "StructType") -> Iterator[Problem]:
    """Columns for the key of a record without value that the data does not have."""
    place = source.places.get("tombstones", source.place)
    for name in source.options.get("tombstones") or ():
        if name not in fields.names:
            message = f"source {source.name!r}: there is no field {name!r} for the key of a tombstone"
            yield Problem(place, message, suggestion(name, fields.names))
    if source.options.get("tombstones") and DELETED in (name.lower() for name in fields.names):
        yield Problem(place, f"source {source.name!r}: its field {DELETED!r} has the name of a metadata column")


def _not_there(source: SourceSpec, fields: "StructType") -> Iterator[Problem]:
    """Required fields, and fields of fields, that the data does not have."""
    yield from unknown_required(source, fields.names)
    for name in source.options.get("required") or ():
        if "." in name and name.partition(".")[0] in fields.names and not _reaches(fields, name.split(".")):
            place = source.places.get("required", source.place)
            yield Problem(place, f"source {source.name!r}: there is no field {name!r} that could be required")


def _reaches(fields: "DataType", path: Sequence[str]) -> bool:
    from pyspark.sql.types import StructType

    if not path:
        return True
    if not isinstance(fields, StructType) or path[0] not in fields.names:
        return False
    return _reaches(fields[path[0]].dataType, path[1:])


def schema_problems(source: SourceSpec, names: Iterable[str]) -> Iterator[Problem]:
    """Problems that a format's check can find once it knows the names of the fields."""
    names = tuple(names)
    yield from clashes(source, names)
    yield from unknown_required(source, names)
