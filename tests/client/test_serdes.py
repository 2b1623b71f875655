"""Serdes: both ways, what they refuse, and a Schema Registry."""

import sys
from typing import Any

import pytest

from moldau import BYTES, JSON, TEXT, ClientError, Consumer, Producer, Serde, SerdeError, avro, protobuf

SCHEMA = {"type": "record", "name": "Visit", "fields": [{"name": "page", "type": "string"}]}


@pytest.mark.parametrize(
    ("serde", "value", "data"),
    [
        (BYTES, b"\xff", b"\xff"),
        (TEXT, "Vltava \u2192", "Vltava \u2192".encode()),
        (JSON, {"a": [1, None]}, b'{"a":[1,null]}'),
    ],
    ids=["bytes", "text", "JSON"],
)
def test_a_value_is_the_same_again(serde: Serde[Any], value: object, data: bytes) -> None:
    assert serde.serialize(value) == data
    assert serde.deserialize(data) == value
    assert serde.serialize(None) is serde.deserialize(None) is None


def test_a_value_that_does_not_fit_is_told_in_one_line() -> None:
    with pytest.raises(SerdeError, match="key 'praha' cannot be written as bytes: it is str"):
        BYTES.serialize("praha", part="key")  # type: ignore[arg-type]  # the test
    with pytest.raises(SerdeError, match=r"value b'\\xff' is not text"):
        TEXT.deserialize(b"\xff")
    with pytest.raises(SerdeError, match="not JSON"):
        JSON.deserialize(b"{")
    with pytest.raises(SerdeError, match="nan"):
        JSON.serialize(float("nan"))


def test_two_functions_are_a_serde() -> None:
    points: Serde[tuple[int, ...]] = Serde("point", lambda point, *_: bytes(point), lambda data, *_: tuple(data))
    assert points.deserialize(points.serialize((1, 2))) == (1, 2)


def test_avro_goes_through_a_registry(bootstrap: str, moldau_topic: str) -> None:
    visits = avro(SCHEMA, registry="mock://visits")
    with Producer(bootstrap, value=visits) as producer:
        producer.send(moldau_topic, {"page": "/"})
        with pytest.raises(SerdeError, match="cannot be written as Avro"):
            producer.send(moldau_topic, {"pages": 1})
    with Consumer(moldau_topic, group_id=moldau_topic, bootstrap=bootstrap, value=visits) as consumer:
        assert [record.value for record in consumer.records(limit=1)] == [{"page": "/"}]


def test_protobuf_goes_through_a_registry() -> None:
    river = message_class()
    rivers = protobuf(river, registry="mock://rivers")
    assert rivers.deserialize(rivers.serialize(river(name="Vltava"), "rivers"), "rivers") == river(name="Vltava")


def message_class() -> Any:
    """The class that protoc would make of `message River { string name = 1; }`."""
    from google.protobuf import (  # type: ignore[import-untyped]  # it has no stubs of its own
        descriptor_pb2,
        descriptor_pool,
        message_factory,
    )

    file = descriptor_pb2.FileDescriptorProto(name="river.proto", package="tests", syntax="proto3")
    file.message_type.add(name="River").field.add(name="name", number=1, type=9, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tests.River"))


def test_without_the_packages_a_registry_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka.schema_registry", None)
    with pytest.raises(SerdeError, match=r"pip install 'moldau\[pipelines\]'"):
        avro(SCHEMA, registry="http://localhost:8081")


def test_a_registry_that_does_not_answer_is_no_reason_against_a_value() -> None:
    visits = avro(SCHEMA, registry="http://127.0.0.1:1", properties={"max.retries": 0})
    with pytest.raises(ClientError, match="the Schema Registry") as caught:
        visits.serialize({"page": "/"}, "visits")
    assert caught.value.is_retriable
    assert not isinstance(caught.value, SerdeError)
