"""Two other implementations read what we write and write it again: the bytes must not change.

kio and kafka-python carry message definitions of their own, so agreement on random values means agreement on the
order, the type and the versions of every field. kio's names are compared too.
"""

import dataclasses
import io
import warnings
from collections.abc import Callable
from importlib import import_module
from random import Random
from typing import Any

import pytest

from moldau.protocol.codec import decode, encode
from moldau.protocol.messages.k18_api_versions import ApiVersionsResponse
from moldau.protocol.schema import Message
from moldau.protocol.source import fields_in, tagged_in
from tests.protocol.sampling import message_types, sample, versions
from tests.protocol.test_java_vectors import read_vectors

SAMPLES = 3
KAFKA_PYTHON_MODULES = (
    "admin.acl",
    "admin.client_quotas",
    "admin.cluster",
    "admin.configs",
    "admin.groups",
    "admin.topics",
    "admin.transactions",
    "admin.users",
    "consumer.fetch",
    "consumer.group",
    "consumer.metadata",
    "consumer.offsets",
    "metadata.api_versions",
    "metadata.find_coordinator",
    "metadata.metadata",
    "producer.produce",
    "producer.transaction",
    "sasl",
)

Rewrite = Callable[[bytes], bytes]


def kio_type(message_type: type[Message], version: int) -> Any:
    """kio's class for the same message."""
    load = getattr(import_module("kio.index"), f"load_{kind_of(message_type)}_schema")
    return load(message_type.api_key, version)


def kind_of(message_type: type[Message]) -> str:
    return "request" if message_type.__name__.endswith("Request") else "response"


def kio_names(message_type: type[Message], version: int) -> set[str]:
    """Our field names as kio has them: it drops the unit, having a type for it."""
    rows = fields_in(message_type, version) + tagged_in(message_type, version)
    return {name.removesuffix("_ms") for name, _ in rows}


def kio_rewrite(entity: Any) -> Rewrite:
    serial = import_module("kio.serial")
    read, write = serial.entity_reader(entity), serial.entity_writer(entity)

    def rewrite(data: bytes) -> bytes:
        value, size = read(data, 0)
        assert size == len(data)
        out = io.BytesIO()
        write(out, value)
        return out.getvalue()

    return rewrite


def kafka_python_types() -> dict[str, Any]:
    """kafka-python's classes by name."""
    found: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas by an old function
        modules = [import_module(f"kafka.protocol.{name}") for name in KAFKA_PYTHON_MODULES]
    base = import_module("kafka.protocol.api_message").ApiMessage
    for module in modules:
        classes = {key: value for key, value in vars(module).items() if isinstance(value, type)}
        found |= {key: value for key, value in classes.items() if issubclass(value, base) and value is not base}
    return found


KAFKA_PYTHON = kafka_python_types()


def kafka_python_rewrite(oracle: Any, version: int) -> Rewrite:
    def rewrite(data: bytes) -> bytes:
        value = oracle.decode(data, version=version)
        value._header = None  # it is not set by decode, and encode reads it
        return bytes(value.encode(version=version))

    return rewrite


def assert_unchanged(message_type: type[Message], version: int, rewrite: Rewrite) -> None:
    for index in range(SAMPLES):
        seed = f"{message_type.__name__} {version} {index}"
        message = sample(message_type, version, Random(seed))
        if message_type is ApiVersionsResponse:
            message = ApiVersionsResponse(api_keys=message.api_keys)  # with an error kafka-python reads it as version 0
        written = encode(message, version)
        assert rewrite(written) == written, f"seed {seed!r}"
        assert encode(decode(message_type, version, written), version) == written


def kio_versions(message_type: type[Message]) -> list[int]:
    """The versions that kio lists. To import its classes takes more than a second, and every worker lists the tests."""
    index = import_module("kio.schema.index")
    kind = index.EntityType[kind_of(message_type)]
    listed = index.schema_name_map.get(index.api_key_map.get(message_type.api_key), {})
    return [version for version in versions(message_type) if kind in listed.get(version, ())]


@pytest.mark.parametrize(
    "message_type", [cls for cls in message_types() if kio_versions(cls)], ids=lambda cls: cls.__name__
)
def test_kio_agrees(message_type: type[Message]) -> None:
    for version in kio_versions(message_type):
        entity = kio_type(message_type, version)
        assert {field.name for field in dataclasses.fields(entity)} == kio_names(message_type, version)
        assert_unchanged(message_type, version, kio_rewrite(entity))


def kafka_python_versions(message_type: type[Message]) -> list[int]:
    oracle = KAFKA_PYTHON.get(message_type.__name__)
    return [version for version in versions(message_type) if oracle and version <= oracle.max_version]


@pytest.mark.parametrize(
    "message_type", [cls for cls in message_types() if kafka_python_versions(cls)], ids=lambda cls: cls.__name__
)
def test_kafka_python_agrees(message_type: type[Message]) -> None:
    for version in kafka_python_versions(message_type):
        oracle = KAFKA_PYTHON[message_type.__name__]
        assert_unchanged(message_type, version, kafka_python_rewrite(oracle, version))


def test_every_message_version_has_an_oracle() -> None:
    """What neither library covers is in the vectors that Kafka's own classes approved."""
    vectors = {(vector.message_type, vector.version) for vector in read_vectors()}
    for message_type in message_types():
        covered = {*kio_versions(message_type), *kafka_python_versions(message_type)}
        covered |= {version for version in versions(message_type) if (message_type, version) in vectors}
        assert covered == set(versions(message_type)), message_type.__name__
