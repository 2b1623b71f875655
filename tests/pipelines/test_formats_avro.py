import io
import json
import uuid
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer

from moldau.pipelines.file.problems import PipelineError
from moldau.pipelines.formats.avro import KIND
from tests.pipelines.decoded import decoded, encoded
from tests.pipelines.registries import RegistryServer, value_of
from tests.pipelines.specs import pipeline, source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def record(*fields: dict[str, Any], name: str = "Visit") -> str:
    return json.dumps({"type": "record", "name": name, "namespace": "org.example", "fields": list(fields)})


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def written(registry: RegistryServer, topic: str, schema: str, value: Any) -> bytes:
    """By Confluent's serialiser, which registers the schema."""
    found = AvroSerializer(registry.client, schema)(value, value_of(topic))
    assert isinstance(found, bytes)
    return found


def framed(schema_id: int, payload: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + payload


def avro(registry: RegistryServer, topic: str, **more: Any) -> dict[str, Any]:
    return {"topic": topic, "format": "avro", "registry": registry.url, **more}


EVERYTHING = record(
    field("name", "string"),
    field("small", "int"),
    field("great", "long"),
    field("ratio", "float"),
    field("exact", "double"),
    field("ok", "boolean"),
    field("data", "bytes"),
    field("hash", {"type": "fixed", "name": "Hash", "size": 2}),
    field("colour", {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}),
    field("price", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}),
    field("day", {"type": "int", "logicalType": "date"}),
    field("clock", {"type": "int", "logicalType": "time-millis"}),
    field("at", {"type": "long", "logicalType": "timestamp-millis"}),
    field("at_micros", {"type": "long", "logicalType": "timestamp-micros"}),
    field("local", {"type": "long", "logicalType": "local-timestamp-micros"}),
    field("key", {"type": "string", "logicalType": "uuid"}),
    field("place", {"type": "record", "name": "Place", "fields": [field("city", ["null", "string"])]}),
    field("other", ["null", "org.example.Place"]),
    field("tags", {"type": "array", "items": "string"}),
    field("counts", {"type": "map", "values": "long"}),
    field("number", ["int", "long"]),
    field("either", ["null", "string", "long", "org.example.Place"]),
)


def test_every_type_that_confluents_serialiser_writes_is_decoded(
    spark: "SparkSession", storage: Path, registry: RegistryServer
) -> None:
    topic = registry.new_topic()
    moment = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
    key = uuid.uuid4()
    value = {
        "name": "a",
        "small": -5,
        "great": 2**62,
        "ratio": 0.5,
        "exact": 0.1,
        "ok": True,
        "data": b"\x00\xff",
        "hash": b"ab",
        "colour": "BLUE",
        "price": Decimal("12.34"),
        "day": date(2026, 1, 2),
        "clock": time(1, 2, 3),
        "at": moment,
        "at_micros": moment,
        "local": datetime(2026, 1, 2, 3, 4, 5),
        "key": key,
        "place": {"city": "x"},
        "other": None,
        "tags": ["p", "q"],
        "counts": {"k": 1},
        "number": 2**40,
        "either": ("org.example.Place", {"city": "y"}),
    }
    values = [written(registry, topic, EVERYTHING, value)]
    values += [written(registry, topic, EVERYTHING, {**value, "either": either}) for either in ("text", 7, None)]
    found = decoded(spark, storage, values, **avro(registry, topic))
    assert found.reasons == {}
    row = found.rows[0]
    assert [row.pop(name).astimezone(UTC) for name in ("at", "at_micros")] == [moment, moment]
    expected = {name: item for name, item in value.items() if name not in ("at", "at_micros")}
    expected |= {"clock": 3_723_000, "key": str(key)}
    expected["either"] = {"string": None, "long": None, "Place": {"city": "y"}}
    assert row == expected
    assert [found.rows[offset]["either"] for offset in (1, 2, 3)] == [
        {"string": "text", "long": None, "Place": None},
        {"string": None, "long": 7, "Place": None},
        None,
    ]


def test_values_of_older_schemas_are_resolved_against_the_newest(
    spark: "SparkSession", storage: Path, registry: RegistryServer
) -> None:
    topic = registry.new_topic()
    old = record(field("name", "string"), field("gone", "int", default=0))
    new = record(field("name", "string"), field("visits", "long", default=7))
    values = [
        written(registry, topic, old, {"name": "a", "gone": 1}),
        written(registry, topic, new, {"name": "b", "visits": 2}),
    ]
    found = decoded(spark, storage, values, **avro(registry, topic))
    assert found.rows == {0: {"name": "a", "visits": 7}, 1: {"name": "b", "visits": 2}}


def test_the_readers_schema_is_fixed_at_the_first_start(
    spark: "SparkSession", storage: Path, registry: RegistryServer
) -> None:
    topic = registry.new_topic()
    first = record(field("name", "string"))
    later = record(field("name", "string"), field("visits", "long", default=7))
    values = [written(registry, topic, first, {"name": "a"})]
    assert decoded(spark, storage, values, **avro(registry, topic)).row == {"name": "a"}
    values = [written(registry, topic, later, {"name": "b", "visits": 2})]
    assert decoded(spark, storage, values, **avro(registry, topic)).row == {"name": "b"}
    (storage / "schemas" / "visits.json").unlink()
    assert decoded(spark, storage, values, **avro(registry, topic)).row == {"name": "b", "visits": 2}


def test_a_schema_may_refer_to_another(spark: "SparkSession", storage: Path, registry: RegistryServer) -> None:
    topic = registry.new_topic()
    place = record(field("city", "string"), name="Place")
    registry.register(f"{topic}-place", place)
    visit = record(field("place", "org.example.Place"))
    number = registry.register(f"{topic}-value", visit, references=(("org.example.Place", f"{topic}-place"),))
    payload = io.BytesIO()
    fastavro.schemaless_writer(payload, json.loads(place), {"city": "x"})
    found = decoded(spark, storage, [framed(number, payload.getvalue())], **avro(registry, topic))
    assert found.row == {"place": {"city": "x"}}


def test_what_cannot_be_decoded_is_bad_with_its_reason(
    spark: "SparkSession", storage: Path, registry: RegistryServer
) -> None:
    topic = registry.new_topic()
    price = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
    good = written(
        registry, topic, record(field("name", "string"), field("price", price)), {"name": "a", "price": Decimal("1.00")}
    )
    other = registry.register(f"{topic}-other", '"long"')
    number = int.from_bytes(good[1:5], "big")
    too_great = framed(number, b"\x02a" + b"\x08" + (10**9).to_bytes(4, "big"))
    values = [
        None,
        b"",
        b"\x01" + good[1:],
        framed(999_999, b"x"),
        good[:-1],
        good + b"!",
        framed(other, b"\x02"),
        good,
    ]
    found = decoded(spark, storage, [*values, too_great], **avro(registry, topic))
    assert found.rows == {7: {"name": "a", "price": Decimal("1.00")}}
    reasons = found.reasons
    assert reasons[0] == "the record has no value (a tombstone)"
    assert reasons[1] == "0 bytes are too few for a schema's id"
    assert reasons[2] == "the first byte is 1, not 0: no value with a schema's id"
    assert reasons[3] == "schema id 999999 is not in the registry"
    assert reasons[4].startswith("EOFError")
    assert reasons[5] == "1 bytes are left over after the value"
    assert reasons[6].startswith("SchemaResolutionError")
    assert set(reasons) == {0, 1, 2, 3, 4, 5, 6, 8}


def test_a_value_that_is_no_record_is_a_column(spark: "SparkSession", storage: Path, registry: RegistryServer) -> None:
    topic = registry.new_topic()
    values = [written(registry, topic, '"string"', "a")]
    assert decoded(spark, storage, values, **avro(registry, topic)).row == {"value": "a"}


def test_a_record_that_contains_itself_is_a_problem(
    spark: "SparkSession", storage: Path, registry: RegistryServer
) -> None:
    topic = registry.new_topic()
    registry.register(f"{topic}-value", record(field("next", ["null", "org.example.Visit"])))
    with pytest.raises(PipelineError, match=r"the record 'org\.example\.Visit' contains itself"):
        decoded(spark, storage, [], **avro(registry, topic))


def test_a_registry_that_does_not_answer_ends_the_batch_and_makes_nothing_bad(
    spark: "SparkSession", storage: Path, registry: RegistryServer
) -> None:
    topic = registry.new_topic()
    good = written(registry, topic, record(field("name", "string")), {"name": "a"})
    decoded(spark, storage, [good], **avro(registry, topic))
    fixed = storage / "schemas" / "visits.json"
    gone = "http://127.0.0.1:1"
    fixed.write_text(fixed.read_text().replace(registry.url, gone))
    options = avro(registry, topic) | {"registry": gone, "registry_client": {"max.retries": 0}}
    assert decoded(spark, storage, [good], **options).row == {"name": "a"}
    with pytest.raises(Exception, match=r"the registry at http://127\.0\.0\.1:1 does not answer"):
        decoded(spark, storage, [framed(999_998, b"x")], **options)


COLUMNS = (
    "name STRING, small SMALLINT, number INT, great BIGINT, ratio FLOAT, exact DOUBLE, ok BOOLEAN, data BINARY, "
    "price DECIMAL(10,2), day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, place STRUCT<city: STRING, size: INT>, "
    "tags ARRAY<STRING>, counts MAP<STRING, INT>, empty MAP<STRING, INT>"
)


def test_confluents_deserialiser_reads_what_a_sink_writes(
    spark: "SparkSession", storage: Path, registry: RegistryServer
) -> None:
    topic = registry.new_topic()
    moment = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    simple = ("a", 1, 2, 3, 0.5, 0.1, True, b"\xff", Decimal("1.25"), date(2026, 1, 2), moment)
    values: tuple[Any, ...] = (*simple, datetime(2026, 1, 2, 3), ("x", None), ["p", None], {"k": 1}, {})
    rows = spark.createDataFrame([values, (None,) * len(values)], COLUMNS)
    first, second = encoded(rows, storage, **avro(registry, topic))
    read = AvroDeserializer(registry.client)
    found = read(first, value_of(topic))
    assert found == {
        "name": "a",
        "small": 1,
        "number": 2,
        "great": 3,
        "ratio": 0.5,
        "exact": 0.1,
        "ok": True,
        "data": b"\xff",
        "price": Decimal("1.25"),
        "day": date(2026, 1, 2),
        "at": moment,
        "local": datetime(2026, 1, 2, 3),
        "place": {"city": "x", "size": None},
        "tags": ["p", None],
        "counts": {"k": 1},
        "empty": {},
    }
    assert set(read(second, value_of(topic)).values()) == {None}
    assert decoded(spark, storage, [first], **avro(registry, topic)).row["place"] == {"city": "x", "size": None}


def test_without_registering_a_sink_writes_with_the_newest_schema(
    spark: "SparkSession", storage: Path, registry: RegistryServer
) -> None:
    topic = registry.new_topic()
    number = registry.register(f"{topic}-value", record(field("name", "string"), field("visits", "long", default=7)))
    rows = spark.createDataFrame([("a",)], "name STRING")
    [value] = encoded(rows, storage, **avro(registry, topic, register=False))
    assert value[:5] == framed(number, b"")
    assert AvroDeserializer(registry.client)(value, value_of(topic)) == {"name": "a", "visits": 7}
    with pytest.raises(PipelineError, match="the registered schema has no field for other"):
        encoded(spark.createDataFrame([(1,)], "other INT"), storage, **avro(registry, topic, register=False))
    with pytest.raises(PipelineError, match="the registry has no subject 'nothing-value'"):
        encoded(rows, storage, **avro(registry, "nothing", register=False))


def test_a_column_more_is_a_new_version_and_what_the_registry_does_not_take_is_refused(
    spark: "SparkSession", storage: Path, registry: RegistryServer
) -> None:
    topic = registry.new_topic()
    subject = f"{topic}-value"
    old = spark.createDataFrame([("a",)], "name STRING")
    new = spark.createDataFrame([("b", 2)], "name STRING, visits BIGINT")
    [first] = encoded(old, storage, **avro(registry, topic))
    registry.client.set_compatibility(subject_name=subject, level="FULL")
    [second] = encoded(new, storage, **avro(registry, topic))
    assert registry.client.get_versions(subject) == [1, 2]
    # who reads with the new schema sees old values, who had begun with the old one goes on with new values
    found = decoded(spark, storage / "new", [first, second], **avro(registry, topic))
    assert found.rows == {0: {"name": "a", "visits": None}, 1: {"name": "b", "visits": 2}}
    other = spark.createDataFrame([(1,)], "name INT")
    with pytest.raises(PipelineError, match=r"sink 'out': the registry at .* refuses: .*ncompatible"):
        encoded(other, storage, **avro(registry, topic))
    assert registry.client.get_versions(subject) == [1, 2]


def test_a_value_that_cannot_be_resolved_is_bad_and_a_needed_field_that_no_column_has_is_refused(
    spark: "SparkSession", storage: Path, registry: RegistryServer
) -> None:
    topic = registry.new_topic()
    old, new = record(field("name", "string")), record(field("name", "string"), field("visits", "long"))
    values = [
        written(registry, topic, old, {"name": "a"}),
        written(registry, topic, new, {"name": "b", "visits": 2}),
    ]
    found = decoded(spark, storage, values, **avro(registry, topic))
    assert found.rows == {1: {"name": "b", "visits": 2}}
    assert "visits" in found.reasons[0]
    rows = spark.createDataFrame([("a",)], "name STRING")
    with pytest.raises(PipelineError, match="the registered schema needs a field 'visits', and the rows have none"):
        encoded(rows, storage, **avro(registry, topic, register=False))


def test_columns_that_avro_cannot_have_are_refused(
    spark: "SparkSession", storage: Path, registry: RegistryServer
) -> None:
    rows = spark.sql("SELECT map(1, 2) AS counts")
    with pytest.raises(PipelineError, match="keys of a map in Avro are STRING, not INT"):
        encoded(rows, storage, **avro(registry, registry.new_topic()))


def test_check_says_what_the_registry_lacks(registry: RegistryServer, storage: Path) -> None:
    topic = registry.new_topic()
    registry.register(f"{topic}-value", record(field("_key", "string"), field("at", "long")))

    def problems(**options: Any) -> list[str]:
        made = source("topic", "visits", **{"topic": topic, "format": "avro", **options})
        return [problem.message for problem in KIND.check(made, pipeline(storage))]

    assert problems() == ["source 'visits' needs 'registry': URL of a Schema Registry"]
    assert problems(registry=registry.url, topic=["a", "b"]) == [
        "source 'visits' needs 'subject', as it does not name one topic"
    ]
    assert problems(registry=registry.url, subject="nope") == ["source 'visits': the registry has no subject 'nope'"]
    assert problems(registry=registry.url, required=["att"]) == [
        "source 'visits': its field '_key' has the name of a metadata column",
        "source 'visits': there is no field 'att' that could be required",
    ]
