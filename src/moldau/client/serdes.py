"""Serdes: how keys and values become bytes, and bytes become keys and values.

`BYTES`, `TEXT` and `JSON` need nothing. `avro(...)` and `protobuf(...)` keep their schemas in a Schema Registry, by
confluent-kafka's own serialisers (`pip install 'moldau[pipelines]'`). None, a tombstone, is None in each of them.
"""

import json
from collections.abc import Callable
from typing import Any, Generic, Literal, TypeVar

from moldau.client.errors import ClientError, SerdeError

T = TypeVar("T")
P = TypeVar("P")

Part = Literal["key", "value"]
Write = Callable[[T, str, Part], bytes | None]
Read = Callable[[bytes, str, Part], T]

INSTALL = "pip install 'moldau[pipelines]'"
VALUE_MAX = 40
"""Characters of a value that an error shows."""


class Serde(Generic[T]):
    """Writes and reads values of one type. Make your own of two functions: `Serde("point", write, read)`, each of
    `(value or bytes, topic, "key" or "value")`."""

    def __init__(self, name: str, write: Write[T], read: Read[T], may_block: bool = False) -> None:
        self.name = name
        self.may_block = may_block
        """Whether it may wait for a registry: then asyncio clients call it in a thread."""
        self._write = write
        self._read = read

    def serialize(self, value: T | None, topic: str = "", part: Part = "value") -> bytes | None:
        """Bytes of a value. Raises SerdeError."""
        if value is None:
            return None
        try:
            return self._write(value, topic, part)
        except ClientError:
            raise
        except Exception as error:  # a serialiser of others may raise what it likes
            raise SerdeError(f"{part} {_shown(value)} cannot be written as {self.name}: {_words(error)}") from error

    def deserialize(self, data: bytes | None, topic: str = "", part: Part = "value") -> T | None:
        """The value in bytes. Raises SerdeError."""
        if data is None:
            return None
        try:
            return self._read(data, topic, part)
        except ClientError:
            raise
        except Exception as error:  # a deserialiser of others may raise what it likes
            raise SerdeError(f"{part} {_shown(data)} is not {self.name}: {_words(error)}") from error

    def __repr__(self) -> str:
        return f"Serde({self.name!r})"


def _shown(value: object) -> str:
    words = " ".join(repr(value).split())
    return words if len(words) <= VALUE_MAX else f"{words[:VALUE_MAX]}..."


def _words(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _write_bytes(value: Any, _topic: str, _part: Part) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(f"it is {type(value).__name__}: choose a serde, such as TEXT or JSON")
    return bytes(value)


def _write_plain(value: Any, topic: str, part: Part) -> bytes:
    return value.encode() if isinstance(value, str) else _write_bytes(value, topic, part)


def _write_text(value: Any, _topic: str, _part: Part) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"it is {type(value).__name__}")
    return value.encode()


def _write_json(value: Any, _topic: str, _part: Part) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


BYTES: Serde[bytes] = Serde("bytes", _write_bytes, lambda data, _topic, _part: data)
PLAIN: Serde[str | bytes] = Serde("bytes", _write_plain, lambda data, _topic, _part: data)
"""Text or bytes are written; bytes are read."""
TEXT: Serde[str] = Serde("text", _write_text, lambda data, _topic, _part: data.decode())
JSON: Serde[Any] = Serde("JSON", _write_json, lambda data, _topic, _part: json.loads(data))


def avro(
    schema: str | dict[str, Any] | None = None, *, registry: str, properties: dict[str, Any] | None = None
) -> Serde[Any]:
    """Avro with a Schema Registry at the URL `registry`. `schema` is registered by the first value that is written as
    `TOPIC-value`; without one values can only be read, or are written with the newest of the subject."""
    client = _registry_client(registry, properties)
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer

    text = json.dumps(schema) if isinstance(schema, dict) else schema
    newest = {"auto.register.schemas": False, "use.latest.version": True}
    # made when first needed: without a schema of our own there is nothing to check before a value comes
    writer = _once(lambda: AvroSerializer(client, text, conf=None if text else newest))
    reader = _once(lambda: AvroDeserializer(client))
    return Serde("Avro", _registry_call(writer), _registry_call(reader), may_block=True)


def protobuf(message: type[P], *, registry: str, properties: dict[str, Any] | None = None) -> Serde[P]:
    """Protobuf messages of the class `message` (made by protoc), with a Schema Registry at the URL `registry`."""
    client = _registry_client(registry, properties)
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer

    writer = _once(lambda: ProtobufSerializer(message, client))
    reader = _once(lambda: ProtobufDeserializer(message, {}, client))
    return Serde("Protobuf", _registry_call(writer), _registry_call(reader), may_block=True)


def _registry_client(url: str, properties: dict[str, Any] | None) -> Any:
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as error:
        raise SerdeError(f"a Schema Registry needs the package {error.name!r}: {INSTALL}") from error
    try:
        # newer ones make clients of a kind that the URL's scheme names
        make = getattr(SchemaRegistryClient, "new_client", SchemaRegistryClient)
        return make({"url": url, **(properties or {})})
    except (TypeError, ValueError) as error:
        raise SerdeError(f"the registry's client at {url}: {error}") from error


def _once(make: Callable[[], Any]) -> Callable[[], Any]:
    made: list[Any] = []

    def get() -> Any:
        if not made:
            made.append(make())
        return made[0]

    return get


def _registry_call(get: Callable[[], Any]) -> Callable[[Any, str, Part], Any]:
    def call(value: Any, topic: str, part: Part) -> Any:
        from confluent_kafka.serialization import MessageField, SerializationContext

        field = MessageField.KEY if part == "key" else MessageField.VALUE
        try:
            return get()(value, SerializationContext(topic, field))
        except Exception as error:
            if _is_of_the_registry(error):
                raise ClientError(f"the Schema Registry: {_words(error)}", "REGISTRY", is_retriable=True) from error
            raise

    return call


def _is_of_the_registry(error: Exception) -> bool:
    """Whether the registry does not answer, or fails: no reason against a value."""
    status = getattr(error, "http_status_code", None)
    if status is not None:
        return status in (401, 403, 429) or status >= 500
    return isinstance(error, OSError) or type(error).__module__.startswith(("httpx", "httpcore", "requests"))
