"""Sizes of batches, by the size of records."""

from moldau.pipelines.sources import batch_size
from moldau.pipelines.sources.batch_size import BATCH_BYTES, RECORDS_MIN, bounded, records_of_batch
from moldau.pipelines.topics import Cluster as Asked
from tests.pipelines.clusters import Cluster, Record


def test_large_records_make_smaller_batches_and_small_ones_do_not() -> None:
    assert bounded([], 100_000) == 100_000
    assert bounded([0, 0], 100_000) == 100_000
    assert bounded([100, 300], 100_000) == 100_000
    assert bounded([14_000], 100_000) == BATCH_BYTES // 14_000 < 10_000
    assert bounded([50_000_000], 100_000) == RECORDS_MIN
    assert bounded([14_000], 500) == 500


def test_records_at_the_beginning_and_the_end_of_partitions_are_looked_at(moldau_cluster_only: Cluster) -> None:
    topic = moldau_cluster_only.new_topic("sizes", partitions=3)
    ask = Asked(moldau_cluster_only.bootstrap)
    assert records_of_batch(ask, {topic: [0, 1, 2]}, 100_000) == 100_000
    many = batch_size.LOOKED_AT * 2
    moldau_cluster_only.send(topic, [Record(b"x" * 10_000, b"k" * 1000, partition=n % 2) for n in range(4 * many)])
    assert records_of_batch(ask, {topic: [0, 1, 2]}, 100_000) == BATCH_BYTES // 11_000
    moldau_cluster_only.send(topic, [Record(b"x" * 40_000, partition=n % 2) for n in range(many)])
    assert records_of_batch(ask, {topic: [0, 1, 2]}, 100_000) == BATCH_BYTES * 2 // 51_000


def test_a_cluster_that_does_not_answer_changes_nothing() -> None:
    assert records_of_batch(Asked("127.0.0.1:1"), {"visits": [0]}, 7) == 7
