"""Forms that need a Schema Registry: values in Avro and Protobuf behind a schema's id, shown and typed as JSON.

Avro is shown in Avro's own JSON encoding, as Confluent's console tools do: a union that is not null names its branch.
"""

import json
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from io import BytesIO, StringIO
from typing import TYPE_CHECKING, Any, NamedTuple

from moldau.cli.failures import ToolError
from moldau.cli.payloads import BadPayload, Form

if TYPE_CHECKING:
    from moldau.pipelines.schema_registry import RegisteredSchema, Registry

INSTALL = "pip install 'moldau[pipelines]'"
PACKAGES = ("fastavro", "google.protobuf", "grpc_tools", "confluent_kafka.schema_registry")
"""Packages that come with that."""


class Subject(NamedTuple):
    """A subject in a registry, and which of its schemas is written."""

    url: str
    client: Mapping[str, str]
    name: str
    schema: str | None = None
    """Text of a schema to register; None: the newest of the subject."""
    message: str | None = None
    """Name of a Protobuf message; None: the first of the schema."""


def registry_form(kind: str, subject: Subject) -> Form:
    """The form `avro` or `protobuf`; ToolError where the packages for it are missing."""
    for package in PACKAGES:
        try:
            import_module(package)
        except ImportError as error:
            raise ToolError(f"the format {kind} needs the package {error.name}: {INSTALL}") from error
    from moldau.pipelines.schema_registry import Registry, RegistryRefused

    try:
        registry = Registry(subject.url, subject.client)
    except RegistryRefused as error:
        raise ToolError(str(error)) from error
    made: Callable[[Registry, Subject], Form] = _avro if kind == "avro" else _protobuf
    return made(registry, subject)


def _avro(registry: "Registry", subject: Subject) -> Form:
    @cache
    def writer() -> "tuple[bytes, Any]":
        from moldau.pipelines.formats.framing import prefix

        schema = _written(registry, subject, "AVRO")
        return prefix(schema.id), _parsed_avro(schema)

    @cache
    def schema_of(number: int) -> Any:
        return _parsed_avro(_read(registry, number, "AVRO"))

    def encode(text: bytes) -> bytes:
        from fastavro import json_reader, schemaless_writer

        start, schema = writer()
        stream = BytesIO()
        try:
            line = json.dumps(json.loads(text))
            (value,) = json_reader(StringIO(line), schema)
            schemaless_writer(stream, schema, value)
        except Exception as error:  # fastavro raises whatever the value led it to
            raise BadPayload(f"not a value of the schema: {_words(error)}") from None
        return start + stream.getvalue()

    def decode(data: bytes) -> bytes:
        from fastavro import json_writer, schemaless_reader

        from moldau.pipelines.formats.framing import PREFIX_BYTES

        schema = schema_of(_schema_id(data))
        try:
            value = schemaless_reader(BytesIO(data[PREFIX_BYTES:]), schema, None, return_record_name=True)
            shown = StringIO()
            json_writer(shown, schema, [value])
        except Exception as error:  # as above
            raise BadPayload(f"not a value of its schema: {_words(error)}") from None
        return json.dumps(json.loads(shown.getvalue()), ensure_ascii=False, separators=(",", ":")).encode()

    return Form(encode, decode, is_json=True)


def _protobuf(registry: "Registry", subject: Subject) -> Form:
    from google.protobuf import json_format  # type: ignore[import-untyped]  # no type information
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # no type information

    @cache
    def writer() -> tuple[bytes, Any]:
        from moldau.pipelines.formats.framing import prefix, zigzag
        from moldau.pipelines.formats.protobuf_schema import all_messages, place_of

        schema = _written(registry, subject, "PROTOBUF")
        messages = all_messages(_compiled(schema))
        wanted = [each for each in messages if subject.message in (None, each.name, each.full_name)]
        if not wanted:
            names = ", ".join(each.full_name for each in messages)
            raise ToolError(f"the schema of {subject.name!r} has no message {subject.message!r}: it has {names}")
        return prefix(schema.id) + zigzag(place_of(wanted[0])), _message_class(wanted[0])

    @cache
    def class_at(number: int, place: tuple[int, ...]) -> Any:
        from moldau.pipelines.formats.protobuf_schema import message_at

        found = message_at(_compiled(_read(registry, number, "PROTOBUF")), place)
        if found is None:
            raise BadPayload(f"schema id {number} has no message at {place}")
        return _message_class(found)

    def encode(text: bytes) -> bytes:
        start, kind = writer()
        try:
            return start + bytes(json_format.Parse(text, kind()).SerializeToString())
        except (json_format.ParseError, UnicodeDecodeError, RecursionError) as error:
            raise BadPayload(f"not a value of the schema: {_words(error)}") from None

    def decode(data: bytes) -> bytes:
        from moldau.pipelines.formats.framing import BadValue, message_place

        number = _schema_id(data)
        try:
            place, start = message_place(data)
            found = class_at(number, place).FromString(data[start:])
        except (BadValue, DecodeError) as error:
            raise BadPayload(_words(error)) from None
        shown: str = json_format.MessageToJson(found, indent=None, preserving_proto_field_name=True, ensure_ascii=False)
        return shown.encode()

    return Form(encode, decode, is_json=True)


def _written(registry: "Registry", subject: Subject, kind: str) -> "RegisteredSchema":
    """The schema that values are written with."""
    from moldau.pipelines.schema_registry import RegistryRefused, UnknownSchema

    try:
        if subject.schema is not None:
            return registry.by_id(registry.register(subject.name, kind, subject.schema))
        found = registry.newest(subject.name)
    except UnknownSchema as error:
        raise ToolError(f"the registry has no subject {subject.name!r}: give --schema FILE to register one") from error
    except RegistryRefused as error:
        raise ToolError(str(error)) from error
    if found.type != kind:
        raise ToolError(f"the schema of {subject.name!r} is {found.type}, not {kind}")
    return found


def _read(registry: "Registry", number: int, kind: str) -> "RegisteredSchema":
    from moldau.pipelines.schema_registry import RegistryRefused, UnknownSchema

    try:
        found = registry.by_id(number)
    except UnknownSchema as error:
        raise BadPayload(str(error)) from None
    except RegistryRefused as error:
        raise ToolError(str(error)) from error
    if found.type != kind:
        raise BadPayload(f"schema id {number} is {found.type}, not {kind}")
    return found


def _schema_id(data: bytes) -> int:
    from moldau.pipelines.formats.framing import BadValue, schema_id

    try:
        return schema_id(data)
    except BadValue as error:
        raise BadPayload(str(error)) from None


def _parsed_avro(schema: "RegisteredSchema") -> Any:
    from moldau.pipelines.formats.avro_types import parsed

    try:
        return parsed(schema.text, schema.references)[0]
    except Exception as error:  # fastavro has no one error for schemas that it does not take
        raise ToolError(f"schema id {schema.id} cannot be read: {_words(error)}") from error


def _compiled(schema: "RegisteredSchema") -> Any:
    from moldau.pipelines.formats.protobuf_schema import NotCompiled, compiled

    try:
        return compiled(schema.text, schema.references)
    except NotCompiled as error:
        raise ToolError(f"schema id {schema.id}: {error}") from error


def _message_class(message: Any) -> Any:
    from google.protobuf.message_factory import GetMessageClass  # type: ignore[import-untyped]  # no type information

    return GetMessageClass(message)


def _words(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
