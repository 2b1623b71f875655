"""The console shows and filters Avro and Protobuf, as Confluent's own serialisers and `moldau produce` write them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry.avro import AvroSerializer

from moldau.__main__ import main
from moldau.testing.brokers import BrokerInThread
from tests.console.consoles import Asking, asking
from tests.pipelines.registries import RegistryServer, value_of
from tests.pipelines.test_registry_payloads import PROTO, SCHEMA


@pytest.fixture
def console(moldau_session_broker: BrokerInThread, registry: RegistryServer, tmp_path: Path) -> Iterator[Asking]:
    with asking(moldau_session_broker.bootstrap, tmp_path, registry=registry.url) as running:
        yield running


def test_avro_is_decoded_filtered_and_shown_though_some_values_are_broken(
    console: Asking, moldau_session_broker: BrokerInThread, registry: RegistryServer
) -> None:
    topic = registry.new_topic()
    written = AvroSerializer(registry.client, SCHEMA)
    producer = Producer({"bootstrap.servers": moldau_session_broker.bootstrap})
    for pages in (3, 30):
        visit = {"city": "Plzeň", "pages": pages, "referrer": None}
        producer.produce(topic, written(visit, value_of(topic)), partition=0)
    for broken in (b"\0\0\0\0\1\xff", b"\0\x7f\xff\xff\xff{}", b"\0\0\0\0"):
        producer.produce(topic, broken, partition=0)
    assert producer.flush(20) == 0
    console.look()
    rows = console.json(f"/topics/{topic}/records?from=beginning")["records"]
    assert [row["value"]["format"] for row in rows] == ["avro", "avro", "hex", "hex", "hex"]
    assert json.loads(rows[0]["value"]["text"]) == {"city": "Plzeň", "pages": 3, "referrer": None}
    assert rows[2]["value"]["problem"]
    assert "schema" in rows[3]["value"]["problem"]
    found = console.json(f'/topics/{topic}/records?from=beginning&filter=value.city == "Plzeň" and value.pages > 10')
    assert [row["offset"] for row in found["records"]] == [1]


def test_protobuf_is_decoded_and_filtered(
    console: Asking, moldau_session_broker: BrokerInThread, registry: RegistryServer, tmp_path: Path
) -> None:
    topic, schema, lines = registry.new_topic(), tmp_path / "visit.proto", tmp_path / "lines"
    schema.write_text(PROTO)
    lines.write_text('{"city": "Brno", "pages": 4}\n{"city": "Praha", "pages": 5}\n')
    form = ["--format", "protobuf", "--schema", str(schema), "--message", "Visit", "--registry", registry.url]
    place = ["--bootstrap-server", moldau_session_broker.bootstrap]
    assert main(["produce", topic, str(lines), *form, *place]) == 0
    console.look()
    rows = console.json(f"/topics/{topic}/records?from=beginning&filter=value.city ~ '^Br'")["records"]
    assert [(row["value"]["format"], json.loads(row["value"]["text"])["city"]) for row in rows] == [
        ("protobuf", "Brno")
    ]
