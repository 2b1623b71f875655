"""Lines to records, in the manner of Kafka's LineMessageReader: headers, key and value between separators."""

from collections.abc import Mapping

from moldau.cli.common import is_true
from moldau.cli.failures import ToolError
from moldau.cli.payloads import FORMS, BadPayload, Form
from moldau.cli.record_json import Headers, InputRecord
from moldau.client.message_headers import header_name

_TEXT = FORMS["text"]
PROPERTIES = (
    *("parse.key", "key.separator", "parse.headers", "headers.delimiter", "headers.separator", "headers.key.separator"),
    *("null.marker", "ignore.error", "schema.registry.url", "key.schema", "value.schema"),
)
"""Names that mean something here; others may be for a class of Kafka's."""
SEPARATORS = ("key.separator", "headers.delimiter", "headers.separator", "headers.key.separator")


class BadLine(Exception):
    """Error: a line is not of the form that was asked for; the message is the reason."""


class LineReader:
    """Reader that splits a line into headers, key and value as the properties ask."""

    def __init__(self, properties: Mapping[str, str], value_form: Form = _TEXT, key_form: Form = _TEXT) -> None:
        self._parses_key = is_true(properties, "parse.key")
        self._parses_headers = is_true(properties, "parse.headers")
        self._ignores_errors = is_true(properties, "ignore.error")
        self._key_separator = properties.get("key.separator", "\t").encode()
        for name in SEPARATORS:
            if properties.get(name) == "":
                raise ToolError(f"{name} is empty: nothing would divide a line")
        self._headers_delimiter = properties.get("headers.delimiter", "\t").encode()
        self._headers_separator = properties.get("headers.separator", ",")
        self._header_key_separator = properties.get("headers.key.separator", ":")
        marker = properties.get("null.marker")
        self._null_marker = None if marker is None else marker.encode()
        self._encode_value = value_form.encode
        self._encode_key = key_form.encode

    def record(self, line: bytes) -> InputRecord:
        """The record of a line. Raises BadLine."""
        rest = line.removesuffix(b"\n").removesuffix(b"\r")
        headers: Headers = []
        key: bytes | None = None
        if self._parses_headers:
            text, rest = self._split(rest, self._headers_delimiter, "headers.delimiter")
            headers = self._headers(text)
        if self._parses_key:
            key, rest = self._split(rest, self._key_separator, "key.separator")
        value = self._nullable(rest)
        key = self._nullable(key)
        try:
            encoded = None if value is None else self._encode_value(value)
            return InputRecord(None if key is None else self._encode_key(key), encoded, headers)
        except BadPayload as error:
            raise BadLine(f"{error}: {shown(line)}") from None

    def _split(self, text: bytes, separator: bytes, name: str) -> tuple[bytes | None, bytes]:
        first, found, rest = text.partition(separator)
        if found:
            return first, rest
        if self._ignores_errors:
            return None, text
        raise BadLine(f"no {name} {separator.decode()!r} in it: {shown(text)}")

    def _headers(self, text: bytes | None) -> Headers:
        if not text or text == self._null_marker:
            return []
        try:
            return [self._header(item) for item in text.decode().split(self._headers_separator)]
        except UnicodeDecodeError:
            raise BadLine(f"headers that are not UTF-8: {shown(text)}") from None

    def _header(self, item: str) -> tuple[str, bytes | None]:
        name, found, value = item.partition(self._header_key_separator)
        if not found and not self._ignores_errors:
            raise BadLine(f"header {item!r:.80} has no {self._header_key_separator!r} in it")
        try:
            header_name(name)
        except ValueError as error:
            raise BadLine(str(error)) from None
        return name, self._nullable(value.encode()) if found else None

    def _nullable(self, data: bytes | None) -> bytes | None:
        return None if data == self._null_marker else data


def shown(text: bytes) -> str:
    """The beginning of a text, for an error's line."""
    return repr(text[:80].decode(errors="replace").rstrip("\r\n"))
