"""A broker whose disk was replaced is elected nowhere, and says what is gone.

All brokers go at once here, as with a power cut: the metadata store stays as it was while all of them lived.
"""

import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ElectionType, Producer
from confluent_kafka import TopicPartition as Named
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs hide some
    AdminClient,
    NewTopic,
    PartitionMetadata,
)

from bench.replicated import wait_until
from moldau.cluster.image import NO_LEADER, ClusterImage, PartitionImage
from moldau.core.ids import TopicPartition
from moldau.testing.clusters import STORE_FILE, ClusterInThread
from moldau.testing.processes import processes
from tests.faults.power_cuts import copy_store
from tests.zookeeper_ensemble import Ensemble

TOPIC = "t"
RECORDS = 20
WAIT_S = 30.0
PROPERTIES = {"log.flush.policy": "group", "auto.create.topics.enable": "false", "replica.fetch.wait.max.ms": "100"}


@contextmanager
def running(directory: Path, brokers: int) -> Iterator[ClusterInThread]:
    """Brokers with a topic of one partition that all of them have."""
    cluster = ClusterInThread(directory, brokers, PROPERTIES)
    try:
        for number in cluster.brokers:
            cluster.start(number)
        cluster.wait(lambda image: len(image.brokers) == brokers and image.controller_id != -1)
        create_topic(cluster, brokers)
        cluster.wait_for_isr(TOPIC, set(cluster.brokers))
        yield cluster
    finally:
        for number in cluster.running:
            cluster.kill(number)


def admin_of(cluster: ClusterInThread) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})


def create_topic(cluster: ClusterInThread, replicas: int) -> None:
    admin = admin_of(cluster)
    admin.create_topics([NewTopic(TOPIC, 1, replicas)])[TOPIC].result(10)


def write(cluster: ClusterInThread) -> None:
    write_to(cluster.bootstrap)


def write_to(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0})
    for number in range(RECORDS):
        producer.produce(TOPIC, b"%d" % number)
    assert producer.flush(10) == 0


def read_from(bootstrap: str) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "log_level": 0})
    consumer.assign([Named(TOPIC, 0, 0)])
    found = [message.value() for message in consumer.consume(RECORDS, WAIT_S)]
    consumer.close()
    return found


def wait_for(cluster: ClusterInThread, condition: Callable[[PartitionImage], bool]) -> PartitionImage:
    def holds(image: ClusterImage) -> bool:
        return TOPIC in image.topics and condition(image.topics[TOPIC].partitions[0])

    return cluster.wait(holds).topics[TOPIC].partitions[0]


def cut(cluster: ClusterInThread, directory: Path, *wiped: int) -> None:
    """All brokers are gone at once, and with some of them their disks."""
    copy_store(directory / STORE_FILE, directory / "copy")
    for number in cluster.running:
        cluster.kill(number)
    for path in directory.glob(f"{STORE_FILE}-*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    (directory / "copy").rename(directory / STORE_FILE)
    for number in wiped:
        shutil.rmtree(cluster.brokers[number].data)


def ends(cluster: ClusterInThread) -> dict[int, int | None]:
    logs = {
        number: cluster.brokers[number].broker.services.logs.get(TopicPartition(TOPIC, 0)) for number in cluster.running
    }
    return {number: None if log is None else log.log_end_offset for number, log in logs.items()}


def high_watermarks(cluster: ClusterInThread) -> set[int]:
    replicas = (cluster.brokers[number].broker.services.replicas.replica(TOPIC, 0) for number in cluster.running)
    return {-1 if replica is None else replica.high_watermark for replica in replicas}


def alone_in_sync(cluster: ClusterInThread) -> tuple[int, int]:
    """The leader, which alone has records, and the other one, which is down."""
    leader = cluster.wait_for_leader(TOPIC)
    other = 3 - leader
    cluster.stop(other)
    cluster.wait_for_isr(TOPIC, {leader})
    write(cluster)
    return leader, other


@pytest.mark.parametrize("wiped_is_first", [True, False])
def test_a_leader_whose_disk_was_replaced_leads_no_more(tmp_path: Path, wiped_is_first: bool) -> None:
    with running(tmp_path, 2) as cluster:
        write(cluster)
        leader = cluster.wait_for_leader(TOPIC)
        other = 3 - leader
        cut(cluster, tmp_path, leader)
        cluster.start(leader if wiped_is_first else other)
        if wiped_is_first:
            state = wait_for(cluster, lambda state: leader not in state.isr)
            assert (state.leader, state.isr) == (NO_LEADER, (other,))
        cluster.start(other if wiped_is_first else leader)
        cluster.wait_for_isr(TOPIC, {1, 2})
        assert ends(cluster) == {1: RECORDS, 2: RECORDS}


def test_a_follower_whose_disk_was_replaced_is_not_elected(tmp_path: Path) -> None:
    with running(tmp_path, 3) as cluster:
        write(cluster)
        leader = cluster.wait_for_leader(TOPIC)
        follower = next(number for number in cluster.brokers if number != leader)
        cut(cluster, tmp_path, follower)
        cluster.start(follower)
        wait_for(cluster, lambda state: follower not in state.isr and state.leader == NO_LEADER)
        for number in {1, 2, 3} - {follower}:
            cluster.start(number)
        cluster.wait_for_isr(TOPIC, {1, 2, 3})
        assert ends(cluster) == {1: RECORDS, 2: RECORDS, 3: RECORDS}


def test_where_only_a_replaced_disk_was_in_sync_an_operator_decides(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running(tmp_path, 2) as cluster:
        leader, other = alone_in_sync(cluster)
        cut(cluster, tmp_path, leader)
        for _ in range(2):  # also when its disk is not new any more
            cluster.start(leader)
            wait_for(cluster, lambda state: state.leader == NO_LEADER)
            assert ends(cluster) == {leader: None}
            assert "kafka-leader-election --election-type unclean" in caplog.text
            caplog.clear()
            cluster.kill(leader)
        cluster.start(leader)
        cluster.start(other)
        cluster.wait(lambda image: len(image.brokers) == 2)
        assert wait_for(cluster, lambda state: state.isr == (leader,)).leader == NO_LEADER
        admin = admin_of(cluster)
        elected = admin.elect_leaders(ElectionType.UNCLEAN, [Named(TOPIC, 0)]).result(10)
        assert list(elected.values()) == [None]
        assert cluster.wait_for_leader(TOPIC) == other
        cluster.wait_for_isr(TOPIC, {1, 2})
        write(cluster)
        assert ends(cluster) == {1: RECORDS, 2: RECORDS}
        cluster.kill(leader)
        caplog.clear()
        cluster.start(leader)
        assert "has nothing of them any more" not in caplog.text


def test_a_deleted_topic_waits_for_no_decision(tmp_path: Path) -> None:
    with running(tmp_path, 2) as cluster:
        leader, other = alone_in_sync(cluster)
        cut(cluster, tmp_path, leader)
        cluster.start(leader)
        cluster.start(other)
        cluster.wait(lambda image: len(image.brokers) == 2)
        admin = admin_of(cluster)
        admin.delete_topics([TOPIC])[TOPIC].result(10)
        cluster.wait(lambda image: TOPIC not in image.topics and not image.brokers[leader].offline)
        create_topic(cluster, 2)
        cluster.wait_for_isr(TOPIC, {1, 2})


def test_the_only_replica_is_empty_on_a_new_disk_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with running(tmp_path, 1) as cluster:
        write(cluster)
        cut(cluster, tmp_path, 1)
        with caplog.at_level(logging.ERROR):
            cluster.start(1)
        assert "they are empty now: t-0" in caplog.text
        cluster.wait_for_leader(TOPIC)
        assert ends(cluster) == {1: 0}
        write(cluster)


def test_a_new_topic_whose_directories_never_came_to_be_is_led_again(tmp_path: Path) -> None:
    with running(tmp_path, 2) as cluster:
        cut(cluster, tmp_path)
        for number in (1, 2):
            shutil.rmtree(Path(cluster.brokers[number].data) / f"{TOPIC}-0")
            cluster.start(number)
        cluster.wait_for_isr(TOPIC, {1, 2})
        write(cluster)


def test_a_log_that_is_gone_from_a_known_disk_counts_for_nothing_either(tmp_path: Path) -> None:
    with running(tmp_path, 2) as cluster:
        write(cluster)
        leader = cluster.wait_for_leader(TOPIC)
        for number in (1, 2):
            cluster.stop(number)
            cluster.start(number)
            cluster.wait_for_isr(TOPIC, {1, 2})
        cut(cluster, tmp_path)
        shutil.rmtree(Path(cluster.brokers[leader].data) / f"{TOPIC}-0")
        cluster.start(leader)
        wait_for(cluster, lambda state: leader not in state.isr)
        cluster.start(3 - leader)
        cluster.wait_for_isr(TOPIC, {1, 2})
        assert ends(cluster) == {1: RECORDS, 2: RECORDS}


@pytest.mark.parametrize("is_leader", [True, False])
def test_a_log_that_ends_below_its_high_watermark_is_not_elected(tmp_path: Path, is_leader: bool) -> None:
    """A disk that forgot what it had synced, or a file that somebody cut."""
    with running(tmp_path, 2) as cluster:
        write(cluster)
        for number in (1, 2):  # so that the high watermark is checkpointed
            wait_until(lambda: high_watermarks(cluster) == {RECORDS}, "both know what is committed")
            cluster.stop(number)
            cluster.start(number)
            cluster.wait_for_isr(TOPIC, {1, 2})
        leader = cluster.wait_for_leader(TOPIC)
        cut_short = leader if is_leader else 3 - leader
        cut(cluster, tmp_path)
        os.truncate(Path(cluster.brokers[cut_short].data) / f"{TOPIC}-0" / f"{0:020}.log", 0)
        cluster.start(cut_short)
        wait_for(cluster, lambda state: cut_short not in state.isr and state.leader == NO_LEADER)
        cluster.start(3 - cut_short)
        cluster.wait_for_isr(TOPIC, {1, 2})
        assert ends(cluster) == {1: RECORDS, 2: RECORDS}


def test_a_replaced_disk_is_told_through_zookeeper_too(tmp_path: Path, zookeeper: Ensemble) -> None:
    address = f"{zookeeper.connect}/returning-{tmp_path.name}"
    settings = {**PROPERTIES, "zookeeper.session.timeout.ms": "2000"}
    with processes(tmp_path / "cluster", 2, settings, zookeeper=address) as brokers:
        admin = AdminClient({"bootstrap.servers": brokers.bootstrap, "log_level": 0})

        def wait(condition: Callable[[PartitionMetadata], bool]) -> PartitionMetadata:
            found: list[PartitionMetadata] = []

            def holds() -> bool:
                found[:] = admin.list_topics(TOPIC, timeout=WAIT_S).topics[TOPIC].partitions.values()
                return bool(found) and condition(found[0])

            wait_until(holds, f"the partition did not get there: {found}")
            return found[0]

        wait_until(lambda: len(admin.list_topics(timeout=WAIT_S).brokers) == 2, "the brokers did not meet")
        admin.create_topics([NewTopic(TOPIC, 1, 2)])[TOPIC].result(WAIT_S)
        leader = wait(lambda state: len(state.isrs) == 2 and state.leader > 0).leader
        write_to(brokers.bootstrap)
        for broker in brokers.brokers.values():
            broker.sigstop()  # nobody sees the others go
        brokers.kill()
        shutil.rmtree(brokers[leader].data)
        brokers[leader].start()
        # ZooKeeper may take the other one for alive a moment longer: it is the heir until its session ends.
        wait(lambda state: leader not in state.isrs and state.leader == NO_LEADER)
        brokers[3 - leader].start()
        assert wait(lambda state: len(state.isrs) == 2).leader == 3 - leader
        assert read_from(brokers.bootstrap) == [b"%d" % number for number in range(RECORDS)]
