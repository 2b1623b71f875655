"""JSON schemas that are found: inferred from samples, or a registry's."""

import json
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from moldau.pipelines.file.problems import PipelineError
from moldau.pipelines.formats.json_inference import infer
from moldau.pipelines.formats.json_schema import fields_of
from moldau.pipelines.formats.samples import sample_values
from moldau.pipelines.kinds import Context, source_kind
from moldau.pipelines.schema_registry import Registry, RegistryRefused, UnknownSchema
from tests.pipelines.clusters import Cluster, Record
from tests.pipelines.registries import RegistryServer
from tests.pipelines.specs import pipeline, source
from tests.pipelines.streams import rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INFERRED = source("topic", "visits", topic="t", format="json", schema="infer")


def inferred(*samples: str | None) -> str:
    return infer([None if sample is None else sample.encode() for sample in samples], INFERRED).simpleString()


def test_types_are_inferred_and_merged() -> None:
    assert inferred('{"a": 1, "b": true, "c": "x"}') == "struct<a:bigint,b:boolean,c:string>"
    assert inferred('{"a": 1}', '{"a": 1.5}', '{"a": null}') == "struct<a:double>"
    assert inferred('{"a": 1}', '{"a": "x"}', '{"b": null}') == "struct<a:string,b:string>"
    assert inferred('{"a": 9223372036854775808}') == "struct<a:decimal(38,0)>"
    assert inferred('{"a": {"x": 1}}', '{"a": {"y": [1, 2.5]}}') == "struct<a:struct<x:bigint,y:array<double>>>"
    assert (
        inferred('{"a": []}', '{"a": [{"x": 1}]}', '{"a": [{"y": null}]}')
        == "struct<a:array<struct<x:bigint,y:string>>>"
    )
    assert inferred('{"a": {}}', '{"b": [[]]}') == "struct<a:string,b:array<array<string>>>"


def test_samples_that_are_no_objects_do_not_count() -> None:
    assert inferred(None, "x", "5", '{"a": 1}') == "struct<a:bigint>"
    with pytest.raises(PipelineError, match="no JSON object in its topic to infer the schema from"):
        inferred("x", None)


def test_an_inferred_schema_is_fixed_at_the_first_start(spark: "SparkSession", cluster: Cluster, storage: Path) -> None:
    topic = cluster.new_topic(partitions=2)
    cluster.send(topic, ['{"a": 1}', Record(b'{"b": "x"}', partition=1)])
    spec = pipeline(storage, cluster.bootstrap)
    made = source("topic", "visits", topic=topic, format="json", schema="infer")

    def read(checkpoint: str) -> list[dict[str, Any]]:
        rows = source_kind("topic").read(made, Context(spark, spec, spec.storage)).rows
        found = rows_of(rows, storage / checkpoint)
        return [{name: value for name, value in row.items() if not name.startswith("_")} for row in found]

    assert sorted(read("1"), key=str) == [{"a": 1, "b": None}, {"a": None, "b": "x"}]
    cluster.send(topic, ['{"a": "text", "c": 1}', '{"a": 2, "c": 1}'])
    assert sorted(read("2"), key=str) == [{"a": 1, "b": None}, {"a": 2, "b": None}, {"a": None, "b": "x"}]


def test_samples_come_from_the_beginning_of_every_partition(
    spark: "SparkSession", moldau_cluster_only: Cluster, storage: Path
) -> None:
    topic = moldau_cluster_only.new_topic(partitions=2)
    records = [
        Record(f"{partition}-{number}".encode(), partition=partition) for partition in (0, 1) for number in (0, 1, 2)
    ]
    moldau_cluster_only.send(topic, records)
    spec = pipeline(storage, moldau_cluster_only.bootstrap)
    made = source("topic", "visits", pattern=f"{topic[:-1]}[{topic[-1]}]", format="json", schema="infer", samples=4)
    assert sample_values(made, Context(spark, spec, storage)) == [b"0-0", b"0-1", b"1-0", b"1-1"]


def fields(schema: dict[str, Any], *references: tuple[str, dict[str, Any]]) -> str:
    kept = {"text": json.dumps(schema), "references": [[name, json.dumps(other)] for name, other in references]}
    return fields_of(kept, INFERRED).simpleString()


def test_a_json_schema_becomes_columns() -> None:
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "visits": {"type": "integer"},
            "share": {"type": ["null", "number"]},
            "ok": {"oneOf": [{"type": "null"}, {"type": "boolean"}]},
            "at": {"type": "string", "format": "date-time"},
            "day": {"type": "string", "format": "date"},
            "place": {"$ref": "#/definitions/place"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
            "either": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
            "other": {"$ref": "other.json#/$defs/size"},
        },
        "definitions": {"place": {"type": "object", "properties": {"city": {"type": "string"}}}},
    }
    assert fields(schema, ("other.json", {"$defs": {"size": {"type": "number"}}})) == (
        "struct<name:string,visits:bigint,share:double,ok:boolean,at:timestamp,day:date,place:struct<city:string>,"
        "tags:array<string>,counts:map<string,bigint>,either:string,other:double>"
    )


def test_a_json_schema_that_contains_itself_or_is_no_object_is_a_problem() -> None:
    with pytest.raises(PipelineError, match="contains itself at '#'"):
        fields({"type": "object", "properties": {"next": {"$ref": "#"}}})
    node = {"type": "object", "properties": {"next": {"$ref": "#/definitions/node"}}}
    with pytest.raises(PipelineError, match="contains itself at '#/definitions/node'"):
        fields({"properties": {"first": {"$ref": "#/definitions/node"}}, "definitions": {"node": node}})
    with pytest.raises(PipelineError, match="not that of an object"):
        fields({"type": "array", "items": {"type": "string"}})


def test_known_ids_are_asked_for_once_and_unknown_ones_again_later(registry: RegistryServer) -> None:
    clock = 1000.0
    known = Registry(registry.url, {}, lambda: clock)
    number = registry.register(registry.new_topic(), '"string"')
    asked: deque[int] = deque()
    get_schema = known._client.get_schema
    known._client.get_schema = lambda schema_id: (asked.append(schema_id), get_schema(schema_id))[1]  # type: ignore
    for _ in range(3):
        assert known.by_id(number).text == '"string"'
        with pytest.raises(UnknownSchema, match="schema id 999997 is not in the registry"):
            known.by_id(999_997)
    assert list(asked) == [number, 999_997]
    clock += 60
    with pytest.raises(UnknownSchema):
        known.by_id(999_997)
    assert list(asked) == [number, 999_997, 999_997]


def test_a_registry_that_is_not_there_is_no_unknown_schema() -> None:
    with pytest.raises(RegistryRefused, match=r"the registry at http://127\.0\.0\.1:1 does not answer"):
        Registry("http://127.0.0.1:1", {"max.retries": "0"}).by_id(1)
