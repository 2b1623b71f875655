"""Groups: their lag, and offsets that are reset after a look at what would change."""

import shlex
from pathlib import Path
from urllib.parse import quote

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from moldau.console.cluster import scrapes
from moldau.core import group_status
from moldau.handlers import k09_offset_fetch
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k09_offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from moldau.testing import broker
from moldau.testing.brokers import BrokerInThread
from tests.console.consoles import Asking, asking

TOPIC, GROUP = "orders", "billing/eu"
PATH = "/groups/billing%2Feu"


def commit(kafka: BrokerInThread, group: str, *offsets: TopicPartition) -> None:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group, "log_level": 0})
    consumer.commit(offsets=list(offsets), asynchronous=False)
    consumer.close()


@pytest.fixture(scope="module", autouse=True)
def _orders(kafka: BrokerInThread, producer: Producer, console: Asking) -> None:
    for number in range(20):
        producer.produce(TOPIC, str(number).encode(), partition=number % 2)
    producer.flush(10)
    commit(kafka, GROUP, TopicPartition(TOPIC, 0, 4))
    console.look()


def test_a_group_shows_its_lag_where_it_has_committed(console: Asking) -> None:
    told = console.json(PATH)
    assert told["group"]["lag"] == 6
    assert [(each["partition"], each["committed"], each["lag"]) for each in told["lags"]] == [(0, 4, 6)]
    assert "there is no group" in console.json("/groups/nobody", 404)["error"]
    topic = next(row for row in console.json("/topics")["rows"] if row.get("name") == TOPIC)
    assert (topic["groups"], topic["lag"]) == ([GROUP], 6)


def test_lag_grows_and_shrinks_and_is_kept_over_time(
    kafka: BrokerInThread, producer: Producer, console: Asking
) -> None:
    producer.produce(TOPIC, b"more", partition=0)
    producer.flush(10)
    console.look()
    assert console.json(PATH)["group"]["lag"] == 7
    commit(kafka, GROUP, TopicPartition(TOPIC, 0, 10))
    console.look()
    told = console.json(PATH)
    assert told["group"]["lag"] == 1
    assert told["lags"][0]["seconds"] is not None, "the end was seen to pass the committed offset"
    page = console.page(PATH)
    assert "<svg" in page
    (series,) = (each for each in told["series"] if each["title"] == "Lag in records")
    assert [lag for _, lag in series["points"]][-1] == 1
    assert "As a table" in page


def test_a_reset_shows_a_table_first_and_changes_nothing_by_it(kafka: BrokerInThread, console: Asking) -> None:
    commit(kafka, GROUP, TopicPartition(TOPIC, 0, 10))
    console.look()
    plan = console.json(f"{PATH}/reset?topic={TOPIC}&to=shift&value=-3")
    assert [(row["partition"], row["from"], row["to"]) for row in plan["rows"]] == [(0, 10, 7), (1, None, 0)]
    console.look()
    assert console.json(PATH)["lags"][0]["committed"] == 10
    console.post(f"{PATH}/reset", {"topic": TOPIC, "offsets": plan["offsets"]})
    assert [each["committed"] for each in console.json(PATH)["lags"]] == [7, 0]


@pytest.mark.parametrize(
    ("way", "value", "offsets"),
    [
        ("earliest", "", "0:0,1:0"),
        ("latest", "", "0:11,1:10"),
        ("offset", "999", "0:11,1:10"),
        ("time", "0", "0:0,1:0"),
    ],
)
def test_each_way_of_resetting_stays_inside_the_partition(console: Asking, way: str, value: str, offsets: str) -> None:
    assert console.json(f"{PATH}/reset?topic={TOPIC}&to={way}&value={value}")["offsets"] == offsets


@pytest.mark.parametrize("name", ["two\nlines\r", "billing/eu/reset", "/", "?#&", "\u202e<script>"])
def test_a_group_of_any_name_has_its_page(kafka: BrokerInThread, console: Asking, name: str) -> None:
    commit(kafka, name, TopicPartition(TOPIC, 0, 3))
    console.look()
    path = f"/groups/{quote(name, safe='')}"
    assert f'href="{path}"' in console.page("/groups")
    assert console.json(path)["group"]["id"] == name
    plan = console.json(f"{path}/reset?topic={TOPIC}&to=latest")
    console.post(f"{path}/reset", {"topic": TOPIC, "offsets": plan["offsets"]})
    assert console.json(path)["group"]["lag"] == 0


def test_a_group_that_goes_back_is_a_problem_with_a_command_for_a_shell(kafka: BrokerInThread, console: Asking) -> None:
    name = "it's; reboot"
    for offset in (8, 2):
        commit(kafka, name, TopicPartition(TOPIC, 0, offset))
        console.look()
    told = next(each for each in console.json("/")["problems"] if name in each["what"])
    assert "has gone back" in told["what"]
    assert shlex.split(told["command"]) == ["moldau", "groups", "describe", "--group", name]


def test_a_group_that_is_behind_is_not_said_to_keep_up_before_it_is_known(
    kafka: BrokerInThread, console: Asking
) -> None:
    """A console that has just started sees every commit for the first time, however old it is."""
    commit(kafka, "silent", TopicPartition(TOPIC, 0, 1))
    console.look()
    told = console.json("/groups/silent")
    assert (told["group"]["rule"], told["group"]["words"]) == ("unknown", "not known yet")
    assert not [each for each in console.json("/")["problems"] if "silent" in each["what"]]
    commit(kafka, "silent", TopicPartition(TOPIC, 0, 2))
    console.look()
    assert console.json("/groups/silent")["group"]["words"] == "keeps up"


def test_the_status_of_a_group_is_the_one_that_its_coordinator_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the time of the commit, and knows at once that nothing came for a minute."""
    monkeypatch.setattr(group_status, "STOPPED_MS_MIN", -1)
    with broker({"metrics.listener": "127.0.0.1:0"}) as kafka:
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
        producer.produce(TOPIC, b"value")
        assert producer.flush(10) == 0
        commit(kafka, "silent", TopicPartition(TOPIC, 0, 0))
        told = scrapes.scrape({1: str(kafka.broker.metrics_address)}, {})
        assert told.rules == {("silent", TOPIC, 0): "stop"}
        monkeypatch.undo()
        monkeypatch.setattr(scrapes, "scrape", lambda *_: told)
        with asking(kafka.bootstrap, tmp_path) as console:
            assert console.json("/groups/silent")["lags"][0]["rule"] == "stop"
            assert any("group silent has stopped" in each["what"] for each in console.json("/")["problems"])


def test_a_reset_with_mistakes_is_refused(console: Asking) -> None:
    assert "to is one of" in console.json(f"{PATH}/reset?topic={TOPIC}&to=tomorrow", 400)["error"]
    assert "whole number" in console.json(f"{PATH}/reset?topic={TOPIC}&to=offset&value=x", 400)["error"]
    assert "look at the table" in console.post(f"{PATH}/reset", {"topic": TOPIC}, 400)["error"]


def test_offsets_of_a_group_with_members_are_not_reset(kafka: BrokerInThread, console: Asking) -> None:
    member = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "busy", "auto.offset.reset": "earliest"})
    member.subscribe([TOPIC])
    assert member.poll(20) is not None
    console.look()
    told = console.json("/groups/busy")
    assert [each["partitions"] for each in told["members"]] == [2]
    refused = console.post("/groups/busy/reset", {"topic": TOPIC, "offsets": "0:1"}, 409)
    assert "stop them first" in refused["error"]
    member.close()


def test_a_coordinator_that_is_one_no_more_is_told_and_ends_nothing(
    kafka: BrokerInThread, console: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka's admin client ends the process then."""
    commit(kafka, "moving", TopicPartition(TOPIC, 0, 3))

    def refuse(group: OffsetFetchRequestGroup, *_: object) -> OffsetFetchResponseGroup:
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=ErrorCode.NOT_COORDINATOR)

    monkeypatch.setattr(k09_offset_fetch, "_group_answer", refuse)
    console.look()
    monkeypatch.undo()
    problems = [each["what"] for each in console.json("/")["problems"]]
    assert any("groups were not read: not coordinator" in each for each in problems), problems
    console.look()
    assert console.json("/groups/moving")["lags"][0]["committed"] == 3
