"""The system tools of the introductions, by Kafka's own classes: what they look at and write is as they expect it."""

import subprocess
from pathlib import Path

import pytest

from moldau.broker import state_changes
from moldau.testing.brokers import BrokerInThread
from tests.eras.conftest import Brokers, only_all_eras
from tests.eras.era import LAST, Era
from tests.eras.test_eras import messages, read_all, wait_until

pytestmark = only_all_eras
COUNT = 300
WITH_CHECKER = ("0.8.2.2", LAST)


def consumer_config(directory: Path, era: Era, group: str, *more: str) -> Path:
    path = directory / "consumer.properties"
    lines = (f"zookeeper.connect={era.zookeeper}", f"group.id={group}", "auto.offset.reset=smallest")
    path.write_text("".join(f"{line}\n" for line in (*lines, "auto.commit.interval.ms=500", *more)))
    return path


def filled(era: Era, topic: str) -> None:
    assert era.create(topic, 1, 3).code == 0
    era.produce(topic, messages("none"))


def consumed(era: Era, topic: str, config: Path, *options: str) -> int:
    """How many a group reads from where it stands, until nothing comes for a while."""
    what = ("--topic", topic, "--consumer.config", config, *options)
    return len(era.by_zookeeper("kafka.tools.ConsoleConsumer", *what).lines("of organisation"))


@pytest.mark.parametrize("version", WITH_CHECKER)
def test_offsets_of_a_group_are_shown_taken_out_and_put_back(
    brokers: Brokers, topic: str, version: str, tmp_path: Path
) -> None:
    era = brokers.era(version)
    group = f"group-{topic}"
    config = consumer_config(tmp_path, era, group, "consumer.timeout.ms=4000")
    filled(era, topic)
    assert consumed(era, topic, config, "--from-beginning") == COUNT
    checked = era.by_zookeeper("kafka.tools.ConsumerOffsetChecker", "--group", group, "--topic", topic)
    row = next(line.split() for line in checked.lines(group) if line.split()[:2] == [group, topic])
    assert row[2:6] == ["0", str(COUNT), str(COUNT), "0"]  # partition, offset, log size, lag
    exported = tmp_path / "offsets"
    where = ("--zkconnect", era.zookeeper)
    era.run("kafka.tools.ExportZkOffsets", *where, "--group", group, "--output-file", exported)
    assert exported.read_text().strip() == f"/consumers/{group}/offsets/{topic}/0:{COUNT}"
    exported.write_text(exported.read_text().replace(f":{COUNT}", ":100"))
    era.run("kafka.tools.ImportZkOffsets", *where, "--input-file", exported)
    assert consumed(era, topic, config) == COUNT - 100
    assert "updated" in era.run("kafka.tools.UpdateOffsetsInZK", "earliest", config, topic).output
    assert consumed(era, topic, config) == COUNT


def test_groups_are_listed_and_their_owners_verified(brokers: Brokers, topic: str, tmp_path: Path) -> None:
    era = brokers.era(LAST)
    group = f"group-{topic}"
    config = consumer_config(tmp_path, era, group)
    filled(era, topic)
    command = era.command(
        "kafka.tools.ConsoleConsumer",
        *("--zookeeper", era.zookeeper, "--topic", topic, "--consumer.config", config),
    )
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as consumer:
        try:
            verify = ("kafka.tools.VerifyConsumerRebalance", "--zookeeper.connect", era.zookeeper, "--group", group)
            wait_until(lambda: "successful" in era.run(*verify).output)
            assert group in era.by_zookeeper("kafka.admin.ConsumerGroupCommand", "--list").output
            describe = ("kafka.admin.ConsumerGroupCommand", "--describe", "--group", group)
            wait_until(lambda: bool(era.by_zookeeper(*describe).lines(topic)))
        finally:
            consumer.terminate()


@pytest.mark.parametrize("version", WITH_CHECKER)
def test_offsets_are_asked_and_records_replayed(brokers: Brokers, topic: str, version: str) -> None:
    era = brokers.era(version)
    filled(era, topic)
    shell = ("kafka.tools.GetOffsetShell", "--broker-list", brokers.bootstrap, "--topic", topic, "--time")
    assert era.run(*shell, -1).lines(topic)[-1] == f"{topic}:0:{COUNT}"
    assert era.run(*shell, -2).lines(topic)[-1] == f"{topic}:0:0"
    copy = f"{topic}-copy"
    assert era.create(copy, 1, 3).code == 0
    where = ("--broker-list", brokers.bootstrap, "--zookeeper", era.zookeeper)
    what = ("--inputtopic", topic, "--outputtopic", copy, "--messages", COUNT)
    era.run("kafka.tools.ReplayLogProducer", *where, *what)
    assert sorted(read_all(brokers.bootstrap, copy, [0])) == sorted(messages("none"))


def test_mirror_maker_copies_by_the_old_consumer(brokers: Brokers, topic: str, tmp_path: Path) -> None:
    era = brokers.era(LAST)
    filled(era, topic)
    target = BrokerInThread(tmp_path / "target", {"num.partitions": "1"})
    target.start()
    producer = tmp_path / "producer.properties"
    producer.write_text(f"bootstrap.servers={target.bootstrap}\n")
    config = consumer_config(tmp_path, era, f"mirror-{topic}")
    command = era.command(
        "kafka.tools.MirrorMaker", "--consumer.config", config, "--producer.config", producer, "--whitelist", topic
    )
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as mirror:
        try:
            wait_until(lambda: topic in target.image.topics)
            wait_until(lambda: len(read_all(target.bootstrap, topic, [0])) == COUNT)
        finally:
            mirror.terminate()
    assert sorted(read_all(target.bootstrap, topic, [0])) == sorted(messages("none"))
    target.stop()


@pytest.mark.parametrize(
    ("kind", "name", "setting"),
    [
        ("brokers", "1", "leader.replication.throttled.rate=1000000"),
        ("clients", "reporting", "producer_byte_rate=1024"),
        ("users", "alice", "consumer_byte_rate=2048"),
    ],
)
def test_settings_of_brokers_clients_and_users_are_kept(brokers: Brokers, kind: str, name: str, setting: str) -> None:
    era = brokers.era(LAST)
    entity = ("kafka.admin.ConfigCommand", "--entity-type", kind, "--entity-name", name)
    altered = era.by_zookeeper(*entity, "--alter", "--add-config", setting)
    assert altered.code == 0, altered.output
    assert setting in era.by_zookeeper(*entity, "--describe").output
    era.by_zookeeper(*entity, "--alter", "--delete-config", setting.partition("=")[0])
    assert setting not in era.by_zookeeper(*entity, "--describe").output


def test_acls_that_a_tool_writes_do_no_harm(brokers: Brokers, topic: str) -> None:
    era = brokers.era(LAST)
    acls = ("kafka.admin.AclCommand", "--authorizer-properties", f"zookeeper.connect={era.zookeeper}")
    rule = ("--allow-principal", "User:alice", "--operation", "Read", "--topic", topic)
    assert era.run(*acls, "--add", *rule).code == 0
    assert "User:alice" in era.run(*acls, "--list", "--topic", topic).output
    filled(era, topic)
    assert sorted(read_all(brokers.bootstrap, topic, [0])) == sorted(messages("none"))


@pytest.mark.parametrize("version", WITH_CHECKER)
def test_the_state_change_logs_are_merged(brokers: Brokers, topic: str, version: str, tmp_path: Path) -> None:
    path = tmp_path / "state-change.log"
    end = state_changes.write_to(str(path))
    era = brokers.era(version)
    assert era.create(topic, 2, 3).code == 0
    wait_until(lambda: path.read_text().count(f"became leader for partition [{topic},") == 2)
    end()
    merged = era.run("kafka.tools.StateChangeLogMerger", "--logs", path, "--topic", topic, "--partitions", "1")
    assert merged.lines(f"became leader for partition [{topic},1]")
    assert not merged.lines(f"[{topic},0]")
