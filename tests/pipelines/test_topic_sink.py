import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs hide some
    AdminClient,
    ConfigResource,
    ResourceType,
)

from moldau.pipelines.file.problems import PipelineError, Problem
from moldau.pipelines.file.spec import PipelineSpec
from moldau.pipelines.kinds import Context, sink_kind, source_kind
from moldau.pipelines.sinks.topic import KIND, NewTopic, new_topic, records
from tests.pipelines.clusters import Cluster, Record
from tests.pipelines.conftest import WITH_TRANSACTIONS
from tests.pipelines.specs import pipeline, sink, source
from tests.pipelines.streams import run_to_end

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

NOWHERE = "127.0.0.1:1"


def made(spark: "SparkSession", rows: "DataFrame", **options: Any) -> list["Row"]:
    """The records of some rows, without a cluster."""
    spec = pipeline(Path("unused"))
    return records(sink("topic", topic="out", **options), rows, Context(spark, spec, spec.storage)).collect()


@pytest.fixture
def visits(spark: "SparkSession") -> "DataFrame":
    """One row, as a view of a topic would have it."""
    return spark.sql(
        "SELECT 'acme' AS organisation, DATE'2026-11-16' AS day, 3L AS visits, 'views' AS _topic, "
        "array(struct('trace' AS key, CAST('t1' AS BINARY) AS value)) AS _headers"
    )


def test_rows_become_records_and_the_topic_is_made_if_it_is_not_there(
    spark: "SparkSession", cluster: Cluster, storage: Path, caplog: pytest.LogCaptureFixture
) -> None:
    incoming, outgoing = cluster.new_topic(), f"{cluster.new_topic()}-out"
    cluster.send(incoming, [Record(b"one", b"k1", (("trace", b"t"),)), Record(b"two", b"k2")])
    spec = pipeline(storage, cluster.bootstrap)
    context = Context(spark, spec, storage)
    rows = source_kind("topic").read(source("topic", topic=incoming, format="text"), context).rows
    out = sink(
        "topic",
        topic=outgoing,
        key="_key",
        headers=["_headers", "_offset"],
        create={"partitions": 3, "cleanup.policy": "compact"},
    )
    assert list(KIND.check(out, spec)) == []
    run_to_end(KIND.attach(out, rows, context), storage / "checkpoint")
    found = {record.key: (json.loads(record.value or b""), record.headers) for record in cluster.read(outgoing)}
    assert found == {
        b"k1": ({"value": "one"}, (("trace", b"t"), ("_offset", b"0"))),
        b"k2": ({"value": "two"}, (("_offset", b"1"),)),
    }
    assert partitions_and_policy(cluster, outgoing) == (3, "compact")
    assert caplog.messages == []

    commits = storage / "checkpoints" / "out" / "commits"
    commits.mkdir(parents=True)
    (commits / "0").touch()
    KIND.attach(sink("topic", topic=f"{outgoing}-2", create=True), rows, context)
    told = f"visits.out: the topic {outgoing}-2 was not there and is made anew, without the rows of before"
    assert caplog.messages == [told]


def partitions_and_policy(cluster: Cluster, topic: str) -> tuple[int, str]:
    admin = AdminClient(cluster.settings)
    [configs] = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    return len(admin.list_topics(topic).topics[topic].partitions), configs.result()["cleanup.policy"].value


def test_a_topic_can_be_made_with_the_brokers_own_defaults(
    spark: "SparkSession", cluster: Cluster, storage: Path
) -> None:
    topic = f"{cluster.new_topic()}-plain"
    spec = pipeline(storage, cluster.bootstrap)
    rows = source_kind("rate").read(source("rate", rate=1), Context(spark, spec, storage)).rows
    for _ in range(2):  # the second finds it there
        KIND.attach(sink("topic", topic=topic, create=True), rows, Context(spark, spec, storage))
    assert partitions_and_policy(cluster, topic) == (1, "delete")


def test_metadata_columns_are_written_only_if_they_are_named(spark: "SparkSession", visits: "DataFrame") -> None:
    [record] = made(spark, visits)
    assert json.loads(record["value"]) == {"organisation": "acme", "day": "2026-11-16", "visits": 3}
    [record] = made(spark, visits, columns=["visits", "_topic"])
    assert json.loads(record["value"]) == {"visits": 3, "_topic": "views"}


def test_a_key_of_one_column_is_its_text_and_of_several_a_json_object(
    spark: "SparkSession", visits: "DataFrame"
) -> None:
    assert bytes(made(spark, visits, key="day")[0]["key"]) == b"2026-11-16"
    assert bytes(made(spark, visits, key="organisation,day")[0]["key"]) == b'{"organisation":"acme","day":"2026-11-16"}'


def test_bytes_stay_bytes_and_nested_keys_are_json(spark: "SparkSession") -> None:
    rows = spark.sql("SELECT X'00FF' AS code, struct(1 AS a) AS place, 'v' AS text")
    assert bytes(made(spark, rows, key="code", columns="text")[0]["key"]) == b"\x00\xff"
    assert bytes(made(spark, rows, key="place", columns="text")[0]["key"]) == b'{"a":1}'


def test_headers_are_columns_under_their_own_or_another_name(spark: "SparkSession", visits: "DataFrame") -> None:
    [record] = made(spark, visits, headers={"from": "_topic", "count": "visits"})
    assert [(header.key, bytes(header.value)) for header in record["headers"]] == [("from", b"views"), ("count", b"3")]


def test_headers_are_passed_on_even_where_a_record_had_none(spark: "SparkSession", visits: "DataFrame") -> None:
    bare = visits.selectExpr("visits", "CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS _headers")
    [record] = made(spark, bare, headers="_headers,visits")
    assert [header.key for header in record["headers"]] == ["visits"]


def test_a_value_of_one_column_leaves_the_key_and_the_headers_out(spark: "SparkSession", visits: "DataFrame") -> None:
    [record] = made(spark, visits.drop("day"), format="text", key="organisation")
    assert bytes(record["value"]) == b"3"


def test_a_row_that_meets_delete_when_becomes_a_tombstone(spark: "SparkSession") -> None:
    rows = spark.sql("SELECT * FROM VALUES ('a', 0), ('b', 1), ('c', NULL) AS rows(name, visits)")
    found = {
        bytes(record["key"]): record["value"] for record in made(spark, rows, key="name", delete_when="visits = 0")
    }
    assert [key for key, value in found.items() if value is None] == [b"a"]


def test_a_column_that_is_not_there_is_named_with_the_nearest_one(spark: "SparkSession", visits: "DataFrame") -> None:
    with pytest.raises(PipelineError, match=r"no column 'organization' for 'key' \(did you mean 'organisation'\?\)"):
        made(spark, visits, key="organization")


# --- check ---


def problems(spec: PipelineSpec, **options: Any) -> list[Problem]:
    return list(KIND.check(sink("topic", **options), spec))


def test_a_topic_that_is_not_there_must_be_asked_for(cluster: Cluster, storage: Path) -> None:
    topic = cluster.new_topic("results")
    spec = pipeline(storage, cluster.bootstrap)
    assert problems(spec, topic=topic) == []
    assert problems(spec, topic="zzz", create=True) == []
    [near] = problems(spec, topic=topic.replace("results", "resluts"))
    assert near.hint == f"did you mean {topic!r}?"
    [far] = problems(spec, topic="zzz")
    assert far.hint == "`create: true` makes it"


EXACTLY: dict[str, Any] = {"topic": "x", "create": {"partitions": 3}, "delivery": "exactly once"}


@pytest.mark.parametrize("cluster", WITH_TRANSACTIONS, indirect=True, scope="session")
def test_exactly_once_needs_transactions_as_the_cluster_gives_them(cluster: Cluster, storage: Path) -> None:
    spec = pipeline(storage, cluster.bootstrap)
    assert problems(spec, **EXACTLY, tasks=3) == []
    [found] = problems(spec, **EXACTLY, client={"transaction.timeout.ms": 9_000_000})
    assert found.message == "sink 'out': transaction.timeout.ms 9000000 is more than the cluster allows"
    [found] = problems(spec, **EXACTLY, tasks=4)
    assert found.message == "sink 'out': 4 tasks, but 'x' has 3 partitions"
    [found] = problems(spec, **{**EXACTLY, "topic": cluster.new_topic("one"), "create": False}, tasks=2)
    assert found.message.endswith("has 1 partition")


@pytest.mark.parametrize(
    ("client", "message"),
    [
        ({"transactional.id": "mine"}, "the client property 'transactional.id' cannot be as it is"),
        ({"enable.idempotence": False}, "the client property 'enable.idempotence' cannot be as it is"),
        ({"acks": 1}, "the client property 'acks' cannot be as it is"),
        ({"transaction.timeout.ms": "5 minutes"}, "the client property 'transaction.timeout.ms' cannot be as it is"),
    ],
)
def test_exactly_once_decides_some_properties_itself(storage: Path, client: dict[str, Any], message: str) -> None:
    [found] = problems(pipeline(storage, NOWHERE), **EXACTLY, client=client)
    assert found.message == f"sink 'out': with 'exactly once' {message}"


def test_exactly_once_and_speculation_do_not_go_together(storage: Path) -> None:
    spec = pipeline(storage, NOWHERE, spark={"spark.speculation": "true"})
    [found] = problems(spec, **EXACTLY)
    assert found.message == "sink 'out': 'exactly once' and 'spark.speculation' do not go together"


def test_tasks_are_of_exactly_once(storage: Path) -> None:
    [found] = problems(pipeline(storage, NOWHERE), topic="x", create=True, tasks=3)
    assert found.message == "sink 'out': 'tasks' is of 'exactly once'"
    with pytest.raises(PipelineError, match="'tasks' must be a whole number, 1 or more, not 0"):
        sink("topic", **EXACTLY, tasks=0)


def test_a_mistyped_delivery_is_told_with_the_nearest_one() -> None:
    with pytest.raises(PipelineError, match=r"not 'exactly-once' \(did you mean 'exactly once'\?\)"):
        sink("topic", topic="x", delivery="exactly-once")


def test_delete_when_needs_a_key(cluster: Cluster, storage: Path) -> None:
    [found] = problems(pipeline(storage, cluster.bootstrap), topic="x", create=True, delete_when="true")
    assert found.message == "sink 'out': 'delete_when' needs 'key'"


def test_a_cluster_that_does_not_answer_is_told_at_once(storage: Path) -> None:
    [found] = problems(pipeline(storage, NOWHERE), topic="x")
    assert found.message == f"sink 'out': no broker answers at {NOWHERE} (Connection refused)"


def test_how_a_new_topic_is_written() -> None:
    assert new_topic(True) == NewTopic()
    assert new_topic(False) is None
    assert new_topic({"partitions": 6, "replication.factor": 3}) == NewTopic(6, 3)
    assert new_topic({"cleanup.policy": "compact"}) == NewTopic(configs={"cleanup.policy": "compact"})
    for wrong in (3, "yes", {"partitions": "many"}):
        with pytest.raises(ValueError, match="true, or such as"):
            new_topic(wrong)


def test_the_guarantee_is_told() -> None:
    assert sink_kind("topic").guarantee.startswith("at least once; exactly once with `delivery: exactly once`")
