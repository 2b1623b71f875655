from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from moldau.pipelines.file.options import Option
from moldau.pipelines.file.problems import Problem
from moldau.pipelines.file.spec import PipelineSpec
from moldau.pipelines.kinds import Context
from moldau.pipelines.sources.topic import KIND, Starting, starting
from tests.pipelines.clusters import Cluster, Record
from tests.pipelines.specs import pipeline, sink, source
from tests.pipelines.streams import Batches, rows_of, run_to_end

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOWHERE = "127.0.0.1:1"


def values(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(row["value"] for row in rows)


def read(spark: "SparkSession", spec: PipelineSpec, **options: Any) -> list[dict[str, Any]]:
    """The rows of a topic source of text."""
    reading = KIND.read(source("topic", format="text", **options), Context(spark, spec, spec.storage))
    return rows_of(reading.rows, spec.storage / "checkpoints" / "test")


def problems(spec: PipelineSpec, **options: Any) -> list[Problem]:
    return list(KIND.check(source("topic", format="text", **options), spec))


def test_a_record_is_a_row_with_its_key_headers_and_origin(
    spark: "SparkSession", cluster: Cluster, storage: Path
) -> None:
    topic = cluster.new_topic(partitions=2)
    sent = Record(b"hello", b"k", (("trace", b"\x01"),), partition=1, timestamp_ms=1_700_000_000_123)
    cluster.send(topic, [sent])
    [row] = read(spark, pipeline(storage, cluster.bootstrap), topic=topic)
    moment = row.pop("_timestamp")
    assert row == {
        "value": "hello",
        "_key": "k",
        "_topic": topic,
        "_partition": 1,
        "_offset": 0,
        "_headers": [{"key": "trace", "value": b"\x01"}],
    }
    assert moment.timestamp() == 1_700_000_000.123


def test_several_topics_and_a_pattern_are_read_as_one(spark: "SparkSession", cluster: Cluster, storage: Path) -> None:
    first, second, other = cluster.new_topic("many-a"), cluster.new_topic("many-a"), cluster.new_topic("x-many-a")
    for topic in (first, second, other):
        cluster.send(topic, [topic])
    spec = pipeline(storage, cluster.bootstrap)
    assert values(read(spark, spec, topic=[first, second])) == sorted([first, second])
    spec = pipeline(storage / "pattern", cluster.bootstrap)
    assert values(read(spark, spec, pattern="many-a-.*")) == sorted([first, second])


@pytest.fixture
def dated(cluster: Cluster) -> str:
    """Two partitions: a1 to a4 a second apart in the first, b1 in the second, at the first second."""
    topic = cluster.new_topic("dated", partitions=2)
    records = [Record(f"a{number}".encode(), timestamp_ms=number * 1000) for number in (1, 2, 3, 4)]
    cluster.send(topic, [*records, Record(b"b1", partition=1, timestamp_ms=1000)])
    return topic


@pytest.mark.parametrize(
    ("begin", "found"),
    [
        ("earliest", ["a1", "a2", "a3", "a4", "b1"]),
        ("latest", []),
        ({"timestamp": 2500}, ["a3", "a4"]),
        ({"timestamp": "1970-01-01T00:00:04Z"}, ["a4"]),
        ({"offsets": {0: 3}}, ["a4", "b1"]),
        ({"offsets": {0: "latest", 1: 0}}, ["b1"]),
        ({"group": "readers"}, ["a3", "a4", "b1"]),
    ],
    ids=str,
)
def test_a_first_run_begins_where_it_is_told(
    spark: "SparkSession", cluster: Cluster, storage: Path, dated: str, begin: Any, found: list[str]
) -> None:
    cluster.commit("readers", dated, {0: 2})
    spec = pipeline(storage, cluster.bootstrap)
    assert values(read(spark, spec, topic=dated, starting=begin)) == found


def test_a_checkpoint_goes_on_where_it_was_whatever_starting_says(
    spark: "SparkSession", cluster: Cluster, storage: Path
) -> None:
    topic = cluster.new_topic()
    cluster.send(topic, ["before"])
    spec = pipeline(storage, cluster.bootstrap)
    assert values(read(spark, spec, topic=topic)) == ["before"]
    cluster.send(topic, ["after"])
    assert values(read(spark, spec, topic=topic, starting="latest")) == ["after"]


def test_a_batch_takes_no_more_than_it_may(spark: "SparkSession", cluster: Cluster, storage: Path) -> None:
    topic = cluster.new_topic()
    cluster.send(topic, map(str, range(10)))
    spec = pipeline(storage, cluster.bootstrap)
    opened = KIND.read(source("topic", topic=topic, format="raw", max_per_batch=4), Context(spark, spec, storage))
    batches = Batches()
    run_to_end(opened.rows.writeStream.foreachBatch(batches), storage / "checkpoint")
    assert [len(batch) for batch in batches.found] == [4, 4, 2]


def test_as_a_table_a_topic_is_the_newest_record_of_each_key(
    spark: "SparkSession", cluster: Cluster, storage: Path
) -> None:
    topic = cluster.new_topic(partitions=2)
    cluster.send(
        topic,
        [
            Record(b"old", b"a", timestamp_ms=9000),
            Record(b"new", b"a", timestamp_ms=1000),  # later in the log: its time does not matter
            Record(b"here", b"b"),
            Record(None, b"b"),
            Record(b"no key"),
            Record(b"moved from", b"c", timestamp_ms=1000),
            Record(b"moved to", b"c", partition=1, timestamp_ms=2000),
        ],
    )
    spec = pipeline(storage, cluster.bootstrap)
    table = source("topic", topic=topic, format="text", **{"as": "table"})
    rows = KIND.read(table, Context(spark, spec, storage)).rows
    assert not rows.isStreaming
    assert {row["_key"]: row["value"] for row in rows.collect()} == {"a": "new", "c": "moved to"}


def test_records_deleted_before_they_were_read_end_the_run_unless_told_to_go_on(
    spark: "SparkSession", cluster: Cluster, storage: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    topic = cluster.new_topic()
    cluster.send(topic, ["1", "2", "3"])
    spec = pipeline(storage, cluster.bootstrap)
    assert values(read(spark, spec, topic=topic, max_per_batch=0, starting={"offsets": {0: 2}})) == ["3"]
    cluster.send(topic, ["4", "5"])
    cluster.delete_before(topic, {0: 4})
    with pytest.raises(StreamingQueryException, match="failOnDataLoss"):
        read(spark, spec, topic=topic)
    assert values(read(spark, spec, topic=topic, lost="skip")) == ["5"]


def test_another_cluster_is_read_with_properties_of_its_own(
    spark: "SparkSession", cluster: Cluster, storage: Path
) -> None:
    topic = cluster.new_topic()
    cluster.send(topic, ["from there"])
    spec = pipeline(storage, NOWHERE, client={"security.protocol": "SSL"})
    own = {"bootstrap": cluster.bootstrap, "client": {"client.id": "visitor"}}
    assert problems(spec, topic=topic, **own) == []
    assert values(read(spark, spec, topic=topic, **own)) == ["from there"]


# --- check ---


def test_a_topic_that_is_not_there_is_named_with_the_nearest_one(cluster: Cluster, storage: Path) -> None:
    topic = cluster.new_topic("page-views")
    spec = pipeline(storage, cluster.bootstrap)
    assert problems(spec, topic=topic) == []
    [found] = problems(spec, topic=topic.replace("views", "veiws"))
    assert "there is no topic" in found.message
    assert found.hint == f"did you mean {topic!r}?"


def test_a_table_of_records_without_keys_is_refused(storage: Path, moldau_cluster_only: Cluster) -> None:
    cluster = moldau_cluster_only
    topic = cluster.new_topic("towns", 2)
    spec = pipeline(storage, cluster.bootstrap)
    assert problems(spec, topic=topic, **{"as": "table"}) == []
    cluster.send(topic, [b'{"id": 1}'] * 3)
    [found] = problems(spec, topic=topic, **{"as": "table"})
    assert found.message == "source 'rows': its records have no keys, and a table is the newest record of each key"
    assert problems(spec, topic=topic) == []
    cluster.send(topic, [Record(b'{"id": 1}', b"1", partition=1)])
    assert problems(spec, topic=topic, **{"as": "table"}) == []


def test_a_topic_that_a_sink_will_make_need_not_be_there(cluster: Cluster, storage: Path) -> None:
    made = {"out": sink("topic", topic="made-later", create=True)}
    assert problems(pipeline(storage, cluster.bootstrap, sinks=made), topic="made-later") == []
    assert len(problems(pipeline(storage, cluster.bootstrap), topic="made-later")) == 1


def test_a_group_without_offsets_is_refused_before_the_first_run_only(cluster: Cluster, storage: Path) -> None:
    topic = cluster.new_topic()
    spec = pipeline(storage, cluster.bootstrap)
    [found] = problems(spec, topic=topic, starting={"group": "nobody"})
    assert found.message == f"source 'rows': group 'nobody' has no offsets of {topic}"
    (storage / "checkpoints").mkdir(parents=True)
    assert problems(spec, topic=topic, starting={"group": "nobody"}) == []


def test_offsets_of_a_partition_that_is_not_there_are_refused(cluster: Cluster, storage: Path) -> None:
    topic = cluster.new_topic(partitions=2)
    [found] = problems(pipeline(storage, cluster.bootstrap), topic=topic, starting={"offsets": {0: 1, 2: 1}})
    assert found.message == f"source 'rows': 'starting' names partition 2 of {topic!r}, which is not read"


def test_a_cluster_that_does_not_answer_is_told_at_once(storage: Path) -> None:
    [found] = problems(pipeline(storage, NOWHERE), topic="any")
    assert found.message == f"source 'rows': no broker answers at {NOWHERE} (Connection refused)"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic": "a", "pattern": "b.*"}, "needs either 'topic' or 'pattern'"),
        ({"topic": "a", "as": "table", "starting": "latest"}, "a table cannot start at 'latest'"),
        ({"topic": "a,b", "starting": {"offsets": {0: 1}}}, "must say which topic its offsets are of"),
        ({"topic": "a", "client": {"auto.offset.reset": "latest"}}, "'auto.offset.reset' cannot be set"),
        ({"topic": "a", "client": {"ssl.truststore.location": "t.jks"}}, "must be a PEM file"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_options_that_do_not_go_together_are_refused(storage: Path, options: dict[str, Any], message: str) -> None:
    assert message in problems(pipeline(storage, NOWHERE), **options)[0].message


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ({"timestamp": 17}, Starting(timestamp_ms=17)),
        ({"timestamp": date(1970, 1, 2)}, Starting(timestamp_ms=86_400_000)),
        ({"timestamp": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)}, Starting(timestamp_ms=1000)),
        ({"timestamp": "1970-01-01T01:00:00+01:00"}, Starting(timestamp_ms=0)),
        ({"offsets": {"a": {0: 1}, "b": {"1": "earliest"}}}, Starting(offsets={"a": {0: 1}, "b": {1: -2}})),
    ],
)
def test_starting_can_be_written_in_many_ways(written: Any, meant: Starting) -> None:
    assert starting(written) == meant


@pytest.mark.parametrize(
    "written",
    ["newest", 3, {}, {"group": ""}, {"timestamp": "noon"}, {"timestamp": -1}, {"offsets": {0: "x"}}, {"a": 1}],
)
def test_starting_refuses_anything_else(written: Any) -> None:
    with pytest.raises(ValueError, match=r"earliest|text|time|offsets"):
        starting(written)


def test_every_option_is_documented() -> None:
    assert all(isinstance(option, Option) and option.doc for option in KIND.options)
