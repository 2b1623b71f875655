"""What a storage remembers, and what is refused because of it; without Spark."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from moldau.pipelines.file.problems import PipelineError
from moldau.pipelines.file.spec import PipelineSpec
from moldau.pipelines.run import identity
from moldau.pipelines.run.groups import Groups, readers_of_sink
from moldau.pipelines.run.storage import Storage
from tests.pipelines.clusters import Cluster
from tests.pipelines.specs import pipeline, sink, source

TIMEOUT_S = 30.0


def _pipeline(storage: Path, cluster: Cluster, topic: str, table: str = "t") -> PipelineSpec:
    read = source("topic", topic=topic, format="text", lost="skip")
    out = sink("sqlite", sqlite=str(storage.parent / "out.db"), table=table)
    return pipeline(storage, cluster.bootstrap, name=topic, sources={"rows": read}, sinks={"out": out})


def _begun(spec: PipelineSpec) -> list[str]:
    """The lines that a run says when it begins, its checkpoint made."""
    said: list[str] = []
    found = identity.begin(spec, said.append)
    Storage(spec.storage).checkpoint("out").mkdir(parents=True, exist_ok=True)
    groups = Groups({f"{spec.name}.out": readers_of_sink(spec, spec.sinks["out"])}, said.append, found.claim)
    groups.commit(f"{spec.name}.out", {spec.name: {0: 1}})
    assert groups.wait(TIMEOUT_S)
    groups.close()
    return said


def test_two_pipelines_of_one_name_are_refused_and_a_moved_one_is_not(
    moldau_cluster_only: Cluster, tmp_path: Path
) -> None:
    topic = moldau_cluster_only.new_topic()
    first = _pipeline(tmp_path / "first", moldau_cluster_only, topic)
    assert _begun(first) == []
    assert _begun(first) == []
    with pytest.raises(
        PipelineError, match=rf"another pipeline is called '{topic}': .*:{tmp_path}/first.*another `name`"
    ):
        _begun(_pipeline(tmp_path / "other", moldau_cluster_only, topic))

    copy = _pipeline(tmp_path / "copy", moldau_cluster_only, topic)
    shutil.copytree(first.storage, copy.storage)
    with pytest.raises(PipelineError, match=rf"{tmp_path}/copy is a copy of {tmp_path}/first, which is still there"):
        _begun(copy)
    shutil.rmtree(first.storage)
    assert _begun(copy) == [], "it was moved"


def test_a_topic_that_was_made_anew_is_refused_until_a_reset(moldau_cluster_only: Cluster, tmp_path: Path) -> None:
    topic = moldau_cluster_only.new_topic()
    spec = _pipeline(tmp_path / "storage", moldau_cluster_only, topic)
    assert _begun(spec) == []
    admin = AdminClient(moldau_cluster_only.settings)
    admin.delete_topics([topic])[topic].result()
    moldau_cluster_only.make(topic)
    with pytest.raises(PipelineError, match=f"the topic '{topic}' was deleted and made anew: .*pipeline reset"):
        _begun(spec)
    known = identity.Identity.load(spec.storage)
    assert known is not None
    [problem] = identity.made_anew(spec, known)
    assert "made anew" in problem.message, "a run that goes on sees it, too"
    failing = replace(spec, sources={"rows": source("topic", topic=topic, format="text")})
    assert identity.made_anew(failing, known) == [], "Spark ends the run by itself"
    Storage(spec.storage).forget("out")
    assert _begun(spec) == []
    assert _begun(spec) == []


def test_a_sink_that_gets_another_place_says_that_it_lacks_the_rows_of_before(
    moldau_cluster_only: Cluster, tmp_path: Path
) -> None:
    topic = moldau_cluster_only.new_topic()
    assert _begun(_pipeline(tmp_path / "storage", moldau_cluster_only, topic)) == []
    other = _pipeline(tmp_path / "storage", moldau_cluster_only, topic, table="u")
    place = tmp_path / "out.db"
    said = f"out: wrote to {place} t before and goes on at {place} u, without the rows of before"
    assert _begun(other) == [said]
    assert _begun(other) == []


def test_a_cluster_that_does_not_answer_is_left_to_spark(tmp_path: Path) -> None:
    away = Cluster("away", "127.0.0.1:1")
    spec = _pipeline(tmp_path / "storage", away, "topic")
    Storage(spec.storage).checkpoint("out").mkdir(parents=True)
    known = identity.Identity("id", str(spec.storage), {"out": {"topic": "its id"}}, {})
    known.save(spec.storage)
    found = identity.begin(spec, pytest.fail)
    assert (found.id, found.topics["out"]) == ("id", {"topic": "its id"})
