"""`moldau transactions`, on Apache Kafka 4.3.1 as well as on a broker of ours."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from moldau.__main__ import main
from moldau.cli import transactions
from tests.cli.conftest import Ended, Tool
from tests.cli.test_output import Terminal
from tests.transaction_servers import FOREIGN_PRODUCER, SERVERS, UNVERIFIED, hang, new_topic, now_ms, server, until

TIMEOUT_S = 30.0
HOUR_MS = 3_600_000


@pytest.fixture(scope="module", params=SERVERS)
def bootstrap(
    request: pytest.FixtureRequest, kafka_classpath: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    with server(request.param, kafka_classpath, tmp_path_factory.mktemp("server"), UNVERIFIED) as address:
        yield address


@pytest.fixture
def tool(bootstrap: str, run_tool: Callable[[list[str], bytes], Ended]) -> Tool:
    return Tool(bootstrap, run_tool)


@pytest.fixture
def topic(bootstrap: str) -> str:
    return new_topic(bootstrap, partitions=2)


@pytest.fixture
def at_work(bootstrap: str, topic: str) -> Iterator[Producer]:
    """A producer with an open transaction: two records in partition 0. Its id is the topic's name."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic, "transaction.timeout.ms": 60_000})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    for _ in range(2):
        producer.produce(topic, b"x", partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    yield producer
    with suppress(KafkaException):  # shut out by a test
        producer.abort_transaction(TIMEOUT_S)


def asked(tool: Tool, action: str, *arguments: object) -> Any:
    """What an action prints for programs."""
    return json.loads(tool.ok("transactions", action, "--json", *map(str, arguments)))


def at(topic: str, partition: int = 0) -> tuple[str, ...]:
    return ("--topic", topic, "--partition", str(partition))


# list and describe


def test_an_open_transaction_is_listed_and_described(tool: Tool, topic: str, at_work: Producer) -> None:
    (listed,) = asked(tool, "list", "--transactional-id-pattern", topic)
    assert (listed["transactionalId"], listed["transactionState"]) == (topic, "Ongoing")
    (told,) = asked(tool, "describe", "--transactional-id", topic)
    assert told["producerId"] == listed["producerId"]
    assert (told["transactionState"], told["transactionTimeoutMs"]) == ("Ongoing", 60_000)
    assert told["topicPartitions"] == [f"{topic}-0"]
    assert told["currentTransactionStartTimeMs"] <= now_ms()
    assert told["transactionDurationMs"] >= 0
    at_work.commit_transaction(TIMEOUT_S)
    at_work.begin_transaction()
    until(lambda: bool(asked(tool, "describe", "--transactional-id", topic)[0]["transactionState"] == "CompleteCommit"))
    assert asked(tool, "describe", "--transactional-id", topic)[0]["topicPartitions"] == []


def test_transactions_are_shown_as_a_table_for_people(tool: Tool, topic: str, at_work: Producer) -> None:
    heading, *rows = tool.ok("transactions", "list").splitlines()
    assert heading.split() == ["TransactionalId", "Coordinator", "ProducerId", "TransactionState"]
    assert [row.split()[3] for row in rows if row.split()[0] == topic] == ["Ongoing"]
    described = tool.ok("transactions", "describe", "--transactional-id", topic).splitlines()
    assert described[0].split()[-1] == "TopicPartitions"
    assert described[1].split()[-1] == f"{topic}-0"
    assert at_work is not None


def test_only_those_are_listed_that_were_asked_for(tool: Tool, topic: str, at_work: Producer) -> None:
    def listed(*filters: object) -> bool:
        return topic in {each["transactionalId"] for each in asked(tool, "list", *filters)}

    (told,) = asked(tool, "describe", "--transactional-id", topic)
    assert listed("--state", "Ongoing")
    assert not listed("--state", "CompleteCommit")
    assert listed("--producer-id", told["producerId"])
    assert not listed("--producer-id", told["producerId"] + 1)
    assert listed("--duration-filter", 0)
    assert not listed("--duration-filter", HOUR_MS)
    assert listed("--transactional-id-pattern", f"{topic[:-1]}.")
    assert not listed("--transactional-id-pattern", topic[:-1])
    assert at_work is not None


# producers


def test_it_is_told_who_holds_readers_up_and_since_when(tool: Tool, topic: str, at_work: Producer) -> None:
    (told,) = asked(tool, "describe", "--transactional-id", topic)
    found = asked(tool, "producers", *at(topic))
    (producer,) = found["producers"]
    assert (producer["transactionalId"], producer["currentTransactionStartOffset"]) == (topic, 0)
    assert (found["lastStableOffset"], found["highWatermark"]) == (0, 2)
    assert found["blockedBy"] == {
        "producerId": told["producerId"],
        "transactionalId": topic,
        "startOffset": 0,
        "sinceMs": told["currentTransactionStartTimeMs"],
        "isHanging": False,
    }
    words = tool.ok("transactions", "producers", *at(topic))
    assert f"wait at offset 0 for transactional id {topic} (producer {told['producerId']}), since 2" in words
    at_work.commit_transaction(TIMEOUT_S)
    at_work.begin_transaction()
    free = "last stable offset 3, high watermark 3. No transaction holds readers up."
    until(lambda: f"{topic}-0: {free}" in tool.ok("transactions", "describe-producers", *at(topic)).splitlines())


def test_a_partition_without_producers_says_so(tool: Tool, topic: str) -> None:
    words = tool.ok("transactions", "producers", *at(topic, 1))
    assert f"no producer is active in {topic}-1" in words


# find-hanging and abort


def hanging(tool: Tool, *arguments: object) -> list[tuple[str, int, int]]:
    return [(each["topic"], each["partition"], each["startOffset"]) for each in asked(tool, "find-hanging", *arguments)]


def test_a_hanging_transaction_is_found_and_aborted(
    tool: Tool, bootstrap: str, topic: str, at_work: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    hang(bootstrap, topic, 0, age_ms=HOUR_MS)
    hang(bootstrap, topic, 1, age_ms=0)
    assert hanging(tool, "--topic", topic) == [(topic, 0, 2)]
    assert hanging(tool, *at(topic)) == hanging(tool, "--broker-id", broker_of(tool, topic)) == [(topic, 0, 2)]
    assert (topic, 0, 2) in hanging(tool)
    assert hanging(tool, "--topic", topic, "--max-transaction-timeout", 61) == []
    assert hanging(tool, "--topic", topic, "--max-transaction-timeout", -1) == [(topic, 0, 2), (topic, 1, 0)]
    words = tool.ok("transactions", "find-hanging", "--topic", topic)
    begin, _, command = words.splitlines()[-1].partition("moldau transactions ")
    assert begin == "To end the first of them: "
    assert command == f"abort --topic {topic} --partition 0 --start-offset 2"

    at_work.commit_transaction(TIMEOUT_S)
    at_work.begin_transaction()
    until(lambda: bool(asked(tool, "producers", *at(topic))["lastStableOffset"] == 2))
    stopped = asked(tool, "producers", *at(topic))
    assert stopped["highWatermark"] == 4
    assert stopped["blockedBy"]["isHanging"]
    assert "no coordinator will end it" in tool.ok("transactions", "producers", *at(topic))

    with monkeypatch.context() as patched:
        patched.setattr("sys.stdin", Terminal("n\n"))
        patched.setattr("sys.stderr", Terminal())
        assert main(["transactions", *command.split(), "--bootstrap-server", bootstrap]) == 1
    assert asked(tool, "producers", *at(topic))["lastStableOffset"] == 2, "a person was asked, and said no"
    assert f"producer {FOREIGN_PRODUCER}, epoch 0, is aborted" in tool.ok("transactions", *command.split())
    ended = asked(tool, "producers", *at(topic))
    assert (ended["lastStableOffset"], ended["highWatermark"], ended["blockedBy"]) == (5, 5, None)
    assert hanging(tool, "--topic", topic) == []
    assert "no transaction hangs" in tool.ok("transactions", "find-hanging", *at(topic))
    assert "none is open" in tool.error("transactions", *command.split())


def broker_of(tool: Tool, topic: str) -> int:
    (told,) = asked(tool, "describe", "--transactional-id", topic)
    coordinator: int = told["coordinatorId"]  # the only broker
    return coordinator


def test_an_abort_may_name_producer_and_epochs(tool: Tool, bootstrap: str, topic: str) -> None:
    hang(bootstrap, topic, 1, age_ms=HOUR_MS)
    whom = ("--producer-id", str(FOREIGN_PRODUCER), "--producer-epoch", "0", "--coordinator-epoch", "-1")
    assert asked(tool, "abort", *at(topic, 1), *whom)["coordinator_epoch"] == 0
    assert asked(tool, "producers", *at(topic, 1))["lastStableOffset"] == 2


def test_a_transaction_that_is_at_work_is_aborted_by_force_alone(tool: Tool, topic: str, at_work: Producer) -> None:
    where = ("transactions", "abort", *at(topic), "--start-offset", "0")
    refusal = tool.error(*where)
    assert "does not hang" in refusal
    assert f"{topic!r} is at work" in refusal
    assert asked(tool, "producers", *at(topic))["lastStableOffset"] == 0
    tool.ok(*where, "--force")
    assert asked(tool, "producers", *at(topic))["lastStableOffset"] == 3
    assert at_work is not None


def test_a_transactional_id_is_terminated_and_its_producer_shut_out(tool: Tool, topic: str, at_work: Producer) -> None:
    assert asked(tool, "terminate", "--transactional-id", topic) == {"transactionalId": topic, "terminated": True}
    until(lambda: bool(asked(tool, "producers", *at(topic))["lastStableOffset"] == 3))
    assert asked(tool, "producers", *at(topic))["blockedBy"] is None
    with pytest.raises(KafkaException, match="fenced"):
        at_work.commit_transaction(TIMEOUT_S)
    assert "has nothing open" in tool.ok("transactions", "forceTerminateTransaction", "--transactional-id", topic)
    assert "TRANSACTIONAL_ID_NOT_FOUND" in tool.error("transactions", "terminate", "--transactional-id", "nobody")


# bad input


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("describe", "--transactional-id", "nobody"), "TRANSACTIONAL_ID_NOT_FOUND (`moldau transactions list`"),
        (("producers", "--topic", "none", "--partition", "0"), "UNKNOWN_TOPIC_OR_PARTITION (`moldau topics"),
        (("producers", "--topic", "T", "--partition", "7"), "has no partition 7: it has 2, counted from 0"),
        (("producers", "--topic", "T", "--partition", "0", "--broker-id", "77"), "there is no broker 77"),
        (("find-hanging", "--partition", "0"), "--partition needs --topic"),
        (("find-hanging", "--topic", "none"), "UNKNOWN_TOPIC_OR_PARTITION"),
        (("find-hanging", "--broker-id", "77"), "there is no broker 77"),
        (("abort", "--topic", "T", "--partition", "0"), "say which: --start-offset"),
        (("abort", "--topic", "T", "--partition", "0", "--start-offset", "9"), "none is open"),
        (("list", "--state", "Sleeping"), "there is no state Sleeping"),
        (("list", "--transactional-id-pattern", "("), "INVALID_REGULAR_EXPRESSION"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tool: Tool, topic: str, arguments: tuple[str, ...], reason: str) -> None:
    assert reason in tool.error("transactions", *(topic if each == "T" else each for each in arguments))


@pytest.mark.parametrize(
    "arguments",
    [
        "abort --topic t --partition 0 --producer-id 1 --coordinator-epoch 0 --producer-epoch 32768",
        "abort --topic t --partition 0 --start-offset -1",
        f"list --producer-id {1 << 63}",
        f"list --duration-filter {'9' * 5000}",
        f"producers --topic t --partition {1 << 31}",
        "find-hanging --max-transaction-timeout nan",
        "find-hanging --max-transaction-timeout 1e400",
    ],
)
def test_a_number_that_no_request_can_carry_is_refused_by_its_option(
    arguments: str, capsys: pytest.CaptureFixture[str]
) -> None:
    *_, option, number = arguments.split()
    with pytest.raises(SystemExit) as ended:
        transactions.main(arguments.split())
    assert ended.value.code == 2
    assert f"argument {option}: '{number[:30]}" in capsys.readouterr().err
