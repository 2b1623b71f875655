"""`avro`: Confluent's wire format, schemas in a registry.

The reader's schema is the newest of the subject at the first start, and fixed then. Each value names its writer's
schema, which Avro resolves against the reader's: fields that are gone are left out, new ones have their defaults.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from typing import TYPE_CHECKING, Any

from moldau.pipelines.file.problems import PipelineError, Problem
from moldau.pipelines.file.spec import PipelineSpec, SinkSpec, SourceSpec
from moldau.pipelines.formats import arrow_udf as vectorised
from moldau.pipelines.formats.avro_types import Unfit, avro_schema, columns, has_branches, parsed
from moldau.pipelines.formats.decoding import schema_problems
from moldau.pipelines.formats.framing import PREFIX_BYTES, BadValue, prefix, schema_id
from moldau.pipelines.formats.kept_schema import fixed
from moldau.pipelines.kinds import Context
from moldau.pipelines.schema_registry import (
    REGISTER_OPTION,
    REGISTRY_OPTIONS,
    RegisteredSchema,
    RegistryAddress,
    address,
    check_subject,
    newest_of,
    registered,
    schema_from_json,
)

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

WRITERS_MAX = 1000
"""Schemas that a process keeps ready; a topic has a few."""


class Avro:
    options = (*REGISTRY_OPTIONS, REGISTER_OPTION)

    def check(self, source: SourceSpec, pipeline: PipelineSpec) -> Iterator[Problem]:  # noqa: ARG002
        problems = list(check_subject(source))
        yield from problems
        if not problems:
            schema = newest_of(source, ("AVRO",))
            yield from schema_problems(source, _field_names(schema))

    def decode(self, value: "Column", source: SourceSpec, context: Context) -> "Column":
        reader = schema_from_json(fixed(source, context, lambda: newest_of(source, ("AVRO",)).as_json()))
        try:
            fields, _ = columns(*parsed(reader.text, reader.references))
        except Unfit as error:
            place = source.places.get("registry", source.place)
            raise PipelineError([Problem(place, f"source {source.name!r}: its Avro schema: {error}")]) from None
        return vectorised.decoded(value, AvroDecoder(address(source), reader), fields)

    def split(self, decoded: "Column", value: "Column", fields: "StructType") -> "tuple[Column, Column]":  # noqa: ARG002
        return vectorised.split(decoded)

    def encode(self, row: "Column", fields: "StructType", sink: SinkSpec, context: Context) -> "Column":  # noqa: ARG002
        if not sink.options["register"]:
            newest = newest_of(sink, ("AVRO",))
            _refuse_unlike(sink, fields, newest)
            return vectorised.encoded(row, AvroEncoder(newest))
        try:
            text = json.dumps(avro_schema(fields, sink.options["topic"]))
        except Unfit as error:
            raise PipelineError([Problem(sink.place, f"sink {sink.name!r}: {error}")]) from None
        return vectorised.encoded(row, AvroEncoder(RegisteredSchema(registered(sink, "AVRO", text), "AVRO", text)))


def _field_names(schema: RegisteredSchema) -> list[str]:
    found = json.loads(schema.text)
    fields = found.get("fields") if isinstance(found, dict) else None
    return [field["name"] for field in fields] if fields else ["value"]


def _needed_fields(schema: RegisteredSchema) -> list[str]:
    """The fields without a default that cannot be null."""
    found = json.loads(schema.text)
    fields = found.get("fields", ()) if isinstance(found, dict) else ()
    return [
        field["name"]
        for field in fields
        if "default" not in field and field["type"] != "null" and "null" not in field["type"]
    ]


def _refuse_unlike(sink: SinkSpec, fields: "StructType", schema: RegisteredSchema) -> None:
    """Refuse columns that the schema lacks: they would be lost silently; and fields that it needs and no column has:
    no row could be written."""
    place = sink.places.get("register", sink.place)
    lost = [name for name in fields.names if name not in _field_names(schema)]
    if lost:
        message = f"sink {sink.name!r}: the registered schema has no field for {', '.join(lost)}"
        raise PipelineError([Problem(place, message)])
    needed = [name for name in _needed_fields(schema) if name not in fields.names]
    if needed:
        message = f"sink {sink.name!r}: the registered schema needs a field {needed[0]!r}, and the rows have none"
        raise PipelineError([Problem(place, message, "add the column to the view, or give the field a default")])


@lru_cache(maxsize=WRITERS_MAX)
def _parsed(schema: RegisteredSchema) -> tuple[Any, dict[str, Any]]:
    return parsed(schema.text, schema.references)


@lru_cache(maxsize=WRITERS_MAX)
def _reading(writer: RegisteredSchema, reader: RegisteredSchema) -> Callable[[BytesIO], Any]:
    """A function that reads a value without its prefix. Kept for the process, as it is costly to make."""
    from fastavro import schemaless_reader

    schema, named = _parsed(reader)
    _, convert = columns(schema, named)
    written, _ = _parsed(writer)
    resolving = None if writer.id == reader.id else schema
    with_names = has_branches(schema, named)

    def read(stream: BytesIO) -> Any:
        found = schemaless_reader(stream, written, resolving, return_named_type=with_names)
        return convert(found) if convert else found

    return read


@dataclass(frozen=True, slots=True)
class AvroDecoder:
    registry: RegistryAddress
    reader: RegisteredSchema

    def decoder(self) -> Callable[[bytes], Any]:
        known: dict[int, Callable[[BytesIO], Any]] = {self.reader.id: _reading(self.reader, self.reader)}

        def decode(value: bytes) -> Any:
            number = schema_id(value)
            read = known.get(number)
            if read is None:
                read = known[number] = _reading(self._writer(number), self.reader)
            stream = BytesIO(value)
            stream.seek(PREFIX_BYTES)
            found = read(stream)
            left = len(value) - stream.tell()
            if left:
                raise BadValue(f"{left} bytes are left over after the value")
            return found

        return decode

    def _writer(self, number: int) -> RegisteredSchema:
        found = self.registry.open().by_id(number)
        if found.type != "AVRO":
            raise BadValue(f"schema id {number} is {found.type}, not AVRO")
        return found


@dataclass(frozen=True, slots=True)
class AvroEncoder:
    schema: RegisteredSchema

    def encoder(self) -> Callable[[dict[str, Any]], bytes]:
        from fastavro import schemaless_writer

        schema, _ = _parsed(self.schema)
        start = prefix(self.schema.id)

        def encode(row: dict[str, Any]) -> bytes:
            stream = BytesIO()
            stream.write(start)
            schemaless_writer(stream, schema, row)
            return stream.getvalue()

        return encode


KIND = Avro()
