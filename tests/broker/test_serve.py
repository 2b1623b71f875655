"""`moldau serve` as a process: what it says, what it takes, what it refuses, and how it ends."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it re-exports without saying so
    AdminClient,
    ConfigResource,
)

from moldau.broker.main import argument_parser, chosen_properties, warn_of_message_format
from moldau.core.broker_config import BrokerConfig
from moldau.core.listeners import Listener
from moldau.protocol.apis import FETCH
from moldau.protocol.codec import encode
from moldau.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.testing.ports import free_ports
from tests.broker.raw import RawClient, request_frame
from tests.serving import STOP_TIMEOUT_S, UNWATCHED, Serving, serving

TIMEOUT_S = 20.0
USAGE_ERROR, START_ERROR = 2, 1


def refused(*arguments: object) -> tuple[int, str]:
    """Exit code and complaint of a broker that must not start."""
    command = [sys.executable, "-m", "moldau", "serve", "--log-level", "error", *UNWATCHED, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=STOP_TIMEOUT_S, check=False)
    assert done.stdout == ""
    return done.returncode, done.stderr


def produce(bootstrap: str, count: int = 1) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for _ in range(count):
        producer.produce("events", b"v", partition=0)
    assert producer.flush(TIMEOUT_S) == 0


def end_offset(bootstrap: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none"})
    _, end = consumer.get_watermark_offsets(TopicPartition("events", 0), TIMEOUT_S)
    consumer.close()
    return int(end)


def told_address(bootstrap: str) -> str:
    """Where the broker says it is."""
    [broker] = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=TIMEOUT_S).brokers.values()
    return f"{broker.host}:{broker.port}"


def config_of(bootstrap: str, broker_id: int) -> dict[str, str | None]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [future] = admin.describe_configs([ConfigResource(ConfigResource.Type.BROKER, str(broker_id))]).values()
    return {name: entry.value for name, entry in future.result(TIMEOUT_S).items()}


def addresses(server: Serving) -> dict[str, str]:
    """Address by listener name, from the ready line."""
    return dict(re.findall(r"([A-Z_]+)://([^\s,]+)", server.ready_line))


# What it says and takes


def test_one_line_says_ready_and_where(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as server:
        assert re.fullmatch(r"moldau: broker \d+ is ready at PLAINTEXT://localhost:\d+\n", server.ready_line)
        produce(server.bootstrap)
        assert server.stop() == 0
        assert server.process.stdout is not None
        assert server.process.stdout.read() == b""


def test_without_a_file_a_broker_listens_on_loopback_and_keeps_no_first_consumer_waiting(tmp_path: Path) -> None:
    chosen = chosen_properties(argument_parser().parse_args([]))
    assert BrokerConfig.parse(chosen)[0].listeners == (Listener("PLAINTEXT", "localhost", 9092, "PLAINTEXT"),)
    assert chosen["group.initial.rebalance.delay.ms"] == "0"
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=2\n")
    assert chosen_properties(argument_parser().parse_args([str(file)])) == {"num.partitions": "2"}


def test_a_properties_file_has_kafkas_names_and_overrides_win(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("# a broker\nbroker.id=7\nnum.partitions : 3\nlog.retention.hours=5\nlog.segment.bytes=5000000\n")
    with serving(tmp_path / "data", str(file), "--override", "log.segment.bytes=6000000") as server:
        config = config_of(server.bootstrap, 7)
        assert (config["num.partitions"], config["log.retention.hours"]) == ("3", "5")
        assert config["log.segment.bytes"] == "6000000"
        assert config["log.dirs"] == str(tmp_path / "data")
        assert "broker 7 is ready" in server.ready_line


def test_an_unknown_property_is_warned_of_by_name(tmp_path: Path) -> None:
    with serving(tmp_path / "data", "--override", "num.partions=3") as server:
        warnings = [line for line in server.log.splitlines() if "WARNING" in line]
        assert len(warnings) == 1
        assert "num.partions" in warnings[0]


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("num.partitions=many", "num.partitions"),
        ("log.segment.bytes=-1", "log.segment.bytes"),
        ("log.cleanup.policy=burn", "log.cleanup.policy"),
        ("listeners=PLAINTEXT//nowhere", "listeners"),
        ("advertised.listeners=OTHER://here:1", "advertised.listeners"),
        ("log.flush.policy=never", "log.flush.policy"),
        ("listeners=SASL_SSL://localhost:0", "listeners"),
        ("authorizer.class.name=org.example.Authorizer", "authorizer.class.name"),
        ("num.partitions", "--override"),
    ],
)
def test_a_bad_value_is_refused_in_one_line_that_names_it(tmp_path: Path, override: str, named: str) -> None:
    code, complaint = refused("--data", tmp_path / "data", "--override", override)
    assert code == USAGE_ERROR
    assert complaint.startswith("moldau serve: ")
    assert complaint.count("\n") == 1
    assert named in complaint
    assert not (tmp_path / "data").exists()


def test_a_properties_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    code, complaint = refused(tmp_path / "no.properties", "--data", tmp_path / "data")
    assert code == USAGE_ERROR
    assert "no.properties" in complaint
    assert complaint.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--overide a=b", "did you mean --override?"),
        ("--port many", "argument --port: invalid int value"),
        ("--brokers 0", "from 1 to 100"),
        ("--brokers 99999", "from 1 to 100"),
        ("--state-change-log /no/such/directory/file", "/no/such/directory/file: No such file or directory"),
        ("/no/such/file", "/no/such/file: No such file or directory"),
    ],
)
def test_a_wrong_word_is_refused_without_a_page_of_usage(tmp_path: Path, words: str, said: str) -> None:
    code, complaint = refused("--data", tmp_path / "data", "--port", "0", *words.split())
    assert code == USAGE_ERROR
    assert said in complaint
    assert complaint.count("\n") <= 2
    assert "Traceback" not in complaint


# Who else is there


def test_a_second_broker_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as server:
        produce(server.bootstrap)
        code, complaint = refused("--data", tmp_path / "data", "--port", 0)
        assert (code, complaint.count("\n")) == (START_ERROR, 1)
        assert f"{tmp_path / 'data'} is in use by another broker" in complaint
        produce(server.bootstrap)
        assert end_offset(server.bootstrap) == 2


def test_a_port_in_use_is_refused_and_the_directory_is_left_usable(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, complaint = refused("--data", tmp_path / "data", "--host", "127.0.0.1", "--port", port)
    assert (code, complaint.count("\n")) == (START_ERROR, 1)
    assert str(port) in complaint
    assert "in use" in complaint
    with serving(tmp_path / "data") as server:
        produce(server.bootstrap)


def test_a_directory_of_another_broker_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path / "data", "--override", "broker.id=1") as server:
        assert server.stop() == 0
    code, complaint = refused("--data", tmp_path / "data", "--port", 0, "--override", "broker.id=2")
    assert (code, complaint.count("\n")) == (START_ERROR, 1)
    assert "broker.id 1" in complaint


def test_a_data_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, complaint = refused("--data", tmp_path / "file" / "data", "--port", 0)
    assert code == START_ERROR
    last = complaint.splitlines()[-1]
    assert "Not a directory" in last
    assert str(tmp_path / "file" / "data") in last


# How it ends


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly_and_the_next_start_checks_nothing(tmp_path: Path, number: signal.Signals) -> None:
    data = tmp_path / "data"
    with serving(data) as server:
        assert not (data / ".kafka_cleanshutdown").exists()
        produce(server.bootstrap, 100)
        server.process.send_signal(number)
        assert server.process.wait(STOP_TIMEOUT_S) == 0
    assert (data / ".kafka_cleanshutdown").exists()
    checked = len(server.log)
    with serving(data) as again:
        assert "had no clean shutdown" not in again.log[checked:]
        assert not (data / ".kafka_cleanshutdown").exists()
        assert end_offset(again.bootstrap) == 100


def test_after_a_kill_the_next_start_checks_and_says_so(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as server:
        produce(server.bootstrap, 100)
        server.kill()
    assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    with serving(tmp_path / "data") as again:
        assert "had no clean shutdown" in again.log
        assert end_offset(again.bootstrap) == 100


def test_a_topic_made_anew_under_an_old_name_keeps_its_records_after_a_kill(tmp_path: Path) -> None:
    """Its predecessor began at offset 50, and the checkpoints still say so."""
    with serving(tmp_path / "data") as server:
        produce(server.bootstrap, 50)
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        admin.delete_records([TopicPartition("events", 0, 50)])[TopicPartition("events", 0)].result(TIMEOUT_S)
        assert server.stop() == 0
    with serving(tmp_path / "data") as server:
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        admin.delete_topics(["events"])["events"].result(TIMEOUT_S)
        produce(server.bootstrap, 10)
        server.kill()
    with serving(tmp_path / "data") as again:
        consumer = Consumer({"bootstrap.servers": again.bootstrap, "group.id": "none"})
        assert consumer.get_watermark_offsets(TopicPartition("events", 0), TIMEOUT_S) == (0, 10)
        consumer.close()


def test_it_ends_while_a_client_waits_for_an_answer(tmp_path: Path) -> None:
    """A fetch that may wait for an hour does not hold up the end."""
    partition = FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1000)
    topic = FetchTopic(topic="events", partitions=[partition])
    fetch = FetchRequest(max_wait_ms=3_600_000, min_bytes=1, max_bytes=1000, topics=[topic])
    with serving(tmp_path / "data") as server, RawClient(server.bootstrap) as waiting:
        produce(server.bootstrap)
        waiting.send(request_frame(FETCH, 4, encode(fetch, 4)))
        end_offset(server.bootstrap)  # by now the fetch has been taken up
        assert server.stop() == 0
        assert waiting.is_closed_by_the_broker()


# Where it listens


def test_it_listens_on_ipv6(tmp_path: Path) -> None:
    with serving(tmp_path / "data", "--host", "::1") as server:
        assert re.fullmatch(r"\[::1\]:\d+", addresses(server)["PLAINTEXT"])
        produce(addresses(server)["PLAINTEXT"])
        assert told_address(addresses(server)["PLAINTEXT"]) == f"::1:{server.port}"


def test_without_a_host_it_listens_everywhere(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with serving(tmp_path / "data", "--override", f"listeners=PLAINTEXT://:{port}"):
        produce(f"127.0.0.1:{port}")
        produce(f"[::1]:{port}")


def test_every_client_is_told_the_address_of_the_listener_it_came_through(tmp_path: Path) -> None:
    listeners = "listeners=PLAINTEXT://127.0.0.1:0,INSIDE://127.0.0.2:0,SIX://[::1]:0"
    names = "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT,SIX:PLAINTEXT"
    inter = "inter.broker.listener.name=INSIDE"
    with serving(tmp_path / "data", *overrides(listeners, names, inter)) as server:
        found = addresses(server)
        assert found.keys() == {"PLAINTEXT", "INSIDE", "SIX"}
        for address in found.values():
            assert told_address(address) == address.replace("[", "").replace("]", "")
            produce(address)
        assert end_offset(found["INSIDE"]) == 3


def test_clients_are_told_the_advertised_address(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    listeners = (f"listeners=PLAINTEXT://127.0.0.1:{port}", "advertised.listeners=PLAINTEXT://kafka.example.org:1234")
    with serving(tmp_path / "data", *overrides(*listeners)) as server:
        assert addresses(server)["PLAINTEXT"] == f"127.0.0.1:{port}"
        assert told_address(f"127.0.0.1:{port}") == "kafka.example.org:1234"


def test_the_flag_wins_over_the_listeners_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("listeners=PLAINTEXT://127.0.0.2:1\nadvertised.listeners=PLAINTEXT://elsewhere:1\n")
    with serving(tmp_path / "data", str(file), "--host", "127.0.0.1", "--port", "0") as server:
        assert told_address(server.bootstrap) == server.bootstrap


def overrides(*pairs: str) -> list[str]:
    return [word for pair in pairs for word in ("--override", pair)]


def test_many_descriptors_are_allowed(tmp_path: Path) -> None:
    """The soft limit of a shell is too low for a broker."""
    with serving(tmp_path / "data") as server:
        limits = Path(f"/proc/{server.process.pid}/limits").read_text()
        soft, hard = re.findall(r"Max open files +(\S+) +(\S+)", limits)[0]
        assert soft == hard
        assert os.path.exists(tmp_path / "data" / "meta.properties")


@pytest.mark.parametrize(
    ("version", "is_told"), [("0.8.2", True), ("0.10.2-IV0", True), ("0.11.0", False), ("3.0", False)]
)
def test_who_wants_an_older_message_format_is_told_what_is_stored(
    version: str, is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    config, _ = BrokerConfig.parse({"log.message.format.version": version})
    warn_of_message_format(config)
    assert ("version 2" in caplog.text) == is_told
