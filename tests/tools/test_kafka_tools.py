"""Apache Kafka 4.3.1's own command line tools, and kcat, against a broker of ours."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, time_ns

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from moldau.testing import BrokerInThread, broker
from tests.tools.java_tools import JavaTools

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PERFORMED = (("all", "none"), ("1", "gzip"), ("0", "snappy"), ("all", "lz4"), ("1", "zstd"))
PERFORMED_COUNT = 2000
TIMEOUT_S = 20.0
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerInThread]:
    """One broker for all; each test has topics of its own."""
    with broker({"broker.id": "3", "log.retention.check.interval.ms": "50"}) as started:
        yield started


@pytest.fixture
def tools(kafka_classpath: str, running: BrokerInThread) -> JavaTools:
    return JavaTools(kafka_classpath, running.bootstrap)


def send(bootstrap: str, topic: str, *values: bytes, timestamps: tuple[int, ...] = (), **settings: str) -> list[int]:
    """Produce to partition 0, record by record; the offsets. Raises KafkaException for a record that is refused."""
    producer = Producer({"bootstrap.servers": bootstrap, **{k.replace("_", "."): v for k, v in settings.items()}})
    outcomes: list[int | KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        outcomes.append(error or message.offset() or 0)

    for value, timestamp in zip(values, timestamps or [0] * len(values), strict=True):
        producer.produce(topic, value, partition=0, timestamp=timestamp, on_delivery=delivered)
        assert producer.flush(TIMEOUT_S) == 0
    for outcome in outcomes:
        if isinstance(outcome, KafkaError):
            raise KafkaException(outcome)
    return [outcome for outcome in outcomes if isinstance(outcome, int)]


def watermarks(bootstrap: str, topic: str) -> tuple[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none"})
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT_S)
        return low, high
    finally:
        consumer.close()


def now_ms() -> int:
    return time_ns() // 1_000_000


# TopicCommand


def test_a_topic_is_created_with_configs_and_described(tools: JavaTools) -> None:
    settings = ("--config", "retention.ms=1000000", "--config", "cleanup.policy=compact,delete")
    assert "Created topic made" in tools.tool(
        "TopicCommand", "--create", "--topic", "made", "--partitions", 3, *settings
    )
    head, *partitions = tools.tool("TopicCommand", "--describe", "--topic", "made").splitlines()
    assert re.search(r"TopicId: [\w-]{22}\tPartitionCount: 3\tReplicationFactor: 1", head)
    assert head.partition("Configs: ")[2] == "cleanup.policy=compact,delete,retention.ms=1000000"
    assert [re.findall(r"(\w+): (\d+)", line) for line in partitions] == [
        [("Partition", str(number)), ("Leader", "3"), ("Replicas", "3"), ("Isr", "3")] for number in range(3)
    ]
    assert "Topic: made" in tools.tool("TopicCommand", "--describe", "--topics-with-overrides")
    assert tools.tool("TopicCommand", "--describe", "--under-replicated-partitions") == ""


def test_a_topic_that_exists_is_refused_unless_that_is_fine(tools: JavaTools) -> None:
    tools.tool("TopicCommand", "--create", "--topic", "there")
    assert "exists" in tools.refused("TopicCommand", "--create", "--topic", "there")
    tools.tool("TopicCommand", "--create", "--topic", "there", "--if-not-exists")


def test_impossible_topics_are_refused_with_the_reason(tools: JavaTools) -> None:
    def refusal(*arguments: str) -> str:
        return tools.refused("TopicCommand", "--create", "--topic", "impossible", *arguments)

    assert "retention.ms" in refusal("--config", "retention.ms=soon")
    assert "no.such.name" in refusal("--config", "no.such.name=1")
    assert re.search(r"2 replicas|[Rr]eplication factor", refusal("--replication-factor", "2"))
    assert "4" in refusal("--replica-assignment", "3,4")
    assert "impossible" not in tools.tool("TopicCommand", "--list").splitlines()


def test_partitions_are_added_and_never_taken_away(tools: JavaTools) -> None:
    tools.tool("TopicCommand", "--create", "--topic", "growing", "--partitions", 2)
    tools.tool("TopicCommand", "--alter", "--topic", "growing", "--partitions", 4)
    assert "4" in tools.refused("TopicCommand", "--alter", "--topic", "growing", "--partitions", 3)
    assert "PartitionCount: 4" in tools.tool("TopicCommand", "--describe", "--topic", "growing")
    assert send(tools.bootstrap, "growing", b"to an old partition") == [0]


def test_a_deleted_topic_is_gone_and_its_name_is_free(tools: JavaTools) -> None:
    tools.tool("TopicCommand", "--create", "--topic", "going")
    send(tools.bootstrap, "going", b"1", b"2")
    tools.tool("TopicCommand", "--delete", "--topic", "going")
    assert "going" not in tools.tool("TopicCommand", "--list").splitlines()
    assert "does not exist" in tools.refused("TopicCommand", "--delete", "--topic", "going")
    tools.tool("TopicCommand", "--create", "--topic", "going")
    assert send(tools.bootstrap, "going", b"new") == [0]


# ConfigCommand


def described(tools: JavaTools, *entity: str) -> dict[str, tuple[str, str]]:
    """Value and synonyms by name."""
    output = tools.tool("ConfigCommand", "--describe", *entity)
    rows = re.findall(r"^  (\S+)=(.*) sensitive=(?:true|false) synonyms=\{(.*)\}$", output, re.MULTILINE)
    return {name: (value, synonyms) for name, value, synonyms in rows}


def alter(tools: JavaTools, entity: tuple[str, ...], *change: str) -> None:
    assert "Completed updating" in tools.tool("ConfigCommand", "--alter", *entity, *change)


def test_every_config_of_a_topic_is_described_with_where_it_comes_from(tools: JavaTools) -> None:
    entity = ("--entity-type", "topics", "--entity-name", "told")
    tools.tool("TopicCommand", "--create", "--topic", "told", "--config", "segment.bytes=2000000")
    everything = described(tools, *entity, "--all")
    assert everything["retention.bytes"] == ("-1", "DEFAULT_CONFIG:log.retention.bytes=-1")
    assert everything["segment.bytes"] == (
        "2000000",
        "DYNAMIC_TOPIC_CONFIG:segment.bytes=2000000, DEFAULT_CONFIG:log.segment.bytes=1073741824",
    )
    assert len(everything) >= 30
    assert described(tools, *entity).keys() == {"segment.bytes"}


def test_a_lower_limit_of_a_topic_refuses_batches_until_it_is_taken_back(tools: JavaTools) -> None:
    entity = ("--entity-type", "topics", "--entity-name", "limited")
    send(tools.bootstrap, "limited", bytes(3000))
    alter(tools, entity, "--add-config", "max.message.bytes=2000,retention.ms=500000000")
    with pytest.raises(KafkaException, match="MSG_SIZE_TOO_LARGE"):
        send(tools.bootstrap, "limited", bytes(3000))
    assert send(tools.bootstrap, "limited", bytes(1000)) == [1]
    alter(tools, entity, "--delete-config", "max.message.bytes")
    assert send(tools.bootstrap, "limited", bytes(3000)) == [2]
    assert described(tools, *entity).keys() == {"retention.ms"}


def test_a_config_of_one_broker_wins_over_the_default_of_all(tools: JavaTools) -> None:
    default = ("--entity-type", "brokers", "--entity-default")
    own = ("--entity-type", "brokers", "--entity-name", "3")
    send(tools.bootstrap, "by-default", b"")
    alter(tools, default, "--add-config", "message.max.bytes=1000")
    with pytest.raises(KafkaException, match="MSG_SIZE_TOO_LARGE"):
        send(tools.bootstrap, "by-default", bytes(2000))
    alter(tools, own, "--add-config", "message.max.bytes=5000")
    assert send(tools.bootstrap, "by-default", bytes(2000)) == [1]
    assert described(tools, *own)["message.max.bytes"] == (
        "5000",
        "DYNAMIC_BROKER_CONFIG:message.max.bytes=5000, DYNAMIC_DEFAULT_BROKER_CONFIG:message.max.bytes=1000, "
        "DEFAULT_CONFIG:message.max.bytes=1048588",
    )
    alter(tools, own, "--delete-config", "message.max.bytes")
    alter(tools, default, "--delete-config", "message.max.bytes")
    everything = described(tools, *own, "--all")
    assert everything["message.max.bytes"] == ("1048588", "DEFAULT_CONFIG:message.max.bytes=1048588")
    assert everything["broker.id"][0] == "3"


def test_bad_values_are_refused_by_name_and_change_nothing(tools: JavaTools) -> None:
    topic = ("--entity-type", "topics", "--entity-name", "steady")
    send(tools.bootstrap, "steady", b"")
    for change in ("retention.ms=never", "no.such.name=1"):
        reason = tools.refused("ConfigCommand", "--alter", *topic, "--add-config", f"flush.ms=5,{change}")
        assert change.partition("=")[0] in reason.partition("Caused by")[2]
    assert described(tools, *topic) == {}
    broker_3 = ("--entity-type", "brokers", "--entity-name", "3")
    assert "broker.id" in tools.refused("ConfigCommand", "--alter", *broker_3, "--add-config", "broker.id=4")


def test_shorter_retention_deletes_what_is_older(tools: JavaTools) -> None:
    entity = ("--entity-type", "topics", "--entity-name", "aging")
    old_ms = now_ms() - 2 * HOUR_MS
    send(tools.bootstrap, "aging", b"1", b"2", timestamps=(old_ms, old_ms))
    assert watermarks(tools.bootstrap, "aging") == (0, 2)
    alter(tools, entity, "--add-config", f"retention.ms={HOUR_MS}")
    deadline = monotonic() + TIMEOUT_S
    while watermarks(tools.bootstrap, "aging") != (2, 2):
        assert monotonic() < deadline, "the old records are still there"
    assert send(tools.bootstrap, "aging", b"3") == [2]


# Offsets and records


def test_offsets_are_listed_by_target_and_by_time(tools: JavaTools) -> None:
    start_ms = now_ms() - 10_000
    times = tuple(start_ms + second * 1000 for second in (0, 5, 3))
    send(tools.bootstrap, "timed", b"0", b"1", b"2", timestamps=times)

    def offset(time: object) -> str:
        return tools.tool("GetOffsetShell", "--topic", "timed", "--time", time).strip()

    assert offset("earliest") == "timed:0:0"
    assert offset("latest") == "timed:0:3"
    assert offset("max-timestamp") == "timed:0:1"
    assert offset(start_ms + 1) == "timed:0:1"
    assert offset(start_ms + 5001) == ""


def test_records_are_deleted_up_to_an_offset(tools: JavaTools, tmp_path: Path) -> None:
    send(tools.bootstrap, "cut", *[b"%d" % number for number in range(5)])
    request = tmp_path / "offsets.json"
    request.write_text(json.dumps({"version": 1, "partitions": [{"topic": "cut", "partition": 0, "offset": 3}]}))
    assert "cut-0\tlow_watermark: 3" in tools.tool("DeleteRecordsCommand", "--offset-json-file", request)
    assert tools.tool("GetOffsetShell", "--topic", "cut", "--time", "earliest").strip() == "cut:0:3"
    request.write_text(request.read_text().replace("3", "9"))
    assert "OffsetOutOfRange" in tools.tool("DeleteRecordsCommand", "--offset-json-file", request)
    assert watermarks(tools.bootstrap, "cut") == (3, 5)


def test_log_directories_tell_sizes(tools: JavaTools, running: BrokerInThread) -> None:
    tools.tool("TopicCommand", "--create", "--topic", "sized", "--partitions", 2)
    send(tools.bootstrap, "sized", bytes(1000))
    said = json.loads(tools.tool("LogDirsCommand", "--describe", "--topic-list", "sized").splitlines()[-1])
    (directory,) = said["brokers"][0]["logDirs"]
    assert (directory["logDir"], directory["error"]) == (running.data, None)
    sizes = {partition["partition"]: partition["size"] for partition in directory["partitions"]}
    assert sizes == {"sized-0": (Path(running.data) / "sized-0" / f"{0:020}.log").stat().st_size, "sized-1": 0}


# The cluster


def test_the_cluster_and_its_versions_are_told(tools: JavaTools, running: BrokerInThread) -> None:
    meta = (Path(running.data) / "meta.properties").read_text()
    cluster = "org.apache.kafka.tools.ClusterTool"
    said = tools.succeed(cluster, "cluster-id", "--bootstrap-server", tools.bootstrap)
    assert said.strip().removeprefix("Cluster ID: ") in meta
    row = tools.succeed(cluster, "list-endpoints", "--bootstrap-server", tools.bootstrap).splitlines()[-1]
    assert row.split()[:3] == ["3", *tools.bootstrap.split(":")]
    versions = tools.tool("BrokerApiVersionsCommand")
    assert "Produce(0): 0 to 13 [usable: 13]" in versions
    assert "Fetch(1): 0 to 18 [usable: 18]" in versions
    assert "JoinGroup(11): 0 to 9 [usable: 9]" in versions
    assert "EndTxn(26): 0 to 5 [usable: 5]" in versions
    assert "ShareFetch(78): UNSUPPORTED" in versions


# Producing and consuming


def test_a_verifiable_producer_gets_every_offset(tools: JavaTools) -> None:
    output = tools.tool("VerifiableProducer", "--topic", "verified", "--max-messages", 20, "--acks", "-1")
    said = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    assert [event["offset"] for event in said if event["name"] == "producer_send_success"] == list(range(20))
    assert (said[-1]["sent"], said[-1]["acked"]) == (20, 20)


def test_idempotent_producers_are_described(tools: JavaTools) -> None:
    send(tools.bootstrap, "numbered", b"0", b"1", b"2", enable_idempotence="true")
    _, row = tools.tool(
        "TransactionsCommand", "describe-producers", "--topic", "numbered", "--partition", 0
    ).splitlines()
    _, epoch, coordinator_epoch, last_sequence, _, open_since = row.split()
    assert (epoch, coordinator_epoch, last_sequence, open_since) == ("0", "-1", "2", "None")


def test_lines_go_from_the_console_producer_to_the_console_consumer(tools: JavaTools) -> None:
    keyed = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    tools.tool("ConsoleProducer", "--topic", "typed", *keyed, stdin="k1:one\nk2:two\n")
    shown = ("--formatter-property", "print.key=true", "--formatter-property", "print.offset=true")
    where = ("--topic", "typed", "--partition", 0, "--offset", "earliest", "--max-messages", 2)
    lines = tools.tool("consumer.ConsoleConsumer", *where, *shown).splitlines()
    assert lines[:2] == ["Offset:0\tk1\tone", "Offset:1\tk2\ttwo"]


def kcat(*arguments: str, stdin: str = "") -> str:
    program = shutil.which("kcat")
    if program is None:
        pytest.fail("kcat is not installed: run `make tools`, or install it (Debian: apt-get install kcat)")
    done = subprocess.run(
        [program, *arguments], input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_kcat_lists_produces_and_consumes(running: BrokerInThread) -> None:
    to = ("-b", running.bootstrap)
    for number, codec in enumerate(CODECS):
        value = f"{codec} " * 20
        kcat(*to, "-P", "-t", "kept", "-p", "0", "-K", "=", "-z", codec, "-H", "h=1", stdin=f"{number}={value}\n")
    lines = kcat(*to, "-C", "-t", "kept", "-e", "-q", "-o", "beginning", "-f", "%o %k %h %s\n").splitlines()
    assert lines == [f"{number} {number} h=1 " + f"{codec} " * 20 for number, codec in enumerate(CODECS)]
    assert kcat(*to, "-Q", "-t", "kept:0:-1").strip() == "kept [0] offset 5"
    listed = json.loads(kcat(*to, "-L", "-J"))
    assert listed["brokers"] == [{"id": 3, "name": running.bootstrap}]
    assert "kept" in [topic["topic"] for topic in listed["topics"]]


# DumpLogSegments over what all of them wrote


@pytest.fixture(scope="module")
def performed(kafka_classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A partition that ProducerPerformance and librdkafka filled with every codec, over several segments; closed."""
    data = tmp_path_factory.mktemp("performed")
    small = {"log.segment.bytes": "500000", "log.index.interval.bytes": "1000"}
    with broker(small, data) as started:
        tools = JavaTools(kafka_classpath, started.bootstrap)
        for acks, codec in PERFORMED:
            tools.measure("filled", PERFORMED_COUNT, 200, f"acks={acks}", f"compression.type={codec}")
        for codec in CODECS:
            send(started.bootstrap, "filled", *[codec.encode() * 30] * 3, compression_type=codec)
    return data / "filled-0"


def files(directory: Path, *suffixes: str) -> list[Path]:
    return sorted(path for path in directory.iterdir() if path.suffix in suffixes)


def test_every_performed_record_is_dumped(tools: JavaTools, performed: Path) -> None:
    said = tools.dump(files(performed, ".log"), "--deep-iteration", "--print-data-log")
    count = PERFORMED_COUNT * len(PERFORMED) + 3 * len(CODECS)
    assert [int(offset) for offset in re.findall(r"^\| offset: (\d+)", said, re.M)] == list(range(count))
    assert "isvalid: false" not in said
    assert set(re.findall(r"compresscodec: (\w+)", said)) == set(CODECS)
    assert re.findall(r"payload: ([a-z]+)$", said, re.M)[-3:] == ["zstd" * 30] * 3
    assert said.count("Dumping ") > 3


def test_every_index_is_sane_and_points_to_its_batches(tools: JavaTools, performed: Path) -> None:
    indexes = files(performed, ".index", ".timeindex")
    checked = tools.dump(indexes, "--index-sanity-check")
    assert len(re.findall(r"passed sanity check|is empty", checked)) == len(indexes)
    verified = tools.dump(indexes, "--verify-index-only")
    assert [line for line in verified.splitlines() if not re.match(r"Dumping |.* is empty\.$", line)] == []


def test_the_producers_are_in_the_newest_snapshot(tools: JavaTools, performed: Path) -> None:
    newest = files(performed, ".snapshot")[-1]
    rows = re.findall(r"producerId: (\d+) producerEpoch: 0 .* lastSequence: (\d+) ", tools.dump([newest]))
    last_sequences = dict(rows)  # a row for each batch that is remembered: the last one counts
    assert [int(each) for each in last_sequences.values()] == [PERFORMED_COUNT - 1] * 2
