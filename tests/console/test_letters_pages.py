"""Dead letters: found by their headers, and sent back once."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from moldau.client.message_headers import read_headers
from moldau.console.cluster.clients import Clients
from moldau.console.records import letters
from moldau.testing.brokers import BrokerInThread
from tests.console.consoles import Asking
from tests.raw_records import produce_broken_header

DEAD = "shop.dead-letters"


def letter(
    producer: Producer, number: int, reason: str, topic: str = DEAD, origin: str = "orders", **other: str
) -> None:
    said = {
        "pipeline": "shop",
        "source": "orders",
        "topic": origin,
        "partition": "1",
        "offset": str(number),
        "timestamp": "1000",
        "reason": reason,
        **other,
    }
    headers = [(f"moldau.dlq.{name}", value.encode()) for name, value in said.items()]
    producer.produce(topic, f"value {number}".encode(), b"k", 0, headers=[("own", b"1"), *headers])


def values(kafka: BrokerInThread, topic: str, partition: int) -> list[tuple[bytes, dict[str, bytes | None]]]:
    """Committed records."""
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": "looks", "enable.partition.eof": True}
    consumer = Consumer({**settings, "isolation.level": "read_committed", "log_level": 0})
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[tuple[bytes, dict[str, bytes | None]]] = []
    while True:
        message = consumer.poll(20)
        assert message is not None
        if message.error() is not None:
            consumer.close()
            return found
        headers = dict(read_headers(message) or [])
        found.append((message.value() or b"", headers))


@pytest.fixture(autouse=True)
def _topics(producer: Producer, console: Asking) -> Iterator[None]:
    for name in ("orders", DEAD):
        console.post("/topics", {"name": name, "partitions": "2"})
    producer.produce("orders", b"good", partition=0)
    for number, reason in enumerate(("no JSON", "no date", "no JSON", "no date")):
        letter(producer, number, reason)
    producer.flush(10)
    console.look()
    yield
    for name in ("orders", DEAD):
        console.post(f"/topics/{name}/delete", {"typed": name})
    console.console.letter_topics.clear()
    for future in console.console.clients.admin.delete_consumer_groups(["shop.redrive", "another.redrive"]).values():
        future.exception(10)


def test_topics_with_letters_are_found_by_their_headers_and_grouped_by_reason(console: Asking) -> None:
    assert [row["topic"] for row in console.json("/letters")["rows"]] == [DEAD]
    told = console.json(f"/letters/{DEAD}")
    assert told["waiting"] == 4
    assert {each["reason"]: each["count"] for each in told["reasons"]} == {"no JSON": 2, "no date": 2}
    assert {each["origin"] for each in told["letters"]} == {f"orders-1 offset {number}" for number in range(4)}


def test_all_letters_go_back_once_with_their_own_headers(kafka: BrokerInThread, console: Asking) -> None:
    assert console.post(f"/letters/{DEAD}/redrive", {}) == {"done": "4 letters were sent back"}
    sent = values(kafka, "orders", 1)
    assert [value for value, _ in sent] == [f"value {number}".encode() for number in range(4)]
    assert sent[0][1] == {"own": b"1", "moldau.dlq.timestamp": b"1000", "moldau.dlq.attempts": b"1"}
    assert "nothing to send back" in console.post(f"/letters/{DEAD}/redrive", {}, 409)["error"]
    assert len(values(kafka, "orders", 1)) == 4


def test_one_letter_goes_back_and_the_others_wait(kafka: BrokerInThread, console: Asking) -> None:
    done = console.post(f"/letters/{DEAD}/redrive", {"letter": "0:2"})
    assert done["done"].startswith("1 letter was sent back; 2 others")
    assert [value for value, _ in values(kafka, "orders", 1)] == [b"value 2"]
    assert "already" in console.post(f"/letters/{DEAD}/redrive", {"letter": "0:2"}, 409)["error"]
    assert console.json(f"/letters/{DEAD}")["waiting"] == 3
    console.post(f"/letters/{DEAD}/redrive", {"reason": "no date", "rate": "100"})
    assert sorted(value for value, _ in values(kafka, "orders", 1)) == [b"value 1", b"value 2", b"value 3"]
    assert [each["reason"] for each in console.json(f"/letters/{DEAD}")["reasons"]] == ["no JSON"]


def test_letters_that_were_passed_over_are_still_found(console: Asking) -> None:
    """Behind the newest letter is then the mark of a transaction."""
    console.post(f"/letters/{DEAD}/redrive", {"reason": "no date"})
    console.look()
    assert [row["topic"] for row in console.json("/letters")["rows"]] == [DEAD]


def test_a_reason_of_several_lines_is_one_that_a_form_brings_back(
    kafka: BrokerInThread, producer: Producer, console: Asking
) -> None:
    """Browsers send every end of a line as CR and LF."""
    letter(producer, 7, "no number\nin line 3\r\n\tat column 4")
    letter(producer, 8, "x" * 900_000)
    producer.flush(10)
    page = console.page(f"/letters/{DEAD}")
    assert 'value="no number in line 3 at column 4"' in page
    assert len(page) < 20_000
    console.post(f"/letters/{DEAD}/redrive", {"reason": "no number in line 3 at column 4"})
    assert [value for value, _ in values(kafka, "orders", 1)] == [b"value 7"]


def test_pipelines_that_share_a_topic_send_back_nothing_twice(
    kafka: BrokerInThread, producer: Producer, console: Asking
) -> None:
    console.post(f"/letters/{DEAD}/redrive", {})
    for number in range(10, 22):
        letter(producer, number, "no JSON", pipeline="another")
    producer.flush(10)
    console.look()
    told = console.json(f"/letters/{DEAD}")
    assert (told["group"], told["waiting"]) == ("another.redrive", 12)
    assert console.post(f"/letters/{DEAD}/redrive", {}) == {"done": "12 letters were sent back"}
    console.look()
    letter(producer, 30, "no JSON")
    producer.flush(10)
    assert console.json(f"/letters/{DEAD}")["waiting"] == 1
    console.post(f"/letters/{DEAD}/redrive", {})
    sent = [value for value, _ in values(kafka, "orders", 1)]
    assert len(sent) == len(set(sent)) == 4 + 12 + 1


def test_a_letter_whose_topic_is_not_there_does_not_hold_up_the_others(
    kafka: BrokerInThread, producer: Producer, console: Asking
) -> None:
    """Letters of files name a file; others may name one of the cluster's own topics."""
    letter(producer, 5, "no CSV", DEAD, origin="/data/orders.csv", partition="")
    letter(producer, 6, "no CSV", DEAD, origin="__consumer_offsets")
    producer.flush(10)
    done = console.post(f"/letters/{DEAD}/redrive", {})["done"]
    assert done.startswith(
        "4 letters were sent back; 2 others are at the end of the topic now; 2 of them cannot go back"
    )
    assert len(values(kafka, "orders", 1)) == 4
    assert {each["reason"] for each in console.json(f"/letters/{DEAD}")["letters"]} == {"no CSV"}


def test_records_that_are_no_letters_are_not_written_again(
    kafka: BrokerInThread, producer: Producer, console: Asking
) -> None:
    producer.produce(DEAD, b"no letter", partition=0)
    producer.flush(10)
    produce_broken_header(kafka.bootstrap, DEAD, b"no letter either")
    console.look()
    assert [row["topic"] for row in console.json("/letters")["rows"]] == [DEAD]
    done = console.post(f"/letters/{DEAD}/redrive", {"reason": "no JSON"})["done"]
    assert (
        done
        == "2 letters were sent back; 2 others are at the end of the topic now; 2 records that are no letters were left"
    )
    assert [value for value, _ in values(kafka, DEAD, 0)].count(b"no letter") == 1


def test_a_redrive_that_takes_too_long_ends_and_says_so(console: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letters, "REDRIVE_S_MAX", 0.0)
    assert "the time is up" in console.post(f"/letters/{DEAD}/redrive", {})["done"]
    monkeypatch.undo()
    assert console.post(f"/letters/{DEAD}/redrive", {}) == {"done": "4 letters were sent back"}


def test_a_redrive_that_is_cut_off_sends_nothing_twice(kafka: BrokerInThread, console: Asking) -> None:
    clients = console.console.clients
    first = clients.transactional_producer(f"moldau.console.redrive.{DEAD}")
    first.init_transactions(20)
    first.begin_transaction()
    first.produce("orders", b"half done", partition=1)
    first.flush(10)
    letters.redrive(clients, DEAD, 2, lambda _: True, {"orders"})
    with pytest.raises(Exception, match=r"(?i)fenced|epoch|newer instance"):
        first.commit_transaction(20)
    assert [value for value, _ in values(kafka, "orders", 1)] == [f"value {number}".encode() for number in range(4)]


def test_letters_of_connect_and_spring_are_known(producer: Producer, console: Asking) -> None:
    connect = {"topic": b"orders", "partition": b"0", "offset": b"7", "exception.message": b"bad"}
    spring = {
        "original-topic": b"orders",
        "original-partition": b"\0\0\0\0",
        "original-offset": b"\0\0\0\0\0\0\0\x09",
        "exception-message": b"worse",
    }
    producer.produce("connect.dlq", b"1", headers=[(f"__connect.errors.{k}", v) for k, v in connect.items()])
    producer.produce("orders-dlt", b"2", headers=[(f"kafka_dlt-{k}", v) for k, v in spring.items()])
    producer.flush(10)
    console.look()
    assert [row["topic"] for row in console.json("/letters")["rows"]] == ["connect.dlq", "orders-dlt", DEAD]
    (found,) = console.json("/letters/orders-dlt")["letters"]
    assert (found["origin"], found["reason"]) == ("orders-0 offset 9", "worse")
    for name in ("connect.dlq", "orders-dlt"):
        console.post(f"/topics/{name}/delete", {"typed": name})


def test_a_transaction_that_blocks_readers_is_shown_and_aborted(kafka: BrokerInThread, console: Asking) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "slow", "log_level": 0})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce("orders", b"held", partition=0)
    producer.flush(10)
    console.look()
    told = console.json("/transactions")
    assert [each["transactional_id"] for each in told["open"]] == ["slow"]
    assert [(each["topic"], each["transactional_id"]) for each in told["blocked"]] == [("orders", "slow")]
    assert any("transaction" in each["what"] for each in console.json("/")["problems"])
    console.post("/transactions/abort", {"transactional_id": "slow", "typed": "slo"}, 400)
    console.post("/transactions/abort", {"transactional_id": "nobody", "typed": "nobody"}, 409)
    console.post("/transactions/abort", {"transactional_id": "slow", "typed": "slow"})
    assert console.json("/transactions")["open"] == []


def test_letters_of_many_partitions_are_read_at_once(
    producer: Producer, console: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer that goes from one partition to the next waits for its last fetch each time."""
    console.post("/topics", {"name": "wide.dlq", "partitions": "30"})
    for number in range(30):
        headers: list[tuple[str, str | bytes | None]] = [("moldau.dlq.topic", "orders"), ("moldau.dlq.reason", "bad")]
        producer.produce("wide.dlq", b"1", headers=headers, partition=number)
    assert producer.flush(10) == 0
    console.look()
    assigned: list[int] = []
    reader = Clients.reader

    class Counting:
        def __init__(self, inner: Consumer) -> None:
            self._inner = inner

        def assign(self, places: list[TopicPartition]) -> None:
            assigned.append(len(places))
            self._inner.assign(places)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

    monkeypatch.setattr(Clients, "reader", lambda clients, **more: Counting(reader(clients, **more)))
    told = console.json("/letters/wide.dlq")
    assert told["waiting"] == 30
    assert assigned == [30, 30], "once to see whose they are, once to read them"
    console.post("/topics/wide.dlq/delete", {"typed": "wide.dlq"})
