"""Each invariant on histories made by hand: one that keeps it, and one that breaks it in one place."""

from pathlib import Path

import pytest

from moldau.core.ids import TopicPartition
from moldau.records.batch import EndTxnMarker, Record, build_batch, build_end_txn_marker
from moldau.testing import invariants
from moldau.testing.invariants import Batch, Kept, Sent, StateSeen, Wait, Written

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
LOG = [Kept(P0, 0, "a", 0), Kept(P0, 1, "b", 0), Kept(P0, 2, "a", 1), Kept(P1, 0, "a", 2)]
SENT = [Sent(P0, "a", 0, 0), Sent(P0, "b", 0, 1), Sent(P0, "a", 1, 2), Sent(P1, "a", 2, 0)]


def batch(base_offset: int, *values: bytes) -> bytes:
    records = [Record(base_offset + at, 0, None, value, ()) for at, value in enumerate(values)]
    return build_batch(records, base_offset=base_offset)


def test_acknowledged_records_in_their_places_are_not_lost() -> None:
    assert invariants.lost(SENT, LOG) == []


def test_an_acknowledged_record_that_is_not_there_is_lost() -> None:
    assert invariants.lost(SENT, LOG[:-1]) == ["a/2 was acknowledged at t-1@0, where the log has nothing"]


def test_an_acknowledged_record_in_whose_place_another_stands_is_lost() -> None:
    [complaint] = invariants.lost(SENT, [LOG[0], LOG[1]._replace(producer="c"), *LOG[2:]])
    assert complaint.endswith("b/0 was acknowledged at t-0@1, where the log has c/0")


def test_a_record_of_unknown_outcome_may_be_there_or_not() -> None:
    unknown = SENT[-1]._replace(offset=None)
    assert invariants.lost([*SENT[:-1], unknown], LOG) == []
    assert invariants.lost([*SENT[:-1], unknown], LOG[:-1]) == []


def test_a_record_that_is_there_twice_is_a_duplicate() -> None:
    assert invariants.duplicated(LOG) == []
    assert invariants.duplicated([*LOG, Kept(P0, 3, "a", 1)]) == ["a/1 is in t-0 2 times"]


def test_the_same_number_in_another_partition_is_no_duplicate() -> None:
    assert invariants.duplicated([*LOG, Kept(P1, 1, "a", 1)]) == []


def test_a_copy_in_a_new_epoch_is_its_producers_doing() -> None:
    log = [Kept(P0, 0, "a", 1, 0), Kept(P0, 1, "a", 2, 0), Kept(P0, 2, "a", 1, 1), Kept(P0, 3, "a", 2, 1)]
    assert invariants.duplicated(log) == []
    assert invariants.reordered([*log, Kept(P0, 4, "a", 3, 1)]) == []
    assert invariants.sent_again(log) == ["a/1 was sent again in epoch 1", "a/2 was sent again in epoch 1"]
    assert invariants.duplicated([*log, Kept(P0, 4, "a", 2, 1)]) == ["a/2 is in t-0 2 times"]


def test_a_record_that_a_new_epoch_brings_too_late_is_out_of_order() -> None:
    log = [Kept(P0, 0, "a", 2, 0), Kept(P0, 1, "a", 1, 1)]
    assert invariants.reordered(log) == ["a/1 at t-0@1 stands behind number 2"]


def test_a_later_record_in_front_of_an_earlier_one_is_out_of_order() -> None:
    assert invariants.reordered(LOG) == []
    swapped = [Kept(P0, 0, "a", 1), Kept(P0, 1, "b", 0), Kept(P0, 2, "a", 0)]
    assert invariants.reordered(swapped) == ["a/0 at t-0@2 stands behind number 1"]


def test_gaps_in_a_producers_numbers_are_in_order() -> None:
    assert invariants.reordered([Kept(P0, 0, "a", 0), Kept(P0, 1, "a", 7)]) == []


def test_what_was_read_has_to_be_in_the_log() -> None:
    assert invariants.vanished(LOG, LOG) == []
    assert invariants.vanished([Kept(P0, 3, "a", 9)], LOG) == ["a/9 was read at t-0@3, where the log has nothing"]


def test_what_was_acknowledged_has_to_be_read() -> None:
    assert invariants.unread(SENT, LOG) == []
    assert invariants.unread(SENT, LOG[1:]) == ["a/0 at t-0@0 was never read"]


def test_a_reader_goes_forward() -> None:
    assert invariants.read_out_of_order(LOG) == []
    assert invariants.read_out_of_order([LOG[0], LOG[0]]) == ["t-0@0 was read after @0"]


def test_replicas_may_differ_past_the_high_watermark_and_before_their_start() -> None:
    one, two, three, other = (Batch(at, at + 1, data) for at, data in ((0, b"1"), (1, b"2"), (2, b"3"), (2, b"x")))
    assert invariants.different_replicas(P0, {1: [one, two, three], 2: [two, other]}, 2) == []
    [complaint] = invariants.different_replicas(P0, {1: [one, two, three], 2: [two, other]}, 3)
    assert complaint == "t-0: brokers 1 and 2 differ in the batch at 2"


def test_a_replica_without_its_last_batch_differs() -> None:
    one, two = Batch(0, 1, b"1"), Batch(1, 2, b"2")
    [complaint] = invariants.different_replicas(P0, {1: [one, two], 2: [one], 3: [one, two]}, 2)
    assert complaint == "t-0: brokers 1 and 2 differ in length: one ends at 1"


def test_an_empty_replica_of_a_filled_partition_differs() -> None:
    [complaint] = invariants.different_replicas(P0, {1: [Batch(0, 1, b"1")], 2: []}, 1)
    assert complaint.startswith("t-0: brokers 1 and 2 differ")


def test_an_epoch_has_one_leader() -> None:
    states = [StateSeen(P0, 1, 0, (1, 2)), StateSeen(P0, -1, 1, (1, 2)), StateSeen(P0, 2, 1, (2,))]
    assert invariants.several_leaders(states) == []
    assert invariants.several_leaders([*states, StateSeen(P0, 1, 1, (1,))]) == ["t-0 was led by [1, 2] in epoch 1"]


@pytest.mark.parametrize("state", [StateSeen(P0, 1, 4, (1,)), StateSeen(P0, 3, 6, (1, 2)), StateSeen(P0, -1, 6, ())])
def test_a_state_that_may_never_be_is_seen(state: StateSeen) -> None:
    assert invariants.impossible_states([StateSeen(P0, 1, 5, (1, 2))]) == []
    assert len(invariants.impossible_states([StateSeen(P0, 1, 5, (1, 2)), state])) == 1


def test_what_takes_too_long_or_for_ever_is_slow() -> None:
    assert invariants.slow([Wait("a write", 1.0)], 2.0) == []
    assert invariants.slow([Wait("a write", 3.0), Wait("a read", None)], 2.0) == [
        "a write took 3.0 s, not 2 s",
        "a read took for ever, not 2 s",
    ]


def test_many_violations_are_a_few_lines() -> None:
    assert invariants.lost([Sent(P0, "a", number, number) for number in range(99)], [])[-1] == "... and 94 more"


def test_a_log_is_read_over_its_segments_without_its_torn_end(tmp_path: Path) -> None:
    first, second = batch(0, b"a/0", b"a/1 padding"), batch(2, b"b/0")
    (tmp_path / "00000000000000000000.log").write_bytes(first)
    (tmp_path / "00000000000000000002.log").write_bytes(second + first[:70])
    batches = invariants.read_log(tmp_path)
    assert [(each.base_offset, each.next_offset) for each in batches] == [(0, 2), (2, 3)]
    assert list(invariants.records_of(P0, batches)) == [
        Kept(P0, 0, "a", 0),
        Kept(P0, 1, "a", 1),
        Kept(P0, 2, "b", 0),
    ]


def test_high_watermarks_are_read_from_the_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "replication-offset-checkpoint").write_text("0\n2\nt 0 3\nt 1 1\n")
    assert invariants.read_high_watermarks(tmp_path) == {P0: 3, P1: 1}


def test_labels_are_read_as_they_were_written() -> None:
    assert invariants.read_label(invariants.label("one/two", 7) + b" and more") == ("one/two", 7)


def test_records_are_resolved_by_the_markers_of_their_transactions() -> None:
    def of(producer_id: int, offset: int) -> Batch:
        record = Record(offset, 1, None, f"p/{offset}".encode())
        data = build_batch([record], producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)
        return Batch(offset, offset + 1, data)

    def end(producer_id: int, offset: int, *, committed: bool) -> Batch:
        marker = EndTxnMarker(committed, 0)
        data = build_end_txn_marker(marker, producer_id=producer_id, producer_epoch=0, timestamp=1, base_offset=offset)
        return Batch(offset, offset + 1, data)

    outside = Batch(0, 1, build_batch([Record(0, 1, None, b"p/0")]))
    batches = [outside, of(1, 1), of(2, 2), of(3, 3), end(2, 4, committed=True), end(1, 5, committed=False)]
    resolved = invariants.resolve(batches)
    assert resolved.committed == [Written(0, b"p/0"), Written(2, b"p/2")]
    assert resolved.aborted == [Written(1, b"p/1")]
    assert resolved.open == {3: [Written(3, b"p/3")]}
