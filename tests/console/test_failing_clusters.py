"""A console whose cluster goes away, comes back, or was never there; and options that are mistyped."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import ListOffsetsResultInfo  # type: ignore[attr-defined]  # its stubs hide it

from moldau.cli.failures import ToolError
from moldau.console.cluster import collect
from moldau.console.cluster.collect import Look
from moldau.console.cluster.groups import GroupFacts, Groups
from moldau.console.cluster.history import Series
from moldau.console.cluster.offset_specs import told
from moldau.console.cluster.sampler import Memory
from moldau.console.cluster.state import BrokerState, PartitionState, Traffic
from moldau.console.records import letters, reading
from moldau.console.web import topics, transactions
from moldau.console.web.groups import catch_up
from moldau.testing import broker, cluster
from moldau.testing.brokers import BrokerInThread
from moldau.testing.ports import HOST, free_ports
from moldau.testing.proxy import Links
from tests.console.consoles import asking

PAGES = ("/", "/topics", "/topics/kept", "/groups", "/clients", "/topology", "/letters")


def test_pages_answer_while_the_cluster_is_away_and_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (topics, reading, collect):
        monkeypatch.setattr(module, "ASK_S" if module is collect else "REQUEST_S", 1.0)
    with broker() as kafka, asking(kafka.bootstrap, tmp_path) as console:
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
        producer.produce("kept", b"value")
        assert producer.flush(20) == 0
        console.look()
        kafka.stop()
        console.look()
        assert "does not answer" in console.json("/")["problems"][0]["what"]
        assert "kept" in console.page("/topics"), "what was seen last stays"
        assert "The cluster does not answer. What is below was seen at" in console.page("/topics")
        for path in PAGES:
            answer = console.client.get(path, headers={"Accept": "text/html"})
            assert answer.status_code in (200, 409, 504), path
            assert "Traceback" not in answer.text
        refused = console.client.get("/topics/kept/records?format=json")
        assert refused.status_code in (409, 504)
        assert refused.json()["error"]
        kafka.start()
        console.look()
        assert console.json("/")["problems"] == []
        assert "does not answer" not in console.page("/topics")


@pytest.mark.parametrize("place", ["a..b:9404", f"{'x' * 70}:9404", "\0:1"])
def test_metrics_at_an_address_that_none_can_be_are_none(kafka: BrokerInThread, tmp_path: Path, place: str) -> None:
    """The address is what some broker's configuration says."""
    with asking(kafka.bootstrap, tmp_path, metrics=(place,)) as console:
        assert console.json("/")["has_metrics"] is False


def test_a_look_that_fails_in_an_unexpected_way_is_not_the_last(
    kafka: BrokerInThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with asking(kafka.bootstrap, tmp_path) as console:

        def fail(_: Groups) -> None:
            raise ValueError("no such number")

        monkeypatch.setattr(Groups, "look", fail)
        console.look()
        assert "ValueError: no such number" in console.json("/")["problems"][0]["what"]
        monkeypatch.undo()
        console.look()
        assert console.json("/")["problems"] == []


def test_a_broker_that_is_silent_has_no_empty_topics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """librdkafka's admin client gives an offset and no error for a leader that has not answered."""
    links, (port,) = Links(), free_ports(1)
    listeners = {"listeners": f"PLAINTEXT://{HOST}:{port}"}
    seen = f"{HOST}:{links.open('broker', source='console')}"
    links.point("broker", port)
    with broker({**listeners, "advertised.listeners": f"PLAINTEXT://{seen}"}), asking(seen, tmp_path) as console:
        producer = Producer({"bootstrap.servers": seen, "log_level": 0})
        producer.produce("kept", b"value")
        assert producer.flush(20) == 0
        console.look()
        assert len(console.json("/topics/kept/records")["records"]) == 1
        monkeypatch.setattr(reading, "REQUEST_S", 1.0)
        monkeypatch.setattr(letters, "LOOK_S", 0.5)
        links.cut("console", "broker")
        assert "Timed out" in console.json("/topics/kept/records", 409)["error"]
        assert console.json("/letters")["unread"] == 1
        page = console.page("/letters")
        assert "1 topic was not looked at yet" in page
        assert "No topic has dead letters" not in page
        links.heal_all()
        assert console.json("/letters")["unread"] == 0
        assert "No topic has dead letters" in console.page("/letters")
    links.close()


def commit(kafka: BrokerInThread, group: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    producer.produce(topic, b"value")
    assert producer.flush(20) == 0
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group, "log_level": 0})
    consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    consumer.close()


def test_a_named_broker_that_hangs_hides_nothing_that_others_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka knows the others by then; raw requests ask them, too."""
    monkeypatch.setattr(collect, "ASK_S", 1.0)
    links = Links()
    named = f"{HOST}:{links.open('broker', source='console')}"
    with broker() as kafka:
        links.point("broker", int(kafka.bootstrap.rpartition(":")[2]))
        commit(kafka, "readers", "kept")
        with asking(named, tmp_path) as console:
            links.cut("console", "broker")
            console.look()
            assert console.json("/")["problems"] == []
            assert [row["id"] for row in console.json("/groups")["rows"]] == ["readers"]
    links.close()


def test_while_a_broker_is_away_the_others_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The leaders of two partitions of six do not answer."""
    monkeypatch.setattr(reading, "REQUEST_S", 1.0)
    with cluster(3, properties={"num.partitions": "6"}) as kafka, asking(kafka.bootstrap, tmp_path) as console:
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
        console.post("/topics", {"name": "kept", "partitions": "6", "replicas": "1"})
        for number in range(6):
            producer.produce("kept", str(number), partition=number)
        assert producer.flush(20) == 0
        leaders = {each["id"]: each["leader"] for each in console.json("/topics/kept")["partitions"]}
        lost = [number for number, leader in leaders.items() if leader == 3]
        assert len(lost) == 2
        kafka.kill(3)
        told = console.json("/topics/kept/records")
        assert sorted(each["partition"] for each in told["records"]) == sorted({*leaders} - {*lost})
        assert [each["partitions"] for each in told["unread"]] == [lost]
        assert f"Without partitions {lost[0]}, {lost[1]}:" in console.page("/topics/kept/records")
        told = console.json(f"/topics/kept/records?partition={lost[0]}", 409)
        assert told["error"]
        *lines, last = map(json.loads, console.client.get("/topics/kept/download?from=beginning").text.splitlines())
        assert len(lines) == 4
        assert last["unread"][0]["partitions"] == lost
        assert "2 partitions do not answer" in console.client.get("/topics/kept/events?stream=1").text


def test_transactions_of_a_broker_that_is_away_hide_no_others(
    kafka: BrokerInThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: object) -> None:
        raise ToolError("the broker at kafka-3:9092 does not answer")

    with asking(kafka.bootstrap, tmp_path) as console:
        assert console.json("/transactions")["complaints"] == []
        monkeypatch.setattr(transactions, "transactions_of", silent)
        (told,) = console.json("/transactions")["complaints"]
        assert "kafka-3:9092 does not answer" in told
        page = console.page("/transactions")
        assert "kafka-3:9092 does not answer" in page
        assert "Nobody waits" not in page


def test_an_offset_that_was_not_told_is_none() -> None:
    """As an end it would make every group keep up."""
    info = ListOffsetsResultInfo(OFFSET_INVALID, -1, -1)
    with pytest.raises(KafkaException):
        told(info)
    assert told(ListOffsetsResultInfo(7, -1, -1)) == 7
    assert told(ListOffsetsResultInfo(-1, -1, -1)) == -1, "of a time behind all records"


def test_a_console_of_an_address_where_nobody_is_says_so_on_its_page(tmp_path: Path) -> None:
    with asking("127.0.0.1:1", tmp_path) as console:
        assert "does not answer" in console.json("/")["problems"][0]["what"]
        for path in ("/topics", "/groups", "/topology"):
            assert console.json(path)["rows"] == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--port", "99999"), "is no port"),
        (("--port", "x"), "--port"),
        (("--sample-seconds", "0"), "from 0.1 to 3600"),
        (("--sample-seconds", "nan"), "from 0.1 to 3600"),
        (("--host", "0.0.0.0"), "add-user"),
        (("--host", "no such host"), "add-user"),
        (("--users", "/nowhere/users.json"), "cannot read the users"),
        (("--audit-log", "/proc/nowhere/audit"), "cannot write the audit log"),
        (("--metrics", "localhost:9404,:x"), ":x"),
        (("--metrics", "localhost:x"), "localhost:x"),
        (("--registry", "not a url"), "not a url"),
        (("--allowed-host", "https://console.example.com"), "--allowed-host is a name"),
        (("--bootstrap-server", "nohost"), "nohost"),
        (("--bootstrap-server", "host:99999999"), "99999999"),
    ],
)
def test_a_mistyped_option_is_refused_in_one_line(kafka: BrokerInThread, options: tuple[str, ...], words: str) -> None:
    place = ["--port", "0", "--bootstrap-server", kafka.bootstrap]
    command = [sys.executable, "-m", "moldau", "console", *place, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    said = [line for line in done.stderr.splitlines() if not line.startswith("`")]  # a parser names its help, too
    assert words in said[-1]


def test_groups_of_a_broker_that_is_away_are_kept_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with broker() as kafka, asking(kafka.bootstrap, tmp_path) as console:
        facts = GroupFacts("stable", "classic", "range", 1, (), {("t", 0): 5})

        def finds(groups: Groups) -> None:
            groups.found["readers"] = facts

        def finds_none(groups: Groups) -> None:
            groups.refused["those of broker 1"] = "it took too long"

        monkeypatch.setattr(Groups, "look", finds)
        console.look()
        monkeypatch.setattr(Groups, "look", finds_none)
        console.look()
        assert [row["id"] for row in console.json("/groups")["rows"]] == ["readers"]
        assert any("it took too long" in each["what"] for each in console.json("/")["problems"])
        monkeypatch.setattr(Groups, "look", lambda _: None)
        console.look()
        assert console.json("/groups")["rows"] == [], "all brokers answered: it is gone"


def test_a_broker_that_is_gone_is_missed_for_an_hour_and_longer_where_it_has_copies() -> None:
    memory = Memory()

    def missing(at_s: float, copies: tuple[int, ...], *brokers: int) -> tuple[int, ...]:
        known = {number: BrokerState(number, "kafka", 9092) for number in brokers}
        topics = {"kept": [PartitionState(0, 1, copies, (1,))]}
        look = Look("cluster", 1, known, topics, {}, Traffic(), ())
        return memory.take(look, int(1000 * at_s), 0.1).missing

    assert missing(0, (1,), 1, 2, 3) == ()
    assert missing(3599, (1,), 1, 2) == (3,)
    assert missing(3601, (1,), 1, 2) == (), "it is not coming back"
    assert missing(9000, (1, 3), 1, 2) == (3,)


@pytest.mark.parametrize(
    ("lags", "told"),
    [
        ((600, 540), "in about 1 min 30 s"),
        ((600, 600), "not in sight"),
        ((600, 660), "not in sight"),
        ((600,), "not known yet"),
        ((600, 0), "now"),
    ],
)
def test_the_time_to_catch_up_is_told_from_the_last_minute(lags: tuple[int, ...], told: str) -> None:
    """The looks are ten seconds apart."""
    series = Series()
    for number, lag in enumerate(lags):
        series.add(10.0 * number, lag)
    assert catch_up(series, lags[-1]) == told
