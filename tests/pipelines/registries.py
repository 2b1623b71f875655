"""The registry of the tests, and values as Confluent's own serialisers write and read them."""

import base64
import itertools
from dataclasses import dataclass
from typing import Any

from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2  # type: ignore[import-untyped]  # no type information

from moldau.pipelines.formats.protobuf_schema import compiled

_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class RegistryServer:
    """A running registry."""

    url: str

    @property
    def client(self) -> SchemaRegistryClient:
        return SchemaRegistryClient({"url": self.url})

    def new_topic(self) -> str:
        """A name that no subject begins with yet; nothing is made."""
        return f"schemas-{next(_numbers)}"

    def register(
        self, subject: str, text: str, kind: str = "AVRO", references: tuple[tuple[str, str], ...] = ()
    ) -> int:
        """Register a schema; `references`: name and subject of each, in their first version."""
        named = [SchemaReference(name, other, 1) for name, other in references]
        return self.client.register_schema(subject, Schema(text, kind, named))


class ConfluentsFormats(SchemaRegistryClient):
    """Registry client with Confluent's own answers: it gives a Protobuf schema as a packed descriptor to a client that
    asks for it, as theirs for Python does; Apicurio gives the text. Done here, so that their deserialiser can be asked
    what it reads."""

    def get_schema(self, *arguments: Any, **named: Any) -> Schema:
        found = super().get_schema(arguments[0])
        if "serialized" not in (*arguments, *named.values()):
            return found
        file = descriptor_pb2.FileDescriptorProto()
        compiled(found.schema_str or "", ()).CopyToProto(file)
        return Schema(base64.b64encode(file.SerializeToString()).decode(), "PROTOBUF")


def value_of(topic: str) -> Any:
    """Context that Confluent's serialisers want for a value."""
    return SerializationContext(topic, MessageField.VALUE)
