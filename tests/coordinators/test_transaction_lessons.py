"""What went wrong elsewhere must not go wrong here: each test is named after what has to hold."""

from moldau.coordinators.transactions.shard import AGAIN_MS
from moldau.coordinators.transactions.transaction import Producer
from moldau.protocol.errors import ErrorCode
from tests.coordinators.transactions_driver import FAILED, ID, TIMEOUT_MS, A, B, Driver, code_of

LAST = 32766
DAY_MS = 86_400_000


def at_epoch(epoch: int, *, version: int = 2) -> tuple[Driver, Producer]:
    """A producer that has come to this epoch."""
    driver = Driver(transaction_version=version)
    driver.init()
    return driver, driver.jump_to(epoch)


def test_a_late_commit_does_not_commit_a_later_transaction() -> None:
    """Jepsen on Bufstream 0.1.0, KAFKA-17754."""
    driver = Driver()
    first = driver.init()
    second = driver.commit_one(first, committed=False)
    driver.add(second, B)
    assert code_of(lambda: driver.end(first, committed=True)) is ErrorCode.PRODUCER_FENCED
    assert code_of(lambda: driver.end(first, committed=False)) is ErrorCode.PRODUCER_FENCED
    assert driver.state() == "Ongoing"


def test_a_late_original_commit_cannot_be_told_from_one_of_this_transaction() -> None:
    """The same for a client of before version 2: nobody can protect it, and this says so (ADR 26)."""
    driver = Driver()
    producer = driver.init()
    driver.commit_one(producer, version=0)
    driver.add(producer, B, version=0)
    assert code_of(lambda: driver.end(producer, version=0)) is ErrorCode.NONE
    assert driver.state() == "PrepareCommit"


def test_after_the_last_epoch_a_producer_is_told_its_new_id_and_is_not_fenced_with_it() -> None:
    """KAFKA-18660."""
    driver, producer = at_epoch(LAST)
    driver.add(producer, A)
    after = driver.end(producer)
    assert after == (4001, 0)
    assert driver.markers.sent == [(4000, LAST + 1, True, frozenset({A}), 2)]
    assert code_of(lambda: driver.add(after)) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert code_of(lambda: driver.end(after, committed=False)) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert code_of(lambda: driver.end(producer)) is ErrorCode.CONCURRENT_TRANSACTIONS
    driver.written()
    assert driver.end(producer) == after
    assert code_of(lambda: driver.end(producer, committed=False)) is ErrorCode.INVALID_TXN_STATE
    assert driver.commit_one(after) == (4001, 1)
    assert code_of(lambda: driver.end(producer)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_the_new_id_after_the_last_epoch_survives_a_coordinator_that_dies_before_the_markers() -> None:
    driver, producer = at_epoch(LAST)
    driver.add(producer)
    after = driver.end(producer)
    driver.reload()
    driver.written()
    assert driver.transaction().producer == after
    assert driver.end(producer) == after


def test_no_producer_id_at_hand_at_the_last_epoch_is_an_error_that_clients_repeat() -> None:
    driver, producer = at_epoch(LAST)
    driver.add(producer)
    driver.has_producer_ids = False
    assert code_of(lambda: driver.end(producer)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    driver.pass_time(TIMEOUT_MS + 1)
    driver.clean_up()
    assert driver.state() == "Ongoing"
    driver.has_producer_ids = True
    driver.clean_up()
    assert driver.state() == "PrepareAbort"


def test_fencing_an_open_transaction_takes_one_epoch_not_two() -> None:
    """KAFKA-19367."""
    for version in (0, 2):
        driver, producer = at_epoch(7, version=version)
        driver.add(producer, version=version)
        assert code_of(driver.init) is ErrorCode.CONCURRENT_TRANSACTIONS
        assert driver.transaction().producer_epoch == 8


def test_fencing_at_the_last_epoch_leaves_the_id_with_a_new_producer() -> None:
    """KAFKA-20090: the transaction stayed open for ever."""
    driver, producer = at_epoch(LAST)
    driver.add(producer)
    driver.pass_time(TIMEOUT_MS + 1)
    driver.clean_up()
    assert driver.markers.sent[0].producer_epoch == LAST + 1
    driver.written()
    assert driver.end(producer, committed=False) == (4001, 0)
    assert driver.commit_one(Producer(4001, 0)) == (4001, 1)


def test_originally_fencing_at_the_last_epoch_makes_the_next_beginning_take_a_new_id() -> None:
    driver, producer = at_epoch(LAST, version=0)
    driver.add(producer, version=0)
    assert code_of(driver.init) is ErrorCode.CONCURRENT_TRANSACTIONS
    driver.written()
    assert driver.transaction().producer_epoch == LAST + 1
    assert code_of(lambda: driver.init(producer)) is ErrorCode.PRODUCER_FENCED
    assert driver.init() == (4001, 0)


def test_a_broken_epoch_in_a_log_of_others_can_still_be_aborted() -> None:
    for version in (0, 2):
        driver, producer = at_epoch(LAST + 1, version=version)
        driver.add(producer, version=version)
        assert code_of(driver.init) is ErrorCode.CONCURRENT_TRANSACTIONS
        assert driver.transaction().producer_epoch == LAST + 1
        driver.written()
        assert driver.init() == (4001, 0)


def test_a_commit_in_flight_while_its_transaction_times_out_is_fenced_and_not_fatal() -> None:
    """KAFKA-20785: INVALID_TXN_STATE ended threads of Kafka Streams."""
    driver = Driver()
    producer = driver.init()
    driver.add(producer)
    driver.pass_time(TIMEOUT_MS + 1)
    driver.clean_up()
    assert code_of(lambda: driver.end(producer)) is ErrorCode.CONCURRENT_TRANSACTIONS
    driver.written()
    assert code_of(lambda: driver.end(producer)) is ErrorCode.PRODUCER_FENCED
    assert driver.init(producer) == (4000, 1)


def test_the_same_holds_at_the_last_epoch() -> None:
    driver, producer = at_epoch(LAST)
    driver.add(producer)
    driver.pass_time(TIMEOUT_MS + 1)
    driver.clean_up()
    driver.written()
    assert code_of(lambda: driver.end(producer)) is ErrorCode.PRODUCER_FENCED


def test_a_repeated_beginning_is_answered_the_same_by_the_next_coordinator() -> None:
    """KAFKA-20310, KAFKA-20357: the answer was lost with the coordinator, and the repeated request was fenced."""
    driver = Driver()
    driver.init()
    driver.init(Producer(4000, 0))
    driver.reload()
    assert driver.init(Producer(4000, 0)) == (4000, 1)
    driver, producer = at_epoch(LAST)
    assert driver.init(producer) == (4001, 0)
    driver.reload()
    assert driver.init(producer) == (4001, 0)
    assert driver.init(producer) == (4001, 0)


def test_a_predecessor_does_not_get_its_successors_epoch_from_the_next_coordinator() -> None:
    """The other side of the same: a last epoch that is guessed would let two producers write with one epoch."""
    driver = Driver()
    zombie = driver.init()
    driver.init()
    driver.reload()
    assert code_of(lambda: driver.init(zombie)) is ErrorCode.PRODUCER_FENCED


def test_a_repeated_end_is_answered_the_same_by_the_next_coordinator() -> None:
    driver = Driver()
    producer = driver.init()
    driver.add(producer)
    after = driver.end(producer)
    driver.reload()
    assert code_of(lambda: driver.end(producer)) is ErrorCode.CONCURRENT_TRANSACTIONS
    driver.written()
    assert driver.end(producer) == after


def test_an_end_that_was_answered_is_completed_by_whoever_coordinates() -> None:
    """KAFKA-18957: answered, and open for ever."""
    driver = Driver()
    producer = driver.init()
    driver.add(producer)
    driver.end(producer)
    for _ in range(3):
        driver.reload()
        assert len(driver.markers.sent) == 1
    driver.written()
    assert driver.state() == "CompleteCommit"


def test_an_expiry_that_the_log_refuses_leaves_the_id_usable() -> None:
    """KAFKA-7519: a pending state was left, and the id was of no use until a restart."""
    driver = Driver()
    driver.init()
    driver.pass_time(8 * DAY_MS)
    driver.refuses_with = FAILED
    driver.clean_up()
    driver.refuses_with = 0
    assert driver.init() == (4000, 1)


def test_every_prepared_transaction_has_somebody_who_will_end_it() -> None:
    """Redpanda 24445, 14624 and others: PrepareCommit for ever."""
    driver = Driver()
    producer = driver.init()
    driver.add(producer)
    driver.fails_with = FAILED
    assert code_of(lambda: driver.end(producer)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    for _ in range(5):
        driver.pass_time(AGAIN_MS)
        assert driver.timers.due_in_ms(f"again/{ID}") is not None
    driver.fails_with = 0
    driver.pass_time(AGAIN_MS)
    driver.written(is_complete=False)
    driver.clean_up()
    driver.refuses_with = FAILED
    driver.written()
    driver.pass_time(AGAIN_MS)
    driver.refuses_with = 0
    driver.pass_time(AGAIN_MS)
    assert driver.state() == "CompleteCommit"


def test_a_new_version_of_the_cluster_does_not_change_how_an_open_transaction_ends() -> None:
    """KAFKA-18227: partitions of the next transaction were added to the last one."""
    driver = Driver(transaction_version=0)
    producer = driver.init()
    driver.add(producer, A, version=0)
    driver.transaction_version = 2
    assert driver.end(producer, version=0) == (-1, -1)
    assert driver.markers.sent == [(4000, 0, True, frozenset({A}), 0)]
    assert code_of(lambda: driver.add(producer, B)) is ErrorCode.CONCURRENT_TRANSACTIONS
    driver.written()
    producer = driver.init(producer)
    assert producer == (4000, 1)
    driver.add(producer, B)
    assert driver.transaction().partitions == {B}
    assert driver.end(producer) == (4000, 2)


def test_an_abort_of_nothing_right_after_an_end_does_not_fence_its_own_producer() -> None:
    """KAFKA-18464."""
    driver = Driver()
    producer = driver.init()
    driver.add(producer)
    after = driver.end(producer)
    assert code_of(lambda: driver.end(after, committed=False)) is ErrorCode.CONCURRENT_TRANSACTIONS
    driver.written()
    assert driver.end(after, committed=False) == (4000, 2)
