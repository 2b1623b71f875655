"""Checks of a cluster whose answers are made up: faults that no test can bring about in time."""

from typing import Any, cast

from moldau.cli.diagnosis import Diagnosis, by_severity, some
from moldau.cli.doctor_cluster import Cluster, check_brokers, check_controller, check_copies, check_disks
from moldau.cli.wire import WireCluster
from moldau.protocol.messages.k03_metadata import MetadataResponsePartition, MetadataResponseTopic
from moldau.protocol.messages.k35_describe_log_dirs import DescribeLogDirsResponse, DescribeLogDirsResult

GIB = 1 << 30
STORAGE_ERROR = 56


class Disks:
    """Answers of every broker about its directories."""

    def __init__(self, *results: DescribeLogDirsResult) -> None:
        self._answer = DescribeLogDirsResponse(results=list(results))

    def broker(self, _: int) -> "Disks":
        return self

    def request(self, *_: Any) -> DescribeLogDirsResponse:
        return self._answer


def cluster(wire: object = None, **facts: Any) -> Cluster:
    brokers = {number: f"host-{number}:9092" for number in (1, 2, 3)}
    served = {number: {0: (3, 13)} for number in brokers}
    known: dict[str, Any] = {"controller": 1, "topics": [], "settings": {}, "served": served, "silent": {}, **facts}
    return Cluster(wire=cast(WireCluster, wire), brokers=brokers, **known)


def test_a_cluster_without_a_controller() -> None:
    assert [each.check for each in check_controller(cluster(controller=-1))] == ["no-controller"]
    assert list(check_controller(cluster())) == []


def test_brokers_that_differ_in_release_or_do_not_answer() -> None:
    served = {1: {0: (3, 13)}, 2: {0: (3, 12)}}
    found = list(check_brokers(cluster(served=served, silent={3: "refused"})))
    assert [(each.check, each.subjects) for each in found] == [
        ("broker-unreachable", ["3"]),
        ("versions-differ", ["2"]),
    ]
    assert list(check_brokers(cluster())) == []


def test_disks_that_are_nearly_full_or_offline() -> None:
    wire = Disks(
        DescribeLogDirsResult(log_dir="/well", total_bytes=100 * GIB, usable_bytes=50 * GIB),
        DescribeLogDirsResult(log_dir="/low", total_bytes=100 * GIB, usable_bytes=9 * GIB),
        DescribeLogDirsResult(log_dir="/full", total_bytes=100 * GIB, usable_bytes=GIB),
        DescribeLogDirsResult(log_dir="/gone", error_code=STORAGE_ERROR),
        DescribeLogDirsResult(log_dir="/old-broker"),
    )
    found = [each for each in check_disks(cluster(wire)) if each.subjects[0].startswith("broker 1 ")]
    assert [(each.severity, each.check, each.subjects[0]) for each in found] == [
        ("warning", "disk-nearly-full", "broker 1 /low"),
        ("critical", "disk-nearly-full", "broker 1 /full"),
        ("critical", "offline-directory", "broker 1 /gone"),
    ]


def test_internal_topics_with_one_copy_on_three_brokers() -> None:
    partition = MetadataResponsePartition(leader_id=1, replica_nodes=[1], isr_nodes=[1])
    topics = [MetadataResponseTopic(name="__consumer_offsets", is_internal=True, partitions=[partition])]
    assert [each.check for each in check_copies(cluster(topics=topics))] == ["internal-topics-single"]


def test_the_worst_comes_first_and_long_lists_are_cut() -> None:
    found = [Diagnosis(severity, severity, "", "") for severity in ("notice", "critical", "warning")]
    assert [each.severity for each in by_severity(found)] == ["critical", "warning", "notice"]
    assert some([str(number) for number in range(7)]) == "0, 1, 2, 3, 4 and 2 more"
