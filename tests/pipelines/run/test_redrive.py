from pathlib import Path

import pytest

from moldau.pipelines.file.spec import PipelineSpec
from moldau.pipelines.run.redrive import Filter, RedriveError, Redriven, group_of, redrive, said_by
from moldau.pipelines.topics import Cluster as Asked
from tests.pipelines.clusters import Cluster, Record
from tests.pipelines.specs import pipeline

TRACE = ("trace", b"\x01")


def letter(topic: str, value: bytes | None, reason: str = "not JSON", **changes: str) -> Record:
    """A dead letter as the pipeline writes it; `changes` are of its headers."""
    said = {"pipeline": "visits", "source": "rows", "topic": topic, "partition": "1", "offset": "5"}
    said |= {"timestamp": "1700000000123", "reason": reason, **changes}
    headers = [TRACE, *((f"moldau.dlq.{name}", text.encode()) for name, text in said.items())]
    return Record(value, b"k", tuple(headers))


class Case:
    """A topic with two partitions, and dead letters."""

    def __init__(self, cluster: Cluster, storage: Path) -> None:
        self.cluster = cluster
        self.topic = cluster.new_topic(partitions=2)
        self.letters = cluster.new_topic("letters")
        self.spec: PipelineSpec = pipeline(storage, cluster.bootstrap, name=self.letters, dead_letters=self.letters)

    def put(self, *letters: Record) -> None:
        self.cluster.send(self.letters, letters)

    def values(self) -> list[bytes | None]:
        return [record.value for record in self.cluster.read(self.topic)]

    def committed(self) -> int | None:
        found = Asked(self.cluster.bootstrap).offsets_of_group(group_of(self.spec), {self.letters: [0]})
        return found.get(self.letters, {}).get(0)


def test_a_letter_goes_back_as_the_record_that_it_was(cluster: Cluster, storage: Path) -> None:
    case = Case(cluster, storage)
    case.put(letter(case.topic, b"a"), letter(case.topic, None, attempts="2"))
    assert redrive(case.spec) == Redriven(sent={case.topic: 2})  # type: ignore[arg-type]
    first_time = ("moldau.dlq.timestamp", b"1700000000123")
    assert [record._replace(timestamp_ms=0) for record in cluster.read(case.topic)] == [
        Record(b"a", b"k", (TRACE, first_time, ("moldau.dlq.attempts", b"1")), 1),
        Record(None, b"k", (TRACE, first_time, ("moldau.dlq.attempts", b"3")), 1),
    ]
    assert case.committed() == 2


def test_a_record_that_is_bad_again_keeps_its_first_time_and_counts_on(cluster: Cluster, storage: Path) -> None:
    case = Case(cluster, storage)
    case.put(letter(case.topic, b"a"))
    redrive(case.spec)
    [sent] = cluster.read(case.topic)
    again = letter(case.topic, b"a", timestamp="1800000000000")
    case.put(again._replace(headers=(*sent.headers, *again.headers[1:])))
    redrive(case.spec)
    assert cluster.read(case.topic)[1].headers == (
        TRACE,
        ("moldau.dlq.timestamp", b"1700000000123"),
        ("moldau.dlq.attempts", b"2"),
    )


def test_a_letter_is_sent_back_once(cluster: Cluster, storage: Path) -> None:
    case = Case(cluster, storage)
    case.put(letter(case.topic, b"a"))
    redrive(case.spec)
    case.put(letter(case.topic, b"b"))
    assert redrive(case.spec).sent == {case.topic: 1}
    assert redrive(case.spec).sent == {}
    assert case.values() == [b"a", b"b"]


def test_what_the_filters_leave_out_waits_for_the_next_time(cluster: Cluster, storage: Path) -> None:
    case = Case(cluster, storage)
    case.put(
        letter(case.topic, b"1", "missing field 'at'"),
        letter(case.topic, b"2", "not JSON"),
        letter(case.topic, b"3", "Missing field 'x'", source="others"),
    )
    found = redrive(case.spec, Filter(reason="missing", source="rows"))
    assert (found.sent, found.kept, case.values()) == ({case.topic: 1}, 2, [b"1"])
    found = redrive(case.spec)
    assert (found.sent, found.kept, case.values()) == ({case.topic: 2}, 0, [b"1", b"2", b"3"])


def test_so_many_at_most_and_then_the_rest(cluster: Cluster, storage: Path) -> None:
    case = Case(cluster, storage)
    case.put(*(letter(case.topic, str(number).encode()) for number in range(5)))
    assert redrive(case.spec, Filter(records_max=2)).sent == {case.topic: 2}
    assert case.committed() == 2
    assert redrive(case.spec, Filter(records_max=10)).sent == {case.topic: 3}
    assert case.values() == [b"0", b"1", b"2", b"3", b"4"]


def test_a_dry_run_changes_nothing(cluster: Cluster, storage: Path) -> None:
    case = Case(cluster, storage)
    case.put(letter(case.topic, b"a"), letter(case.topic, b"b", "other"))
    found = redrive(case.spec, Filter(reason="json"), dry_run=True)
    assert list(said_by(found, case.spec, dry_run=True)) == [
        f"{case.topic}-1 offset 5: not JSON",
        f"1 would be sent back to {case.topic}",
        f"1 left out by the filters, still in {case.letters}",
    ]
    assert (case.values(), case.committed(), len(cluster.read(case.letters))) == ([], None, 2)


def test_letters_whose_topic_is_gone_are_not_committed(cluster: Cluster, storage: Path) -> None:
    case = Case(cluster, storage)
    case.put(letter(case.topic, b"a", partition="7"))
    with pytest.raises(RedriveError, match=rf"{case.topic}-7 does not take a record"):
        redrive(case.spec)
    assert case.committed() is None


def test_records_that_no_pipeline_wrote_are_passed_over(moldau_cluster_only: Cluster, storage: Path) -> None:
    case = Case(moldau_cluster_only, storage)
    case.put(Record(b"x"), letter(case.topic, b"a"), letter(case.topic, b"b", offset="no number"))
    found = redrive(case.spec)
    assert (found.sent, found.foreign, case.values()) == ({case.topic: 1}, 2, [b"a"])


def test_a_letter_that_is_bad_again_in_the_meantime_waits(moldau_cluster_only: Cluster, storage: Path) -> None:
    """The end is the one seen at the start, so that a record which comes back at once cannot go round for ever."""
    case = Case(moldau_cluster_only, storage)
    case.put(letter(case.letters, b"round and round", partition="0"))
    found = redrive(case.spec)
    assert found.sent == {case.letters: 1}
    assert case.committed() == 1


def test_no_dead_letters_at_all_are_nothing_to_do(moldau_cluster_only: Cluster, storage: Path) -> None:
    spec = pipeline(storage, moldau_cluster_only.bootstrap, dead_letters="never-made")
    assert list(said_by(redrive(spec), spec, dry_run=False)) == ["nothing to send back in never-made"]
    with pytest.raises(RedriveError, match="has no dead letters"):
        redrive(pipeline(storage, moldau_cluster_only.bootstrap, dead_letters=None))
