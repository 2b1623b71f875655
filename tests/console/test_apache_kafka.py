"""The console over Apache Kafka 4.3.1: a wire client, which asks for nothing that only our brokers have."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.console.consoles import Asking, asking
from tests.transaction_servers import server, until

pytestmark = pytest.mark.foreign

WAIT_S = 30.0
PAGES = ("/", "/topics", "/topics/orders", "/groups", "/clients", "/topology", "/letters", "/transactions")


@pytest.fixture(scope="module")
def bootstrap(kafka_classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with server("apache", kafka_classpath, tmp_path_factory.mktemp("kafka"), {}) as address:
        yield address


@pytest.fixture(scope="module")
def apache(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asking]:
    with asking(bootstrap, tmp_path_factory.mktemp("console")) as running:
        yield running


def test_a_topic_is_made_written_read_configured_grown_and_deleted(apache: Asking) -> None:
    apache.post("/topics", {"name": "made", "partitions": "2", "config": "retention.ms=100000"})
    apache.post("/topics/made/config", {"key": "cleanup.policy", "value": "compact"})
    apache.post("/topics/made/partitions", {"partitions": "3"})
    settings = {"retention.ms": "100000", "cleanup.policy": "compact"}

    def is_told() -> bool:  # a broker of Kafka tells what was changed a moment after it has said that it is
        told = apache.json("/topics/made")
        found = {each["name"]: each["value"] for each in told["settings"] if each["is_own"]}
        return (found, len(told["partitions"])) == (settings, 3)

    until(is_told)
    for number in range(3):
        apache.post("/topics/made/produce", {"key": "k", "value": f'{{"n": {number}}}', "headers": "h: 1"})
    found = apache.json('/topics/made/records?from=beginning&filter=value.n == 1 and headers.h == "1"')["records"]
    assert [each["offset"] for each in found] == [1]
    apache.post("/topics/made/replay", {"record": f"{found[0]['partition']}:1", "to": "made"})
    assert apache.json("/topics/made")["topic"]["offset_range"] == 4
    assert apache.json("/topics/made")["topic"]["size"] > 0, "sizes are asked for with requests of Kafka"
    apache.post("/topics/made/delete", {"typed": "made"})
    until(lambda: apache.client.get("/topics/made").status_code == 404)
    assert apache.json("/topics/made", 404)["error"]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_of_both_protocols_show_members_and_lag_and_are_reset(
    bootstrap: str, apache: Asking, protocol: str
) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(5):
        producer.produce("orders", str(number).encode(), partition=0)
    assert producer.flush(WAIT_S) == 0
    group = f"readers-{protocol}"
    settings = {"group.protocol": protocol, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "client.id": "reader", **settings})
    reader.subscribe(["orders"])
    assert reader.poll(WAIT_S) is not None
    reader.commit(offsets=[TopicPartition("orders", 0, 3)], asynchronous=False)
    apache.look()
    told = apache.json(f"/groups/{group}")
    assert [(each["client_id"], each["assignment"]) for each in told["members"]] == [("reader", ["orders-0"])]
    assert (told["group"]["kind"], told["lags"][0]["committed"]) == (protocol, 3)
    end = apache.json("/topics/orders")["partitions"][0]["end"]
    assert told["group"]["lag"] == end - 3
    refused = apache.post(f"/groups/{group}/reset", {"topic": "orders", "offsets": "0:1"}, 409)
    assert "has 1 member" in refused["error"]
    reader.close()
    apache.look()
    apache.post(f"/groups/{group}/reset", {"topic": "orders", "offsets": "0:1"})
    assert apache.json(f"/groups/{group}")["lags"][0]["committed"] == 1


def test_a_dead_letter_is_sent_back_once_and_a_transaction_aborted(bootstrap: str, apache: Asking) -> None:
    said = {"pipeline": "shop", "topic": "orders", "partition": "0", "offset": "4", "reason": "no JSON"}
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    headers: list[tuple[str, str | bytes | None]] = [(f"moldau.dlq.{name}", text) for name, text in said.items()]
    producer.produce("dead", b"letter", headers=headers)
    assert producer.flush(WAIT_S) == 0
    apache.look()
    assert [row["topic"] for row in apache.json("/letters")["rows"]] == ["dead"]
    assert apache.post("/letters/dead/redrive", {}) == {"done": "1 letter was sent back"}
    assert "nothing to send back" in apache.post("/letters/dead/redrive", {}, 409)["error"]
    slow = Producer({"bootstrap.servers": bootstrap, "transactional.id": "slow", "log_level": 0})
    slow.init_transactions(WAIT_S)
    slow.begin_transaction()
    slow.produce("orders", b"held", partition=0)
    assert slow.flush(WAIT_S) == 0
    apache.look()
    told = apache.json("/transactions")
    assert [each["transactional_id"] for each in told["open"]] == ["slow"]
    assert [(each["topic"], each["transactional_id"]) for each in told["blocked"]] == [("orders", "slow")]
    apache.post("/transactions/abort", {"transactional_id": "slow", "typed": "slow"})
    until(lambda: apache.json("/transactions")["open"] == [])  # the markers may be written a moment later


def test_every_page_answers_and_nothing_is_missing(apache: Asking) -> None:
    apache.look()
    for path in PAGES:
        assert "<h1>" in apache.page(path)
    assert not any("not read" in each["what"] or "not there" in each["what"] for each in apache.json("/")["problems"])
    assert apache.json("/clients")["has_metrics"] is False
