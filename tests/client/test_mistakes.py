"""What a hurried programmer does wrong: told at once, in words, and nothing hangs."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import moldau
from moldau import Admin, ClientError, Consumer, Producer, SimpleConsumer
from moldau.client.settings import is_idempotent
from moldau.logging import KafkaHandler

CHILD_ENDS_S = 20.0

Make = Callable[[Any], object]
MAKERS: Mapping[str, Make] = {
    "producer": Producer,
    "consumer": lambda bootstrap: Consumer("visits", group_id="clerks", bootstrap=bootstrap),
    "simple consumer": lambda bootstrap: SimpleConsumer("visits", bootstrap=bootstrap),
    "admin": Admin,
    "handler": lambda bootstrap: KafkaHandler(bootstrap, "logs"),
}


# --- brokers ---


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("bootstrap", ["", " ", [], [""], ["a:1", None], 9092])
def test_what_names_no_broker_is_a_value_error(make: Make, bootstrap: object) -> None:
    with pytest.raises(ValueError, match="bootstrap is 'HOST:PORT', or a list of these"):
        make(bootstrap)


def test_brokers_may_be_a_list(bootstrap: str, moldau_topic: str) -> None:
    with Producer(["127.0.0.1:1", bootstrap]) as producer:
        assert producer.send_and_wait(moldau_topic, "x").offset == 0
    with Admin([bootstrap]) as admin:
        assert moldau_topic in admin.topics()
    handler = KafkaHandler([bootstrap], moldau_topic)
    handler.close()


# --- arguments ---


@pytest.mark.parametrize("acks", [5, "none", True])
def test_an_acks_that_there_is_not_is_a_value_error(acks: Any) -> None:
    with pytest.raises(ValueError, match="acks is"):
        Producer("127.0.0.1:1", acks=acks)


@pytest.mark.parametrize(
    ("properties", "is_so"),
    [
        ({}, True),
        ({"acks": "all", "retries": 3}, True),
        ({"acks": -1, "max.in.flight": 5}, True),
        ({"acks": 1}, False),
        ({"request.required.acks": "0"}, False),
        ({"retries": 0}, False),
        ({"message.send.max.retries": "0"}, False),
        ({"max.in.flight.requests.per.connection": 6}, False),
    ],
)
def test_properties_that_exclude_idempotence_do_without_it(
    bootstrap: str, properties: dict[str, Any], is_so: bool
) -> None:
    """librdkafka refuses the pair; Java's producer leaves out what nobody has asked for."""
    assert is_idempotent(properties) is is_so
    Producer(bootstrap, properties=properties).close()
    asked = {**properties, "enable.idempotence": True}
    if is_so:
        Producer(bootstrap, properties=asked).close()
    else:
        with pytest.raises(ValueError, match="idempotence"):
            Producer(bootstrap, properties=asked)


def test_topics_in_a_list_are_told_how_to_be_named() -> None:
    with pytest.raises(TypeError, match="named one by one"):
        Consumer(["visits", "orders"], group_id="clerks", bootstrap="127.0.0.1:1")  # type: ignore[arg-type]  # the test


@pytest.mark.parametrize("number", ["partitions", "replication_factor"])
def test_a_topic_with_none_of_something_is_not_one_with_the_brokers_choice(
    bootstrap: str, moldau_topic: str, number: str
) -> None:
    with Admin(bootstrap) as admin:
        with pytest.raises((ValueError, ClientError)):
            admin.create_topic(moldau_topic, **{number: 0})  # type: ignore[arg-type]  # the test
        assert moldau_topic not in admin.topics()


def test_to_read_on_from_past_the_end_is_an_error(bootstrap: str, moldau_topic: str) -> None:
    with Producer(bootstrap) as producer:
        producer.send_and_wait(moldau_topic, "x")
    with SimpleConsumer(moldau_topic, 0, 1, bootstrap=bootstrap) as log:
        assert list(log.to_end()) == []
    with SimpleConsumer(moldau_topic, 0, 99, bootstrap=bootstrap) as log:
        with pytest.raises(ClientError, match="offset 99 is not in the log, which has offsets from 0 up to 1") as told:
            list(log.to_end())
        assert told.value.code == "OFFSET_OUT_OF_RANGE"


def test_to_read_on_from_behind_an_open_transaction_is_no_error(bootstrap: str, moldau_topic: str) -> None:
    with Producer(bootstrap, transactional_id=moldau_topic) as producer, producer.transaction():
        sent = producer.send_and_wait(moldau_topic, "x")
        with SimpleConsumer(moldau_topic, 0, sent.offset + 1, bootstrap=bootstrap) as log:
            assert log.ends().latest == 0
            assert list(log.to_end()) == []


# --- forked processes ---

FORK = """
import os, sys
from moldau import Admin, ClientError, Consumer, Producer, SimpleConsumer

bootstrap, topic, kind = sys.argv[1:]

def use(client):
    calls = {
        "producer": lambda: client.send(topic, "x"),
        "transaction": lambda: client.send(topic, "x"),
        "consumer": lambda: client.poll(1),
        "simple": lambda: client.fetch(),
        "admin": lambda: client.describe_topic(topic),
    }
    return calls[kind]()

def told(client):
    try:
        use(client)
    except ClientError as error:
        print(error, flush=True)

def fork(client):
    use(client)
    if os.fork() == 0:
        told(client)
        sys.exit(7)  # through the ends of all `with` blocks
    _, status = os.wait()
    print(os.waitstatus_to_exitcode(status), flush=True)
    use(client)

if kind == "producer":
    with Producer(bootstrap) as client:
        fork(client)
elif kind == "transaction":
    with Producer(bootstrap, transactional_id=topic) as client, client.transaction():
        fork(client)
elif kind == "consumer":
    with Consumer(topic, group_id=topic, bootstrap=bootstrap) as client:
        fork(client)
elif kind == "simple":
    with SimpleConsumer(topic, bootstrap=bootstrap) as client:
        fork(client)
else:
    fork(Admin(bootstrap))
"""


@pytest.mark.parametrize("kind", ["producer", "transaction", "consumer", "simple", "admin"])
def test_a_forked_child_is_told_to_make_a_client_of_its_own_and_can_end(
    bootstrap: str, moldau_topic: str, kind: str, tmp_path: Path
) -> None:
    """librdkafka's threads are not in the child: it sent nothing without a word, and its end waited for them."""
    Admin(bootstrap).create_topic(moldau_topic)
    said = tmp_path / "said"
    with said.open("w") as file:  # no pipe: a child that hangs would keep it open
        program = subprocess.Popen(
            [sys.executable, "-c", FORK, bootstrap, moldau_topic, kind], stdout=file, start_new_session=True
        )
        try:
            program.wait(CHILD_ENDS_S)
        finally:
            if program.poll() is None:
                os.killpg(program.pid, 9)
                program.wait()
    noun = {"simple": "consumer", "transaction": "producer"}.get(kind, kind)
    assert said.read_text() == f"a forked process cannot use the {noun} of its parent: make one there\n7\n"
    assert program.returncode == 0


def test_a_child_may_make_its_own(bootstrap: str, moldau_topic: str) -> None:
    with Producer(bootstrap) as producer:
        producer.send_and_wait(moldau_topic, "parent")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with Producer(bootstrap) as own:
                    code = 0 if own.send_and_wait(moldau_topic, "child").offset == 1 else 2
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert producer.send_and_wait(moldau_topic, "parent").offset == 2
    with moldau.SimpleConsumer(moldau_topic, bootstrap=bootstrap) as log:
        assert [record.value for record in log.to_end()] == [b"parent", b"child", b"parent"]
