"""`moldau perf`, on Apache Kafka 4.3.1 as well as on a broker of ours."""

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from moldau.cli.perf_numbers import percentiles, summary
from moldau.cli.perf_produce import HAS_PRODUCER_ID
from moldau.testing.brokers import BrokerInThread
from tests.cli.conftest import Ended, Tool

NUMBER = r"\d+\.\d+"
WINDOW = re.compile(
    rf"\d+ records sent, {NUMBER} records/sec \({NUMBER} MB/sec\), {NUMBER} ms avg latency, {NUMBER} ms max latency\."
)
SHARES = r"\d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99\.9th\."
TOTAL = re.compile(WINDOW.pattern.removesuffix(r"\.") + ", " + SHARES)
TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}"
ROW = re.compile(rf"{TIME}, {TIME}, {NUMBER}, {NUMBER}, 2000, {NUMBER}, \d+, \d+, {NUMBER}, {NUMBER}")


def test_the_lines_are_those_of_kafkas_own_tools(either_tool: Tool, either_bootstrap: str, topic: str) -> None:
    either_tool.ok("topics", "create", topic, "--partitions", "1")
    kafkas = ("--producer-props", f"bootstrap.servers={either_bootstrap}", "acks=1", "buffer.memory=1000000")
    load = ("perf", "produce", "--topic", topic, "--num-records", "2000", "--record-size", "100")
    *windows, total = either_tool.ok(*load, "--throughput", "2000", "--reporting-interval", "100", *kafkas).splitlines()
    assert windows
    assert all(WINDOW.fullmatch(line) for line in windows)
    assert TOTAL.fullmatch(total)
    assert total.startswith("2000 records sent")
    assert 1_500 < float(total.split()[3]) < 2_200
    header, row = either_tool.ok("perf", "consume", "--topic", topic, "--messages", "2000").splitlines()
    assert header.startswith("start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, ")
    assert ROW.fullmatch(row)
    assert float(row.split(", ")[2]) == pytest.approx(2000 * 100 / (1 << 20), abs=1e-4)


def test_the_older_form_of_kafkas_latency_tool_is_understood(
    run_tool: Callable[[list[str], bytes], Ended], either_bootstrap: str, topic: str
) -> None:
    assert run_tool(["topics", "create", topic, "--bootstrap-server", either_bootstrap], b"").code == 0
    ended = run_tool(["perf", "end-to-end", either_bootstrap, topic, "20", "1", "100"], b"")
    assert (ended.code, ended.errors) == (0, "")
    assert "Avg latency: " in ended.output


def test_a_record_goes_there_and_back(either_tool: Tool, topic: str) -> None:
    either_tool.ok("topics", "create", topic, "--partitions", "1")
    first, average, shares = either_tool.ok("perf", "end-to-end", topic, "--num-records", "50").splitlines()
    assert re.fullmatch(r"0\t[\d.]+", first)
    assert re.fullmatch(rf"Avg latency: {NUMBER} ms", average)
    assert re.fullmatch(r"Percentiles: 50th = \d+, 99th = \d+, 99\.9th = \d+", shares)


def test_transactions_warmup_and_json(either_tool: Tool, topic: str) -> None:
    either_tool.ok("topics", "create", topic, "--partitions", "2")
    load = ("perf", "produce", topic, "--num-records", "3000", "--payload-monotonic", "--transaction-duration-ms", "50")
    found = json.loads(either_tool.ok(*load, "--warmup-records", "500", "--json"))
    assert (found["records"], found["failed"], found["steadyState"]["records"]) == (3000, 0, 2500)
    committed = ("--from-beginning", "--no-follow", "--isolation-level", "read_committed")
    read = either_tool.ok("consume", topic, *committed).splitlines()
    assert sorted(map(int, read)) == list(range(3000))


def test_payloads_are_drawn_from_a_file(tool: Tool, topic: str, tmp_path: Path) -> None:
    payloads = tmp_path / "payloads"
    payloads.write_text("one|two|")
    load = (
        "perf",
        "produce",
        topic,
        "--num-records",
        "50",
        "--payload-file",
        str(payloads),
        "--payload-delimiter",
        "|",
    )
    tool.ok(*load)
    read = tool.ok("consume", topic, "--from-beginning", "--no-follow").splitlines()
    assert (len(read), set(read)) == (50, {"one", "two"})
    payloads.write_text("")
    assert "nothing to send" in tool.error(*load)


def test_too_few_records_end_with_kafkas_warning(tool: Tool, topic: str) -> None:
    tool.ok("topics", "create", topic, "--partitions", "1")
    ended = tool("perf", "consume", topic, "--num-records", "5", "--timeout", "300", "--show-detailed-stats")
    assert ended.code == 0
    assert "Exiting before consuming the expected number of records: timeout (300 ms) exceeded" in ended.errors
    assert "does not exist" in tool.error("perf", "consume", f"{topic}-not", "--num-records", "5")


def test_librdkafka_tells_that_it_has_its_producer_id(moldau_broker: BrokerInThread) -> None:
    """What a load waits for before its clock starts: half a second that would be taken for the broker's latency."""
    told: list[str] = []
    settings = {"bootstrap.servers": moldau_broker.bootstrap, "enable.idempotence": True}
    producer = Producer({**settings, "statistics.interval.ms": 10, "stats_cb": told.append})
    deadline_s = time.monotonic() + 30
    while not told or HAS_PRODUCER_ID not in told[-1]:
        producer.poll(0.1)
        assert time.monotonic() < deadline_s, told[-1:]


def test_numbers_are_computed_as_kafka_does() -> None:
    found = summary([1.0, 2.0, 6.0], 3 << 20, 1.5)
    assert found == {
        "records": 3,
        "recordsPerSecond": 2.0,
        "mbPerSecond": 2.0,
        "avgLatencyMs": 3.0,
        "maxLatencyMs": 6.0,
    }
    assert percentiles(range(1000), {"50th": 0.5, "99.9th": 0.999}) == {"50th": 500, "99.9th": 999}


@pytest.mark.parametrize(
    "arguments",
    [
        ["produce", "t", "--num-records", "5"],
        ["produce", "t", "--record-size", "5"],
        ["produce", "t", "--num-records", "5", "--record-size", "5", "--payload-monotonic"],
        ["consume", "t"],
        ["measure"],
    ],
)
def test_wrong_usage_exits_with_two(run_tool: Callable[[list[str], bytes], Ended], arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run_tool(["perf", *arguments], b"")
    assert ended.value.code == 2
