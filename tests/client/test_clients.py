"""The clients when things go wrong: nothing is lost without a word, and a record counts as handled when it is."""

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import OFFSET_INVALID
from confluent_kafka.admin import ListOffsetsResultInfo  # type: ignore[attr-defined]  # its stubs hide it

import moldau.testing
from moldau import JSON, TEXT, Admin, ClientError, Consumer, Producer, Record, SerdeError, SimpleConsumer
from moldau.client import producer as producer_module
from moldau.client.handling import Retries
from moldau.pipelines.file.spec import PipelineSpec
from moldau.pipelines.run.redrive import redrive
from tests.pipelines.specs import pipeline
from tests.raw_records import produce_broken_header


class Unlucky(Exception):
    """What a handler raises."""


def consumer_of(bootstrap: str, topic: str, **options: object) -> Consumer[bytes, object]:
    return Consumer(topic, group_id=topic, bootstrap=bootstrap, value=JSON, **options)  # type: ignore[arg-type]


def send(bootstrap: str, topic: str, *values: object) -> None:
    with Producer(bootstrap, value=JSON) as producer:
        for value in values:
            producer.send(topic, value)


def test_an_offset_that_no_leader_has_told_is_an_error(
    bootstrap: str, moldau_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka answers -1001, and no error, for a leader that is silent."""
    send(bootstrap, moldau_topic, 1)
    with Admin(bootstrap) as admin:
        assert admin.offsets(moldau_topic) == {0: 1}
        silent: Future[ListOffsetsResultInfo] = Future()
        silent.set_result(ListOffsetsResultInfo(OFFSET_INVALID, -1, -1))
        kafka = SimpleNamespace(list_offsets=lambda wanted: dict.fromkeys(wanted, silent))
        monkeypatch.setattr(
            admin, "describe_topic", lambda _: SimpleNamespace(partitions=[SimpleNamespace(partition=0)])
        )
        monkeypatch.setattr(admin, "_kafka", kafka)
        with pytest.raises(ClientError, match=r"(?i)timed out"):
            admin.offsets(moldau_topic)


# --- the package ---


def test_the_package_brings_no_client_until_one_is_asked_for() -> None:
    look = "import sys, moldau; before = 'confluent_kafka' in sys.modules; moldau.Producer; sys.exit(before)"
    subprocess.run([sys.executable, "-c", look], check=True)


def test_every_name_of_the_package_is_there() -> None:
    assert all(getattr(moldau, name) is not None for name in moldau.__all__)
    assert set(moldau.__all__) <= set(dir(moldau))
    with pytest.raises(AttributeError, match="no attribute 'Prodcuer'"):
        moldau.Prodcuer  # noqa: B018  asking is the test


# --- the producer ---


def test_a_record_that_fails_is_told_of_at_the_end() -> None:
    with (
        pytest.raises(ClientError, match=r"'visits'.*timed out"),
        Producer("127.0.0.1:1", properties={"message.timeout.ms": 200}) as producer,
    ):
        producer.send("visits", "lost")


def test_a_failure_that_the_program_has_seen_is_not_told_again() -> None:
    with Producer("127.0.0.1:1", properties={"message.timeout.ms": 200}) as producer:
        assert isinstance(producer.send("visits", "lost").exception(), ClientError)


def test_an_exception_of_the_block_is_not_hidden_by_a_failure() -> None:
    few = {"message.timeout.ms": 200}
    with pytest.raises(Unlucky), Producer("127.0.0.1:1", properties=few) as producer:  # noqa: PT012  the block's end
        producer.send("visits", "lost")
        raise Unlucky


def test_a_full_buffer_is_waited_for_and_then_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_module, "WAIT_FOR_ROOM_S", 0.1)
    few = {"queue.buffering.max.messages": 1, "message.timeout.ms": 1000}
    with Producer("127.0.0.1:1", properties=few) as producer:
        first = producer.send("visits", "one")
        with pytest.raises(ClientError, match="no room in the buffer"):
            producer.send("visits", "two")
        assert first.exception() is not None


def test_a_property_that_is_none_is_a_value_error() -> None:
    with pytest.raises(ValueError, match=r"No such configuration property: \"akcs\""):
        Producer("127.0.0.1:1", properties={"akcs": 1})


def test_a_name_that_librdkafka_would_die_of_is_a_value_error(bootstrap: str) -> None:
    for group in ("", " ", b"\xff".decode(errors="surrogateescape"), None):
        with pytest.raises(ValueError, match=r"group is empty|group\.id: .* is not text in UTF-8"):
            moldau.Consumer("visits", group_id=group, bootstrap=bootstrap)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="group is empty"):
        moldau.Consumer("visits", group_id="clerks", bootstrap=bootstrap, properties={"group.id": ""})
    with pytest.raises(ValueError, match="transactional id is blank"):
        moldau.Producer(bootstrap, transactional_id=" ")
    with pytest.raises(ValueError, match=r"client\.id: .* is not text"):
        moldau.Producer(bootstrap, properties={"client.id": "\udcff"})


@pytest.mark.parametrize("name", ["\udcff", "a\0b", 1, None, b"a"])
def test_a_header_whose_name_cannot_be_written_is_refused(name: Any) -> None:
    with Producer("127.0.0.1:1") as producer:
        for headers in ({name: "x"}, [("a", "b"), (name, "x")]):
            with pytest.raises((ValueError, TypeError), match="the name of a header"):
                producer.send("visits", "one", headers=cast(Any, headers))


def test_a_custom_partitioner_decides(bootstrap: str, moldau_topic: str) -> None:
    Admin(bootstrap).create_topic(moldau_topic, partitions=3)
    last = lambda _topic, _key, _value, count: count - 1  # noqa: E731
    with Producer(bootstrap, partitioner=last) as producer:
        assert producer.send_and_wait(moldau_topic, "x", key="y").partition == 2
    wrong = pytest.raises(ValueError, match=r"chose 3.*partitions 0 to 2")
    with Producer(bootstrap, partitioner=lambda *_: 3) as producer, wrong:
        producer.send(moldau_topic, "x")


def test_a_value_of_another_type_is_refused_where_it_is_sent() -> None:
    with (
        Producer("127.0.0.1:1", value=TEXT) as producer,
        pytest.raises(SerdeError, match="value 5 cannot be written as text"),
    ):
        producer.send("visits", 5)  # type: ignore[arg-type]  # the test


def test_headers_time_and_tombstones_arrive(bootstrap: str, moldau_topic: str) -> None:
    with Producer(bootstrap) as producer:
        producer.send(moldau_topic, None, key="k", headers={"a": "1", "b": None}, timestamp=1234)
    with SimpleConsumer(moldau_topic, bootstrap=bootstrap) as log:
        [record] = log.to_end()
    assert (record.value, record.headers, record.timestamp_ms) == (None, [("a", b"1"), ("b", None)], 1234)


def test_an_aborted_transaction_is_not_read_and_its_records_come_again(bootstrap: str, moldau_topic: str) -> None:
    send(bootstrap, moldau_topic, 1, 2)
    copied = f"{moldau_topic}-copied"
    with (
        consumer_of(bootstrap, moldau_topic, auto_commit=False) as consumer,
        Producer(bootstrap, value=JSON, transactional_id=moldau_topic) as producer,
    ):
        records = consumer.records(limit=3)
        with pytest.raises(Unlucky), producer.transaction(consumer):  # noqa: PT012  the block's end
            producer.send(copied, next(records).value)
            raise Unlucky
        for record in consumer.records(limit=2):
            with producer.transaction(consumer):
                producer.send(copied, record.value)
    with SimpleConsumer(copied, bootstrap=bootstrap, value=JSON) as log:
        assert [record.value for record in log.to_end()] == [1, 2]


def test_a_transaction_asks_for_what_it_needs(bootstrap: str, moldau_topic: str) -> None:
    with Producer(bootstrap) as producer, pytest.raises(ClientError, match="transactional_id"), producer.transaction():
        pass
    with (
        consumer_of(bootstrap, moldau_topic) as consumer,
        Producer(bootstrap, transactional_id="t") as producer,
        pytest.raises(ClientError, match="auto_commit=False"),
        producer.transaction(consumer),
    ):
        pass


# --- the consumer ---


def test_a_record_whose_handling_raises_comes_again(bootstrap: str, moldau_topic: str) -> None:
    send(bootstrap, moldau_topic, 1, 2, 3)
    with pytest.raises(Unlucky), consumer_of(bootstrap, moldau_topic) as consumer:  # noqa: PT012  the block's end
        for record in consumer:
            if record.value == 2:
                raise Unlucky
    with consumer_of(bootstrap, moldau_topic) as again:
        assert [record.value for record in again.records(limit=2)] == [2, 3]


def test_a_record_at_which_a_loop_breaks_is_handled(bootstrap: str, moldau_topic: str) -> None:
    send(bootstrap, moldau_topic, 1, 2)
    with consumer_of(bootstrap, moldau_topic) as consumer:
        for record in consumer:
            assert record.value == 1
            break
    assert Admin(bootstrap).group_offsets(moldau_topic) == {(moldau_topic, 0): 1}


def test_an_explicit_commit_includes_the_record_at_hand(bootstrap: str, moldau_topic: str) -> None:
    send(bootstrap, moldau_topic, 1, 2)
    with consumer_of(bootstrap, moldau_topic, auto_commit=False) as consumer:
        for record in consumer:
            if record.value == 1:
                consumer.commit()
                assert consumer.committed() == {(moldau_topic, 0): 1}
            else:
                break
    assert Admin(bootstrap).group_offsets(moldau_topic) == {(moldau_topic, 0): 1}


def test_a_batch_counts_as_handled_together(bootstrap: str, moldau_topic: str) -> None:
    send(bootstrap, moldau_topic, *range(10))
    seen: list[object] = []
    with consumer_of(bootstrap, moldau_topic) as consumer:
        while len(seen) < 10:
            seen += [record.value for record in consumer.batch(4, timeout_s=5)]
        assert consumer.lag() == {(moldau_topic, 0): 0}
    assert seen == list(range(10))


def test_a_stop_from_another_thread_ends_the_loop(bootstrap: str, moldau_topic: str) -> None:
    send(bootstrap, moldau_topic, 1)
    with consumer_of(bootstrap, moldau_topic) as consumer:
        for _record in consumer:
            threading.Timer(0.05, consumer.stop).start()
    assert Admin(bootstrap).group_offsets(moldau_topic) == {(moldau_topic, 0): 1}


def test_a_handler_is_tried_again_and_then_the_record_is_a_dead_letter(bootstrap: str, moldau_topic: str) -> None:
    send(bootstrap, moldau_topic, "good", "once", "never")
    tries: list[object] = []

    def handle(record: Record[bytes, object]) -> None:
        tries.append(record.value)
        if record.value == "never" or (record.value == "once" and tries.count("once") == 1):
            raise Unlucky(f"no {record.value}")

    with consumer_of(bootstrap, moldau_topic) as consumer:
        counts = consumer.run(handle, retries=2, backoff_s=0.001, dead_letters=f"{moldau_topic}.dead", limit=3)
    assert (counts.handled, counts.retried, counts.dead) == (2, 3, 1)
    assert tries == ["good", "once", "once", "never", "never", "never"]
    with SimpleConsumer(f"{moldau_topic}.dead", bootstrap=bootstrap, value=JSON) as log:
        [letter] = log.to_end()
    assert letter.value == "never"
    assert letter.header("moldau.dlq.offset") == b"2"
    assert letter.header("moldau.dlq.reason") == b"Unlucky: no never"


def test_a_record_may_be_tried_for_ever() -> None:
    retries = Retries(sys.maxsize, 0.1, ())
    assert [retries.pause_s(LookupError(), tries) for tries in (1, 2, 5000, 10**9)] == [0.1, 0.2, 10.0, 10.0]


def test_a_reason_that_is_not_utf_8_keeps_no_record_from_being_a_dead_letter(bootstrap: str, moldau_topic: str) -> None:
    def handle(_: Record[bytes, bytes]) -> None:
        raise LookupError("file \udcff is gone")

    letters = f"{moldau_topic}.letters"
    with Producer(bootstrap) as producer:
        producer.send(moldau_topic, "one")
    with Consumer(moldau_topic, group_id=moldau_topic, bootstrap=bootstrap) as consumer:
        assert consumer.run(handle, retries=0, dead_letters=letters, limit=1).dead == 1
    with SimpleConsumer(letters, 0, "earliest", bootstrap=bootstrap) as log:
        [letter] = log.to_end()
    assert letter.header("moldau.dlq.reason") == rb"LookupError: file \udcff is gone"


def test_a_record_that_cannot_be_read_is_a_dead_letter_that_redrive_sends_back(
    bootstrap: str, moldau_topic: str, tmp_path: Path
) -> None:
    dead = f"{moldau_topic}.dead"
    with Producer(bootstrap) as producer:
        producer.send(moldau_topic, "{broken", key="k", headers={"mine": "1"})
    with consumer_of(bootstrap, moldau_topic) as consumer:
        counts = consumer.run(lambda _record: None, dead_letters=dead, limit=1)
    assert counts.dead == 1
    spec: PipelineSpec = pipeline(storage=tmp_path, bootstrap=bootstrap, dead_letters=dead)
    assert redrive(spec).sent == {moldau_topic: 1}
    with SimpleConsumer(moldau_topic, 0, 1, bootstrap=bootstrap) as log:
        [record] = log.to_end()
    assert (record.key, record.value, record.header("mine")) == (b"k", b"{broken", b"1")
    assert record.header("moldau.dlq.attempts") == b"1"


def test_a_record_with_a_header_whose_name_is_no_text_is_a_dead_letter(bootstrap: str, moldau_topic: str) -> None:
    """confluent-kafka's list of headers has null pointers then, and ends the process."""
    dead = f"{moldau_topic}.dead"
    for _ in range(10):
        send(bootstrap, moldau_topic, 1)
    produce_broken_header(bootstrap, moldau_topic, b"2")
    produce_broken_header(bootstrap, moldau_topic, b"3")
    with consumer_of(bootstrap, moldau_topic) as consumer:
        counts = consumer.run(lambda _record: None, dead_letters=dead, limit=12)
    assert (counts.handled, counts.dead) == (10, 2)
    with SimpleConsumer(dead, bootstrap=bootstrap, value=JSON) as log:
        letters = list(log.to_end())
    assert [letter.value for letter in letters] == [2, 3]
    assert "the name of a header is no UTF-8" in str(letters[0].header("moldau.dlq.reason"))


def test_without_a_topic_for_dead_letters_the_error_is_raised_and_the_record_kept(
    bootstrap: str, moldau_topic: str
) -> None:
    send(bootstrap, moldau_topic, 1)

    def handle(_record: object) -> None:
        raise Unlucky

    with consumer_of(bootstrap, moldau_topic) as consumer:
        with pytest.raises(Unlucky):
            consumer.run(handle, retries=0)
        assert [record.value for record in consumer.records(limit=1)] == [1]


def test_a_simple_consumer_says_what_is_wrong(bootstrap: str, moldau_topic: str) -> None:
    send(bootstrap, moldau_topic, 1, 2)
    with pytest.raises(ClientError, match="has no partition 7: it has 1"):
        SimpleConsumer(moldau_topic, 7, bootstrap=bootstrap)
    with pytest.raises(ValueError, match="start is an offset"):
        SimpleConsumer(moldau_topic, 0, "newest", bootstrap=bootstrap)  # type: ignore[arg-type]  # the test
    with (
        SimpleConsumer(moldau_topic, 0, 99, bootstrap=bootstrap) as log,
        pytest.raises(ClientError, match="offset 99 is not in the log, which has offsets from 0 up to 2") as caught,
    ):
        log.fetch(timeout_s=30)
    assert caught.value.code == "OFFSET_OUT_OF_RANGE"


def test_a_topic_that_exists_or_is_missing_is_told_by_kafkas_name(bootstrap: str, moldau_topic: str) -> None:
    with Admin(bootstrap) as admin:
        assert admin.create_topic(moldau_topic)
        assert not admin.create_topic(moldau_topic, exist_ok=True)
        with pytest.raises(ClientError, match="exists already") as caught:
            admin.create_topic(moldau_topic)
        assert caught.value.code == "TOPIC_ALREADY_EXISTS"
        with pytest.raises(ClientError) as missing:
            admin.describe_topic("nobody-made-it")
        assert missing.value.code == "UNKNOWN_TOPIC_OR_PART"


WORKER = """
import sys
from moldau import Consumer

def handle(record):
    print(record.offset, flush=True)

with Consumer(sys.argv[1], group_id=sys.argv[1], bootstrap=sys.argv[2]) as consumer:
    print(consumer.run(handle), flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_ends_a_loop_after_the_record_at_hand(bootstrap: str, moldau_topic: str, number: int) -> None:
    send(bootstrap, moldau_topic, 1, 2)
    with subprocess.Popen(
        [sys.executable, "-c", WORKER, moldau_topic, bootstrap], stdout=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stdout is not None
        assert [worker.stdout.readline() for _ in range(2)] == ["0\n", "1\n"]
        os.kill(worker.pid, number)
        assert worker.stdout.read() == "Handled(handled=2, retried=0, dead=0)\n"
    assert worker.returncode == 0
    assert Admin(bootstrap).group_offsets(moldau_topic) == {(moldau_topic, 0): 2}
