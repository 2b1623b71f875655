from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from moldau.pipelines.kinds import Context, source_kind
from moldau.pipelines.run import dead_letters
from tests.pipelines.clusters import Cluster, Record
from tests.pipelines.specs import pipeline, source
from tests.pipelines.streams import rows_of, run_to_end

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_bad_record_goes_to_the_dead_letter_topic_with_its_origin(
    spark: "SparkSession", cluster: Cluster, storage: Path
) -> None:
    topic, letters = cluster.new_topic(partitions=2, retention_ms="-1"), f"{cluster.new_topic()}-letters"
    own = (("trace", b"\x01"), ("trace", b"\x02"))
    bad = Record(b"\xff not json", b"\x00k", own, partition=1, timestamp_ms=1_700_000_000_123)
    cluster.send(topic, [Record(b'{"visits": 1}', partition=1), bad, Record(None, timestamp_ms=1_700_000_000_000)])
    spec = pipeline(storage, cluster.bootstrap, dead_letters=letters)
    made = source("topic", "rows", topic=topic, format="json", schema="visits INT")
    context = Context(spark, spec, storage)
    reading = source_kind("topic").read(made, context)
    assert reading.bad is not None
    run_to_end(dead_letters.attach(made, reading.bad, context), storage / "letters")

    found = {record.value: record for record in cluster.read(letters)}
    assert set(found) == {b"\xff not json", None}
    letter = found[b"\xff not json"]
    assert letter.key == b"\x00k"
    assert letter.headers == (
        *own,
        ("moldau.dlq.pipeline", b"visits"),
        ("moldau.dlq.source", b"rows"),
        ("moldau.dlq.topic", topic.encode()),
        ("moldau.dlq.partition", b"1"),
        ("moldau.dlq.offset", b"1"),
        ("moldau.dlq.timestamp", b"1700000000123"),
        ("moldau.dlq.reason", b"not UTF-8"),
    )
    assert found[None].headers[-1] == ("moldau.dlq.reason", b"the record has no value (a tombstone)")
    assert [row["visits"] for row in rows_of(reading.rows, storage / "rows")] == [1]


def test_without_dead_letters_a_bad_record_ends_the_run(
    spark: "SparkSession", moldau_cluster_only: Cluster, storage: Path
) -> None:
    topic = moldau_cluster_only.new_topic()
    moldau_cluster_only.send(topic, ['{"visits": 1}', "x"])
    spec = pipeline(storage, moldau_cluster_only.bootstrap, dead_letters=None)
    made = source("topic", "rows", topic=topic, format="json", schema="visits INT")
    reading = source_kind("topic").read(made, Context(spark, spec, storage))
    with pytest.raises(Exception, match=rf"the record at offset 1 of {topic}-0 cannot be decoded: not JSON"):
        rows_of(reading.rows, storage / "rows")
