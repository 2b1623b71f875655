from dataclasses import replace

import pytest

from moldau.log.leader_epochs import EpochEnd
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.replication.partition import Partition
from moldau.replication.replica import ENOUGH_BYTES, UNCOMMITTED_MAX
from tests.log.helpers import append, batch, memory_log
from tests.replication.helpers import Answer, Leader

LAG_MS = 10_000


class Counting:
    def __init__(self) -> None:
        self.counts: list[int] = []

    def advanced(self, appended_bytes: int) -> None:
        self.counts.append(appended_bytes)


BELOW_MIN_ISR_APPENDS = 10 * UNCOMMITTED_MAX


class Session:
    def __init__(self) -> None:
        self.told = 0

    def grown(self, _: Partition) -> None:
        self.told += 1


# The high watermark


def test_the_high_watermark_is_the_smallest_end_of_the_in_sync_replicas() -> None:
    leader = Leader()
    leader.append(5)
    assert leader.partition.high_watermark == 0
    leader.fetched(2, 5)
    assert leader.partition.high_watermark == 0
    leader.fetched(3, 3)
    assert leader.partition.high_watermark == 3
    leader.fetched(3, 5)
    assert leader.partition.high_watermark == 5


def test_a_replica_out_of_sync_does_not_hold_the_high_watermark_up() -> None:
    leader = Leader(isr=(1, 2))
    leader.append(5)
    leader.fetched(2, 5)
    assert leader.partition.high_watermark == 5


def test_the_high_watermark_does_not_go_back_with_a_follower_that_does() -> None:
    leader = Leader(isr=(1, 2), replicas=(1, 2))
    leader.append(5)
    leader.fetched(2, 5)
    leader.fetched(2, 1)
    assert leader.partition.high_watermark == 5


def test_a_new_leader_starts_from_what_it_knew_and_not_from_its_end() -> None:
    log = memory_log()
    append(log, batch(b"a", b"b", b"c"))
    leader = Leader(log=log, high_watermark=2)
    assert (leader.partition.high_watermark, leader.partition.epoch_start_offset) == (2, 3)
    leader.fetched(2, 3)
    leader.fetched(3, 3)
    assert leader.partition.high_watermark == 3


def test_a_high_watermark_beyond_the_log_is_cut_to_it() -> None:
    assert Leader(high_watermark=99).partition.high_watermark == 0


def test_the_only_replica_commits_at_once() -> None:
    leader = Leader(isr=(1,), replicas=(1,), min_isr=2)
    assert leader.partition.sole
    leader.append(3)
    assert leader.partition.high_watermark == 3


def test_the_high_watermark_stands_while_too_few_are_in_sync() -> None:
    leader = Leader(isr=(1,), min_isr=2)
    leader.append(3, acks=1)
    assert leader.partition.high_watermark == 0
    leader.partition.update((1, 2), (1, 2, 3), 8)
    leader.fetched(2, 3)
    assert leader.partition.high_watermark == 3


def test_a_lower_minimum_lets_the_high_watermark_go_on() -> None:
    leader = Leader(isr=(1,), min_isr=2)
    leader.append(3, acks=1)
    leader.partition.configure(replace(leader.log.config, min_insync_replicas=1))
    leader.partition.check_lag(leader.clock.monotonic_ms(), LAG_MS)
    assert (leader.partition.high_watermark, leader.partition.sole) == (3, True)


def test_waiting_fetches_count_exactly_the_committed_bytes() -> None:
    leader, fetch = Leader(isr=(1, 2), replicas=(1, 2)), Counting()
    leader.append(1)
    size = leader.log.size_bytes
    leader.append(1)
    leader.partition.waiters[fetch] = None
    leader.fetched(2, 1)
    leader.fetched(2, 2)
    assert fetch.counts == [size, size]


def test_consumers_do_not_see_what_is_not_committed() -> None:
    leader = Leader(isr=(1, 2), replicas=(1, 2))
    leader.append(3)
    assert leader.partition.read(0, 1000, committed=False, min_one_batch=True) is None
    assert leader.partition.read(2, 1000, committed=False, min_one_batch=True) is None, "not out of range either"
    assert leader.partition.read_for_replica(0, 1000, True) is not None


# Joining and leaving


def test_a_follower_joins_once_it_has_what_is_committed_and_what_was_there_when_we_began() -> None:
    log = memory_log()
    append(log, batch(b"a", b"b", b"c"))
    leader = Leader(isr=(1,), log=log, high_watermark=1, min_isr=2)
    leader.fetched(2, 2)
    assert leader.store.proposals == [], "it has the high watermark, but not all that the leader began with"
    leader.fetched(2, 3)
    assert leader.store.proposals == [(1, 2)]


def test_a_joiner_counts_from_the_proposal_on() -> None:
    leader = Leader(isr=(1,))
    assert leader.partition.sole
    leader.fetched(2, 0)
    assert leader.store.proposals == [(1, 2)]
    leader.append(2)
    assert leader.partition.high_watermark == 0, "the store may have taken it by now"
    leader.store.take(leader.partition)
    assert leader.partition.high_watermark == 0
    leader.fetched(2, 2)
    assert leader.partition.high_watermark == 2


def test_a_refused_joiner_no_longer_holds_the_high_watermark_up() -> None:
    leader = Leader(isr=(1,))
    leader.fetched(2, 0)
    leader.append(2)
    leader.partition.proposal_refused()
    assert leader.partition.high_watermark == 2
    assert leader.partition.sole


def test_a_joiner_counts_while_the_outcome_is_unknown() -> None:
    leader = Leader(isr=(1,))
    leader.fetched(2, 0)
    leader.append(2)
    leader.partition.update((1,), (1, 2, 3), 7)
    assert leader.partition.maximal_isr == {1, 2}, "an image of the same version says nothing about the proposal"
    assert leader.partition.high_watermark == 0


def test_who_may_not_join_is_not_proposed() -> None:
    leader = Leader(isr=(1,))
    leader.store.absent = {2}
    leader.fetched(2, 0)
    assert leader.store.proposals == []


def test_one_proposal_at_a_time() -> None:
    leader = Leader(isr=(1,))
    leader.fetched(2, 0)
    leader.fetched(3, 0)
    assert leader.store.proposals == [(1, 2)]
    leader.store.take(leader.partition)
    leader.fetched(3, 0)
    assert leader.store.proposals == [(1, 2), (1, 2, 3)]


def test_a_replica_that_was_too_slow_is_not_in_sync_again_before_it_fetches() -> None:
    leader = Leader(isr=(1, 2), replicas=(1, 2), min_isr=2)
    leader.fetched(2, 0)
    leader.append()
    leader.clock.advance(LAG_MS + 1)
    leader.partition.check_lag(leader.clock.monotonic_ms(), LAG_MS)
    leader.store.take(leader.partition)
    assert leader.partition.in_sync_replicas == (1,)
    leader.partition.consider_joiners()
    assert leader.store.proposals == [(1,)], "nothing was heard of it, though it has all that is committed"
    leader.fetched(2, 0)
    assert leader.store.proposals == [(1,), (1, 2)]


def test_a_leaver_counts_until_the_store_has_let_it_go() -> None:
    leader = Leader()
    leader.append(1)
    leader.fetched(2, 1)
    leader.clock.advance(LAG_MS + 1)
    leader.partition.check_lag(leader.clock.monotonic_ms(), LAG_MS)
    assert leader.store.proposals == [(1, 2)]
    assert leader.partition.high_watermark == 0
    leader.store.take(leader.partition)
    assert leader.partition.high_watermark == 1


def test_an_idle_follower_is_not_behind_when_something_is_appended_at_last() -> None:
    leader = Leader()
    leader.fetched(2, 0)
    leader.fetched(3, 0)
    leader.clock.advance(100 * LAG_MS)
    leader.append(1)
    leader.partition.check_lag(leader.clock.monotonic_ms(), LAG_MS)
    assert leader.store.proposals == []
    leader.clock.advance(LAG_MS + 1)
    leader.partition.check_lag(leader.clock.monotonic_ms(), LAG_MS)
    assert leader.store.proposals == [(1,)]


def test_a_follower_that_never_came_is_behind_since_we_lead() -> None:
    leader = Leader()
    leader.fetched(2, 0)
    leader.clock.advance(LAG_MS + 1)
    leader.partition.check_lag(leader.clock.monotonic_ms(), LAG_MS)
    assert leader.store.proposals == [(1, 2)]


def test_old_news_change_nothing() -> None:
    leader = Leader()
    leader.partition.update((1,), (1, 2, 3), 6)
    assert leader.partition.in_sync_replicas == (1, 2, 3)


def test_reassignment_brings_new_replicas_without_a_new_version() -> None:
    leader = Leader(isr=(1, 2), replicas=(1, 2))
    leader.partition.update((1, 2), (1, 2, 4), 7)
    leader.fetched(4, 0)
    assert leader.store.proposals == [(1, 2, 4)]


def test_who_is_no_replica_is_turned_away() -> None:
    with pytest.raises(ApiError) as refused:
        Leader(replicas=(1, 2), isr=(1, 2)).fetched(8, 0)
    assert refused.value.code == ErrorCode.UNKNOWN_LEADER_EPOCH


# Writes that wait


def test_a_write_is_answered_at_the_high_watermark() -> None:
    leader = Leader(isr=(1, 2), replicas=(1, 2))
    leader.append(2)
    leader.append(2)
    first, second = leader.answer_at(2), leader.answer_at(4)
    leader.fetched(2, 2)
    assert (first.codes, second.codes) == ([ErrorCode.NONE], [])
    leader.fetched(2, 4)
    assert second.codes == [ErrorCode.NONE]
    assert leader.answer_at(4).codes == [ErrorCode.NONE], "one that comes late is answered at once"


def test_a_repeated_write_waits_for_its_old_offset() -> None:
    leader = Leader(isr=(1, 2), replicas=(1, 2))
    leader.append(1, sequence=0)
    again = leader.append(1, sequence=0)
    assert again.duplicate
    answer = leader.answer_at(again.last_offset + 1)
    assert answer.codes == []
    leader.fetched(2, 1)
    assert answer.codes == [ErrorCode.NONE]


def test_too_few_in_sync_replicas_refuse_a_write_before_it_is_appended() -> None:
    leader = Leader(isr=(1,), min_isr=2)
    with pytest.raises(ApiError) as refused:
        leader.append(1)
    assert refused.value.code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert leader.log.log_end_offset == 0
    leader.append(1, acks=1)
    assert leader.log.log_end_offset == 1


def test_a_write_that_lost_its_replicas_is_told_so_and_its_repetition_succeeds_later() -> None:
    leader = Leader(isr=(1, 2), replicas=(1, 2), min_isr=2)
    leader.append(1, sequence=0)
    answer = leader.answer_at(1)
    leader.partition.update((1,), (1, 2), 8)
    assert answer.codes == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]
    assert leader.log.log_end_offset == 1
    leader.partition.update((1, 2), (1, 2), 9)
    assert leader.append(1, sequence=0).duplicate
    again = leader.answer_at(1)
    leader.fetched(2, 1)
    assert again.codes == [ErrorCode.NONE]
    assert answer.codes == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND], "nobody is answered twice"


def test_a_forgotten_write_is_not_answered() -> None:
    leader = Leader(isr=(1, 2), replicas=(1, 2))
    leader.append(1)
    gone, kept = leader.answer_at(1), leader.answer_at(1)
    leader.partition.forget(gone)
    leader.fetched(2, 1)
    assert (gone.codes, kept.codes) == ([], [ErrorCode.NONE])


def test_who_is_told_of_a_commit_may_write_and_wait_again() -> None:
    leader = Leader(isr=(1, 2), replicas=(1, 2))
    later = Answer()

    class Chain(Answer):
        def committed(self, _: Partition, error: ErrorCode) -> None:
            assert error == ErrorCode.NONE
            leader.append(1)
            leader.partition.wait_for_commit(2, later)

    leader.append(1)
    leader.partition.wait_for_commit(1, Chain())
    leader.fetched(2, 1)
    assert later.codes == []
    leader.fetched(2, 2)
    assert later.codes == [ErrorCode.NONE]


# The end


def test_resigning_tells_everybody_once_and_ends_writing() -> None:
    leader, fetch, session = Leader(), Counting(), Session()
    leader.append(1)
    answer = leader.answer_at(1)
    leader.partition.waiters[fetch] = None
    leader.partition.replica_waiters[session] = None
    leader.partition.resign()
    assert answer.codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert (fetch.counts, session.told) == ([ENOUGH_BYTES], 1)
    with pytest.raises(ApiError) as refused:
        leader.append(1)
    assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(ApiError):
        leader.partition.append_own(b"", 0)
    assert leader.answer_at(1).codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER], "also one that comes late"


def test_an_update_after_the_end_changes_nothing() -> None:
    leader = Leader()
    leader.append(1)
    leader.partition.resign()
    leader.partition.update((1,), (1, 2, 3), 8)
    assert leader.partition.high_watermark == 0


def test_a_leader_answers_for_its_epoch_before_it_has_written_anything() -> None:
    log = memory_log()
    append(log, batch(b"a", b"b"), leader_epoch=3)
    Leader(log=log, leader_epoch=6)
    assert log.epoch_end_offset(3) == EpochEnd(3, 2)
    assert log.epoch_end_offset(6) == EpochEnd(6, 2)


def test_deleting_records_is_news_for_followers() -> None:
    leader, session = Leader(isr=(1, 2), replicas=(1, 2)), Session()
    leader.append(2)
    leader.fetched(2, 2)
    leader.partition.replica_waiters[session] = None
    assert leader.partition.delete_records(1) == 1
    assert session.told == 1


def test_a_joiner_that_a_reassignment_takes_out_counts_until_its_proposal_is_refused() -> None:
    leader = Leader(isr=(1, 2))
    leader.append(3)
    leader.fetched(2, 3)
    leader.fetched(3, 3)
    assert leader.partition.pending_isr == (1, 2, 3)
    leader.partition.update((1, 2), (1, 2), leader.partition.partition_epoch)
    leader.append(1)
    leader.fetched(2, 4)
    assert leader.partition.high_watermark == 3, "the store may have taken the proposal"
    leader.partition.proposal_refused()
    assert leader.partition.high_watermark == 4
    assert set(leader.partition.followers) == {2}


def test_what_a_leader_below_min_isr_remembers_of_its_appends_is_bounded() -> None:
    leader = Leader(isr=(1, 2), replicas=(1, 2), min_isr=2)
    leader.partition.update((1,), (1, 2), 8)
    for end in range(1, BELOW_MIN_ISR_APPENDS + 1):
        leader.partition.replicated_append(end, 10)
    assert len(leader.partition._uncommitted) <= UNCOMMITTED_MAX
    assert sum(size for _, size in leader.partition._uncommitted) == 10 * BELOW_MIN_ISR_APPENDS


def test_a_follower_far_behind_brings_bytes_with_each_of_its_steps_while_more_is_appended() -> None:
    """Those who wait for many bytes are not held up by what is remembered of the appends being bounded."""
    leader = Leader(isr=(1, 2), replicas=(1, 2))
    consumer = Counting()
    leader.partition.waiters[consumer] = None
    steps = 8
    appended = 4 * UNCOMMITTED_MAX
    for _ in range(appended):
        leader.append(1, acks=1)
    for step in range(1, steps + 1):
        leader.append(1, acks=1)
        leader.fetched(2, step * appended // steps)
    assert len(consumer.counts) == steps
    assert min(consumer.counts) > 0
