"""Bytes of keys and values as text that a person can read: JSON, Avro and Protobuf of a registry, text, else hex.

Nothing that a record holds can break a page: what cannot be decoded is shown as hex, what is not seen is written out
(`web/words.py`), and what is long is cut.
"""

import json
from collections.abc import Callable
from functools import lru_cache
from io import BytesIO
from typing import Any, NamedTuple

from moldau.console.failures import ConsoleError
from moldau.console.web.words import visible
from moldau.pipelines.formats.framing import PREFIX_BYTES, BadValue, message_place, schema_id
from moldau.pipelines.schema_registry import RegisteredSchema, Registry, RegistryRefused, UnknownSchema

CUT_AT = 4096
"""Characters that a list shows of a value."""
PARSED_BYTES_MAX = 1_000_000
DEPTH_MAX = 100
"""Values that are deeper are shown as text: all that is done with a value takes a frame for each level."""
HEX_BYTES_MAX = 64 * 1024
WHOLE_MAX = 100_000
"""Characters of a value that its own page shows, and that are made of it at all; the download has all."""
WITH_FIELDS = ("json", "avro", "protobuf")
FORMATS = ("auto", "json", "text", "hex", "avro", "protobuf")
_CONTROLS_SHARE_MAX = 0.1


class Decoded(NamedTuple):
    """Bytes, decoded."""

    format: str
    """json, text, hex, avro, protobuf or null."""
    text: str
    parsed: Any
    """The value for filters: parsed JSON, or a text."""
    size: int
    problem: str = ""

    def shown(self, at_most: int = CUT_AT, in_line: bool = False) -> dict[str, Any]:
        """Fields for a page; `in_line`: values with fields take a line, as there are many below each other."""
        has_fields = in_line and self.format in WITH_FIELDS and isinstance(self.parsed, dict | list)
        text = _written(self.parsed, None) if has_fields else self.text
        return {
            "format": self.format,
            "text": text[:at_most],
            "is_cut": len(text) > at_most,
            "size": self.size,
            "problem": self.problem,
        }


class Decoder:
    """Decodes with the schemas of a registry, where there is one."""

    def __init__(self, registry: str | None) -> None:
        self._registry = None if registry is None else Registry(registry, {})

    def decode(self, data: bytes | None, wanted: str = "auto") -> Decoded:
        """The bytes in the wanted format, or in the first that fits; None is null."""
        if data is None:
            return Decoded("null", "null", None, 0)
        if wanted == "hex":
            return _hex(data)
        problem = ""
        if wanted in ("auto", "avro", "protobuf") and self._registry is not None and len(data) >= PREFIX_BYTES:
            if data[0] == 0:
                try:
                    return self._with_schema(data, self._registry)
                except (BadValue, UnknownSchema, RegistryRefused, ConsoleError) as error:
                    problem = str(error)
        elif wanted in ("avro", "protobuf"):
            problem = "name a Schema Registry with --registry" if self._registry is None else "too short"
        if wanted in ("auto", "json") and len(data) <= PARSED_BYTES_MAX:
            found = _json(data)
            if found is not None:
                return found
        return _text(data, wanted == "text", problem)

    def _with_schema(self, data: bytes, registry: Registry) -> Decoded:
        schema = registry.by_id(schema_id(data))
        if schema.type == "JSON":
            found = _json(data[PREFIX_BYTES:])
            if found is None:
                raise BadValue("no JSON after the schema's id")
            return found._replace(size=len(data))
        try:
            read, kind = (_avro_reader, "avro") if schema.type == "AVRO" else (_protobuf_reader, "protobuf")
            parsed = json.loads(json.dumps(read(schema)(data), default=str))
        except ImportError as error:
            raise ConsoleError(f"{schema.type} needs `pip install 'moldau[pipelines]'`") from error
        except (BadValue, ConsoleError):
            raise
        except Exception as error:  # libraries of others, on bytes of others: each has errors of its own
            raise BadValue(f"not decoded with schema {schema.id}: {error}") from error
        if _is_deep(parsed):
            raise BadValue(f"more than {DEPTH_MAX} values inside each other")
        return Decoded(kind, _pretty(parsed), parsed, len(data))


@lru_cache(maxsize=200)
def _avro_reader(schema: RegisteredSchema) -> Callable[[bytes], Any]:
    import fastavro

    named: dict[str, Any] = {}
    for _, words in schema.references:
        fastavro.parse_schema(json.loads(words), named)
    parsed = fastavro.parse_schema(json.loads(schema.text), named)
    return lambda data: fastavro.schemaless_reader(BytesIO(data[PREFIX_BYTES:]), parsed, None)


@lru_cache(maxsize=200)
def _protobuf_reader(schema: RegisteredSchema) -> Callable[[bytes], Any]:
    from google.protobuf import json_format, message_factory  # type: ignore[import-untyped]  # no type information

    from moldau.pipelines.formats.protobuf_schema import compiled, message_at

    file = compiled(schema.text, schema.references)

    def read(data: bytes) -> Any:
        place, begin = message_place(data)
        kind = message_at(file, place)
        if kind is None:
            raise BadValue(f"schema {schema.id} has no message at {place}")
        return json_format.MessageToDict(message_factory.GetMessageClass(kind).FromString(data[begin:]))

    return read


def _json(data: bytes) -> Decoded | None:
    if data[:1] not in b'{["-0123456789tfn \n\t\r' or not data:
        return None
    try:
        parsed = json.loads(data)
        return None if _is_deep(parsed) else Decoded("json", _pretty(parsed), parsed, len(data))
    except (ValueError, RecursionError):
        return None


def _is_deep(parsed: Any) -> bool:
    level = [parsed] if isinstance(parsed, dict | list) else []
    for _ in range(DEPTH_MAX):
        level = [
            inner
            for each in level
            for inner in (each.values() if isinstance(each, dict) else each)
            if isinstance(inner, dict | list)
        ]
    return bool(level)


def _pretty(parsed: Any) -> str:
    return _written(parsed, 2 if isinstance(parsed, dict | list) else None)


def _written(parsed: Any, indent: int | None) -> str:
    """The beginning of a value as JSON. Of deep values each line begins with as many blanks as it is deep: a megabyte
    of them would fill gigabytes."""
    parts, length = [], 0
    for part in json.JSONEncoder(ensure_ascii=False, indent=indent).iterencode(parsed):
        parts.append(part)
        length += len(part)
        if length > WHOLE_MAX:
            break
    return _cut("".join(parts))


def _cut(text: str) -> str:
    """Text that can be looked at: one character more than any page shows, so that it is seen to be cut."""
    return visible(text[: WHOLE_MAX + 1])


def _text(data: bytes, is_wanted: bool, problem: str) -> Decoded:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        if not is_wanted:
            return _hex(data)._replace(problem=problem)
        text = data.decode(errors="backslashreplace")
    controls = sum(not each.isprintable() and each not in "\t\r\n" for each in text[:CUT_AT])
    if controls > len(text[:CUT_AT]) * _CONTROLS_SHARE_MAX and not is_wanted:
        return _hex(data)._replace(problem=problem)
    return Decoded("text", _cut(text), text, len(data), problem)


def _hex(data: bytes) -> Decoded:
    lines = []
    for at in range(0, min(len(data), HEX_BYTES_MAX), 16):
        row = data[at : at + 16]
        letters = "".join(chr(each) if 32 <= each < 127 else "." for each in row)
        lines.append(f"{at:08x}  {row.hex(' '):<47}  {letters}")
    if len(data) > HEX_BYTES_MAX:
        lines.append(f"... {len(data) - HEX_BYTES_MAX:,} bytes more")
    return Decoded("hex", "\n".join(lines), data.hex() if len(data) <= CUT_AT else "", len(data))
