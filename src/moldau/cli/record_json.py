"""Records as lines of JSON, which `moldau consume --json` writes and `moldau produce --format records` takes back.

    {"topic":"visits","partition":0,"offset":7,"timestamp":1770000000000,"timestampType":"CreateTime",
     "headers":[["lang","cs"]],"key":"praha","value":{"base64":"/wA="}}

A key, value or header is a text where its bytes are UTF-8, else an object with them in base64: nothing is lost.
"""

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, Message

from moldau.cli.payloads import FORMS, BadPayload, Form
from moldau.client.message_headers import NO_UTF8, header_name, read_headers

Headers = list[tuple[str, str | bytes | None]]

TIMESTAMP_NAMES = {TIMESTAMP_CREATE_TIME: "CreateTime", TIMESTAMP_LOG_APPEND_TIME: "LogAppendTime"}
TIMESTAMP_MAX = (1 << 63) - 1
PARTITION_MAX = (1 << 31) - 1

_shape = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


class InputRecord(NamedTuple):
    """A record that is to be sent."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int | None = None
    partition: int | None = None


class Origin(NamedTuple):
    """The place that a record was read from."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None


def headers_of(message: Message) -> list[tuple[str, bytes | None]]:
    """The headers of a record that was read. Raises BadPayload."""
    headers = read_headers(message)
    if headers is None:
        raise BadPayload(NO_UTF8)
    return headers


def json_line(message: Message, forms: Mapping[str, tuple[str, Form]] | None = None) -> bytes:
    """The line of a record. `forms`: the name and the form of `key` and `value`, where they are not shown as they are.

    Raises BadPayload where a form does not fit.
    """
    kind, timestamp_ms = message.timestamp()
    shown: dict[str, Any] = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": timestamp_ms if kind in TIMESTAMP_NAMES else None,
        "timestampType": TIMESTAMP_NAMES.get(kind),
        "headers": [[name, _plain(value)] for name, value in headers_of(message)],
    }
    for part, data in (("key", message.key()), ("value", message.value())):
        named = (forms or {}).get(part)
        shown[part] = _plain(data) if named is None or data is None else _formed(data, named[1])
        if named is not None:
            shown[f"{part}Format"] = named[0]
    return _shape.encode(shown).encode() + b"\n"


def encoded_line(record: InputRecord, origin: Origin | None) -> bytes:
    """The line of a record that is kept in a file."""
    shown: dict[str, Any] = {} if origin is None else {"topic": origin.topic}
    shown["partition"] = record.partition
    if origin is not None:
        shown["offset"] = origin.offset
    shown["timestamp"] = record.timestamp_ms
    shown["headers"] = [
        [name, _plain(value.encode() if isinstance(value, str) else value)] for name, value in record.headers
    ]
    shown["key"], shown["value"] = _plain(record.key), _plain(record.value)
    return _shape.encode(shown).encode() + b"\n"


def _plain(data: bytes | None) -> str | dict[str, str] | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _formed(data: bytes, form: Form) -> Any:
    text = form.decode(data)
    return json.loads(text) if form.is_json else text.decode()


def read_line(line: bytes) -> tuple[InputRecord, Origin | None]:
    """The record of a line, and where it came from if the line says so. Raises BadPayload."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadPayload(f"not JSON: {error}") from None
    if not isinstance(found, dict):
        raise BadPayload("not a JSON object")
    if "value" not in found and "key" not in found:
        raise BadPayload('neither "key" nor "value" is in it')
    partition = _number(found, "partition", PARTITION_MAX)
    timestamp_ms = _number(found, "timestamp", TIMESTAMP_MAX)
    key, value = _part(found, "key"), _part(found, "value")
    record = InputRecord(key, value, _headers(found.get("headers")), timestamp_ms, partition)
    topic, offset = found.get("topic"), _number(found, "offset", TIMESTAMP_MAX)
    if not isinstance(topic, str) or partition is None or offset is None:
        return record, None
    return record, Origin(topic, partition, offset, timestamp_ms)


def _number(found: Mapping[str, Any], name: str, highest: int) -> int | None:
    number = found.get(name)
    if number is None:
        return None
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= highest:
        raise BadPayload(f'"{name}" is {number!r:.40}, not a whole number from 0 to {highest}')
    return number


def _part(found: Mapping[str, Any], name: str) -> bytes | None:
    shown, form = found.get(name), found.get(f"{name}Format")
    if shown is None:
        return None
    if form is None:
        return _bytes(shown, name)
    known = FORMS.get(form) if isinstance(form, str) else None
    if known is None:
        raise BadPayload(f'"{name}" was shown as {form!r:.40}: consume it with --json and without --format')
    return known.encode(json.dumps(shown).encode() if known.is_json else str(shown).encode())


def _bytes(shown: Any, name: str) -> bytes:
    if isinstance(shown, str):
        try:
            return shown.encode()
        except UnicodeEncodeError:
            raise BadPayload(f'"{name}" is no text of Unicode') from None
    if isinstance(shown, dict) and list(shown) == ["base64"] and isinstance(shown["base64"], str):
        try:
            return base64.b64decode(shown["base64"], validate=True)
        except (binascii.Error, ValueError) as error:
            raise BadPayload(f'"{name}" is not base64: {error}') from None
    raise BadPayload(f'"{name}" is neither a text nor {{"base64": ...}} nor null')


def _headers(shown: Any) -> Headers:
    if shown is None:
        return []
    if not isinstance(shown, list):
        raise BadPayload('"headers" is not a list of [name, value]')
    return [_header(each) for each in shown]


def _header(shown: Any) -> tuple[str, bytes | None]:
    if not isinstance(shown, Sequence) or len(shown) != 2 or not isinstance(shown[0], str):
        raise BadPayload(f"the header {shown!r:.40} is not of the form [name, value]")
    try:
        name = header_name(shown[0])
    except ValueError as error:
        raise BadPayload(str(error)) from None
    return name, None if shown[1] is None else _bytes(shown[1], f"header {name}")
