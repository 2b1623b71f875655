"""Runs that read topics: positions in consumer groups, dead letters, replays and resets."""

import io
import json
import sqlite3
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from moldau.pipelines.file.files import load, read
from moldau.pipelines.file.problems import PipelineError
from moldau.pipelines.file.spec import PipelineSpec
from moldau.pipelines.run import replay, runner
from moldau.pipelines.run.display import Display
from moldau.pipelines.run.groups import Groups, readers_of_sink
from moldau.pipelines.run.identity import Identity
from moldau.pipelines.run.progress import Progress
from moldau.pipelines.run.reset import reset
from moldau.pipelines.run.runner import CONTINUOUS, ONCE, REALTIME, Run, Stop
from moldau.pipelines.run.storage import Storage
from moldau.pipelines.topics import when_ready
from tests.pipelines.clusters import Cluster, Record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMEOUT_S = 180.0
HOUR_MS = 3_600_000
BEGIN_MS = int(datetime(2026, 11, 16, tzinfo=UTC).timestamp() * 1000)

PIPELINE = """
name: {name}
bootstrap: {bootstrap}
sources:
  visits:
    topic: {topic}
    schema: organisation STRING, at TIMESTAMP
    required: [organisation]
views:
  counts: SELECT organisation, count(*) AS visits FROM visits GROUP BY organisation
sinks:
  table: {{from: counts, sqlite: out.db, table: visits, key: organisation}}
"""


def _visit(organisation: str, hour: int, partition: int = 0) -> Record:
    at = datetime.fromtimestamp(BEGIN_MS / 1000 + hour * 3600, UTC).isoformat()
    value = json.dumps({"organisation": organisation, "at": at}).encode()
    return Record(value, partition=partition, timestamp_ms=BEGIN_MS + hour * HOUR_MS)


def _pipeline(directory: Path, cluster: Cluster, topic: str) -> Path:
    file = directory / "visits.yaml"
    file.write_text(PIPELINE.format(name=f"visits-of-{topic}", bootstrap=cluster.bootstrap, topic=topic))
    return file


def _run(spec: PipelineSpec, spark: "SparkSession", window: replay.Window | None = None) -> None:
    display = Display(io.StringIO(), live=False)
    shape = window.shape if window else None
    run = Run(spec, spark, ONCE, display=display, shape=shape, with_dead_letters=window is None)
    run.to_the_end()


def _table(file: Path) -> dict[str, int]:
    with sqlite3.connect(file) as connection:
        return dict(connection.execute("SELECT organisation, visits FROM visits").fetchall())


def _committed(cluster: Cluster, group: str, topic: str, partitions: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group})
    try:
        asked = [TopicPartition(topic, partition) for partition in range(partitions)]
        return [each.offset for each in when_ready(lambda: consumer.committed(asked, timeout=TIMEOUT_S))]
    finally:
        consumer.close()


def _files(directory: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in sorted(directory.rglob("*")) if path.is_file()}


def test_a_run_its_groups_its_dead_letters_a_replay_and_a_reset(
    spark: "SparkSession", cluster: Cluster, tmp_path: Path
) -> None:
    topic = cluster.new_topic("page-views", partitions=2)
    cluster.send(
        topic, [_visit("acme", 0), _visit("acme", 5), Record(b"{bad", timestamp_ms=BEGIN_MS), _visit("bolt", 6, 1)]
    )
    file = _pipeline(tmp_path, cluster, topic)
    spec = load(file)
    name = spec.name
    _run(spec, spark)
    assert _table(tmp_path / "out.db") == {"acme": 2, "bolt": 1}
    assert _committed(cluster, f"{name}.table", topic, 2) == [3, 1]
    assert _committed(cluster, f"{name}.visits.dead-letters", topic, 2) == [3, 1]
    [letter] = cluster.read(f"{name}.dead-letters")
    assert letter.value == b"{bad"

    # the same file elsewhere: another storage, and the same name
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with pytest.raises(PipelineError, match=f"another pipeline is called {name!r}: group '{name}.table' is that of .*"):
        _run(load(_pipeline(elsewhere, cluster, topic)), spark)
    assert not (elsewhere / "out.db").exists()

    # a partition more, and the run goes on
    cluster.grow(topic, 3)
    cluster.send(topic, [_visit("acme", 7, 2), _visit("late", 1, 0)])
    _run(spec, spark)
    assert _table(tmp_path / "out.db") == {"acme": 3, "bolt": 1, "late": 1}
    assert _committed(cluster, f"{name}.table", topic, 3) == [4, 1, 1]

    # again from hour 5 up to 7, elsewhere: the record of hour 1 came after those, and is not of that time
    before = (_files(spec.storage), _table(tmp_path / "out.db"), cluster.read(f"{name}.dead-letters"))
    window = replay.Window(replay.moment("2026-11-16T05:00:00"), replay.moment(str(BEGIN_MS + 7 * HOUR_MS)))
    again = replay.plan(read(file), spec, None, replay.target(f"sqlite={tmp_path}/again.db"), window, "first")
    _run(again, spark, window)
    assert _table(tmp_path / "again.db") == {"acme": 1, "bolt": 1}
    assert _committed(cluster, f"{name}.replay.first", topic, 3) == [4, 1, 1]
    replays = str(Storage(spec.storage).replays)
    files = {path: at for path, at in _files(spec.storage).items() if not path.startswith(replays)}
    assert (files, _table(tmp_path / "out.db"), cluster.read(f"{name}.dead-letters")) == before
    assert _committed(cluster, f"{name}.table", topic, 3) == [4, 1, 1]

    # and everything anew
    said: list[str] = []
    reset(spec, None, said.append)
    assert said == ["table: begins anew; rows are put in the place of those with the same key"]
    assert Storage(spec.storage).checkpoints() == []
    assert _committed(cluster, f"{name}.table", topic, 3) == [-1001] * 3
    _run(spec, spark)
    assert _table(tmp_path / "out.db") == {"acme": 3, "bolt": 1, "late": 1}
    assert _committed(cluster, f"{name}.table", topic, 3) == [4, 1, 1]


def test_a_day_that_is_replayed_into_files_has_all_its_rows(
    spark: "SparkSession", moldau_cluster_only: Cluster, tmp_path: Path
) -> None:
    topic = moldau_cluster_only.new_topic("page-views", partitions=2)
    hours = [("acme", 0), ("acme", 5), ("bolt", 23), ("late", 25)]
    moldau_cluster_only.send(topic, [_visit(name, hour, hour % 2) for name, hour in hours])
    file = _pipeline(tmp_path, moldau_cluster_only, topic)
    by_hour = "SELECT organisation, window.start AS begin, count(*) AS visits FROM visits GROUP BY organisation, "
    begun = (
        "SELECT a.organisation, b.at FROM visits a LEFT JOIN visits b ON a.at = b.at + INTERVAL 5 HOURS AND a.at > b.at"
    )
    words = file.read_text().replace("required: [organisation]", "required: [organisation]\n    watermark: at 1 hour")
    words = words.replace("SELECT organisation, count(*) AS visits FROM visits GROUP BY ", by_hour)
    file.write_text(words.replace("organisation\nsinks", f"window(at, '1 hour')\n  pairs: {begun}\nsinks"))
    with file.open("a") as more:
        more.write("  pairs: {from: pairs, topic: pairs, create: true}\n")
    window = replay.Window(replay.moment("2026-11-16"), replay.moment("2026-11-17"))

    def again(sink: str, name: str) -> list[tuple[Any, ...]]:
        to = replay.target(f"parquet={tmp_path}/{name}")
        _run(replay.plan(read(file), load(file), sink, to, window, name), spark, window)
        return sorted((tuple(row) for row in spark.read.parquet(str(tmp_path / name)).collect()), key=str)

    assert [(name, begin.astimezone(UTC).hour, visits) for name, begin, visits in again("table", "one")] == [
        ("acme", 0, 1),
        ("acme", 5, 1),
        ("bolt", 23, 1),
    ]
    found = again("pairs", "two")
    hours_before = [(name, at and at.astimezone(UTC).hour) for name, at in found]
    assert sorted(hours_before, key=str) == [("acme", 0), ("acme", None), ("bolt", None)]


def test_two_pipelines_of_one_name_that_begin_together_find_each_other(
    spark: "SparkSession", moldau_cluster_only: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "TOPICS_S", 0.0)
    monkeypatch.setattr(runner, "NAMESAKES_S", TIMEOUT_S)
    topic = moldau_cluster_only.new_topic("page-views")
    moldau_cluster_only.send(topic, [_visit("acme", 0)])
    spec = load(_pipeline(tmp_path, moldau_cluster_only, topic))
    group = f"{spec.name}.table"
    claim = Identity("of another", "/elsewhere").claim
    other = Groups({group: readers_of_sink(spec, spec.sinks["table"])}, lambda _: None, claim)

    class Met(Display):
        """A display at each look of which the other pipeline has committed something."""

        def show(self, progress: Progress) -> None:  # noqa: ARG002 - the other one's progress matters
            other.commit(group, {topic: {0: 1}})

    with pytest.raises(PipelineError, match=rf"another pipeline is called '{spec.name}': .*:/elsewhere"):
        Run(spec, spark, CONTINUOUS, display=Met(io.StringIO(), live=False)).to_the_end()
    other.close()


@pytest.mark.parametrize(
    "once",
    [
        "visits.dropDuplicates(['organisation'])",
        "visits.dropDuplicatesWithinWatermark(['organisation'])",
        "visits.groupBy('organisation').applyInPandasWithState(first, 'organisation STRING', 'n INT', 'append', NEVER)",
    ],
)
def test_a_day_without_its_duplicates_is_replayed_into_files(
    spark: "SparkSession", moldau_cluster_only: Cluster, tmp_path: Path, once: str
) -> None:
    topic = moldau_cluster_only.new_topic("page-views")
    moldau_cluster_only.send(topic, [_visit("acme", 0), _visit("acme", 0), _visit("bolt", 0), _visit("late", 25)])
    file = tmp_path / "once.py"
    file.write_text(f"""
from pyspark.sql.streaming.state import GroupStateTimeout

from moldau.pipelines import Pipeline

NEVER = GroupStateTimeout.NoTimeout
pipeline = Pipeline("{topic}", bootstrap="{moldau_cluster_only.bootstrap}")
pipeline.source("visits", topic="{topic}", schema="organisation STRING, at TIMESTAMP", watermark="at 1 hour")


def first(key, frames, state):
    if not state.exists:
        state.update((1,))
        yield next(iter(frames))[["organisation"]].head(1)


@pipeline.table(parquet="out")
def once(visits):
    return {once}
""")
    window = replay.Window(replay.moment("2026-11-16"), replay.moment("2026-11-17"))
    to = replay.target(f"parquet={tmp_path}/again")
    _run(replay.plan(read(file), load(file), "once", to, window, "again"), spark, window)
    assert sorted(row["organisation"] for row in spark.read.parquet(f"{tmp_path}/again").collect()) == ["acme", "bolt"]


def test_in_real_time_rows_come_out_as_they_come_in(
    spark: "SparkSession", moldau_cluster_only: Cluster, tmp_path: Path
) -> None:
    topic, out = moldau_cluster_only.new_topic("in"), moldau_cluster_only.new_topic("out")
    file = _pipeline(tmp_path, moldau_cluster_only, topic)
    file.write_text(file.read_text().partition("views:")[0] + f"sinks: {{out: {{from: visits, topic: {out}}}}}\n")
    stop, found = Stop(), []

    def watch() -> None:
        deadline = time.monotonic() + TIMEOUT_S
        for hour in range(3):
            moldau_cluster_only.send(topic, [_visit("acme", hour)])
            while len(moldau_cluster_only.read(out)) <= hour and time.monotonic() < deadline:
                time.sleep(0.1)
        found.extend(moldau_cluster_only.read(out))
        stop.ask()

    watching = threading.Thread(target=watch)
    watching.start()
    spec = load(file)
    Run(spec, spark, REALTIME, stop, Display(io.StringIO(), live=False)).to_the_end()
    watching.join()
    assert [json.loads(record.value or b"")["at"][11:13] for record in found] == ["00", "01", "02"]
    assert _committed(moldau_cluster_only, f"{spec.name}.out", topic, 1) == [3]


# --- plans of replays, without Spark

WINDOW = replay.Window(datetime(2026, 11, 16, tzinfo=UTC))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "visits.yaml"
    words = PIPELINE.format(name="visits", bootstrap="127.0.0.1:1", topic="page-views")
    made.write_text(words + "  topic: {from: counts, topic: visits-by-organisation, key: organisation}\n")
    return made


def _plan(file: Path, sink: str | None, to: str) -> PipelineSpec:
    return replay.plan(read(file), load(file), sink, replay.target(to), WINDOW, "one")


def test_a_replay_is_a_pipeline_of_its_own(file: Path) -> None:
    production, made = load(file), _plan(file, "table", "topic=elsewhere,create={partitions: 3},key=[organisation]")
    assert made.storage == production.storage / "replays" / "one"
    [sink] = made.sinks.values()
    assert (made.name, sink.name, sink.flows) == ("visits", "replay.one", ("counts",))
    assert (sink.options["topic"], sink.options["create"].partitions) == ("elsewhere", 3)
    assert sink.options["key"] == ("organisation",)
    assert made.sources["visits"].options["starting"].timestamp_ms == BEGIN_MS


def test_a_replay_takes_over_the_key_of_production_and_of_the_same_kind_all_options(file: Path) -> None:
    [sink] = _plan(file, "table", "sqlite=other.db").sinks.values()
    assert (sink.options["table"], sink.options["key"], sink.options["mode"]) == ("visits", ("organisation",), "update")
    [sink] = _plan(file, "topic", "sqlite=other.db,table=t").sinks.values()
    assert (sink.options["table"], sink.options["key"]) == ("t", ("organisation",))


@pytest.mark.parametrize(
    ("sink", "to", "words"),
    [
        (None, "sqlite=x.db", "which sink?"),
        ("tabel", "sqlite=x.db", "did you mean 'table'?"),
        ("table", "sqlite={here}/out.db", "--to is where sink 'table' of production writes"),
        ("table", "topic=visits-by-organisation", "--to is where sink 'topic' of production writes"),
        ("table", "topic=page-views", "--to is a topic that source 'visits' reads"),
        ("table", "sqlte=x.db", "did you mean 'sqlite'?"),
        ("table", "sqlite=x.db,tabel=t", "no option 'tabel'"),
    ],
)
def test_a_replay_that_would_do_harm_or_nothing_is_refused(file: Path, sink: str | None, to: str, words: str) -> None:
    with pytest.raises(PipelineError) as error:
        _plan(file, sink, to.replace("{here}", str(file.parent)))
    assert words in str(error.value)


def test_a_replay_into_a_topic_that_a_pattern_of_production_matches_is_refused(file: Path) -> None:
    file.write_text(file.read_text().replace("topic: page-views", 'pattern: "page-.*"'))
    with pytest.raises(PipelineError, match="--to is a topic that source 'visits' reads"):
        _plan(file, "table", "topic=page-copies")


def test_only_topics_can_be_read_from_a_time(file: Path) -> None:
    file.write_text(file.read_text().replace("    topic: page-views\n", "    files: in\n    format: json\n"))
    with pytest.raises(PipelineError, match=r"source 'visits' \(files\) cannot be read from a time"):
        _plan(file, "table", "sqlite=x.db")


def test_times_and_targets_that_cannot_be_read_are_named() -> None:
    assert replay.moment("2026-11-16T01:00:00+01:00") == datetime(2026, 11, 16, tzinfo=UTC)
    assert replay.moment(str(BEGIN_MS)) == datetime(2026, 11, 16, tzinfo=UTC)
    with pytest.raises(ValueError, match="yesterday"):
        replay.moment("yesterday")
    assert replay.target("topic=a,key=[b,c],create={partitions: 3}") == {
        "topic": "a",
        "key": ["b", "c"],
        "create": {"partitions": 3},
    }
    assert replay.target("topic=a,create=true,table=truely") == {"topic": "a", "create": True, "table": "truely"}
    with pytest.raises(ValueError, match="'sqlite' is not of the form"):
        replay.target("sqlite")
