"""`moldau produce` and `moldau consume` in Avro and Protobuf, against values of Confluent's own serialisers."""

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer

from moldau.__main__ import main
from moldau.testing.brokers import BrokerInThread
from tests.pipelines.registries import RegistryServer, value_of

SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Visit",
        "fields": [
            {"name": "city", "type": "string"},
            {"name": "pages", "type": "long"},
            {"name": "referrer", "type": ["null", "string"], "default": None},
        ],
    }
)
PROTO = 'syntax = "proto3"; message Other { int32 x = 1; } message Visit { string city = 1; int64 pages = 2; }'


@pytest.fixture
def place(moldau_session_broker: BrokerInThread, registry: RegistryServer) -> list[str]:
    """The options that every command gets."""
    return ["--bootstrap-server", moldau_session_broker.bootstrap, "--registry", registry.url]


def consumed(bootstrap: str, topic: str) -> bytes:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = consumer.poll(30)
    consumer.close()
    assert message is not None
    return message.value() or b""


def test_avro_is_written_and_shown_as_confluents_serialisers_read_and_write_it(
    place: list[str], registry: RegistryServer, tmp_path: Path, capsysbinary: Any
) -> None:
    topic, schema, lines = registry.new_topic(), tmp_path / "visit.avsc", tmp_path / "lines"
    schema.write_text(SCHEMA)
    lines.write_text('{"city": "Plzeň", "pages": 3, "referrer": {"string": "x"}}\n')
    assert main(["produce", topic, str(lines), "--format", "avro", "--schema", str(schema), *place]) == 0
    written = consumed(place[1], topic)
    visit = {"city": "Plzeň", "pages": 3, "referrer": "x"}
    assert AvroDeserializer(registry.client)(written, value_of(topic)) == visit
    theirs = AvroSerializer(registry.client, SCHEMA)({**visit, "referrer": None}, value_of(topic))
    producer = Producer({"bootstrap.servers": place[1]})
    producer.produce(topic, theirs)
    producer.flush()
    assert main(["consume", topic, "--from-beginning", "--no-follow", "--format", "avro", *place]) == 0
    shown = capsysbinary.readouterr().out.decode().splitlines()
    assert shown == [
        '{"city":"Plzeň","pages":3,"referrer":{"string":"x"}}',
        '{"city":"Plzeň","pages":3,"referrer":null}',
    ]


def test_protobuf_goes_there_and_back(
    place: list[str], registry: RegistryServer, tmp_path: Path, capsysbinary: Any
) -> None:
    topic, schema, lines = registry.new_topic(), tmp_path / "visit.proto", tmp_path / "lines"
    schema.write_text(PROTO)
    lines.write_text('{"city": "Brno", "pages": 4}\n')
    form = ["--format", "protobuf", *place]
    assert main(["produce", topic, str(lines), "--schema", str(schema), "--message", "Visit", *form]) == 0
    assert consumed(place[1], topic).endswith(b"\n\x04Brno\x10\x04")
    assert main(["consume", topic, "--from-beginning", "--no-follow", "--json", *form]) == 0
    shown = json.loads(capsysbinary.readouterr().out)
    assert (shown["value"], shown["valueFormat"]) == ({"city": "Brno", "pages": "4"}, "protobuf")
    assert main(["produce", topic, str(lines), "--message", "Nobody", *form]) == 1
    assert b"it has Other, Visit" in capsysbinary.readouterr().err


def test_what_is_not_of_the_schema_is_refused_in_one_line(
    place: list[str], registry: RegistryServer, tmp_path: Path, capsysbinary: Any
) -> None:
    topic, lines = registry.new_topic(), tmp_path / "lines"
    lines.write_text('{"city": 5}\n')
    assert main(["produce", topic, str(lines), "--format", "avro", *place]) == 1
    assert f"no subject '{topic}-value'" in capsysbinary.readouterr().err.decode()
    registry.register(f"{topic}-value", SCHEMA)
    assert main(["produce", topic, str(lines), "--format", "avro", *place]) == 1
    said = capsysbinary.readouterr().err.decode()
    assert said.startswith("error: ")
    assert "line 1: not a value of the schema" in said
    assert said.count("\n") == 1
    assert main(["produce", topic, str(lines), *place]) == 0
    capsysbinary.readouterr()
    assert main(["consume", topic, "--from-beginning", "--no-follow", "--format", "avro", *place]) == 1
    assert f"{topic}-0 offset 0: the first byte is 123" in capsysbinary.readouterr().err.decode()
