"""Exactly once into a topic: replayed and half-written batches, writers thought dead, tokens that are gone."""

import json
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]  # it has no type information
import pytest
from confluent_kafka import KafkaError, KafkaException

from moldau.pipelines.file.problems import PipelineError
from moldau.pipelines.run.groups import delete
from moldau.pipelines.run.reset import reset
from moldau.pipelines.run.storage import Storage
from moldau.pipelines.sinks.batches import Batch, Owner
from moldau.pipelines.sinks.topic import target
from moldau.pipelines.sinks.topic_batches import EachBatch, LaidDown, Standing, lay_down, standing, unfinished
from moldau.pipelines.sinks.topic_transactions import Target, Token, write
from moldau.pipelines.topics import Cluster as Reached
from tests.pipelines.batch_sinks import EXPECTED, Stream, made, run_and_begin_again
from tests.pipelines.clusters import Cluster, Record
from tests.pipelines.conftest import WITH_TRANSACTIONS
from tests.pipelines.specs import PLACE, pipeline, sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OWNER = Owner("out", PLACE)
NOTHING = Standing(0, frozenset())
transactional = pytest.mark.parametrize("cluster", WITH_TRANSACTIONS, indirect=True, scope="session")


class Query:
    """The sink of one streaming query as Spark would call it: its checkpoint, and a run after another."""

    def __init__(self, spark: "SparkSession", cluster: Cluster, storage: Path, partitions: int = 3) -> None:
        self._spark = spark
        self.cluster, self.topic = cluster, cluster.new_topic("exact", partitions)
        self.target = Target(OWNER, Reached(cluster.bootstrap), self.topic, f"visits.{self.topic}")
        self._storage = storage
        self.begin_anew()

    def begin_anew(self) -> None:
        self.id = str(uuid.uuid4())
        self.checkpoint = self._storage / self.id
        (self.checkpoint / "offsets").mkdir(parents=True)
        (self.checkpoint / "metadata").write_text(json.dumps({"id": self.id}))

    def batch(self, number: int) -> Batch:
        return Batch(self.target.name, self.id, number)

    def rows(self, *values: str) -> "DataFrame":
        """The key of each is its first letter."""
        named = [(value[:1].encode(), value.encode()) for value in values]
        return self._spark.createDataFrame(named, "key BINARY, value BINARY")

    def run(self, number: int, *values: str, tasks: int = 1, again: bool = False) -> None:
        (self.checkpoint / "offsets" / str(number)).touch()
        EachBatch(self.target, self.checkpoint, tasks, number if again else None)(self.rows(*values), number)

    def found(self) -> list[str]:
        return sorted(record.value.decode() for record in self.cluster.read(self.topic) if record.value)


@pytest.fixture
def query(spark: "SparkSession", cluster: Cluster, storage: Path) -> Query:
    return Query(spark, cluster, storage)


def arrow(*values: str) -> "pa.RecordBatch":
    return pa.RecordBatch.from_pydict({"value": pa.array([value.encode() for value in values], pa.binary())})


@transactional
@pytest.mark.parametrize("tasks", [1, 3])
def test_a_batch_that_spark_does_again_is_written_once(
    spark: "SparkSession", cluster: Cluster, storage: Path, tasks: int
) -> None:
    topic = cluster.new_topic("exact", 3)
    place = {"topic": topic, "bootstrap": cluster.bootstrap}
    out = replace(made("topic", delivery="exactly once", tasks=tasks, **place), name=topic)
    run_and_begin_again(Stream(spark, storage, out))
    found = [json.loads(record.value or b"") for record in cluster.read(topic)]
    assert sorted((row["id"], row["name"]) for row in found) == EXPECTED


@transactional
def test_records_are_as_they_are_at_least_once(spark: "SparkSession", cluster: Cluster, storage: Path) -> None:
    """Keys are in the partitions in which Java's producer puts them, in their order; headers and tombstones too."""
    for delivery, tasks in (("at least once", {}), ("exactly once", {"tasks": 4})):
        topic = cluster.new_topic("same", 4)
        options: dict[str, Any] = {
            "key": "name",
            "headers": {"id": "id"},
            "delete_when": "id = 7",
            "delivery": delivery,
        }
        out = made("topic", topic=topic, bootstrap=cluster.bootstrap, mode="append", **options, **tasks)
        stream = Stream(spark, storage / delivery, replace(out, name=topic))
        stream.bring(*(json.dumps({"id": number, "name": f"key {number % 5}"}) for number in range(40)))
        stream.run("id BIGINT, name STRING")
        by_key: dict[bytes | None, list[Record]] = {}
        for record in cluster.read(topic):
            by_key.setdefault(record.key, []).append(record._replace(timestamp_ms=0))
        if delivery == "at least once":
            expected = by_key
    assert by_key == expected
    assert [record.value for record in by_key[b"key 2"]].count(None) == 1


@transactional
def test_the_rest_of_a_half_written_batch_is_written_whatever_the_plan_gives_now(query: Query) -> None:
    """One of three tasks has committed. The next run has other rows for the batch, and another number of tasks."""
    query.run(0, "a0", "b0", tasks=3)
    laid_down = lay_down(query.rows(*"abcdefgh"), 3, query.checkpoint / "transactions" / "batch-1")
    done = next(slot for slot, name in enumerate(laid_down.files) if name)
    with pa.ipc.open_stream(laid_down.directory / laid_down.files[done]) as rows:
        assert write(query.target, query.batch(1), done, 3, list(rows))
    assert query.found() != sorted(["a0", "b0", *"abcdefgh"])
    query.run(1, *"abcdefghijk", tasks=1, again=True)
    assert query.found() == sorted(["a0", "b0", *"abcdefgh"])
    query.run(2, "z", tasks=2)
    assert query.found() == sorted(["a0", "b0", *"abcdefgh", "z"])


@transactional
def test_a_half_written_batch_whose_rest_is_gone_is_not_guessed(query: Query) -> None:
    query.run(0, "a", tasks=2)
    write(query.target, query.batch(1), 1, 2, [arrow("b")])
    with pytest.raises(PipelineError, match="batch 1 is in its topic in part, and the rest of it is gone"):
        query.run(1, "b", "c", tasks=2, again=True)
    assert query.found() == ["a", "b"]


@transactional
def test_a_writer_that_was_thought_dead_can_commit_nothing_more(query: Query) -> None:
    query.run(0, "a")
    zombie = query.target.producer(0)
    zombie.begin_transaction()
    zombie.produce(query.topic, b"b")
    zombie.flush()
    query.run(1, "b", again=True)
    with pytest.raises(KafkaException) as refused:
        zombie.commit_transaction(10)
    assert refused.value.args[0].code() == KafkaError._FENCED
    assert query.found() == ["a", "b"]


@transactional
def test_a_writer_of_a_slot_that_is_used_no_more_can_commit_nothing_either(query: Query) -> None:
    query.run(0, "a", tasks=3)
    zombie = query.target.producer(2)
    zombie.begin_transaction()
    zombie.produce(query.topic, b"b")
    zombie.flush()
    query.run(1, "b", tasks=1, again=True)
    with pytest.raises(KafkaException):
        zombie.commit_transaction(10)
    assert query.found() == ["a", "b"]


@transactional
def test_two_runs_under_one_name_are_told_of_each_other(query: Query) -> None:
    def rows() -> Iterator["pa.RecordBatch"]:
        yield arrow("a")
        query.target.producer(0)  # the other
        yield arrow("b")

    with pytest.raises(PipelineError, match=r"another run has taken over the transactional id .*two pipelines of one"):
        write(query.target, query.batch(0), 0, 1, rows())
    assert query.found() == []


@transactional
def test_another_checkpoint_begins_at_its_own_batch_0(query: Query) -> None:
    """After a reset, or of another pipeline with the same name, whose turn it is now."""
    query.run(0, "a")
    query.begin_anew()
    query.run(0, "b")
    query.run(0, "b", again=True)
    assert query.found() == ["a", "b"]


@transactional
def test_a_batch_without_rows_is_noted(query: Query) -> None:
    for number, tasks in enumerate((1, 2, 1)):
        query.run(number, tasks=tasks)
    assert query.target.tokens(query.id, [query.topic])[0] == Token(3, 1)
    query.run(3, "a", again=True)
    assert query.found() == ["a"]


@transactional
def test_a_batch_that_was_begun_at_least_once_is_written_once_more(query: Query) -> None:
    """Nothing is known of it; that is what the run that began it had promised."""
    query.run(7, "a", again=True)
    query.run(7, "a", again=True)
    assert query.found() == ["a"]


@transactional
def test_tokens_that_are_gone_matter_only_if_a_batch_may_be_there_already(query: Query) -> None:
    query.run(0, "a")
    assert delete(query.target.cluster, [query.target.group(query.id)]) == {}
    with pytest.raises(PipelineError, match="nobody can say whether batch 1 is in its topic"):
        query.run(1, "b", again=True)
    query.run(1, "b")
    assert query.found() == ["a", "b"]


@transactional
def test_an_operator_may_say_that_a_batch_is_there(query: Query) -> None:
    """As the page says: `kafka-consumer-groups --reset-offsets` to the number of the next batch."""
    query.run(0, "a")
    delete(query.target.cluster, [query.target.group(query.id)])
    query.cluster.commit(query.target.group(query.id), query.topic, {0: 2})
    query.run(1, "b", again=True)
    assert query.found() == ["a"]


@transactional
def test_an_older_copy_of_a_checkpoint_is_refused(query: Query) -> None:
    for number in range(3):
        query.run(number, str(number))
    with pytest.raises(PipelineError, match="its topic has batch 2, but the checkpoint is back at batch 1"):
        query.run(1, "other rows")


@transactional
def test_a_batch_that_went_to_another_topic_stays_there(query: Query) -> None:
    query.run(0, "a")
    before, query.topic = query.topic, query.cluster.new_topic("exact", 3)
    query.target = replace(query.target, topic=query.topic)
    query.run(0, "a", again=True)
    query.run(1, "b")
    assert query.found() == ["b"]
    query.topic = before
    assert query.found() == ["a"]


@transactional
def test_rows_that_a_crash_left_without_a_manifest_are_laid_down_again(query: Query) -> None:
    directory = query.checkpoint / "transactions" / "batch-0"
    directory.mkdir(parents=True)
    (directory / "half.arrow").write_bytes(b"half")
    assert LaidDown.find(directory) is None
    query.run(0, "a", "b", tasks=2)
    assert query.found() == ["a", "b"]
    query.run(1, "c", tasks=2)
    assert not directory.exists()


def test_a_reset_forgets_the_tokens_too(cluster: Cluster, storage: Path) -> None:
    topic = cluster.new_topic("exact", 2)
    out = sink("topic", topic=topic, delivery="exactly once", tasks=2)
    spec = pipeline(storage, cluster.bootstrap, name=topic, sinks={out.name: out})
    checkpoint = Storage(storage).checkpoint(out.name)
    checkpoint.mkdir(parents=True)
    (checkpoint / "metadata").write_text('{"id": "first"}')
    place = target(out, spec)
    cluster.commit(place.group("first"), topic, {0: 5, 1: 5})
    assert place.tokens("first", [topic]) == {0: Token(5, 0), 1: Token(5, 0)}
    said: list[str] = []
    reset(spec, out, said.append)
    assert said == ["out: begins anew; all records are written once more, after those that are there"]
    assert place.tokens("first", [topic]) == {}
    assert not checkpoint.exists()


# --- what tokens say, without a cluster


@pytest.mark.parametrize(
    ("tokens", "again", "expected"),
    [
        ({}, False, NOTHING),
        ({0: Token(7, 1)}, True, NOTHING),
        ({0: Token(8, 1)}, True, Standing(1, frozenset({0}))),
        ({0: Token(7, 2), 1: Token(7, 2)}, True, NOTHING),
        ({0: Token(7, 2), 1: Token(8, 2)}, True, Standing(2, frozenset({1}))),
        ({0: Token(8, 1), 1: Token(6, 2)}, True, Standing(1, frozenset({0}))),
        ({0: Token(8, 0)}, True, Standing(1, frozenset({0}))),
        ({0: Token(3, 1)}, False, NOTHING),
    ],
)
def test_the_standing_of_batch_7(tokens: dict[int, Token], again: bool, expected: Standing) -> None:
    assert standing(tokens, 7, again, OWNER) == expected


@pytest.mark.parametrize("tokens", [{}, {0: Token(6, 1)}])
def test_a_batch_that_may_be_there_needs_the_token_before_it(tokens: dict[int, Token]) -> None:
    with pytest.raises(PipelineError, match="nobody can say"):
        standing(tokens, 7, True, OWNER)


def test_the_first_batch_is_no_exception() -> None:
    with pytest.raises(PipelineError, match="nobody can say"):
        standing({}, 0, True, OWNER)
    assert standing({0: Token(0, 1)}, 0, True, OWNER) == NOTHING


@pytest.mark.parametrize(
    ("planned", "committed", "expected"), [((), (), None), ((0,), (), 0), ((0, 1), (0,), 1), ((0, 1), (0, 1), None)]
)
def test_the_batch_that_an_earlier_run_left_is_the_one_without_a_commit(
    tmp_path: Path, planned: Sequence[int], committed: Sequence[int], expected: int | None
) -> None:
    for name, numbers in (("offsets", planned), ("commits", committed)):
        (tmp_path / name).mkdir()
        for number in numbers:
            (tmp_path / name / str(number)).touch()
            (tmp_path / name / f".{number}.crc").touch()
    assert unfinished(tmp_path) == expected
    assert unfinished(tmp_path / "nothing") is None
