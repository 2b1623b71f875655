"""What a log lets a producer and its coordinator do to a transaction (KIP-98, KIP-890, KIP-1228)."""

import pytest

from moldau.core.memory_files import MemoryFiles
from moldau.log.log import AppendResult, Log
from moldau.log.verification import NOT_VERIFIED, VerificationGuard
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.records.validate import PreparedBatch
from tests.log.helpers import NOW_MS, batch, idempotent, marker, memory_log, open_log, transactional

V1, V2 = 0, 2
PRODUCER = 7


def begin(log: Log, epoch: int = 0, sequence: int = 0, *, bumps_epoch: bool = True) -> VerificationGuard:
    guard = log.producers.begin_verification(PRODUCER, epoch, sequence, NOW_MS, bumps_epoch=bumps_epoch)
    assert guard is not None
    return guard


def write(log: Log, prepared: PreparedBatch, guard: VerificationGuard | None = None, version: int = 0) -> AppendResult:
    return log.append_as_leader(prepared, 0, NOW_MS, guard, version)


def code_of(log: Log, prepared: PreparedBatch, guard: VerificationGuard | None = None, version: int = 0) -> ErrorCode:
    end = log.log_end_offset
    with pytest.raises(ApiError) as refused:
        write(log, prepared, guard, version)
    assert log.log_end_offset == end
    return ErrorCode(refused.value.code)


def test_a_batch_without_an_open_transaction_and_without_a_guard_is_refused() -> None:
    log = memory_log()
    assert code_of(log, transactional(0)) is ErrorCode.INVALID_TXN_STATE
    guard = begin(log)
    assert write(log, transactional(0), guard).base_offset == 0
    assert log.producers.begin_verification(PRODUCER, 0, 1, NOW_MS, bumps_epoch=True) is None, "it is open"
    assert write(log, transactional(1)).base_offset == 1
    assert log.last_stable_offset == 0


def test_a_word_of_the_coordinator_from_before_an_abort_lets_nothing_in() -> None:
    log = memory_log()
    asked = begin(log, epoch=0, bumps_epoch=False)
    write(log, marker(committed=False, epoch=0), version=V1)
    assert code_of(log, transactional(0), asked) is ErrorCode.INVALID_TXN_STATE
    again = begin(log, epoch=0, bumps_epoch=False)
    assert again is not asked
    assert code_of(log, transactional(0), asked) is ErrorCode.INVALID_TXN_STATE
    assert write(log, transactional(0), again).base_offset == 1


def test_a_batch_that_comes_again_late_does_not_hold_up_the_next_transaction() -> None:
    """Seen with librdkafka: a Produce of a transaction that had ended came again, and its producer was told that the
    first batch of the next one is out of order, for good."""
    log = memory_log()
    write(log, transactional(0), begin(log, bumps_epoch=False))
    write(log, transactional(1))
    write(log, marker(committed=True))
    guard = begin(log, sequence=0, bumps_epoch=False)
    assert write(log, transactional(0), guard).base_offset == 0, "it is known, and not appended"
    assert begin(log, sequence=2, bumps_epoch=False) is guard
    assert write(log, transactional(2), guard).base_offset == 3


def test_the_marker_of_the_transaction_before_leaves_the_guard_of_the_next() -> None:
    log = memory_log()
    write(log, transactional(0, epoch=0), begin(log, epoch=0))
    write(log, marker(committed=True, epoch=1), version=V2)
    guard = begin(log, epoch=1)
    write(log, marker(committed=True, epoch=1), version=V2)  # sent again
    assert write(log, transactional(0, epoch=1), guard).base_offset == 3
    log = memory_log()
    guard = begin(log, epoch=1)
    write(log, marker(committed=True, epoch=1), version=V1)
    assert code_of(log, transactional(0, epoch=1), guard) is ErrorCode.INVALID_TXN_STATE


def test_a_stale_epoch_is_told_before_the_missing_transaction() -> None:
    log = memory_log()
    write(log, transactional(0, epoch=3), begin(log, epoch=3))
    assert code_of(log, transactional(1, epoch=2)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert code_of(log, transactional(0, epoch=4)) is ErrorCode.INVALID_TXN_STATE


def test_of_a_storm_of_retries_the_lowest_sequence_is_the_first_in_the_log() -> None:
    log = memory_log()
    guard = begin(log, sequence=1, bumps_epoch=False)
    assert begin(log, sequence=0, bumps_epoch=False) is guard
    assert code_of(log, transactional(1), guard) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert write(log, transactional(0), guard).base_offset == 0
    assert write(log, transactional(1)).base_offset == 1


def test_in_version_2_an_unknown_producer_begins_with_sequence_0() -> None:
    log = memory_log()
    guard = begin(log, sequence=5, bumps_epoch=True)
    assert code_of(log, transactional(5), guard) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    log = memory_log()
    assert write(log, transactional(5), begin(log, sequence=5, bumps_epoch=False)).base_offset == 0


def test_a_batch_outside_of_the_open_transaction_is_refused() -> None:
    log = memory_log()
    write(log, transactional(0), begin(log))
    assert code_of(log, idempotent(1)) is ErrorCode.INVALID_TXN_STATE
    assert code_of(log, idempotent(0, epoch=1)) is ErrorCode.INVALID_TXN_STATE
    write(log, marker(committed=True, epoch=1), version=V2)
    assert write(log, idempotent(0, epoch=1)).base_offset == 2


def test_a_batch_of_a_transaction_that_has_ended_is_recognised_when_it_is_sent_again() -> None:
    log = memory_log()
    write(log, transactional(0), begin(log, bumps_epoch=False))
    write(log, marker(committed=True))
    assert write(log, transactional(0)) == AppendResult(0, 0, NOW_MS, True)


def test_a_coordinators_own_batches_have_no_sequence_but_need_the_guard() -> None:
    log = memory_log()
    offsets = batch(b"offset", producer_id=PRODUCER, producer_epoch=0, base_sequence=-1, is_transactional=True)
    assert code_of(log, offsets) is ErrorCode.INVALID_TXN_STATE
    guard = begin(log, sequence=-1)
    assert [write(log, offsets, guard).base_offset, write(log, offsets).base_offset] == [0, 1]


def test_without_verification_any_transaction_begins() -> None:
    log = memory_log()
    assert write(log, transactional(4), NOT_VERIFIED).base_offset == 0


def test_in_version_2_a_late_marker_does_not_end_the_next_transaction() -> None:
    log = memory_log()
    write(log, transactional(0, epoch=0), begin(log, epoch=0))
    assert code_of(log, marker(committed=True, epoch=0), version=V2) is ErrorCode.INVALID_PRODUCER_EPOCH
    write(log, marker(committed=True, epoch=1), version=V2)
    write(log, transactional(0, epoch=1), begin(log, epoch=1))
    assert code_of(log, marker(committed=False, epoch=1), version=V2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.last_stable_offset == 2
    write(log, marker(committed=False, epoch=2), version=V2)
    assert [each.first_offset for each in log.aborted_transactions(0, 10)] == [2]


def test_a_marker_that_is_sent_again_after_its_answer_was_lost_is_no_error() -> None:
    """KAFKA-19999: refused, it would be sent for ever."""
    log = memory_log()
    write(log, transactional(0, epoch=0), begin(log, epoch=0))
    for _ in range(3):
        write(log, marker(committed=False, epoch=1), version=V2)
    assert log.last_stable_offset == log.log_end_offset
    assert len(log.aborted_transactions(0, 10)) == 1, "an empty transaction is not in the index"


def test_in_version_1_the_marker_has_the_epoch_of_its_transaction() -> None:
    log = memory_log()
    write(log, transactional(0, epoch=1), begin(log, epoch=1, bumps_epoch=False))
    assert code_of(log, marker(committed=True, epoch=0), version=V1) is ErrorCode.INVALID_PRODUCER_EPOCH
    write(log, marker(committed=True, epoch=1), version=V1)
    assert log.last_stable_offset == 2


def test_a_deposed_coordinator_ends_nothing() -> None:
    log = memory_log()
    write(log, marker(committed=True, epoch=0, coordinator_epoch=5), version=V2)
    write(log, transactional(0, epoch=0), begin(log))
    late = marker(committed=False, epoch=1, coordinator_epoch=4)
    assert code_of(log, late, version=V2) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    write(log, marker(committed=False, epoch=1, coordinator_epoch=6), version=V2)
    assert log.last_stable_offset == log.log_end_offset


def test_a_marker_with_an_epoch_that_nobody_has_ends_nothing() -> None:
    log = memory_log()
    for epoch in (-1, -2, -32768):
        assert code_of(log, marker(committed=True, epoch=epoch)) is ErrorCode.INVALID_PRODUCER_EPOCH
    late = marker(committed=True, epoch=0, coordinator_epoch=-2)
    assert code_of(log, late) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    write(log, marker(committed=True, epoch=0, coordinator_epoch=-1))


def test_a_truncation_takes_guards_and_markers_back() -> None:
    log = memory_log()
    write(log, transactional(0), begin(log))
    write(log, marker(committed=False, epoch=1), version=V2)
    guard = begin(log, epoch=1)
    log.truncate_to(1)
    assert (log.last_stable_offset, log.aborted_transactions(0, 10)) == (0, [])
    assert code_of(log, transactional(0, epoch=1), guard) is ErrorCode.INVALID_TXN_STATE
    write(log, marker(committed=True, epoch=1), version=V2)
    assert (log.last_stable_offset, log.aborted_transactions(0, 10)) == (2, [])


@pytest.mark.parametrize("clean", [True, False])
def test_epochs_and_open_transactions_survive_a_restart(clean: bool) -> None:
    files = MemoryFiles()
    log = open_log(files)
    write(log, marker(committed=True, epoch=2, coordinator_epoch=9), version=V2)
    write(log, transactional(0, epoch=2), begin(log, epoch=2))
    log.roll(NOW_MS)
    write(log, batch(b"outside"))
    log.close()
    log = open_log(files, clean=clean)
    assert log.last_stable_offset == 1
    entry = log.producers.get(PRODUCER)
    assert entry is not None
    assert (entry.epoch, entry.coordinator_epoch, entry.current_txn_first_offset) == (2, 9, 1)
    assert code_of(log, marker(committed=True, epoch=2, coordinator_epoch=9), version=V2)
    assert write(log, transactional(1, epoch=2)).base_offset == 3


def test_a_producer_with_an_open_transaction_is_not_forgotten_and_an_unused_guard_is() -> None:
    log = memory_log()
    write(log, transactional(0), begin(log))
    log.producers.begin_verification(8, 0, 0, NOW_MS, bumps_epoch=True)
    assert log.producers.expire(NOW_MS + 100, 100) == 0
    assert len(log.producers.guards) == 0
    write(log, marker(committed=True, epoch=1), version=V2)
    assert log.producers.expire(NOW_MS + 100, 100) == 1


def test_what_waits_for_the_high_watermark_is_let_go_when_it_rises() -> None:
    log = memory_log()
    for number in range(3):
        write(log, transactional(0, epoch=number), begin(log, epoch=number))
        write(log, marker(committed=True, epoch=number + 1), version=V2)
    assert [log.last_stable_offset_below(each) for each in (0, 1, 2, 3, 6)] == [0, 0, 2, 2, 6]
