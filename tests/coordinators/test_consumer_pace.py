"""How often the members of a consumer group are asked to come: more often while it settles, and never too often."""

from heapq import heapify, heappop, heappush

from tests.coordinators.consumer_driver import Consumer, ConsumerDriver, settle

INTERVAL_MS = 5_000
ASSIGNMENT_INTERVAL_MS = 1_000


def run(driver: ConsumerDriver, due: list[tuple[int, int, Consumer]], until_ms: int) -> int:
    """Heartbeats of consumers that do as they are told: (when, number, who). How many there were."""
    heapify(due)
    sent = 0
    while due and due[0][0] <= until_ms:
        at_ms, number, consumer = heappop(due)
        driver.pass_time(max(at_ms - driver.clock.now_ms(), 0))
        answer = consumer.beat() if consumer.epoch else consumer.join()
        if answer.assignment is not None:
            consumer.beat()  # what it gives up and what it takes is reported at once
            sent += 1
        sent += 1
        heappush(due, (driver.clock.now_ms() + answer.heartbeat_interval_ms, number, consumer))
    return sent


def test_who_joins_is_asked_again_when_the_next_target_is_due_and_then_at_the_usual_interval() -> None:
    driver = ConsumerDriver({"t": 4})
    consumer = Consumer(driver, "one", "t")
    assert consumer.join().heartbeat_interval_ms == ASSIGNMENT_INTERVAL_MS
    driver.pass_time(ASSIGNMENT_INTERVAL_MS)
    assert consumer.beat().heartbeat_interval_ms == INTERVAL_MS


def test_who_joins_between_two_targets_is_told_how_long_until_the_next() -> None:
    driver = ConsumerDriver({"t": 4})
    one, two = Consumer(driver, "one", "t"), Consumer(driver, "two", "t")
    one.join()
    driver.pass_time(300)
    assert two.join().heartbeat_interval_ms == ASSIGNMENT_INTERVAL_MS - 300
    driver.pass_time(ASSIGNMENT_INTERVAL_MS - 350)
    assert two.beat().heartbeat_interval_ms == 200


def test_who_waits_for_others_is_asked_less_and_less_often() -> None:
    driver = ConsumerDriver({"t": 4})
    one, two = Consumer(driver, "one", "t"), Consumer(driver, "two", "t")
    one.join()
    driver.pass_time(INTERVAL_MS)
    two.join()
    intervals = [two.beat().heartbeat_interval_ms for _ in range(8)]
    assert intervals == [200, 400, 800, 1_600, 3_200, 5_000, 5_000, 5_000]
    one.beat()
    one.beat()
    assert two.beat().heartbeat_interval_ms == INTERVAL_MS
    assert len(two.partitions) == 2


def test_the_configured_interval_is_the_longest_and_may_be_the_shortest_too() -> None:
    driver = ConsumerDriver({"t": 4}, {"group.consumer.heartbeat.interval.ms": "100"})
    one, two = Consumer(driver, "one", "t"), Consumer(driver, "two", "t")
    assert one.join().heartbeat_interval_ms == 100
    assert two.join().heartbeat_interval_ms == 100
    settle(driver, one, two)
    assert two.beat().heartbeat_interval_ms == 100


def test_a_hundred_consumers_settle_within_two_seconds_and_few_heartbeats() -> None:
    driver = ConsumerDriver({"t": 200})
    begun_ms = driver.clock.now_ms()
    consumers = [Consumer(driver, f"member-{number:03}", "t") for number in range(100)]
    due = [(begun_ms + 3 * number, number, consumer) for number, consumer in enumerate(consumers)]
    sent = run(driver, due, begun_ms + 2_000)
    assert [len(consumer.partitions) for consumer in consumers] == [2] * 100
    assert driver.group.state_name == "Stable"
    assert sent <= 7 * len(consumers)
    assert run(driver, due, begun_ms + 2_000 + 10 * INTERVAL_MS) <= 12 * len(consumers)
