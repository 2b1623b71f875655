"""JSON Schema, as registries keep it, to Spark's types and back.

A field that may have several types, or of none that is said, is STRING and holds its JSON text. Null beside a type adds
nothing, as every column may be null. A schema that contains itself has no columns: a problem.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from moldau.pipelines.file.problems import PipelineError, Problem
from moldau.pipelines.file.spec import SourceSpec

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType


class _Recursive(Exception):
    pass


def fields_of(kept: Mapping[str, Any], source: SourceSpec) -> "StructType":
    """The fields of a schema with its references, in the form of `RegisteredSchema.as_json`."""
    from pyspark.sql.types import StructType

    documents = {name: json.loads(words) for name, words in kept["references"]}
    place = source.places.get("registry", source.place)
    try:
        found = _Reader(documents).type(json.loads(kept["text"]), "", ())
    except _Recursive as error:
        message = f"source {source.name!r}: its JSON Schema contains itself at {error}, which columns cannot"
        raise PipelineError([Problem(place, message)]) from None
    if not isinstance(found, StructType):
        message = f"source {source.name!r}: its JSON Schema is not that of an object with properties"
        raise PipelineError([Problem(place, message)])
    return found


class _Reader:
    """Reader of a schema; `documents` are other schemas, by the names that `$ref` calls them."""

    def __init__(self, documents: Mapping[str, Any]) -> None:
        self._documents = documents

    def type(self, schema: Any, document: str, way: tuple[str, ...], root: Any = None) -> "DataType":
        from pyspark.sql.types import StringType

        root = schema if root is None else root
        if not isinstance(schema, Mapping):
            return StringType()
        if "$ref" in schema:
            return self._reference(schema["$ref"], document, way, root)
        alternatives = schema.get("oneOf") or schema.get("anyOf")
        if alternatives:
            real = [item for item in alternatives if not (isinstance(item, Mapping) and item.get("type") == "null")]
            return self.type(real[0], document, way, root) if len(real) == 1 else StringType()
        return self._typed(schema, document, way, root)

    def _reference(self, name: str, document: str, way: tuple[str, ...], root: Any) -> "DataType":
        target, _, path = name.partition("#")
        key = f"{target or document}#{path}"
        if key in way:
            raise _Recursive(repr(name))
        if target:
            root = self._documents.get(target, {})
        found = root
        for part in path.strip("/").split("/") if path.strip("/") else ():
            found = found.get(part, {}) if isinstance(found, Mapping) else {}
        return self.type(found, target or document, (*way, key), root)

    def _typed(self, schema: Mapping[str, Any], document: str, way: tuple[str, ...], root: Any) -> "DataType":
        from pyspark.sql.types import ArrayType, BooleanType, DoubleType, LongType, StringType

        given = schema.get("type", "object" if "properties" in schema else None)
        kinds = [kind for kind in (given if isinstance(given, list) else [given]) if kind != "null"]
        kind = kinds[0] if len(kinds) == 1 else None
        if kind == "object":
            return self._object(schema, document, way, root)
        if kind == "array":
            return ArrayType(self.type(schema.get("items"), document, way, root))
        if kind == "string":
            return _text(schema)
        simple: dict[str | None, DataType] = {"integer": LongType(), "number": DoubleType(), "boolean": BooleanType()}
        return simple.get(kind, StringType())

    def _object(self, schema: Mapping[str, Any], document: str, way: tuple[str, ...], root: Any) -> "DataType":
        from pyspark.sql.types import MapType, StringType, StructField, StructType

        properties = schema.get("properties")
        if properties:
            return StructType(
                [StructField(name, self.type(item, document, way, root)) for name, item in properties.items()]
            )
        others = schema.get("additionalProperties")
        if isinstance(others, Mapping):
            return MapType(StringType(), self.type(others, document, way, root))
        return StringType()


def _text(schema: Mapping[str, Any]) -> "DataType":
    from pyspark.sql.types import BinaryType, DateType, StringType, TimestampType

    if schema.get("contentEncoding") == "base64":
        return BinaryType()
    formats: dict[str | None, DataType] = {"date-time": TimestampType(), "date": DateType()}
    return formats.get(schema.get("format"), StringType())


def schema_of(fields: "StructType", title: str) -> str:
    """The JSON Schema of the text that Spark writes for these columns."""
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "title": title, **_object_schema(fields)}
    return json.dumps(schema)


def _object_schema(fields: "StructType") -> dict[str, Any]:
    return {"type": "object", "properties": {field.name: _nullable(_schema(field.dataType)) for field in fields}}


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    return {"oneOf": [{"type": "null"}, schema]}


def _schema(kind: "DataType") -> dict[str, Any]:
    from pyspark.sql import types as T

    if isinstance(kind, T.StructType):
        return _object_schema(kind)
    if isinstance(kind, T.ArrayType):
        return {"type": "array", "items": _nullable(_schema(kind.elementType))}
    if isinstance(kind, T.MapType):
        return {"type": "object", "additionalProperties": _nullable(_schema(kind.valueType))}
    if isinstance(kind, T.ByteType | T.ShortType | T.IntegerType | T.LongType):
        return {"type": "integer"}
    if isinstance(kind, T.FloatType | T.DoubleType | T.DecimalType):
        return {"type": "number"}
    if isinstance(kind, T.BooleanType):
        return {"type": "boolean"}
    if isinstance(kind, T.TimestampType):
        return {"type": "string", "format": "date-time"}
    if isinstance(kind, T.DateType):
        return {"type": "string", "format": "date"}
    if isinstance(kind, T.BinaryType):
        return {"type": "string", "contentEncoding": "base64"}
    return {"type": "string"}
