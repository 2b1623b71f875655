"""Records as lines, in the manner of Kafka's DefaultMessageFormatter, or as JSON."""

from collections.abc import Mapping

from confluent_kafka import Message

from moldau.cli.common import is_true
from moldau.cli.payloads import FORMS, BadPayload, Form
from moldau.cli.record_json import TIMESTAMP_NAMES, headers_of, json_line

Forms = Mapping[str, tuple[str, Form]]
"""The name and the form of `key`, `value` and `headers`, where they are not shown as they are."""

PROPERTIES = (
    *(f"print.{part}" for part in ("timestamp", "partition", "offset", "epoch", "headers", "key", "value")),
    *("key.separator", "line.separator", "headers.separator", "null.literal"),
    *(f"{part}.deserializer" for part in ("key", "value", "headers")),
)
"""Names that mean something here; others may be for a class of Kafka's."""
PARTS = ("timestamp", "partition", "offset", "epoch", "headers", "key", "value")


class Formatter:
    """Formatter of one record as one line; the parts are in Kafka's order."""

    def __init__(self, properties: Mapping[str, str], forms: Forms | None = None) -> None:
        self._shows = [
            getattr(self, f"_{name}") for name in PARTS if is_true(properties, f"print.{name}", default=name == "value")
        ]
        self._forms = {part: form for part, (_, form) in (forms or {}).items()}
        self._separator = properties.get("key.separator", "\t").encode()
        self._end = properties.get("line.separator", "\n").encode()
        self._headers_separator = properties.get("headers.separator", ",").encode()
        self._null = properties.get("null.literal", "null").encode()

    def line(self, message: Message) -> bytes:
        """The line for `message`, with its end. Raises BadPayload."""
        return self._separator.join([show(message) for show in self._shows]) + self._end

    def _timestamp(self, message: Message) -> bytes:
        kind, timestamp_ms = message.timestamp()
        name = TIMESTAMP_NAMES.get(kind)
        return b"NO_TIMESTAMP" if name is None else f"{name}:{timestamp_ms}".encode()

    def _partition(self, message: Message) -> bytes:
        return f"Partition:{message.partition()}".encode()

    def _offset(self, message: Message) -> bytes:
        return f"Offset:{message.offset()}".encode()

    def _epoch(self, message: Message) -> bytes:
        epoch = message.leader_epoch()
        return b"Epoch:NO_EPOCH" if epoch is None else f"Epoch:{epoch}".encode()

    def _headers(self, message: Message) -> bytes:
        headers = headers_of(message)
        shown = (name.encode() + b":" + self._shown(value, "headers") for name, value in headers)
        return self._headers_separator.join(shown) if headers else b"NO_HEADERS"

    def _key(self, message: Message) -> bytes:
        return self._shown(message.key(), "key")

    def _value(self, message: Message) -> bytes:
        return self._shown(message.value(), "value")

    def _shown(self, data: bytes | None, part: str) -> bytes:
        if data is None:
            return self._null
        form = self._forms.get(part)
        return data if form is None else form.decode(data)


class JsonFormatter:
    """Formatter of one record as one line of JSON."""

    def __init__(self, forms: Forms) -> None:
        self._forms = forms

    def line(self, message: Message) -> bytes:
        """The line for `message`, with its end. Raises BadPayload."""
        try:
            return json_line(message, self._forms)
        except UnicodeDecodeError as error:
            raise BadPayload(f"not UTF-8: {error}") from None


class Nothing:
    """Formatter that shows nothing, for those who only count."""

    def line(self, _: Message) -> bytes:
        """No bytes."""
        return b""


def searched_text(message: Message, forms: Forms) -> bytes:
    """The text of key and value that an expression is looked for in. Raises BadPayload."""
    parts = []
    for part, data in (("key", message.key()), ("value", message.value())):
        _, form = forms.get(part, ("text", FORMS["text"]))
        parts.append(b"" if data is None else form.decode(data))
    return b"\n".join(parts)
