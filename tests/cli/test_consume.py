"""`moldau consume`, on Apache Kafka 4.3.1 as well as on a broker of ours."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from moldau.testing.brokers import BrokerInThread
from tests.cli.conftest import Ended, Tool
from tests.raw_records import produce_broken_header
from tests.tools.java_tools import JavaTools

BEGIN_MS = 1_700_000_000_000
END = ("--from-beginning", "--no-follow")


@pytest.fixture
def lines(either_tool: Tool, topic: str) -> str:
    """A topic with two partitions of five records each, a second apart."""
    either_tool.ok("topics", "create", topic, "--partitions", "2")
    records = [
        {"partition": n % 2, "timestamp": BEGIN_MS + 1000 * n, "key": f"k{n}", "value": f"v{n}"} for n in range(10)
    ]
    text = "\n".join(map(json.dumps, records)).encode()
    either_tool.ok("produce", topic, "--format", "records", "--keep-partitions", stdin=text)
    return topic


def read(tool: Tool, *arguments: str) -> list[str]:
    """The lines that are printed, in any order of partitions."""
    return sorted(tool.ok("consume", *arguments).splitlines())


def test_it_ends_where_the_topic_ends(either_tool: Tool, lines: str) -> None:
    assert read(either_tool, lines, *END) == [f"v{n}" for n in range(10)]
    assert either_tool.ok("consume", lines, *END, "--count") == "10\n"
    assert read(either_tool, lines, "--no-follow") == []


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["--from-time", "2023-11-14T22:13:27", "--no-follow"], "v7 v8 v9"),
        (["--from-time", "2023-11-14T23:13:27+01:00", "--until-time", str(BEGIN_MS + 9000)], "v7 v8"),
        (["--from-beginning", "--until-time", str(BEGIN_MS + 1500)], "v0 v1"),
        (["--from-time", "1d", "--no-follow"], ""),
        (["--tail", "1", "--no-follow"], "v8 v9"),
        (["--partition", "1", "--offset", "1", "--until-offset", "3"], "v3 v5"),
        (["--partition", "1", "--offset", "4", "--no-follow"], "v9"),
        ([*END, "--grep", "k[12]|v9"], "v1 v2 v9"),
        ([*END, "--grep", "(?i)V[89]", "--max-messages", "2"], "v8 v9"),
        ([*END, "--grep", "nothing"], ""),
    ],
)
def test_a_part_is_read_exactly(either_tool: Tool, lines: str, arguments: list[str], found: str) -> None:
    assert read(either_tool, lines, *arguments) == found.split()


def test_topics_are_included_by_an_expression(either_tool: Tool, lines: str) -> None:
    either_tool.ok("topics", "create", f"{lines}-more", "--partitions", "1")
    either_tool.ok("produce", f"{lines}-more", stdin=b"more\n")
    assert len(read(either_tool, "--include", f"{lines}.*", *END)) == 11
    assert read(either_tool, "--include", f"{lines}-mo.e", *END) == ["more"]
    assert "no topic matches" in either_tool.error("consume", "--include", f"{lines}-mo", *END)
    assert "not a regular expression" in either_tool.error("consume", "--include", "[", *END)


def test_a_group_goes_on_where_it_stopped(either_tool: Tool, lines: str) -> None:
    group = ("--group", f"{lines}-group", *END)
    first = read(either_tool, lines, *group, "--max-messages", "4")
    second = read(either_tool, lines, *group, "--grep", ".")
    assert len(first) == 4
    assert sorted([*first, *second]) == [f"v{n}" for n in range(10)]
    assert read(either_tool, lines, *group) == []


def test_a_group_and_its_reset_may_be_properties_as_with_kafkas_console_consumer(
    either_tool: Tool, lines: str, tmp_path: Path
) -> None:
    file = tmp_path / "consumer.properties"
    file.write_text(f"group.id={lines}-group\nauto.offset.reset=earliest\n")
    config = ("--consumer.config", str(file))
    assert len(read(either_tool, lines, *config, "--max-messages", "4")) == 4
    assert len(read(either_tool, lines, "--consumer-property", f"group.id={lines}-group", *END)) == 6
    assert len(read(either_tool, lines, "--consumer-property", "auto.offset.reset=earliest", "--no-follow")) == 10
    assert len(read(either_tool, lines, "--tail", "1", "--command-property", "auto.offset.reset=earliest", END[1])) == 2
    for contrary in (
        ("--group", "another", *config),
        ("--from-beginning", "--command-property", "auto.offset.reset=latest"),
        ("--tail", "1", *config),
    ):
        assert "say one of them" in (said := either_tool.error("consume", lines, *contrary)) or "without one" in said


def test_aborted_records_are_left_out_when_asked(either_tool: Tool, either_bootstrap: str, topic: str) -> None:
    either_tool.ok("topics", "create", topic, "--partitions", "1")
    producer = Producer({"bootstrap.servers": either_bootstrap, "transactional.id": topic})
    producer.init_transactions()
    for value, ends in (("kept", producer.commit_transaction), ("dropped", producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush()
        ends()
    assert read(either_tool, topic, *END, "--isolation-level", "read_committed") == ["kept"]
    assert read(either_tool, topic, *END) == ["dropped", "kept"]


def test_kafkas_deserializers_and_formatters_are_known_by_name(either_tool: Tool, topic: str) -> None:
    either_tool.ok("topics", "create", topic, "--partitions", "1")
    either_tool.ok("produce", topic, "--format", "long", "--key-separator", "=", stdin=b"word=42\n")
    serdes = "org.apache.kafka.common.serialization"
    shown = either_tool.ok(
        *("consume", "--topic", topic, *END, "--formatter", "org.apache.kafka.tools.consumer.DefaultMessageFormatter"),
        *("--formatter-property", "print.key=true", "--formatter-property", "print.epoch=true"),
        *("--property", f"key.deserializer={serdes}.StringDeserializer"),
        *("--property", f"value.deserializer={serdes}.LongDeserializer"),
    )
    assert shown == "Epoch:0\tword\t42\n"
    assert either_tool.ok("consume", topic, *END, "--value-deserializer", f"{serdes}.LongDeserializer") == "42\n"
    assert either_tool.ok("consume", topic, *END, "--formatter", "x.NoOpMessageFormatter") == ""
    assert "no form for the class" in either_tool.error("consume", topic, "--value-deserializer", "com.acme.Mine")
    assert "no formatter" in either_tool.error("consume", topic, "--formatter", "com.acme.Mine")


@pytest.mark.parametrize("form", ["Offsets", "GroupMetadata", "TransactionLog"])
def test_records_of_coordinators_are_shown_as_kafkas_formatters_do(
    either_tool: Tool, either_bootstrap: str, kafka_classpath: str, lines: str, form: str
) -> None:
    read(either_tool, lines, "--group", f"{lines}-group", *END)
    producer = Producer({"bootstrap.servers": either_bootstrap, "transactional.id": lines})
    producer.init_transactions()
    topic = "__transaction_state" if form == "TransactionLog" else "__consumer_offsets"
    older = {"Offsets": "group.GroupMetadataManager$", "GroupMetadata": "group.GroupMetadataManager$"}
    named = f"kafka.coordinator.{older.get(form, 'transaction.TransactionLog$')}{form}MessageFormatter"
    for partition in ("0", "1", "2"):
        place = ("--topic", topic, "--partition", partition, "--offset", "earliest")
        count = either_tool.ok("consume", *place, "--no-follow", "--count").strip()
        ours = either_tool.ok("consume", *place, "--no-follow", "--formatter", named).splitlines()
        if any(lines in line for line in ours):
            break
    # Of one partition Kafka's tool reads without a group: in one its own records would come between.
    theirs = JavaTools(kafka_classpath, either_bootstrap).tool(
        *("consumer.ConsoleConsumer", *place, "--max-messages", count),
        *("--formatter", f"org.apache.kafka.tools.consumer.{form}MessageFormatter"),
    )
    told = re.findall(r'{"key":{"type".*?(?={"key":{"type"|Processed|$)', theirs)  # they end no line
    expected = [line for line in told if lines in line]
    assert expected
    assert [line for line in ours if lines in line][: len(expected)] == expected


def test_a_value_of_another_form_stops_with_its_place_or_is_skipped(tool: Tool, topic: str) -> None:
    tool.ok("topics", "create", topic, "--partitions", "1")
    tool.ok("produce", topic, stdin=b'{"a": 1}\nnope\n[ 2 ]\n')
    ended = tool("consume", topic, *END, "--format", "json")
    assert (ended.code, ended.output) == (1, '{"a":1}\n')
    assert f"{topic}-0 offset 1: not JSON" in ended.errors
    assert read(tool, topic, *END, "--format", "json", "--skip-message-on-error") == ["[2]", '{"a":1}']


def test_a_header_whose_name_is_no_text_stops_with_its_place_or_is_skipped(
    moldau_broker: BrokerInThread, tool: Tool, topic: str
) -> None:
    """confluent-kafka's list of headers has null pointers then, and ends the process."""
    tool.ok("topics", "create", topic, "--partitions", "1")
    tool.ok("produce", topic, stdin=b"one\n" * 10)
    for _ in range(2):
        produce_broken_header(moldau_broker.bootstrap, topic, b"two")
    for shown in (["--json"], ["--property", "print.headers=true"]):
        ended = tool("consume", topic, *END, *shown)
        assert (ended.code, len(ended.output.splitlines())) == (1, 10)
        assert f"{topic}-0 offset 10: the name of a header is no UTF-8" in ended.errors
        assert len(read(tool, topic, *END, *shown, "--skip-message-on-error")) == 10
    assert read(tool, topic, *END) == ["one"] * 10 + ["two"] * 2, "they are not asked for"
    ended = tool("replay", topic, "--to", f"{topic}-again")
    assert ended.code == 1
    assert f"{topic}-0 offset 10: the name of a header is no UTF-8" in ended.errors


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["a", "b"],
        ["a", "--include", "b"],
        ["a", "--from-time", "yesterday"],
        ["a", "--from-time", "1h", "--tail", "3"],
        ["a", "--until-offset", "3"],
        ["a", "--group", "g", "--tail", "3"],
        ["a", "--offsett", "3"],
    ],
)
def test_wrong_usage_exits_with_two(run_tool: Callable[[list[str], bytes], Ended], arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run_tool(["consume", *arguments], b"")
    assert ended.value.code == 2


def _heed_ctrl_c() -> None:
    """Let SIGINT end the process: a shell's job in the background, such as these tests may be, ignores it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
def following(
    moldau_broker: BrokerInThread, tool: Tool, topic: str
) -> Iterator[Callable[..., "subprocess.Popen[bytes]"]]:
    """Starts `moldau consume` as a process that follows a topic with one record."""
    tool.ok("topics", "create", topic, "--partitions", "1")
    tool.ok("produce", topic, stdin=b"one\n")
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str) -> "subprocess.Popen[bytes]":
        program = [sys.executable, "-m", "moldau", "consume", topic, "--bootstrap-server", moldau_broker.bootstrap]
        pipe = subprocess.PIPE
        started.append(
            subprocess.Popen([*program, *arguments], stdout=pipe, stderr=pipe, bufsize=0, preexec_fn=_heed_ctrl_c)
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_it_ends_when_nobody_reads_it_any_more(following: Callable[..., "subprocess.Popen[bytes]"]) -> None:
    process = following("--from-beginning")
    assert process.stdout is not None
    assert process.stdout.read(4) == b"one\n"
    process.stdout.close()
    assert process.wait(30) == 0
    assert process.stderr is not None
    assert process.stderr.read() == b"Processed a total of 1 messages\n"


def test_a_full_disk_is_told_in_one_line(moldau_broker: BrokerInThread, tool: Tool, topic: str) -> None:
    tool.ok("topics", "create", topic, "--partitions", "1")
    tool.ok("produce", topic, stdin=b"one\n")
    program = [sys.executable, "-m", "moldau", "consume", topic, *END, "--bootstrap-server", moldau_broker.bootstrap]
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(program, stdout=full, stderr=subprocess.PIPE, check=False)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == b"error: cannot write: No space left on device"
    assert b"Traceback" not in ended.stderr


def test_ctrl_c_ends_it_without_a_traceback(following: Callable[..., "subprocess.Popen[bytes]"]) -> None:
    process = following("--from-beginning")
    assert process.stdout is not None
    assert process.stdout.read(4) == b"one\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (130, b"Processed a total of 1 messages\n")


def test_a_partition_that_is_added_is_read_too(
    following: Callable[..., "subprocess.Popen[bytes]"], tool: Tool, topic: str
) -> None:
    process = following("--from-beginning", "--max-messages", "2")
    assert process.stdout is not None
    assert process.stdout.read(4) == b"one\n"
    tool.ok("topics", "add-partitions", topic)
    tool.ok("produce", topic, "--partition", "1", stdin=b"new\n")
    output, _ = process.communicate(timeout=30)
    assert output == b"new\n"
