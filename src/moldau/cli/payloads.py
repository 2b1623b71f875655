"""Forms of keys and values: the text that a person or a program reads and writes, and the bytes of the record."""

import argparse
import base64
import binascii
import json
import struct
import uuid
from collections.abc import Callable, Mapping
from typing import NamedTuple

from moldau.cli.failures import ToolError

Convert = Callable[[bytes], bytes]

REGISTRY_FORMS = ("avro", "protobuf")
URL_PROPERTY = "schema.registry.url"


class BadPayload(Exception):
    """Error: a text is not of the form, or bytes cannot be shown in it; the message is the reason."""


class Form(NamedTuple):
    """A form of keys or values."""

    encode: Convert
    """Text to bytes."""
    decode: Convert
    """Bytes to text."""
    is_json: bool = False
    """Whether the text is JSON."""


def _same(data: bytes) -> bytes:
    return data


def _checked_json(text: bytes) -> bytes:
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadPayload(f"not JSON: {error}") from None
    return text


def _one_line_json(data: bytes) -> bytes:
    try:
        return json.dumps(json.loads(data), ensure_ascii=False, separators=(",", ":")).encode()
    except (ValueError, RecursionError) as error:
        raise BadPayload(f"not JSON: {error}") from None


def _from_hex(text: bytes) -> bytes:
    try:
        return bytes.fromhex(text.decode("ascii"))
    except ValueError:
        raise BadPayload("not hexadecimal digits, two for each byte") from None


def _from_base64(text: bytes) -> bytes:
    try:
        return base64.b64decode(text.strip(), validate=True)
    except binascii.Error as error:
        raise BadPayload(f"not base64: {error}") from None


def _number_form(name: str, layout: str, number: type[int] | type[float]) -> Form:
    """The form of a number as Kafka's serialisers write it, the most significant byte first."""
    packed = struct.Struct(f">{layout}")

    def encode(text: bytes) -> bytes:
        try:
            return packed.pack(number(text.decode("ascii")))
        except (ValueError, struct.error, OverflowError):
            raise BadPayload(f"not a number that fits into a {name}") from None

    def decode(data: bytes) -> bytes:
        if len(data) != packed.size:
            raise BadPayload(f"{len(data)} bytes are not a {name}, which has {packed.size}")
        return str(packed.unpack(data)[0]).encode()

    return Form(encode, decode, is_json=True)


def _encoded_uuid(text: bytes) -> bytes:
    try:
        return str(uuid.UUID(text.decode("ascii"))).encode()
    except ValueError:
        raise BadPayload("not a UUID") from None


FORMS: Mapping[str, Form] = {
    "text": Form(_same, _same),
    "json": Form(_checked_json, _one_line_json, is_json=True),
    "hex": Form(_from_hex, lambda data: data.hex().encode()),
    "base64": Form(_from_base64, base64.b64encode),
    "short": _number_form("short", "h", int),
    "integer": _number_form("integer", "i", int),
    "long": _number_form("long", "q", int),
    "float": _number_form("float", "f", float),
    "double": _number_form("double", "d", float),
    "uuid": Form(_encoded_uuid, _same),
}
"""Forms that need nothing but the record."""

NAMES = (*FORMS, *REGISTRY_FORMS)
_CLASSES = {"String": "text", "ByteArray": "text", "Bytes": "text", "ByteBuffer": "text", "UUID": "uuid"}
_NUMBER_CLASSES = {name.capitalize(): name for name in ("short", "integer", "long", "float", "double")}


def form_of_class(name: str) -> str:
    """The form that one of Kafka's (de)serializer classes stands for."""
    simple = name.rpartition(".")[2].removesuffix("Deserializer").removesuffix("Serializer")
    found = {**_CLASSES, **_NUMBER_CLASSES}.get(simple)
    if found is None:
        raise ToolError(f"there is no form for the class {name!r}: give --format one of {', '.join(NAMES)}")
    return found


def add_form_options(made: argparse.ArgumentParser, *more: str) -> None:
    """Add the options that choose forms, and the registry that some forms need."""
    names = (*NAMES, *more)
    listed = ", ".join(names)
    made.add_argument("--format", choices=names, metavar="FORM", help=f"form of the values: {listed} (default: text)")
    made.add_argument("--key-format", choices=NAMES, metavar="FORM", help="form of the keys (default: text)")
    made.add_argument("--registry", metavar="URL", help="Schema Registry, for avro and protobuf")
    made.add_argument(
        "--registry-property",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a property of the registry's client, such as basic.auth.user.info",
    )
