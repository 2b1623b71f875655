"""Idempotence: what is appended, what was there before, what is refused. Open transactions."""

import tracemalloc

import pytest

from moldau.log.producers import BATCHES_KEPT, PRODUCERS_MAX, BatchMetadata, Producers
from moldau.log.txn_index import AbortedTxn
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.records.batch import EndTxnMarker
from tests.log.helpers import NOW_MS, idempotent, marker, transactional

SEQUENCE_MAX = 2**31 - 1
COMMIT = EndTxnMarker(True, 0)


class Writer:
    """Producer state with a log end, as a log drives it."""

    def __init__(self) -> None:
        self.producers = Producers()
        self.end = 0

    def write(
        self, base_sequence: int, count: int = 1, *, producer_id: int = 7, epoch: int = 0
    ) -> BatchMetadata | None:
        header = idempotent(base_sequence, count, producer_id=producer_id, epoch=epoch).header
        duplicate = self.producers.check(producer_id, epoch, base_sequence, count - 1)
        if duplicate is None:
            self.producers.update(header, self.end, NOW_MS)
            self.end += count
        return duplicate

    def refused(self, base_sequence: int, count: int = 1, *, epoch: int = 0) -> ErrorCode:
        with pytest.raises(ApiError) as refusal:
            self.write(base_sequence, count, epoch=epoch)
        return ErrorCode(refusal.value.code)

    def begin(self, producer_id: int = 7) -> None:
        self.producers.update(transactional(0, producer_id=producer_id).header, self.end, NOW_MS)
        self.end += 1

    def finish(self, *, committed: bool, producer_id: int = 7) -> AbortedTxn | None:
        prepared = marker(committed=committed, producer_id=producer_id)
        completed = self.producers.complete(prepared.header, self.end, EndTxnMarker(committed, 0), NOW_MS)
        self.end += 1
        return None if completed is None or completed.committed else self.producers.aborted(completed)


@pytest.fixture
def writer() -> Writer:
    return Writer()


def test_sequences_that_follow_each_other_are_new(writer: Writer) -> None:
    assert [writer.write(0, 3), writer.write(3), writer.write(4, 10)] == [None, None, None]


def test_a_gap_is_out_of_order(writer: Writer) -> None:
    writer.write(0, 3)
    assert writer.refused(4) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_each_of_the_last_five_batches_is_recognised(writer: Writer) -> None:
    for number in range(BATCHES_KEPT):
        writer.write(10 * number, 10)
    for number in range(BATCHES_KEPT):
        duplicate = writer.write(10 * number, 10)
        assert duplicate is not None
        assert duplicate.first_offset == 10 * number
        assert duplicate.last_offset == 10 * number + 9


def test_an_older_batch_is_a_duplicate_without_an_offset(writer: Writer) -> None:
    for number in range(BATCHES_KEPT + 1):
        writer.write(10 * number, 10)
    assert writer.refused(0, 10) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER


def test_a_batch_cut_differently_than_before_is_out_of_order(writer: Writer) -> None:
    writer.write(0, 10)
    writer.write(10, 10)
    assert writer.refused(5, 10) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert writer.refused(10, 5) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_wrap_from_the_largest_to_zero(writer: Writer) -> None:
    writer.write(SEQUENCE_MAX - 1, 2)
    assert writer.write(0, 2) is None
    duplicate = writer.write(SEQUENCE_MAX - 1, 2)
    assert duplicate is not None
    assert duplicate.first_offset == 0


def test_a_batch_may_wrap_in_its_middle(writer: Writer) -> None:
    writer.write(SEQUENCE_MAX - 1, 5)
    assert writer.write(3, 2) is None
    duplicate = writer.write(SEQUENCE_MAX - 1, 5)
    assert duplicate is not None
    assert (duplicate.first_sequence, duplicate.last_sequence) == (SEQUENCE_MAX - 1, 2)


def test_an_unknown_producer_may_start_anywhere(writer: Writer) -> None:
    assert writer.write(1234) is None


def test_an_older_epoch_is_fenced(writer: Writer) -> None:
    writer.write(0, epoch=3)
    assert writer.refused(1, epoch=2) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_new_epoch_starts_with_sequence_zero(writer: Writer) -> None:
    writer.write(0, 5, epoch=0)
    assert writer.refused(5, epoch=1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert writer.write(0, epoch=1) is None
    assert writer.refused(0, epoch=0) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_producers_do_not_know_of_each_other(writer: Writer) -> None:
    writer.write(0, 5, producer_id=1)
    assert writer.write(0, 5, producer_id=2) is None
    assert len(writer.producers) == 2


def test_a_producer_not_heard_of_is_forgotten(writer: Writer) -> None:
    writer.write(0)
    assert writer.producers.expire(NOW_MS + 999, 1000) == 0
    assert writer.producers.expire(NOW_MS + 1000, 1000) == 1
    assert writer.producers.get(7) is None


def test_a_producer_with_an_open_transaction_is_not_forgotten(writer: Writer) -> None:
    writer.begin()
    assert writer.producers.expire(NOW_MS + 10**9, 1000) == 0


def test_the_first_open_transaction_holds_the_stable_offset(writer: Writer) -> None:
    writer.write(0, 10, producer_id=1)
    assert writer.producers.first_open_offset() is None
    writer.begin(producer_id=7)
    writer.begin(producer_id=8)
    assert writer.producers.first_open_offset() == 10
    writer.finish(committed=True, producer_id=7)
    assert writer.producers.first_open_offset() == 11


def test_a_marker_above_the_high_watermark_ends_nothing_yet(writer: Writer) -> None:
    writer.begin()
    writer.begin()
    writer.finish(committed=True)
    assert writer.producers.first_unstable_offset(2) == 0
    assert writer.producers.first_unstable_offset(3) is None
    assert writer.producers.first_unstable_offset(2) is None


def test_an_aborted_transaction_is_indexed_with_what_was_stable_at_its_marker(writer: Writer) -> None:
    writer.begin(producer_id=1)
    writer.begin(producer_id=2)
    assert writer.finish(committed=False, producer_id=2) == AbortedTxn(2, 1, 2, 0)
    assert writer.finish(committed=False, producer_id=1) == AbortedTxn(1, 0, 3, 4)


def test_a_marker_without_a_transaction_completes_nothing(writer: Writer) -> None:
    assert writer.finish(committed=False) is None


def test_a_marker_of_an_older_coordinator_or_producer_is_refused(writer: Writer) -> None:
    header = marker(committed=True, epoch=3).header
    writer.producers.complete(header, 0, EndTxnMarker(True, 5), NOW_MS)
    writer.producers.check_marker(7, 3, EndTxnMarker(True, 5))
    with pytest.raises(ApiError, match="coordinator epoch 4"):
        writer.producers.check_marker(7, 3, EndTxnMarker(True, 4))
    with pytest.raises(ApiError, match="epoch 3"):
        writer.producers.check_marker(7, 2, EndTxnMarker(True, 5))


def test_a_partition_remembers_a_bounded_number_of_producers_and_forgets_the_idle_first() -> None:
    producers, one = Producers(), idempotent(0).header
    for number in range(PRODUCERS_MAX):
        producers.update(one._replace(producer_id=number), number, now_ms=number)
    producers.update(one._replace(producer_id=0, base_sequence=1), PRODUCERS_MAX, now_ms=PRODUCERS_MAX)
    producers.update(transactional(1, producer_id=1).header, PRODUCERS_MAX + 1, now_ms=1)
    producers.update(one._replace(producer_id=PRODUCERS_MAX), PRODUCERS_MAX + 2, now_ms=PRODUCERS_MAX + 1)
    assert len(producers) < PRODUCERS_MAX
    assert producers.get(0) is not None  # heard of lately
    assert producers.get(1) is not None  # has an open transaction
    assert producers.get(2) is None
    assert producers.get(PRODUCERS_MAX) is not None


def test_a_producer_takes_little_memory() -> None:
    count, one = 2000, idempotent(0).header
    headers = [one._replace(producer_id=1_000_000 + number) for number in range(count)]
    tracemalloc.start()
    producers = Producers()
    for number, header in enumerate(headers):
        producers.update(header, number, NOW_MS)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used / count < 500
