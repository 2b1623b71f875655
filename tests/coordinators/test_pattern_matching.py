"""A pattern over many topics takes its time, and holds nobody up; its members get their topics by and by."""

import pytest

from moldau.coordinators.consumer import matching_allowance
from moldau.coordinators.consumer.matching_allowance import ALLOWANCE_MS
from moldau.coordinators.consumer.subscriptions import COMPILED_REGEXES_MAX, compiled
from tests.coordinators.consumer_driver import Consumer, ConsumerDriver

TOPICS = {f"topic.{number:02}": 1 for number in range(20)}
ALL = {(name, 0) for name in TOPICS}
OF_A_TURN = 5
"""Topics that the allowance of these tests suffices for; the first time it is less, as characters are met first."""


@pytest.fixture(autouse=True)
def _little_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching_allowance, "ALLOWED_WORK", OF_A_TURN * len("topic.00"))


def subscriber(driver: ConsumerDriver, pattern: str, name: str = "one") -> Consumer:
    consumer = Consumer(driver, name, subscribed_topic_regex=pattern)
    consumer.names = None
    return consumer


def turns(driver: ConsumerDriver, count: int) -> None:
    for _ in range(count):
        driver.pass_time(ALLOWANCE_MS)


def test_a_member_gets_its_topics_with_a_later_heartbeat() -> None:
    driver = ConsumerDriver(TOPICS)
    consumer = subscriber(driver, "topic.*")
    consumer.join()
    assert consumer.partitions == set()
    before = consumer.epoch
    turns(driver, 1)
    consumer.beat()
    assert consumer.partitions == set()
    turns(driver, 10)
    consumer.beat()
    assert consumer.partitions == ALL
    assert consumer.epoch > before
    assert driver.timers.due_in_ms("consumer-matching/group") is None


def test_heartbeats_on_the_way_do_not_begin_anew() -> None:
    driver = ConsumerDriver(TOPICS)
    consumer = subscriber(driver, "topic.*")
    consumer.join()
    for _ in range(12):
        turns(driver, 1)
        consumer.beat()
    assert consumer.partitions == ALL


def test_topics_that_come_on_the_way_are_found_later() -> None:
    driver = ConsumerDriver(TOPICS)
    consumer = subscriber(driver, "topic.*")
    consumer.join()
    turns(driver, 1)
    driver.set_topics({"topic.99": 1})
    for _ in range(40):
        turns(driver, 1)
        consumer.beat()
    assert consumer.partitions == ALL | {("topic.99", 0)}


def test_a_pattern_that_is_given_up_on_the_way_is_not_heard_of_again() -> None:
    driver = ConsumerDriver(TOPICS)
    consumer = subscriber(driver, "topic.*")
    consumer.join()
    turns(driver, 1)
    consumer.beat(subscribed_topic_regex="topic.0.")
    turns(driver, 12)
    consumer.fields = {}
    consumer.beat()
    assert consumer.partitions == {(name, 0) for name in TOPICS if name < "topic.1"}
    assert set(driver.group.state.regexes) == {"topic.0."}


def test_a_member_that_leaves_on_the_way_leaves_nothing_behind() -> None:
    driver = ConsumerDriver(TOPICS)
    consumer = subscriber(driver, "topic.*")
    consumer.join()
    turns(driver, 1)
    consumer.leave()
    written = len(driver.log)
    turns(driver, 12)
    assert len(driver.log) == written
    assert driver.timers.keys() == []


def test_a_coordinator_that_is_read_anew_on_the_way_begins_anew() -> None:
    driver = ConsumerDriver(TOPICS)
    consumer = subscriber(driver, "topic.*")
    consumer.join()
    turns(driver, 1)
    driver.restart()
    for _ in range(12):
        consumer.beat()
        turns(driver, 1)
    consumer.beat()
    assert consumer.partitions == ALL


def test_groups_share_what_is_allowed() -> None:
    """Together they do not match more in a while than one alone."""
    driver = ConsumerDriver(TOPICS)
    world = driver.world()
    assert world.matching.is_left(0)
    world.matching.spend(matching_allowance.ALLOWED_WORK)
    assert not world.matching.is_left(ALLOWANCE_MS - 1)
    assert world.matching.next_in_ms(ALLOWANCE_MS - 1) == 1
    assert world.matching.is_left(ALLOWANCE_MS)


def test_few_patterns_are_kept_compiled() -> None:
    for number in range(2 * COMPILED_REGEXES_MAX):
        compiled(f"topic{number}")
    assert compiled.cache_info().currsize <= COMPILED_REGEXES_MAX
