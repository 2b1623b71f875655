from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from google.protobuf.json_format import MessageToDict, ParseDict  # type: ignore[import-untyped]  # no type information
from google.protobuf.message_factory import GetMessageClass  # type: ignore[import-untyped]  # no type information

from moldau.pipelines.file.problems import PipelineError
from moldau.pipelines.formats.framing import BadValue, message_place, zigzag
from moldau.pipelines.formats.protobuf import KIND
from moldau.pipelines.formats.protobuf_schema import compiled, message_at, place_of
from tests.pipelines.decoded import decoded, encoded
from tests.pipelines.registries import ConfluentsFormats, RegistryServer, value_of
from tests.pipelines.specs import pipeline, source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERYTHING = """
syntax = "proto3";
package org.example;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
message Visit {
  enum Colour { RED = 0; BLUE = 1; }
  message Place { string city = 1; optional int32 size = 2; }
  string name = 1;
  optional string note = 2;
  int32 small = 3;
  uint32 natural = 4;
  int64 great = 5;
  uint64 greatest = 6;
  float ratio = 7;
  double exact = 8;
  bool ok = 9;
  bytes data = 10;
  Colour colour = 11;
  Place place = 12;
  Place nowhere = 13;
  repeated string tags = 14;
  repeated Place places = 15;
  map<string, int64> counts = 16;
  map<int32, Place> by_number = 17;
  google.protobuf.Timestamp at = 18;
  google.protobuf.Duration took = 19;
  google.protobuf.Int64Value maybe = 20;
  google.protobuf.StringValue nothing = 21;
  google.protobuf.Struct free = 22;
  oneof either { string text = 23; int64 number = 24; }
}
message Other { string name = 1; }
"""
VALUE = {
    "name": "a",
    "small": -5,
    "natural": 4_000_000_000,
    "great": str(2**62),
    "greatest": str(2**64 - 1),
    "ratio": 0.5,
    "exact": 0.1,
    "ok": True,
    "data": "AP8=",
    "colour": "BLUE",
    "place": {"city": "x"},
    "tags": ["p", "q"],
    "places": [{"city": "y", "size": 0}],
    "counts": {"k": "1"},
    "byNumber": {"3": {"city": "z"}},
    "at": "2026-01-02T03:04:05.678901Z",
    "took": "1.500s",
    "maybe": "0",
    "free": {"q": [1]},
    "number": "7",
}


def message_class(text: str, *place: int) -> Any:
    found = message_at(compiled(text, ()), place or (0,))
    assert found is not None
    return GetMessageClass(found)


def written(registry: RegistryServer, topic: str, message: Any) -> bytes:
    """By Confluent's serialiser, which registers the schema."""
    write = ProtobufSerializer(type(message), registry.client, {"use.deprecated.format": False})
    found = write(message, value_of(topic))
    assert isinstance(found, bytes)
    return found


def framed(schema_id: int, place: tuple[int, ...], payload: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + zigzag(place) + payload


def protobuf(registry: RegistryServer, topic: str, **more: Any) -> dict[str, Any]:
    return {"topic": topic, "format": "protobuf", "registry": registry.url, **more}


def test_every_type_is_decoded(spark: "SparkSession", storage: Path, registry: RegistryServer) -> None:
    topic = registry.new_topic()
    number = registry.register(f"{topic}-value", EVERYTHING, "PROTOBUF")
    message = ParseDict(VALUE, message_class(EVERYTHING)())
    values = [framed(number, (0,), message.SerializeToString()), framed(number, (0,), b"")]
    found = decoded(spark, storage, values, **protobuf(registry, topic))
    assert found.reasons == {}
    row = found.rows[0]
    assert row.pop("at").astimezone(UTC) == datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    assert row == {
        "name": "a",
        "note": None,
        "small": -5,
        "natural": 4_000_000_000,
        "great": 2**62,
        "greatest": Decimal(2**64 - 1),
        "ratio": 0.5,
        "exact": 0.1,
        "ok": True,
        "data": b"\x00\xff",
        "colour": "BLUE",
        "place": {"city": "x", "size": None},
        "nowhere": None,
        "tags": ["p", "q"],
        "places": [{"city": "y", "size": 0}],
        "counts": {"k": 1},
        "by_number": {3: {"city": "z", "size": None}},
        "took": timedelta(seconds=1.5),
        "maybe": 0,
        "nothing": None,
        "free": '{"q": [1.0]}',
        "text": None,
        "number": 7,
    }
    empty = found.rows[1]
    assert (empty["name"], empty["small"], empty["colour"], empty["tags"]) == ("", 0, "RED", [])
    assert [empty[name] for name in ("note", "place", "at", "maybe", "text")] == [None] * 5


def test_what_confluents_serialiser_writes_is_decoded(
    spark: "SparkSession", storage: Path, registry: RegistryServer
) -> None:
    topic = registry.new_topic()
    text = 'syntax = "proto3"; message Visit { string name = 1; message Inner { int32 size = 1; } Inner inner = 2; }'
    visit = ParseDict({"name": "a", "inner": {"size": 3}}, message_class(text)())
    value = written(registry, topic, visit)
    found = decoded(spark, storage, [value], **protobuf(registry, topic))
    assert found.row == {"name": "a", "inner": {"size": 3}}


def test_values_of_other_versions_are_read_by_the_numbers_of_their_fields(
    spark: "SparkSession", storage: Path, registry: RegistryServer
) -> None:
    topic = registry.new_topic()
    old = 'syntax = "proto3"; message Visit { string name = 1; int32 gone = 2; }'
    new = 'syntax = "proto3"; message Visit { string name = 1; optional int64 visits = 3; }'
    values = []
    for text, value in ((old, {"name": "a", "gone": 1}), (new, {"name": "b", "visits": "2"})):
        number = registry.register(f"{topic}-value", text, "PROTOBUF")
        values.append(framed(number, (0,), ParseDict(value, message_class(text)()).SerializeToString()))
    found = decoded(spark, storage, values, **protobuf(registry, topic))
    assert found.rows == {0: {"name": "a", "visits": None}, 1: {"name": "b", "visits": 2}}


def test_a_schema_may_import_another(spark: "SparkSession", storage: Path, registry: RegistryServer) -> None:
    topic = registry.new_topic()
    registry.register(
        f"{topic}-place", 'syntax = "proto3"; package geo; message Place { string city = 1; }', "PROTOBUF"
    )
    text = 'syntax = "proto3"; import "geo/place.proto"; message Visit { geo.Place place = 1; }'
    number = registry.register(f"{topic}-value", text, "PROTOBUF", (("geo/place.proto", f"{topic}-place"),))
    found = decoded(spark, storage, [framed(number, (0,), b"\x0a\x03\x0a\x01x")], **protobuf(registry, topic))
    assert found.row == {"place": {"city": "x"}}


def test_a_message_that_is_not_the_first_can_be_named(
    spark: "SparkSession", storage: Path, registry: RegistryServer
) -> None:
    topic = registry.new_topic()
    number = registry.register(f"{topic}-value", EVERYTHING, "PROTOBUF")
    values = [framed(number, (1,), b"\x0a\x01x"), framed(number, (0,), b"")]
    found = decoded(spark, storage, values, **protobuf(registry, topic, message="Other"))
    assert found.rows == {0: {"name": "x"}}
    assert found.reasons == {1: "a message 'org.example.Visit', not 'org.example.Other'"}
    nested = decoded(
        spark, storage, [framed(number, (0, 0), b"\x0a\x01x")], **protobuf(registry, topic, message="Place")
    )
    assert nested.row == {"city": "x", "size": None}


def test_what_cannot_be_decoded_is_bad_with_its_reason(
    spark: "SparkSession", storage: Path, registry: RegistryServer
) -> None:
    topic = registry.new_topic()
    text = 'syntax = "proto3"; message Visit { string name = 1; google.protobuf.Timestamp at = 2; }'
    text = text.replace("message", 'import "google/protobuf/timestamp.proto"; message', 1)
    number = registry.register(f"{topic}-value", text, "PROTOBUF")
    avro = registry.register(f"{topic}-avro", '"string"')
    good = framed(number, (0,), b"\x0a\x01x")
    far = ParseDict({"name": "far"}, message_class(text)())
    far.at.seconds = 10**15
    values = [None, b"\x05abcd", good[:5], good[:-1], framed(999_999, (0,), b""), framed(avro, (0,), b"")]
    values += [framed(number, (5,), b""), framed(number, (0,), far.SerializeToString()), good]
    found = decoded(spark, storage, values, **protobuf(registry, topic))
    assert found.rows == {8: {"name": "x", "at": None}}
    reasons = found.reasons
    assert reasons[1] == "the first byte is 5, not 0: no value with a schema's id"
    assert reasons[2] == "the place of the message in its schema cannot be read"
    assert reasons[3].startswith("DecodeError")
    assert reasons[4] == "schema id 999999 is not in the registry"
    assert reasons[5] == f"schema id {avro} is AVRO, not PROTOBUF"
    assert reasons[6] == f"schema id {number} has no message at (5,)"
    assert reasons[7].startswith("OverflowError")


def test_a_message_that_contains_itself_is_a_problem(
    spark: "SparkSession", storage: Path, registry: RegistryServer
) -> None:
    topic = registry.new_topic()
    registry.register(f"{topic}-value", 'syntax = "proto3"; message Node { Node next = 1; }', "PROTOBUF")
    with pytest.raises(PipelineError, match="the message 'Node' contains itself"):
        decoded(spark, storage, [], **protobuf(registry, topic))


COLUMNS = (
    "name STRING, small SMALLINT, great BIGINT, exact DOUBLE, ok BOOLEAN, data BINARY, price DECIMAL(10,2), day DATE, "
    "at TIMESTAMP, place STRUCT<city: STRING, inner: STRUCT<x: INT>>, tags ARRAY<STRING>, "
    "places ARRAY<STRUCT<city: STRING>>, counts MAP<STRING, INT>"
)


def test_confluents_deserialiser_reads_what_a_sink_writes(
    spark: "SparkSession", storage: Path, registry: RegistryServer
) -> None:
    topic = registry.new_topic()
    moment = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    simple = ("a", 1, 2, 0.1, True, b"\xff", Decimal("1.25"), date(2026, 1, 2), moment)
    values = (*simple, ("x", (1,)), ["p"], [("y",)], {"k": 1})
    rows = spark.createDataFrame([values, (None,) * len(values)], COLUMNS)
    first, second = encoded(rows, storage, **protobuf(registry, topic))
    text = registry.client.get_latest_version(f"{topic}-value").schema.schema_str
    assert text is not None
    client = ConfluentsFormats({"url": registry.url})
    read = ProtobufDeserializer(message_class(text), {"use.deprecated.format": False}, client)
    assert MessageToDict(read(first, value_of(topic)), preserving_proto_field_name=True) == {
        "name": "a",
        "small": 1,
        "great": "2",
        "exact": 0.1,
        "ok": True,
        "data": "/w==",
        "price": "1.25",
        "day": "2026-01-02",
        "at": "2026-01-02T03:04:05.678901Z",
        "place": {"city": "x", "inner": {"x": 1}},
        "tags": ["p"],
        "places": [{"city": "y"}],
        "counts": {"k": 1},
    }
    assert MessageToDict(read(second, value_of(topic))) == {}


def test_without_registering_a_sink_fills_a_message_of_the_newest_schema(
    spark: "SparkSession", storage: Path, registry: RegistryServer
) -> None:
    topic = registry.new_topic()
    number = registry.register(f"{topic}-value", EVERYTHING, "PROTOBUF")
    options = protobuf(registry, topic, register=False)
    rows = spark.sql("SELECT 'a' AS name, 'BLUE' AS colour, 0L AS maybe, map(3, struct('z' AS city)) AS by_number")
    [value] = encoded(rows, storage, **options)
    expected = ParseDict(
        {"name": "a", "colour": "BLUE", "maybe": "0", "byNumber": {"3": {"city": "z"}}}, message_class(EVERYTHING)()
    )
    assert value == framed(number, (0,), expected.SerializeToString())
    with pytest.raises(PipelineError, match=r"org\.example\.Visit has no field for other"):
        encoded(spark.createDataFrame([(1,)], "other INT"), storage, **options)
    with pytest.raises(PipelineError, match="no message 'Vist'"):
        encoded(rows, storage, **{**options, "message": "Vist"})


def test_the_place_of_a_message_is_written_as_confluent_does() -> None:
    for place, expected in (((0,), b"\x00"), ((1,), b"\x02\x02"), ((0, 2), b"\x04\x00\x04"), ((100,), b"\x02\xc8\x01")):
        assert zigzag(place) == expected
        assert message_place(b"\0\0\0\0\1" + expected + b"rest") == (place, 5 + len(expected))
    with pytest.raises(BadValue):
        message_place(b"\0\0\0\0\1\xff\xff")
    inner = message_at(compiled(EVERYTHING, ()), (0, 0))
    assert inner is not None
    assert (inner.full_name, place_of(inner)) == ("org.example.Visit.Place", (0, 0))


def test_check_says_what_the_schema_lacks(registry: RegistryServer, storage: Path) -> None:
    topic = registry.new_topic()
    registry.register(f"{topic}-value", EVERYTHING, "PROTOBUF")

    def problems(**options: Any) -> list[str]:
        made = source("topic", "visits", **{**protobuf(registry, topic), **options})
        return [str(problem) for problem in KIND.check(made, pipeline(storage))]

    [problem] = problems(message="Othr")
    assert "its schema has no message 'Othr'" in problem
    [problem] = problems(required=["nam"])
    assert "there is no field 'nam' that could be required (did you mean 'name'?)" in problem
    assert problems() == []
