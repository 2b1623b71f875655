"""Messages as JSON, with the names and in the form that Apache Kafka's own converters give them."""

import base64
import json
from typing import Any

from moldau.log.checkpoints import render_uuid
from moldau.protocol.schema import EMPTY, UUID, Array, Field, Struct

OUR_TAGS_FROM = 10_000
"""First number of a tagged field that is ours: Kafka's converters do not know it."""


def as_json(message: Struct, version: int) -> dict[str, Any]:
    """The fields that a version has. A tagged field is left out while it has its default."""
    found = {}
    for name, row in message.__fields__.items():
        value = getattr(message, name)
        if not row.is_in(version) or row.tag >= OUR_TAGS_FROM or (row.tag >= 0 and _is_default(row, value)):
            continue
        found[_camel(name)] = _value(row.wire, value, version)
    return found


def compact(value: object) -> str:
    """JSON in one line, as Jackson writes it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _value(wire: object, value: Any, version: int) -> Any:
    if value is None:
        return None
    if isinstance(wire, Array):
        return [_value(wire.element, each, version) for each in value]
    if isinstance(value, Struct):
        return as_json(value, version)
    if wire is UUID:
        return render_uuid(value)
    if isinstance(value, bytes | memoryview):
        return base64.b64encode(value).decode()
    return value


def _is_default(row: Field, value: object) -> bool:
    default = row.default
    return value == [] if default is EMPTY else value == default


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
