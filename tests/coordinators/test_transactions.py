"""The transaction coordinator without I/O: what each request comes to in each state, and what happens by itself."""

import pytest

from moldau.coordinators.consumer.topic_regex import TopicRegex
from moldau.coordinators.transactions.listing import Filters
from moldau.coordinators.transactions.shard import AGAIN_MS, EXPIRY_STEP_IDS_MAX, OVERDUE_STEP_IDS_MAX
from moldau.coordinators.transactions.transaction import Producer
from moldau.protocol.errors import ErrorCode
from tests.coordinators.transactions_driver import FAILED, ID, TIMEOUT_MS, A, B, Driver, code_of

DAY_MS = 86_400_000
BOTH = pytest.mark.parametrize("version", [0, 2])


# InitProducerId


def test_a_new_id_gets_a_new_producer_id_with_epoch_0() -> None:
    driver = Driver()
    assert driver.init() == (4000, 0)
    assert driver.init(name="other") == (4001, 0)
    assert driver.state() == "Empty"


def test_a_producer_that_goes_on_with_an_id_that_is_forgotten_gets_a_new_one() -> None:
    assert Driver().init(Producer(17, 3)) == (4000, 0)


def test_each_beginning_fences_the_producer_before() -> None:
    driver = Driver()
    first = driver.init()
    assert driver.init() == (4000, 1)
    assert code_of(lambda: driver.add(first)) is ErrorCode.PRODUCER_FENCED
    assert code_of(lambda: driver.end(first)) is ErrorCode.PRODUCER_FENCED
    assert code_of(lambda: driver.verify(first, A)) is ErrorCode.PRODUCER_FENCED
    assert code_of(lambda: driver.init(first)) is ErrorCode.PRODUCER_FENCED


def test_a_producer_that_goes_on_gets_the_next_epoch_and_the_same_when_it_repeats_the_request() -> None:
    driver = Driver()
    driver.init()
    assert driver.init(Producer(4000, 0)) == (4000, 1)
    assert driver.init(Producer(4000, 0)) == (4000, 1)
    assert driver.init(Producer(4000, 1)) == (4000, 2)


def test_who_names_another_producer_id_is_fenced() -> None:
    driver = Driver()
    driver.init()
    assert code_of(lambda: driver.init(Producer(1, 0))) is ErrorCode.PRODUCER_FENCED


@BOTH
def test_an_open_transaction_is_aborted_before_the_id_is_given_away(version: int) -> None:
    driver = Driver(transaction_version=version)
    first = driver.init()
    driver.add(first, A, B, version=version)
    assert code_of(driver.init) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert driver.state() == "PrepareAbort"
    (marker,) = driver.markers.sent
    assert marker == (4000, 1, False, frozenset({A, B}), version)
    assert code_of(driver.init) is ErrorCode.CONCURRENT_TRANSACTIONS
    driver.written()
    assert driver.state() == "CompleteAbort"
    assert driver.init() == (4000, 2)
    assert code_of(lambda: driver.end(first, version=version)) is ErrorCode.PRODUCER_FENCED


def test_a_zombie_cannot_abort_the_open_transaction_of_its_successor() -> None:
    driver = Driver()
    zombie = driver.init()
    driver.add(driver.init())
    assert code_of(lambda: driver.init(zombie)) is ErrorCode.PRODUCER_FENCED
    assert driver.state() == "Ongoing"


# AddPartitionsToTxn, AddOffsetsToTxn


def test_the_first_partition_begins_the_transaction_and_more_may_follow() -> None:
    driver = Driver()
    producer = driver.init()
    driver.add(producer, A)
    began_ms = driver.clock.now_ms()
    driver.pass_time(5)
    driver.add(producer, B)
    assert driver.transaction().partitions == {A, B}
    assert driver.transaction().start_ms == began_ms
    assert driver.transaction().last_update_ms == began_ms + 5


def test_partitions_that_are_in_it_already_are_not_written_again() -> None:
    driver = Driver()
    producer = driver.init()
    driver.add(producer, A, B)
    records = len(driver.log)
    driver.add(producer, B)
    assert len(driver.log) == records


def test_adding_to_an_unknown_id_or_as_somebody_else_is_an_invalid_mapping() -> None:
    driver = Driver()
    assert code_of(lambda: driver.add(Producer(4000, 0))) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    driver.init()
    assert code_of(lambda: driver.add(Producer(1, 0))) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


@BOTH
def test_nothing_is_added_while_the_transaction_before_is_being_ended(version: int) -> None:
    driver = Driver()
    producer = driver.init()
    driver.add(producer, version=version)
    after = driver.end(producer, version=version)
    producer = after if version else producer
    assert code_of(lambda: driver.add(producer)) is ErrorCode.CONCURRENT_TRANSACTIONS
    driver.written()
    driver.add(producer, B)
    assert driver.transaction().partitions == {B}


def test_verification_tells_which_partitions_are_in_the_open_transaction() -> None:
    driver = Driver()
    producer = driver.init()
    driver.add(producer, A)
    found = driver.verify(producer, A, B)
    assert found == {A: ErrorCode.NONE, B: ErrorCode.TRANSACTION_ABORTABLE}
    after = driver.end(producer)
    assert code_of(lambda: driver.verify(after, A)) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert code_of(lambda: driver.verify(producer, A)) is ErrorCode.PRODUCER_FENCED
    driver.written()
    assert driver.verify(after, A) == {A: ErrorCode.TRANSACTION_ABORTABLE}
    assert code_of(lambda: driver.verify(Producer(9, 0), A)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


# EndTxn


def test_the_original_end_keeps_the_epoch() -> None:
    driver = Driver()
    producer = driver.init()
    driver.add(producer, A, version=0)
    assert driver.end(producer, version=0) == (-1, -1)
    assert driver.markers.sent == [(4000, 0, True, frozenset({A}), 0)]
    assert driver.state() == "PrepareCommit"
    assert code_of(lambda: driver.end(producer, version=0)) is ErrorCode.CONCURRENT_TRANSACTIONS
    driver.written()
    assert driver.state() == "CompleteCommit"
    assert driver.transaction().partitions == frozenset()
    assert code_of(lambda: driver.end(producer, version=0)) is ErrorCode.NONE
    assert code_of(lambda: driver.end(producer, version=0, committed=False)) is ErrorCode.INVALID_TXN_STATE


def test_the_original_end_of_nothing_is_an_invalid_state() -> None:
    driver = Driver()
    producer = driver.init()
    for committed in (True, False):
        refused = code_of(lambda committed=committed: driver.end(producer, version=0, committed=committed))  # type: ignore[misc]
        assert refused is ErrorCode.INVALID_TXN_STATE


def test_every_end_of_version_2_gives_the_next_transaction_an_epoch_of_its_own() -> None:
    driver = Driver()
    producer = driver.init()
    driver.add(producer, A)
    after = driver.end(producer)
    assert after == (4000, 1)
    assert driver.markers.sent == [(4000, 1, True, frozenset({A}), 2)]
    driver.written()
    assert driver.commit_one(after, committed=False) == (4000, 2)
    assert driver.state() == "CompleteAbort"


@pytest.mark.parametrize(
    ("before", "committed", "is_retry", "code"),
    [
        ("Empty", False, True, ErrorCode.PRODUCER_FENCED),
        ("Empty", False, False, ErrorCode.NONE),
        ("Empty", True, True, ErrorCode.PRODUCER_FENCED),
        ("Empty", True, False, ErrorCode.INVALID_TXN_STATE),
        ("CompleteAbort", False, True, ErrorCode.NONE),
        ("CompleteAbort", False, False, ErrorCode.NONE),
        ("CompleteAbort", True, True, ErrorCode.PRODUCER_FENCED),
        ("CompleteAbort", True, False, ErrorCode.INVALID_TXN_STATE),
        ("CompleteCommit", False, True, ErrorCode.INVALID_TXN_STATE),
        ("CompleteCommit", False, False, ErrorCode.NONE),
        ("CompleteCommit", True, True, ErrorCode.NONE),
        ("CompleteCommit", True, False, ErrorCode.INVALID_TXN_STATE),
    ],
)
def test_the_table_of_kip_890_for_an_end_without_an_open_transaction(
    before: str, committed: bool, is_retry: bool, code: ErrorCode
) -> None:
    driver = Driver()
    driver.init()
    producer = driver.init()
    if before != "Empty":
        producer = driver.commit_one(producer, committed=before == "CompleteCommit")
    assert driver.state() == before
    asked = Producer(producer.producer_id, producer.producer_epoch - is_retry)
    records = len(driver.log)
    assert code_of(lambda: driver.end(asked, committed=committed)) is code
    if code is ErrorCode.NONE and not is_retry:
        driver.timers.advance(0)
        assert driver.state() == "CompleteAbort"
        assert driver.transaction().producer_epoch == producer.producer_epoch + 1
        assert driver.transaction().start_ms == driver.clock.now_ms()
        assert not driver.markers.under_way
    else:
        assert len(driver.log) == records


def test_a_repeated_end_of_version_2_tells_the_same_epoch_again() -> None:
    driver = Driver()
    producer = driver.init()
    driver.add(producer)
    after = driver.end(producer)
    assert code_of(lambda: driver.end(producer)) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert code_of(lambda: driver.end(producer, committed=False)) is ErrorCode.CONCURRENT_TRANSACTIONS
    driver.written()
    assert driver.end(producer) == after


def test_the_end_of_somebody_elses_transaction_is_refused() -> None:
    driver = Driver()
    producer = driver.init()
    driver.add(producer)
    for version in (0, 2):
        for stranger, code in (
            (Producer(1, 0), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
            (Producer(-1, -1), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
            (Producer(4000, 1), ErrorCode.PRODUCER_FENCED),
            (Producer(4000, -1), ErrorCode.PRODUCER_FENCED),
        ):
            refused = code_of(lambda who=stranger, version=version: driver.end(who, version=version))  # type: ignore[misc]
            assert refused is code
    unknown = code_of(lambda: driver.end(producer, name="unknown"))
    assert unknown is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert driver.state() == "Ongoing"


# Markers


def test_no_marker_leaves_before_the_prepared_state_is_known_to_be_replicated() -> None:
    driver = Driver()
    producer = driver.init()
    driver.add(producer)
    driver.fails_with = FAILED
    assert code_of(lambda: driver.end(producer)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.state() == "PrepareCommit"
    driver.pass_time(AGAIN_MS)
    assert driver.markers.sent == []
    driver.fails_with = 0
    driver.pass_time(AGAIN_MS)
    assert len(driver.markers.sent) == 1
    driver.written()
    assert driver.state() == "CompleteCommit"
    assert driver.end(producer) == (4000, 1)


def test_an_end_that_the_log_refuses_changes_nothing_and_may_be_repeated() -> None:
    driver = Driver()
    producer = driver.init()
    driver.add(producer)
    driver.refuses_with = FAILED
    assert code_of(lambda: driver.end(producer)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.state() == "Ongoing"
    driver.refuses_with = 0
    driver.pass_time(AGAIN_MS)
    assert driver.markers.sent == []
    assert driver.end(producer) == (4000, 1)


def test_a_completion_that_the_log_refuses_is_written_later() -> None:
    driver = Driver()
    producer = driver.init()
    driver.add(producer)
    driver.end(producer)
    driver.refuses_with = FAILED
    driver.written()
    assert driver.state() == "PrepareCommit"
    driver.refuses_with = 0
    driver.pass_time(AGAIN_MS)
    assert driver.state() == "CompleteCommit"


def test_markers_that_another_coordinator_stopped_are_sent_again_at_the_next_look() -> None:
    driver = Driver()
    producer = driver.init()
    driver.add(producer)
    driver.end(producer)
    driver.written(is_complete=False)
    assert driver.state() == "PrepareCommit"
    driver.clean_up()
    assert len(driver.markers.sent) == 2
    driver.written()
    assert driver.state() == "CompleteCommit"


# Coming and going


@BOTH
@pytest.mark.parametrize(
    "state", ["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"]
)
def test_another_coordinator_goes_on_from_every_state(state: str, version: int) -> None:
    driver = Driver(transaction_version=version)
    producer = driver.init()
    if state != "Empty":
        driver.add(producer, version=version)
    if state not in ("Empty", "Ongoing"):
        after = driver.end(producer, committed=state.endswith("Commit"), version=version)
        producer = after if version else producer
    if state.startswith("Complete"):
        driver.written()
    before = driver.transaction()
    assert before.state.value == state
    driver.reload()
    assert driver.transaction() == (before if version else before._replace(previous_producer_id=-1))
    if state.startswith("Prepare"):
        assert [marker.partitions for marker in driver.markers.sent] == [{A}]
        driver.written()
        assert driver.state() == state.replace("Prepare", "Complete")
    else:
        assert driver.markers.sent == []
    if state == "Ongoing":
        after = driver.end(producer, version=version)
        driver.written()
        producer = after if version else producer
    driver.commit_one(producer, version=version)
    assert driver.state() == "CompleteCommit"


def test_a_coordinator_that_lost_its_partition_sends_no_more_markers() -> None:
    driver = Driver()
    producer = driver.init()
    driver.add(producer)
    driver.end(producer)
    old, (_, done) = driver.shard, driver.markers.under_way[ID]
    cancelled = driver.markers.cancelled
    driver.reload()
    assert cancelled == [ID]
    done(True)
    driver.timers.advance(0)
    found = old.get(ID)
    assert found is not None
    assert found.is_prepared


def test_after_loading_markers_wait_until_the_prepared_state_is_replicated() -> None:
    driver = Driver()
    producer = driver.init()
    driver.add(producer)
    driver.end(producer)
    driver.fails_with = FAILED
    driver.reload()
    assert driver.markers.sent == []
    driver.fails_with = 0
    driver.pass_time(AGAIN_MS)
    assert len(driver.markers.sent) == 1


# Time


@BOTH
def test_a_transaction_that_is_open_for_too_long_is_aborted_and_its_producer_fenced(version: int) -> None:
    driver = Driver(transaction_version=version)
    producer = driver.init()
    driver.add(producer, version=version)
    driver.pass_time(TIMEOUT_MS)
    driver.clean_up()
    assert driver.state() == "Ongoing"
    driver.pass_time(1)
    driver.clean_up()
    assert driver.state() == "PrepareAbort"
    assert driver.markers.sent == [(4000, 1, False, frozenset({A}), version)]
    driver.written()
    assert driver.state() == "CompleteAbort"
    assert code_of(lambda: driver.add(producer)) is ErrorCode.PRODUCER_FENCED


def test_a_producer_of_version_2_recovers_from_a_timeout_with_an_abort() -> None:
    driver = Driver()
    producer = driver.init()
    driver.add(producer)
    driver.pass_time(TIMEOUT_MS + 1)
    driver.clean_up()
    assert code_of(lambda: driver.end(producer, committed=False)) is ErrorCode.CONCURRENT_TRANSACTIONS
    driver.written()
    after = driver.end(producer, committed=False)
    assert after == (4000, 1)
    assert driver.commit_one(after) == (4000, 2)


def test_a_transaction_is_not_aborted_by_a_timer_that_it_outran() -> None:
    driver = Driver()
    producer = driver.init()
    driver.add(producer)
    driver.pass_time(TIMEOUT_MS + 1)
    driver.apply(driver.shard.clean_up())
    after = driver.end(producer)
    driver.timers.advance(0)
    assert driver.state() == "PrepareCommit"
    assert after == (4000, 1)


def test_ids_that_nobody_uses_are_forgotten_and_open_ones_are_not() -> None:
    driver = Driver()
    driver.init(name="unused")
    driver.add(driver.init(timeout_ms=900_000))
    driver.pass_time(7 * DAY_MS - 1)
    driver.clean_up()
    assert driver.shard.get("unused") is not None
    driver.pass_time(3_600_000)
    driver.clean_up()
    assert driver.shard.get("unused") is None
    assert driver.shard.get(ID) is not None
    assert driver.log[-1][1] is None or driver.log[-2][1] is None
    driver.reload()
    assert driver.shard.get("unused") is None
    assert driver.init(name="unused") == (4002, 0)


def test_many_unused_ids_are_forgotten_some_in_each_turn() -> None:
    driver = Driver()
    for number in range(EXPIRY_STEP_IDS_MAX + 1):
        driver.init(name=f"id-{number}")
    driver.pass_time(8 * DAY_MS)
    driver.apply(driver.shard.clean_up())
    outcomes = driver.timers.advance(0)
    assert [len(each.records) for each in outcomes if each.records] == [EXPIRY_STEP_IDS_MAX, 1]
    assert list(driver.shard.items()) == []


def test_many_that_are_open_for_too_long_are_found_some_in_each_turn_and_aborted_one_by_one() -> None:
    driver = Driver()
    for number in range(OVERDUE_STEP_IDS_MAX + 1):
        driver.add(driver.init(name=f"id-{number}"), name=f"id-{number}")
    driver.pass_time(TIMEOUT_MS + 1)
    driver.apply(driver.shard.clean_up())
    assert set(driver.timers.keys()) == {"overdue", "expiry"}
    outcomes = driver.timers.advance(0)
    assert {len(each.records) for each in outcomes} == {0, 1}
    assert {each.state.value for _, each in driver.shard.items()} == {"PrepareAbort"}


def test_a_new_coordinator_takes_up_prepared_transactions_one_by_one() -> None:
    driver = Driver()
    producers = {name: driver.init(name=name) for name in ("one", "two")}
    for name, producer in producers.items():
        driver.add(producer, name=name)
        driver.end(producer, name=name)
    assert driver.shard.on_loaded() == ()
    assert driver.timers.keys() == ["again/one", "again/two"]


# Listing


def listed(driver: Driver, filters: Filters) -> list[str]:
    now_ms = driver.clock.now_ms()
    return [name for name, each in driver.shard.items() if filters.asks_for(name, each, now_ms)]


def test_transactions_are_listed_by_state_producer_duration_and_pattern() -> None:
    driver = Driver()
    driver.init(name="idle")
    driver.add(driver.init(name="old"), name="old")
    driver.pass_time(1_000)
    driver.add(driver.init(name="young"), name="young")
    ongoing = frozenset({"Ongoing"})
    assert listed(driver, Filters()) == ["idle", "old", "young"]
    assert listed(driver, Filters(ongoing)) == ["old", "young"]
    assert listed(driver, Filters(ongoing | {"Empty"}, frozenset({4000}))) == ["idle"]
    assert listed(driver, Filters(ongoing, longer_than_ms=999)) == ["old"]
    assert listed(driver, Filters(ongoing, longer_than_ms=1_000)) == []
    assert listed(driver, Filters(ongoing, longer_than_ms=0)) == ["old"]
    assert listed(driver, Filters(pattern=TopicRegex("o.*|id"))) == ["old"]
    assert listed(driver, Filters(frozenset({"Nonsense"}))) == []
