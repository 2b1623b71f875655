"""The logging handler: what it writes, what it drops, and that it never breaks the program."""

import json
import logging
import logging.config
import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from moldau.client.line_sender import Line, LineSender, LogCounts, Tally
from moldau.logging import JsonFormatter, KafkaHandler
from moldau.testing.brokers import BrokerInThread

TIMEOUT_S = 30.0
NOBODY = "127.0.0.1:1"


@pytest.fixture
def logger(moldau_topic: str) -> Iterator[logging.Logger]:
    made = logging.getLogger(moldau_topic)
    made.setLevel(logging.DEBUG)
    made.propagate = False
    yield made
    for handler in list(made.handlers):
        made.removeHandler(handler)
        handler.close()


def lines(broker: BrokerInThread, topic: str) -> list[Any]:
    """The messages of a topic of one partition."""
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "reader", "enable.partition.eof": True}
    with Consumer(settings) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found = []
        while (message := consumer.poll(TIMEOUT_S)) is not None and message.error() is None:
            found.append(message)
    return found


def test_a_record_is_a_line_of_json(
    moldau_session_broker: BrokerInThread, moldau_topic: str, logger: logging.Logger
) -> None:
    handler = KafkaHandler(moldau_session_broker.bootstrap, moldau_topic)
    logger.addHandler(handler)
    logger.warning("%d visitors from %s", 3, "Plzeň", extra={"order": 7, "level": "mine"})
    assert handler.wait_until_sent(TIMEOUT_S)
    (message,) = lines(moldau_session_broker, moldau_topic)
    said = json.loads(message.value())
    assert said["message"] == "3 visitors from Plzeň"
    assert (said["level"], said["logger"], said["order"]) == ("WARNING", moldau_topic, 7)
    assert said["process"] == os.getpid()
    assert message.key().endswith(f":{os.getpid()}:{threading.get_ident()}".encode())
    assert handler.counts == LogCounts(offered=1, delivered=1, dropped=0, unsure=0, waiting=0)


def test_dict_config_makes_a_handler_of_text(moldau_session_broker: BrokerInThread, moldau_topic: str) -> None:
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {"short": {"format": "%(levelname)s %(message)s"}},
            "handlers": {
                "kafka": {
                    "class": "moldau.logging.KafkaHandler",
                    "level": "INFO",
                    "formatter": "short",
                    "bootstrap": moldau_session_broker.bootstrap,
                    "topic": moldau_topic,
                    "key": "logger",
                    "properties": {"linger.ms": 0},
                }
            },
            "loggers": {moldau_topic: {"handlers": ["kafka"], "level": "DEBUG", "propagate": False}},
        }
    )
    made = logging.getLogger(moldau_topic)
    made.info("in")
    made.debug("out")
    made.handlers[0].close()
    found = [(message.key(), message.value()) for message in lines(moldau_session_broker, moldau_topic)]
    assert found == [(moldau_topic.encode(), b"INFO in")]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"format": "xml"}, "neither 'json' nor 'text'"),
        ({"key": "threat"}, "none of 'thread'"),
        ({"queue_bytes": 10}, "less than one piece"),
        ({"topic": ""}, "not a topic's name"),
        ({"properties": {"lingerms": 5}}, "lingerms"),
        ({"properties": {"acks": "1"}}, "acks"),
    ],
)
def test_a_wrong_argument_is_an_error_at_the_start(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        KafkaHandler(**{"bootstrap": NOBODY, "topic": "logs", **wrong})


def test_what_does_not_fit_is_dropped_and_counted_while_no_broker_is_there(logger: logging.Logger) -> None:
    handler = KafkaHandler(NOBODY, "logs", queue_bytes=10 * 1024, close_timeout_s=0.1)
    logger.addHandler(handler)
    for number in range(100):
        logger.info("line %d", number)
    assert handler.counts == LogCounts(offered=100, delivered=0, dropped=90, unsure=0, waiting=10)
    handler.close()
    assert handler.counts == LogCounts(offered=100, delivered=0, dropped=100, unsure=0, waiting=0)
    logger.info("nobody listens any more")
    assert handler.dropped == 101
    assert "refused" in handler.last_error


def test_long_lines_take_more_of_the_budget(logger: logging.Logger) -> None:
    handler = KafkaHandler(NOBODY, "logs", format="text", queue_bytes=10 * 1024, close_timeout_s=0)
    logger.addHandler(handler)
    for _ in range(3):
        logger.info("x" * 4000)
    logger.info("short")
    assert (handler.counts.waiting, handler.dropped) == (3, 1)


def test_a_line_that_is_too_large_is_dropped_and_the_next_one_sent(
    moldau_session_broker: BrokerInThread, moldau_topic: str, logger: logging.Logger
) -> None:
    handler = KafkaHandler(moldau_session_broker.bootstrap, moldau_topic, format="text")
    logger.addHandler(handler)
    logger.info("x" * 2_000_000)
    logger.info("short")
    assert handler.wait_until_sent(TIMEOUT_S)
    assert handler.counts == LogCounts(offered=2, delivered=1, dropped=1, unsure=0, waiting=0)


def test_a_call_with_wrong_arguments_breaks_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    handler = KafkaHandler(NOBODY, "logs", close_timeout_s=0)
    handler.handle(logging.makeLogRecord({"msg": "%d visitors", "args": ("three",)}))
    assert "Logging error" in capsys.readouterr().err
    assert handler.dropped == 1
    handler.close()


class Unprintable:
    def __repr__(self) -> str:
        return "<unprintable>"


def test_hostile_fields_are_still_json() -> None:
    circle: list[Any] = []
    circle.append(circle)
    extra = {"nan": float("nan"), "circle": circle, "thing": Unprintable(), "odd": {(1, 2): 3}, "bad": "\udc80"}
    record = logging.makeLogRecord({"msg": "caf\udce9", **extra})
    said = json.loads(JsonFormatter().format(record).encode("utf-8", "backslashreplace"))
    assert said["nan"] == "nan"
    assert said["circle"] == "[[...]]"
    assert said["thing"] == "<unprintable>"
    assert said["odd"] == "{(1, 2): 3}"


def test_an_exception_stands_in_its_line() -> None:
    try:
        raise RuntimeError("no beer")
    except RuntimeError:
        record = logging.makeLogRecord({"msg": "pub", "exc_info": sys.exc_info()})
    assert json.loads(JsonFormatter().format(record))["exception"].endswith("RuntimeError: no beer")


def log_in_child(name: str) -> None:
    logging.getLogger(name).info("child")


def test_a_child_of_multiprocessing_sends_its_own_lines_and_only_those(
    moldau_session_broker: BrokerInThread, moldau_topic: str, logger: logging.Logger
) -> None:
    handler = KafkaHandler(moldau_session_broker.bootstrap, moldau_topic, format="text", queue_bytes=10 * 1024)
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger.addHandler(handler)
    logger.info("parent")
    child = multiprocessing.get_context("fork").Process(target=log_in_child, args=(moldau_topic,))
    child.start()
    child.join(TIMEOUT_S)
    assert child.exitcode == 0
    assert handler.wait_until_sent(TIMEOUT_S)
    assert handler.counts.offered == 1
    found = sorted(message.value() for message in lines(moldau_session_broker, moldau_topic))
    assert found == [b"child", b"parent"]


FORKING = """
import logging, os, sys
from moldau.logging import KafkaHandler
handler = KafkaHandler(sys.argv[1], sys.argv[2], close_timeout_s=0.2)
logging.basicConfig(handlers=[handler], level="INFO")
logging.info("before")
child = os.fork()
logging.info("after")
if child:
    assert os.waitpid(child, 0)[1] == 0
"""


def test_a_forked_program_ends_by_itself_also_when_no_broker_is_there() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", FORKING, NOBODY, "logs"], capture_output=True, text=True, timeout=TIMEOUT_S, check=True
    )
    assert (ended.stdout, ended.stderr) == ("", "")


class FakeProducer:
    """A producer that fails for good with its second line."""

    def __init__(self, settled: Any, sent: list[bytes], fails: bool) -> None:
        self._settled = settled
        self._sent = sent
        self._fails = fails
        self._held: list[bytes] = []

    def produce(self, topic: str, *, value: bytes, key: bytes | None, timestamp: int) -> None:  # noqa: ARG002
        if self._fails and self._held:
            raise KafkaException(KafkaError(KafkaError._FATAL, "fenced", True))
        self._held.append(value)

    def poll(self, timeout: float) -> int:  # noqa: ARG002
        return 0

    def flush(self, timeout: float) -> int:  # noqa: ARG002
        for value in self._held:
            self._sent.append(value)
            self._settled(None, value)
        self._held.clear()
        return 0

    def purge(self) -> None:
        for value in self._held:
            self._settled(KafkaError(KafkaError._PURGE_INFLIGHT), value)
        self._held.clear()

    def __len__(self) -> int:
        return len(self._held)


def test_a_producer_that_fails_for_good_is_replaced_and_no_line_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moldau.client.line_sender.RETRY_S", 0.0)
    sent: list[bytes] = []
    fails = iter((True, False))
    sender = LineSender("logs", lambda settled, _failed: FakeProducer(settled, sent, next(fails)), 10 * 1024)
    for value in (b"a", b"b", b"c"):
        sender.offer(Line(None, value, 0))
    assert sender.flush(TIMEOUT_S)
    assert sent == [b"b", b"c"]
    assert sender.counts() == LogCounts(offered=3, delivered=2, dropped=0, unsure=1, waiting=0)
    assert "fenced" in sender.last_error
    sender.close(TIMEOUT_S)


def test_many_threads_count_exactly() -> None:
    tally = Tally()

    def count() -> None:
        for number in range(20_000):
            tally.add()
            if number % 1000 == 0:
                tally.value()

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tally.value() == tally.value() == 80_000
