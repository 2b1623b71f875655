"""`moldau produce` and `moldau consume`, one against the other."""

from collections.abc import Callable

import pytest

from moldau.cli.line_reader import BadLine, LineReader
from moldau.cli.record_json import InputRecord
from tests.cli.conftest import Ended, Tool

WAIT = ("--timeout-ms", "10000")


def properties(*items: str) -> list[str]:
    return [word for item in items for word in ("--property", item)]


def test_lines_come_back_in_order(tool: Tool, topic: str) -> None:
    tool.ok("topics", "create", topic, "--partitions", "1")
    tool.ok("produce", "--topic", topic, stdin=b"one\ntwo\r\n\nthree")
    ended = tool("consume", "--topic", topic, "--from-beginning", "--max-messages", "4", *WAIT)
    assert ended == Ended(0, "one\ntwo\n\nthree\n", "Processed a total of 4 messages\n")


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_codec_and_every_acks(tool: Tool, topic: str, codec: str, acks: str) -> None:
    tool.ok("topics", "create", topic, "--partitions", "1")
    lines = b"".join(b"the same words in every line, number %d\n" % number for number in range(1000))
    tool.ok("produce", "--topic", topic, "--compression-codec", codec, "--acks", acks, stdin=lines)
    read = tool.ok("consume", "--topic", topic, "--from-beginning", "--max-messages", "1000", *WAIT)
    assert read.encode() == lines


def test_keys_and_headers_are_parsed_and_printed(tool: Tool, topic: str) -> None:
    tool.ok("topics", "create", topic, "--partitions", "1")
    parse = properties("parse.key=true", "key.separator==", "parse.headers=true", "null.marker=NULL")
    tool.ok("produce", "--topic", topic, *parse, stdin=b"h1:a,h2:NULL\tk=v\nNULL\tk=NULL\n")
    shown = properties("print.partition=true", "print.offset=true", "print.headers=true", "print.key=true")
    read = tool.ok(
        "consume",
        "--topic",
        topic,
        "--from-beginning",
        "--max-messages",
        "2",
        *WAIT,
        *shown,
        "--property",
        "key.separator=|",
    )
    assert read == "Partition:0|Offset:0|h1:a,h2:null|k|v\nPartition:0|Offset:1|NO_HEADERS|k|null\n"


def test_timestamps_are_printed(tool: Tool, topic: str) -> None:
    tool.ok("topics", "create", topic)
    tool.ok("produce", "--topic", topic, stdin=b"x\n")
    shown = properties("print.timestamp=true", "print.value=false")
    read = tool.ok("consume", "--topic", topic, "--from-beginning", "--max-messages", "1", *WAIT, *shown)
    assert read.startswith("CreateTime:1")


def test_a_partition_is_read_from_an_offset(tool: Tool, topic: str) -> None:
    tool.ok("topics", "create", topic, "--partitions", "2")
    tool.ok("produce", "--topic", topic, "--partition", "1", stdin=b"a\nb\nc\nd\n")
    start = ("consume", "--topic", topic, "--partition", "1", "--offset")
    assert tool.ok(*start, "2", "--max-messages", "2", *WAIT) == "c\nd\n"
    assert tool.ok(*start, "earliest", "--max-messages", "1", *WAIT) == "a\n"
    assert tool.ok(*start, "latest", "--timeout-ms", "200") == ""
    assert "try --offset earliest" in tool("consume", *start[1:], "99", *WAIT).errors


def test_all_partitions_are_read(tool: Tool, topic: str) -> None:
    tool.ok("topics", "create", topic, "--partitions", "3")
    lines = b"".join(b"k%d\tv%d\n" % (number, number) for number in range(30))
    tool.ok("produce", "--topic", topic, "--property", "parse.key=true", stdin=lines)
    shown = properties("print.key=true", "print.partition=true")
    read = tool.ok("consume", "--topic", topic, "--from-beginning", "--max-messages", "30", *WAIT, *shown).splitlines()
    assert {line.split("\t")[0] for line in read} == {"Partition:0", "Partition:1", "Partition:2"}
    assert sorted(line.split("\t", 1)[1] for line in read) == sorted(lines.decode().splitlines())


def test_a_topic_is_created_by_the_first_record(tool: Tool, topic: str) -> None:
    tool.ok("produce", "--topic", topic, stdin=b"hello\n")
    assert tool.ok("consume", "--topic", topic, "--from-beginning", "--max-messages", "1", *WAIT) == "hello\n"


def test_missing_topics_and_partitions_are_named(tool: Tool, topic: str) -> None:
    assert f"moldau topics create {topic}" in tool.error("consume", "--topic", topic)
    tool.ok("topics", "create", topic, "--partitions", "1")
    assert "has no partition 7" in tool.error("consume", "--topic", topic, "--partition", "7")


def test_bad_client_settings_are_refused_in_one_line(tool: Tool, topic: str) -> None:
    assert "no.such" in tool.error("produce", "--topic", topic, "--producer-property", "no.such=1")
    assert "cannot read" in tool.error("produce", "--topic", topic, "--producer.config", "/no/such/file")


def test_a_line_without_a_key_stops_with_its_number(tool: Tool, topic: str) -> None:
    said = tool.error("produce", "--topic", topic, "--property", "parse.key=true", stdin=b"k\tv\nbad\n")
    assert "line 2" in said


@pytest.mark.parametrize(
    "arguments", [["--topic", "t", "--offset", "5"], ["--topic", "t", "--partition", "0", "--offset", "x"], []]
)
def test_wrong_usage_exits_with_two(run_tool: Callable[[list[str], bytes], Ended], arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run_tool(["consume", *arguments], b"")
    assert ended.value.code == 2


@pytest.mark.parametrize(
    ("line", "record"),
    [
        (b"k\tv\n", InputRecord(b"k", b"v", [])),
        (b"k\tv\tw", InputRecord(b"k", b"v\tw", [])),
        (b"\t", InputRecord(b"", b"", [])),
        (b"-\t-\r\n", InputRecord(None, None, [])),
    ],
)
def test_a_line_is_split_at_the_first_separator(line: bytes, record: InputRecord) -> None:
    assert LineReader({"parse.key": "true", "null.marker": "-"}).record(line) == record


def test_errors_in_lines_can_be_ignored() -> None:
    reader = LineReader({"parse.key": "true", "ignore.error": "true"})
    assert reader.record(b"no key") == InputRecord(None, b"no key", [])
    with pytest.raises(BadLine, match=r"no key\.separator '\\t' in it: 'no key'"):
        LineReader({"parse.key": "true"}).record(b"no key")
