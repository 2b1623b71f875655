"""Avro's types and Spark's, both ways.

| Avro                                  | Spark                                                             |
|---------------------------------------|-------------------------------------------------------------------|
| null with one other branch            | that branch; every column may be null                             |
| int with long, float with double      | BIGINT, DOUBLE                                                    |
| several other branches                | a struct with a field for each, named by its type; one is not null |
| enum, uuid                            | STRING                                                            |
| fixed, bytes                          | BINARY                                                            |
| decimal                               | DECIMAL (more than 38 digits: a problem)                          |
| timestamp-millis, -micros; local-...  | TIMESTAMP; TIMESTAMP_NTZ                                          |
| time-millis, time-micros              | INT, BIGINT: as they are, since midnight                          |
| a record that contains itself         | a problem                                                         |
A value that is no record is a column `value`.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField, StructType

    Convert = Callable[[Any], Any]
    Typed = tuple[DataType, Convert | None]
    """Spark's type, and what makes pyarrow's value of fastavro's; None: it is the same."""

DECIMAL_DIGITS_MAX = 38
BRANCH_OF = {bool: "boolean", str: "string", bytes: "bytes", float: "double", dict: "map", list: "array"}


class Unfit(Exception):
    """Error: columns cannot have a schema; the words say why."""


def parsed(text: str, references: tuple[tuple[str, str], ...]) -> tuple[Any, dict[str, Any]]:
    """The schema for fastavro, and all named types of it and of its references."""
    from fastavro.schema import parse_schema

    named: dict[str, Any] = {}
    for _, words in references:
        parse_schema(json.loads(words), named)
    return parse_schema(json.loads(text), named), named


def columns(schema: Any, named: Mapping[str, Any]) -> "tuple[StructType, Convert | None]":
    """Spark's fields, and the function from fastavro's values to pyarrow's (None: they are the same)."""
    from pyspark.sql.types import StructField, StructType

    kind, convert = _type(schema, named, ())
    if isinstance(kind, StructType) and _resolved(schema, named).get("type") in ("record", "error"):
        return kind, convert
    whole = convert or _same
    return StructType([StructField("value", kind)]), lambda value: {"value": whole(value)}


def _same(value: Any) -> Any:
    return value


def _resolved(schema: Any, named: Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(schema, str):
        return named.get(schema) or {"type": schema}
    return schema if isinstance(schema, Mapping) else {"type": "union"}


def _type(schema: Any, named: Mapping[str, Any], way: tuple[str, ...]) -> "Typed":
    if isinstance(schema, list):
        return _union(schema, named, way)
    found = _resolved(schema, named)
    kind = found["type"]
    if not isinstance(kind, str):
        return _type(kind, named, way)
    if kind in named:
        return _type(kind, named, way)
    if kind in ("record", "error"):
        return _record(found, named, way)
    if kind == "array":
        return _array(found, named, way)
    if kind == "map":
        return _map(found, named, way)
    return _simple(found, kind)


def _record(schema: Mapping[str, Any], named: Mapping[str, Any], way: tuple[str, ...]) -> "Typed":
    from pyspark.sql.types import StructField, StructType

    name = schema["name"]
    if name in way:
        raise Unfit(f"the record {name!r} contains itself")
    if not schema["fields"]:
        raise Unfit(f"the record {name!r} has no fields")
    found: list[StructField] = []
    converts: dict[str, Convert] = {}
    for field in schema["fields"]:
        kind, convert = _type(field["type"], named, (*way, name))
        found.append(StructField(field["name"], kind))
        if convert:
            converts[field["name"]] = convert
    return StructType(found), _of_fields(converts) if converts else None


def _of_fields(converts: "Mapping[str, Convert]") -> "Convert":
    items = list(converts.items())

    def convert(value: Any) -> Any:
        if value is not None:
            for name, of_field in items:
                value[name] = of_field(value[name])
        return value

    return convert


def _array(schema: Mapping[str, Any], named: Mapping[str, Any], way: tuple[str, ...]) -> "Typed":
    from pyspark.sql.types import ArrayType

    kind, convert = _type(schema["items"], named, way)
    if convert is None:
        return ArrayType(kind), None
    of_item = convert
    return ArrayType(kind), lambda value: None if value is None else [of_item(item) for item in value]


def _map(schema: Mapping[str, Any], named: Mapping[str, Any], way: tuple[str, ...]) -> "Typed":
    from pyspark.sql.types import MapType, StringType

    kind, convert = _type(schema["values"], named, way)
    of_item = convert or _same
    return MapType(
        StringType(), kind
    ), lambda value: None if value is None else [(name, of_item(item)) for name, item in value.items()]


def _simple(schema: Mapping[str, Any], kind: str) -> "Typed":
    from pyspark.sql import types as T

    logical = schema.get("logicalType")
    if logical == "decimal" and kind in ("bytes", "fixed"):
        if schema["precision"] > DECIMAL_DIGITS_MAX:
            raise Unfit(f"a decimal has {schema['precision']} digits, {DECIMAL_DIGITS_MAX} are the most")
        return T.DecimalType(schema["precision"], schema.get("scale", 0)), None
    of_logical: dict[tuple[str, Any], Typed] = {
        ("int", "date"): (T.DateType(), None),
        ("int", "time-millis"): (T.IntegerType(), _millis),
        ("long", "time-micros"): (T.LongType(), _micros),
        ("long", "timestamp-millis"): (T.TimestampType(), None),
        ("long", "timestamp-micros"): (T.TimestampType(), None),
        ("long", "local-timestamp-millis"): (T.TimestampNTZType(), None),
        ("long", "local-timestamp-micros"): (T.TimestampNTZType(), None),
        ("string", "uuid"): (T.StringType(), _text),
    }
    of_type: dict[str, DataType] = {
        "null": T.StringType(),
        "boolean": T.BooleanType(),
        "int": T.IntegerType(),
        "long": T.LongType(),
        "float": T.FloatType(),
        "double": T.DoubleType(),
        "string": T.StringType(),
        "enum": T.StringType(),
        "bytes": T.BinaryType(),
        "fixed": T.BinaryType(),
    }
    return of_logical.get((kind, logical)) or (of_type[kind], None)


def _micros(value: Any) -> Any:
    if value is None:
        return None
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond


def _millis(value: Any) -> Any:
    return None if value is None else _micros(value) // 1000


def _text(value: Any) -> Any:
    return None if value is None else str(value)


def _union(schema: list[Any], named: Mapping[str, Any], way: tuple[str, ...]) -> "Typed":
    from pyspark.sql.types import DoubleType, LongType, StructField, StructType

    branches = [branch for branch in schema if _resolved(branch, named)["type"] != "null"]
    if len(branches) == 1:
        return _only_branch(*_type(branches[0], named, way))
    names = [_branch_name(branch, named) for branch in branches]
    if set(names) == {"int", "long"}:
        return LongType(), None
    if set(names) == {"float", "double"}:
        return DoubleType(), None
    if len(set(names)) < len(names):
        raise Unfit(f"a union has several branches called {max(names, key=names.count)!r}")
    found = [(name, *_type(branch, named, way)) for name, branch in zip(names, branches, strict=True)]
    converts = {name: convert for name, _, convert in found if convert}
    return StructType([StructField(name, kind) for name, kind, _ in found]), _of_union(names, converts)


def _only_branch(kind: "DataType", convert: "Convert | None") -> "Typed":
    """The type of a union's only branch. Where fastavro names branches it names this one too, if its type has a
    name."""
    of_value = convert or _same
    return kind, lambda value: of_value(value[1] if isinstance(value, tuple) else value)


def _branch_name(branch: Any, named: Mapping[str, Any]) -> str:
    found = _resolved(branch, named)
    name = found["name"] if found["type"] in ("record", "error", "enum", "fixed") else found["type"]
    return str(name).rpartition(".")[2]


def _of_union(names: list[str], converts: "Mapping[str, Convert]") -> "Convert":
    def convert(value: Any) -> Any:
        if value is None:
            return None
        name, value = _branch(value, names)
        return {name: converts.get(name, _same)(value)}

    return convert


def _branch(value: Any, names: list[str]) -> tuple[str, Any]:
    """The branch and the value: fastavro names the branch of a named type in a tuple; another shows in the value."""
    if isinstance(value, tuple):
        return value[0].rpartition(".")[2], value[1]
    if isinstance(value, int) and not isinstance(value, bool):
        return ("long" if "long" in names else "int"), value
    name = BRANCH_OF.get(type(value))
    if name == "double" and "double" not in names:
        name = "float"
    if name not in names:
        # a logical type: its value is of a type of Python's that no other branch has
        name = next(item for item in names if item in ("long", "int", "bytes", "string"))
    return str(name), value


def has_branches(schema: Any, named: Mapping[str, Any]) -> bool:
    """Whether some union has several branches beside null: then fastavro must name the branch that it met."""
    return any(
        isinstance(item, list) and len([branch for branch in item if branch != "null"]) > 1
        for item in _all(schema, named, set())
    )


def _all(schema: Any, named: Mapping[str, Any], seen: set[str]) -> list[Any]:
    found = [schema]
    if isinstance(schema, str):
        if schema in named and schema not in seen:
            seen.add(schema)
            found.extend(_all(named[schema], named, seen))
    elif isinstance(schema, list):
        for branch in schema:
            found.extend(_all(branch, named, seen))
    else:
        inside = [schema.get("items"), schema.get("values"), *(field["type"] for field in schema.get("fields", ()))]
        if not isinstance(schema["type"], str):
            inside.append(schema["type"])
        for item in inside:
            if item is not None:
                found.extend(_all(item, named, seen))
    return found


def avro_schema(fields: "StructType", name: str) -> dict[str, Any]:
    """The schema for columns: each may be null. Unfit if a type has no counterpart."""
    return _avro_record(fields, avro_name(name))


def avro_name(name: str) -> str:
    """A name for Avro: a topic's name has dots and dashes, which would make a namespace or be refused."""
    found = re.sub(r"\W", "_", name, flags=re.ASCII)
    return f"_{found}" if found[:1].isdigit() else found


def _avro_record(fields: "StructType", name: str) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [_avro_field(field, name) for field in fields]}


def _avro_field(field: "StructField", owner: str) -> dict[str, Any]:
    if not re.fullmatch(r"[A-Za-z_]\w*", field.name, flags=re.ASCII):
        raise Unfit(f"{field.name!r} is no name for a field of Avro")
    kind = _avro(field.dataType, f"{owner}_{field.name}")
    return {"name": field.name, "type": ["null", kind], "default": None}


def _avro(kind: "DataType", name: str) -> Any:
    from pyspark.sql import types as T

    if isinstance(kind, T.StructType):
        return _avro_record(kind, name)
    if isinstance(kind, T.ArrayType):
        return {"type": "array", "items": ["null", _avro(kind.elementType, name)]}
    if isinstance(kind, T.MapType):
        if not isinstance(kind.keyType, T.StringType):
            raise Unfit(f"keys of a map in Avro are STRING, not {kind.keyType.simpleString().upper()}")
        return {"type": "map", "values": ["null", _avro(kind.valueType, name)]}
    if isinstance(kind, T.DecimalType):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    simple = _AVRO.get(kind.typeName())
    if simple is None:
        raise Unfit(f"Avro has no type for {kind.simpleString().upper()}")
    return simple


_AVRO: dict[str, Any] = {
    "boolean": "boolean",
    "byte": "int",
    "short": "int",
    "integer": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "bytes",
    "date": {"type": "int", "logicalType": "date"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "timestamp_ntz": {"type": "long", "logicalType": "local-timestamp-micros"},
}
