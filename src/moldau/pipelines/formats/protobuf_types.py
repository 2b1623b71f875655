"""Protobuf's types and Spark's, both ways.

| Protobuf                                   | Spark                                                          |
|--------------------------------------------|----------------------------------------------------------------|
| a field that was not set                   | null if the schema can tell (optional, message, oneof), else 0  |
| uint32, fixed32; uint64, fixed64           | BIGINT; DECIMAL(20,0)                                           |
| enum                                       | STRING, a number that has no name as digits                     |
| google.protobuf.Timestamp, Duration        | TIMESTAMP, INTERVAL DAY TO SECOND (microseconds)                |
| google.protobuf.StringValue and the like   | what they hold                                                  |
| google.protobuf.Struct, Value, Any ...     | STRING, its JSON                                                |
| a message that contains itself             | a problem                                                       |
For sinks a DECIMAL and a DATE become text, as Protobuf has no types for them.
"""

import re
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from moldau.pipelines.formats.avro_types import Unfit, avro_name

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor  # type: ignore[import-untyped]  # no type information
    from pyspark.sql.types import DataType, StructField, StructType

    Convert = Callable[[Any], Any]

WRAPPERS = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
AS_JSON = frozenset(f"google.protobuf.{kind}" for kind in ("Struct", "Value", "ListValue", "Any", "FieldMask"))
TIMESTAMP = "google.protobuf.Timestamp"
DURATION = "google.protobuf.Duration"


def columns(message: "Descriptor") -> "tuple[StructType, Convert]":
    """Spark's fields, and the function from a message to pyarrow's values."""
    return _message(message, ())


def _message(message: "Descriptor", way: tuple[str, ...]) -> "tuple[StructType, Convert]":
    from pyspark.sql.types import StructField, StructType

    name = message.full_name
    if name in way:
        raise Unfit(f"the message {name!r} contains itself")
    if not message.fields:
        raise Unfit(f"the message {name!r} has no fields")
    found: list[StructField] = []
    parts: list[tuple[str, bool, Convert | None]] = []
    for field in message.fields:
        kind, convert = _field(field, (*way, name))
        found.append(StructField(field.name, kind))
        parts.append((field.name, field.has_presence, convert))

    def values(item: Any) -> dict[str, Any]:
        row: dict[str, Any] = {}
        for name, may_lack, convert in parts:
            if may_lack and not item.HasField(name):
                row[name] = None
            else:
                value = getattr(item, name)
                row[name] = convert(value) if convert else value
        return row

    return StructType(found), values


def _field(field: "FieldDescriptor", way: tuple[str, ...]) -> "tuple[DataType, Convert | None]":
    from pyspark.sql.types import ArrayType, MapType

    if _is_map(field):
        key, _ = _single(field.message_type.fields_by_name["key"], way)
        value, convert = _single(field.message_type.fields_by_name["value"], way)
        of_value = convert or _same
        return MapType(key, value), lambda items: [(name, of_value(items[name])) for name in items]
    kind, convert = _single(field, way)
    if not field.is_repeated:
        return kind, convert
    if convert is None:
        return ArrayType(kind), list
    of_item = convert
    return ArrayType(kind), lambda items: [of_item(item) for item in items]


def _same(value: Any) -> Any:
    return value


def _is_map(field: "FieldDescriptor") -> bool:
    return bool(field.is_repeated and field.message_type is not None and field.message_type.GetOptions().map_entry)


def _single(field: "FieldDescriptor", way: tuple[str, ...]) -> "tuple[DataType, Convert | None]":
    if field.message_type is not None:
        return _inner(field.message_type, way)
    if field.enum_type is not None:
        from pyspark.sql.types import StringType

        names = field.enum_type.values_by_number
        return StringType(), lambda number: names[number].name if number in names else str(number)
    return _scalar(field)


def _inner(message: "Descriptor", way: tuple[str, ...]) -> "tuple[DataType, Convert]":
    from pyspark.sql.types import DayTimeIntervalType, StringType, TimestampType

    name = message.full_name
    if name == TIMESTAMP:
        return TimestampType(), _time
    if name == DURATION:
        return DayTimeIntervalType(), _duration
    if name in AS_JSON:
        return StringType(), _json
    if name in WRAPPERS:
        kind, convert = _scalar(message.fields_by_name["value"])
        of_value = convert or _same
        return kind, lambda item: of_value(item.value)
    return _message(message, way)


def _time(item: Any) -> Any:
    from datetime import UTC, datetime, timedelta

    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=item.seconds, microseconds=item.nanos // 1000)


def _duration(item: Any) -> Any:
    from datetime import timedelta

    return timedelta(seconds=item.seconds, microseconds=item.nanos // 1000)


def _json(item: Any) -> str:
    from google.protobuf.json_format import MessageToJson  # type: ignore[import-untyped]  # no type information

    return str(MessageToJson(item, indent=None))


def _scalar(field: "FieldDescriptor") -> "tuple[DataType, Convert | None]":
    from google.protobuf.descriptor import FieldDescriptor as F
    from pyspark.sql import types as T

    kinds: dict[int, DataType] = {
        F.TYPE_DOUBLE: T.DoubleType(),
        F.TYPE_FLOAT: T.FloatType(),
        F.TYPE_BOOL: T.BooleanType(),
        F.TYPE_STRING: T.StringType(),
        F.TYPE_BYTES: T.BinaryType(),
        F.TYPE_INT32: T.IntegerType(),
        F.TYPE_SINT32: T.IntegerType(),
        F.TYPE_SFIXED32: T.IntegerType(),
        F.TYPE_UINT32: T.LongType(),
        F.TYPE_FIXED32: T.LongType(),
        F.TYPE_INT64: T.LongType(),
        F.TYPE_SINT64: T.LongType(),
        F.TYPE_SFIXED64: T.LongType(),
    }
    if field.type in (F.TYPE_UINT64, F.TYPE_FIXED64):
        return T.DecimalType(20, 0), Decimal
    if field.type not in kinds:
        raise Unfit(f"the field {field.full_name!r} is a group, which Protobuf has given up")
    return kinds[field.type], None


def proto_text(fields: "StructType", name: str) -> str:
    """A .proto file with one message for the columns; each may be null where Protobuf can say so."""
    lines = _proto_message(fields, avro_name(name), "")
    imports = [
        f'import "google/protobuf/{file}.proto";' for file in ("timestamp", "duration") if _mentions(lines, file)
    ]
    return "\n".join(['syntax = "proto3";', *imports, *lines, ""])


def _mentions(lines: list[str], file: str) -> bool:
    return any(f"google.protobuf.{file.title()}" in line for line in lines)


def _proto_message(fields: "StructType", name: str, indent: str) -> list[str]:
    lines = [f"{indent}message {name} {{"]
    for number, field in enumerate(fields, 1):
        lines.extend(_proto_field(field, number, indent + "  "))
    return [*lines, f"{indent}}}"]


def _proto_field(field: "StructField", number: int, indent: str) -> list[str]:
    from pyspark.sql import types as T

    if not re.fullmatch(r"[A-Za-z_]\w*", field.name, flags=re.ASCII):
        raise Unfit(f"{field.name!r} is no name for a field of Protobuf")
    kind, label = field.dataType, "optional "
    if isinstance(kind, T.MapType):
        key, lines = _proto_type(kind.keyType, field.name, indent)
        value, more = _proto_type(kind.valueType, field.name, indent)
        return [*lines, *more, f"{indent}map<{key}, {value}> {field.name} = {number};"]
    if isinstance(kind, T.ArrayType):
        kind, label = kind.elementType, "repeated "
    word, lines = _proto_type(kind, field.name, indent)
    return [*lines, f"{indent}{label}{word} {field.name} = {number};"]


def _proto_type(kind: "DataType", name: str, indent: str) -> tuple[str, list[str]]:
    """The type's name, and the message that must stand before it, if it is one."""
    from pyspark.sql import types as T

    if isinstance(kind, T.StructType):
        inner = f"{name.title().replace('_', '')}Message"
        return inner, _proto_message(kind, inner, indent)
    found = "string" if isinstance(kind, T.DecimalType) else _PROTO.get(kind.typeName())
    if found is None:
        raise Unfit(f"Protobuf has no type for {kind.simpleString().upper()} in this place")
    return found, []


_PROTO = {
    "boolean": "bool",
    "byte": "int32",
    "short": "int32",
    "integer": "int32",
    "long": "int64",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "bytes",
    "date": "string",
    "timestamp": "google.protobuf.Timestamp",
    "daytimeinterval": "google.protobuf.Duration",
}


def fill(message: Any, row: dict[str, Any]) -> Any:
    """Set a message's fields from a row; null fields stay unset."""
    by_name = message.DESCRIPTOR.fields_by_name
    for name, value in row.items():
        if value is not None:
            _set(message, by_name[name], value)
    return message


def _set(message: Any, field: "FieldDescriptor", value: Any) -> None:
    if _is_map(field):
        _set_map(getattr(message, field.name), field.message_type.fields_by_name["value"], value)
    elif field.is_repeated:
        items = getattr(message, field.name)
        for item in value:
            if item is None:
                raise Unfit(f"{field.name!r} has a null inside, which Protobuf cannot say")
            if field.message_type is not None:
                _set_message(items.add(), item)
            else:
                items.append(_scalar_value(field, item))
    elif field.message_type is not None:
        _set_message(getattr(message, field.name), value)
    else:
        setattr(message, field.name, _scalar_value(field, value))


def _set_map(items: Any, field: "FieldDescriptor", value: dict[Any, Any]) -> None:
    for key, item in value.items():
        if item is None:
            raise Unfit(f"the map's value for {key!r} is null, which Protobuf cannot say")
        if field.message_type is not None:
            _set_message(items[key], item)
        else:
            items[key] = _scalar_value(field, item)


def _set_message(message: Any, value: Any) -> None:
    name = message.DESCRIPTOR.full_name
    message.SetInParent()
    if name == TIMESTAMP:
        message.FromDatetime(value)
    elif name == DURATION:
        message.FromTimedelta(value)
    elif name in WRAPPERS:
        message.value = _scalar_value(message.DESCRIPTOR.fields_by_name["value"], value)
    elif name in AS_JSON:
        from google.protobuf.json_format import Parse

        Parse(value, message)
    else:
        fill(message, value)


def _scalar_value(field: "FieldDescriptor", value: Any) -> Any:
    from google.protobuf.descriptor import FieldDescriptor as F

    if field.enum_type is not None:
        found = field.enum_type.values_by_name.get(value)
        if found is None:
            raise Unfit(f"{value!r} is no {field.enum_type.name}")
        return found.number
    if field.type == F.TYPE_STRING and not isinstance(value, str):
        return value.isoformat() if hasattr(value, "isoformat") else str(value)
    return int(value) if isinstance(value, Decimal) else value
