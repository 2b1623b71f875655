"""`moldau produce`, on Apache Kafka 4.3.1 as well as on a broker of ours."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from moldau.cli import registry_payloads
from tests.cli.conftest import Ended, Tool


def values(tool: Tool, topic: str, *more: str) -> list[str]:
    """What a topic holds, in the order of its only partition."""
    return tool.ok("consume", topic, "--from-beginning", "--no-follow", *more).splitlines()


@pytest.fixture
def one(either_tool: Tool, topic: str) -> str:
    """A topic with one partition."""
    either_tool.ok("topics", "create", topic, "--partitions", "1")
    return topic


def test_files_are_sent_one_after_the_other(either_tool: Tool, one: str, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("a\nb\n")
    second.write_text("c")
    either_tool.ok("produce", one, str(first), "-", str(second), "--compression-codec", "zstd", stdin=b"between\n")
    assert values(either_tool, one) == ["a", "b", "between", "c"]


def test_whole_files_keys_and_headers(either_tool: Tool, one: str, tmp_path: Path) -> None:
    picture = tmp_path / "picture"
    picture.write_bytes(b"\x00\xff\nno line")
    either_tool.ok("produce", one, str(picture), "--whole-files", "--key", "k", "--header", "a=1", "--header", "b=x=y")
    (found,) = [json.loads(line) for line in values(either_tool, one, "--json")]
    assert (found["key"], found["headers"]) == ("k", [["a", "1"], ["b", "x=y"]])
    assert found["value"] == {"base64": "AP8Kbm8gbGluZQ=="}


def test_options_of_kafkas_console_producer_are_understood(either_tool: Tool, one: str, tmp_path: Path) -> None:
    reader = tmp_path / "reader.properties"
    reader.write_text("parse.key=true\n")
    options = (
        "--sync --timeout 5 --batch-size 1000 --max-block-ms 1000 --max-memory-bytes 1000000 --retry-backoff-ms 50"
    )
    more = "--request-required-acks 1 --request-timeout-ms 2000 --metadata-expiry-ms 90000 --socket-buffer-size 65536"
    config = ("--reader-config", str(reader), "--reader-property", "key.separator=|")
    either_tool.ok("produce", "--topic", one, *options.split(), *more.split(), *config, stdin=b"k|v\n")
    assert values(either_tool, one, "--property", "print.key=true") == ["k\tv"]


def test_programs_are_told_the_place_of_each_record(either_tool: Tool, one: str) -> None:
    told = [json.loads(line) for line in either_tool.ok("produce", one, "--json", stdin=b"a\nb\n").splitlines()]
    assert [(each["topic"], each["partition"], each["offset"]) for each in told] == [(one, 0, 0), (one, 0, 1)]
    unknown = json.loads(either_tool.ok("produce", one, "--json", "--acks", "0", stdin=b"c\n"))
    assert unknown["offset"] is None


@pytest.mark.parametrize(
    ("form", "line", "stored"),
    [("hex", b"00ff", "AP8="), ("base64", b"AP8=", "AP8="), ("integer", b"-2", "/////g=="), ("short", b"255", "AP8=")],
)
def test_a_form_is_turned_into_bytes(either_tool: Tool, one: str, form: str, line: bytes, stored: str) -> None:
    either_tool.ok("produce", one, "--format", form, "--key-format", "hex", "--key-separator", ":", stdin=b"6b:" + line)
    assert values(either_tool, one, "--format", "base64", "--property", "print.key=true") == [f"k\t{stored}"]
    assert values(either_tool, one, "--format", form) == [line.decode()]


def test_what_consume_prints_as_json_is_taken_back_exactly(either_tool: Tool, one: str) -> None:
    lines = [
        {"timestamp": 1_700_000_000_000, "headers": [["h", None], ["h", {"base64": "/w=="}]], "key": "k", "value": "č"},
        {"timestamp": 1_700_000_000_001, "headers": [], "key": None, "value": {"base64": "gA=="}},
        {"timestamp": 1_700_000_000_002, "headers": [], "key": "", "value": None},
    ]
    either_tool.ok("produce", one, "--format", "records", stdin="\n".join(map(json.dumps, lines)).encode())
    printed = either_tool.ok("consume", one, "--from-beginning", "--no-follow", "--json")
    shown = [json.loads(line) for line in printed.splitlines()]
    assert [{name: each[name] for name in lines[0]} for each in shown] == lines
    copy = f"{one}-copy"
    either_tool.ok("topics", "create", copy, "--partitions", "1")
    either_tool.ok("produce", copy, "--format", "records", "--keep-partitions", stdin=printed.encode())
    assert either_tool.ok("consume", copy, "--from-beginning", "--no-follow", "--json").replace(copy, one) == printed


def test_a_wrong_line_stops_after_those_before_it_are_sent(either_tool: Tool, one: str) -> None:
    said = either_tool.error("produce", one, "--format", "json", stdin=b'{"a": 1}\n[2]\n{nope\n{"b": 3}\n')
    assert "line 3: not JSON" in said
    assert "2 records before it are sent" in said
    assert values(either_tool, one) == ['{"a": 1}', "[2]"]


def test_wrong_lines_can_be_skipped(either_tool: Tool, one: str) -> None:
    ended = either_tool("produce", one, "--format", "long", "--skip-errors", stdin=b"1\nx\n2\n9223372036854775808\n")
    assert ended.code == 1
    assert [line.split(":")[1] for line in ended.errors.splitlines()] == [" line 2", " line 4"]
    assert values(either_tool, one, "--format", "long") == ["1", "2"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"[]", "not a JSON object"),
        (b"{}", 'neither "key" nor "value"'),
        (b'{"value": 5}', '"value" is neither a text'),
        (b'{"value": {"base64": "?"}}', "not base64"),
        (b'{"value": "\\ud800"}', "no text of Unicode"),
        (b'{"value": "x", "headers": [["a"]]}', "not of the form [name, value]"),
        (b'{"value": "x", "headers": [["\\udcff", "a"]]}', "name of a header is no text in UTF-8"),
        (b'{"value": "x", "headers": [["a\\u0000b", "a"]]}', "name of a header has a NUL in it"),
        (b'{"value": "x", "partition": -1}', "not a whole number"),
        (b'{"value": {}, "valueFormat": "avro"}', "without --format"),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_a_line_that_is_no_record_is_refused_in_one_line(tool: Tool, topic: str, line: bytes, reason: str) -> None:
    assert reason in tool.error("produce", topic, "--format", "records", stdin=line)


def test_missing_files_and_partitions_are_named_before_anything_is_sent(tool: Tool, topic: str, tmp_path: Path) -> None:
    tool.ok("topics", "create", topic, "--partitions", "1")
    assert "cannot read /no/such" in tool.error("produce", topic, "-", "/no/such", stdin=b"x\n")
    assert "Is a directory" in tool.error("produce", topic, str(tmp_path))
    assert "has no partition 3: it has 1" in tool.error("produce", topic, "--partition", "3", stdin=b"x\n")
    assert "name=value" in tool.error("produce", topic, "--header", "x", stdin=b"x\n")
    assert "has a NUL" in tool.error("produce", topic, "--property", "parse.headers=true", stdin=b"a\0b:c\tx\n")
    assert tool.ok("consume", topic, "--from-beginning", "--no-follow") == ""


def test_a_record_that_is_too_large_stops_after_those_before_it_are_sent(tool: Tool, topic: str) -> None:
    assert "record 2 is refused: it is larger" in tool.error("produce", topic, stdin=b"small\n" + b"x" * 2_000_000)
    assert values(tool, topic) == ["small"]


def test_a_rate_is_held(tool: Tool, topic: str) -> None:
    tool.ok("topics", "create", topic, "--partitions", "1")
    tool.ok("produce", topic, "--rate", "100", stdin=b"x\n" * 21)
    shown = tool.ok("consume", topic, "--from-beginning", "--no-follow", "--json").splitlines()
    times = [json.loads(line)["timestamp"] for line in shown]
    assert times[-1] - times[0] >= 195


def test_avro_says_what_is_missing(tool: Tool, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "needs --registry URL" in tool.error("produce", topic, "--format", "avro", stdin=b"{}\n")
    monkeypatch.setattr(registry_payloads, "PACKAGES", ("no_such_package",))
    said = tool.error("produce", topic, "--format", "avro", "--registry", "http://localhost:1", stdin=b"{}\n")
    assert "pip install 'moldau[pipelines]'" in said


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["t", "--format", "yaml"],
        ["t", "--rate", "0"],
        ["t", "--acks", "2"],
        ["t", "--whole-files"],
        ["t", "--partition", "-1"],
        ["t", "--fromat", "json"],
    ],
)
def test_wrong_usage_exits_with_two(run_tool: Callable[[list[str], bytes], Ended], arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run_tool(["produce", *arguments], b"")
    assert ended.value.code == 2
