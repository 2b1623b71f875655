"""`protobuf`: Confluent's wire format, schemas in a registry.

Columns are those of a message of the newest schema of the subject at the first start, fixed then: its first, or the one
that `message` names. Each value names its writer's schema and the message there. It is read by the numbers of its
fields, as Protobuf does: what the columns do not have is left out. A value of another message is a bad record.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from moldau.pipelines.file.options import Option, text
from moldau.pipelines.file.problems import PipelineError, Problem, suggestion
from moldau.pipelines.file.spec import PipelineSpec, SinkSpec, SourceSpec
from moldau.pipelines.formats import arrow_udf as vectorised
from moldau.pipelines.formats.avro_types import Unfit
from moldau.pipelines.formats.decoding import schema_problems
from moldau.pipelines.formats.framing import BadValue, message_place, prefix, schema_id, zigzag
from moldau.pipelines.formats.kept_schema import fixed
from moldau.pipelines.formats.protobuf_schema import NotCompiled, all_messages, compiled, message_at, place_of
from moldau.pipelines.formats.protobuf_types import columns, fill, proto_text
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
    from google.protobuf.descriptor import Descriptor, FileDescriptor  # type: ignore[import-untyped]  # no type information
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

SCHEMAS_MAX = 1000
"""Compiled schemas that a process keeps; a topic has a few."""


class Protobuf:
    options = (
        *REGISTRY_OPTIONS,
        Option("message", text, "the message in the schema; default: its first"),
        REGISTER_OPTION,
    )

    def check(self, source: SourceSpec, pipeline: PipelineSpec) -> Iterator[Problem]:  # noqa: ARG002
        problems = list(check_subject(source))
        yield from problems
        if problems:
            return
        try:
            message = _message(source, newest_of(source, ("PROTOBUF",)))
        except PipelineError as error:
            yield from error.problems
            return
        yield from schema_problems(source, (field.name for field in message.fields))

    def decode(self, value: "Column", source: SourceSpec, context: Context) -> "Column":
        reader = schema_from_json(fixed(source, context, lambda: newest_of(source, ("PROTOBUF",)).as_json()))
        message = _message(source, reader)
        try:
            fields, _ = columns(message)
        except Unfit as error:
            place = source.places.get("registry", source.place)
            raise PipelineError([Problem(place, f"source {source.name!r}: its Protobuf schema: {error}")]) from None
        return vectorised.decoded(value, ProtobufDecoder(address(source), reader, message.full_name), fields)

    def split(self, decoded: "Column", value: "Column", fields: "StructType") -> "tuple[Column, Column]":  # noqa: ARG002
        return vectorised.split(decoded)

    def encode(self, row: "Column", fields: "StructType", sink: SinkSpec, context: Context) -> "Column":  # noqa: ARG002
        if not sink.options["register"]:
            newest = newest_of(sink, ("PROTOBUF",))
            message = _message(sink, newest)
            lost = [name for name in fields.names if name not in message.fields_by_name]
            if lost:
                raise PipelineError(
                    [Problem(sink.place, f"sink {sink.name!r}: {message.full_name} has no field for {', '.join(lost)}")]
                )
            return vectorised.encoded(row, ProtobufEncoder(newest, message.full_name))
        try:
            words = proto_text(fields, sink.options["topic"])
        except Unfit as error:
            raise PipelineError([Problem(sink.place, f"sink {sink.name!r}: {error}")]) from None
        schema = RegisteredSchema(registered(sink, "PROTOBUF", words), "PROTOBUF", words)
        return vectorised.encoded(row, ProtobufEncoder(schema, _file(schema).message_types_by_name.keys()[0]))


def _message(spec: SourceSpec | SinkSpec, schema: RegisteredSchema) -> "Descriptor":
    """The message type that the options name; PipelineError if it is not there."""
    try:
        messages = all_messages(_file(schema))
    except NotCompiled as error:
        raise PipelineError([Problem(spec.places.get("registry", spec.place), f"{spec.name!r}: {error}")]) from None
    wanted = spec.options.get("message")
    for message in messages:
        if wanted in (None, message.full_name, message.name):
            return message
    names = [message.full_name for message in messages]
    place = spec.places.get("message", spec.place)
    hint = suggestion(wanted or "", names)
    raise PipelineError([Problem(place, f"{spec.name!r}: its schema has no message {wanted!r}", hint)])


@lru_cache(maxsize=SCHEMAS_MAX)
def _file(schema: RegisteredSchema) -> "FileDescriptor":
    return compiled(schema.text, schema.references)


@lru_cache(maxsize=SCHEMAS_MAX)
def _reading(reader: RegisteredSchema, name: str) -> Callable[[bytes], Any]:
    """A function that reads a message's own bytes."""
    from google.protobuf.message_factory import GetMessageClass  # type: ignore[import-untyped]  # no type information

    message = _file(reader).pool.FindMessageTypeByName(name)
    kind = GetMessageClass(message)
    _, convert = columns(message)
    return lambda value: convert(kind.FromString(value))


@dataclass(frozen=True, slots=True)
class ProtobufDecoder:
    """Maker of a decoder; `message` is the full name of the message to read."""

    registry: RegistryAddress
    reader: RegisteredSchema
    message: str

    def decoder(self) -> Callable[[bytes], Any]:
        read = _reading(self.reader, self.message)
        good: set[tuple[int, tuple[int, ...]]] = set()

        def decode(value: bytes) -> Any:
            number = schema_id(value)
            place, start = message_place(value)
            if (number, place) not in good:
                self._expect(number, place)
                good.add((number, place))
            return read(value[start:])

        return decode

    def _expect(self, number: int, place: tuple[int, ...]) -> None:
        writer = self.reader if number == self.reader.id else self.registry.open().by_id(number)
        if writer.type != "PROTOBUF":
            raise BadValue(f"schema id {number} is {writer.type}, not PROTOBUF")
        found = message_at(_file(writer), place)
        if found is None:
            raise BadValue(f"schema id {number} has no message at {place}")
        if found.full_name != self.message:
            raise BadValue(f"a message {found.full_name!r}, not {self.message!r}")


@dataclass(frozen=True, slots=True)
class ProtobufEncoder:
    schema: RegisteredSchema
    message: str

    def encoder(self) -> Callable[[dict[str, Any]], bytes]:
        from google.protobuf.message_factory import GetMessageClass

        message = _file(self.schema).pool.FindMessageTypeByName(self.message)
        kind = GetMessageClass(message)
        start = prefix(self.schema.id) + zigzag(place_of(message))
        return lambda row: start + fill(kind(), row).SerializeToString()


KIND = Protobuf()
