import json
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer

from tests.pipelines.decoded import decoded, encoded
from tests.pipelines.registries import RegistryServer, value_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VISIT = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Visit",
    "type": "object",
    "properties": {"name": {"type": "string"}, "visits": {"type": "integer"}},
}


def test_json_with_a_registry_goes_both_ways_with_confluents_serialisers(
    spark: "SparkSession", storage: Path, registry: RegistryServer
) -> None:
    topic = registry.new_topic()
    value = JSONSerializer(json.dumps(VISIT), registry.client)({"name": "a", "visits": 1}, value_of(topic))
    options = {"topic": topic, "format": "json", "schema": "registry", "registry": registry.url}
    assert decoded(spark, storage, [value, '{"visits": "x"}'], **options).rows == {0: {"name": "a", "visits": 1}}

    out = registry.new_topic()
    rows = spark.sql("SELECT 'a' AS name, 1 AS visits, DATE '2026-01-02' AS day, null AS nothing, array(1.5D) AS sizes")
    [written] = encoded(rows, storage, **{**options, "topic": out})
    text = registry.client.get_latest_version(f"{out}-value").schema.schema_str
    read = JSONDeserializer(text, schema_registry_client=registry.client)
    expected = {"name": "a", "visits": 1, "day": "2026-01-02", "nothing": None, "sizes": [1.5]}
    assert read(written, value_of(out)) == expected
    assert decoded(spark, storage, [written], **{**options, "topic": out}).row["sizes"] == [1.5]
