"""Whom an append wakes: readers of committed records wait for the last stable offset, others for the high watermark."""

from moldau.core.clock import ManualClock
from moldau.core.ids import TopicPartition
from moldau.core.memory_files import MemoryFiles
from moldau.log.log import Log
from moldau.log.verification import NOT_VERIFIED
from moldau.records.batch import EndTxnMarker, Record, build_batch, build_end_txn_marker
from moldau.replication.follower import FollowedPartition
from moldau.replication.replica import ENOUGH_BYTES, UNCOMMITTED_MAX, Replica
from tests.log.helpers import CONFIG, NOW_MS, append, batch, marker, small_segments, transactional
from tests.replication.helpers import Leader

LEADER = 1
OTHER_PRODUCER = 8


class Reader:
    """A fetch that waits; how many bytes it was told of, call by call."""

    def __init__(self, replica: Replica, *, committed: bool = True) -> None:
        self.told: list[int] = []
        replica.wait(self, committed=committed)

    def advanced(self, appended_bytes: int) -> None:
        self.told.append(appended_bytes)


class Writer:
    """Appends to a leader as producers and their transaction coordinator do; every append returns its bytes."""

    def __init__(self, leader: Leader) -> None:
        self.leader = leader

    def plain(self) -> int:
        return self._append(build_batch([Record(0, NOW_MS, None, b"v")]))

    def in_transaction(self, producer_id: int = 7, sequence: int = 0) -> int:
        records = [Record(0, NOW_MS, None, b"in transaction")]
        return self._append(
            build_batch(
                records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, is_transactional=True
            )
        )

    def end(self, producer_id: int = 7, *, committed: bool = True) -> int:
        ended = EndTxnMarker(committed, 0)
        return self._append(build_end_txn_marker(ended, producer_id=producer_id, producer_epoch=0, timestamp=NOW_MS))

    def _append(self, data: bytes) -> int:
        self.leader.partition.append_own(data, NOW_MS, NOT_VERIFIED)
        return len(data)


def sole() -> Writer:
    return Writer(Leader(isr=(1,), replicas=(1,)))


def test_without_transactions_both_kinds_of_readers_are_told_the_same() -> None:
    writer = sole()
    any_reader = Reader(writer.leader.partition, committed=False)
    reader = Reader(writer.leader.partition)
    sizes = [writer.plain(), writer.plain()]
    assert reader.told == any_reader.told == sizes


def test_an_append_inside_or_behind_an_open_transaction_wakes_no_reader_of_committed_records() -> None:
    writer = sole()
    any_reader = Reader(writer.leader.partition, committed=False)
    reader = Reader(writer.leader.partition)
    sizes = [writer.in_transaction(), writer.plain(), writer.in_transaction(sequence=1)]
    assert any_reader.told == sizes
    assert reader.told == []
    sizes.append(writer.end())
    assert reader.told == [sum(sizes)], "the whole transaction, and all that waited behind it"
    sizes.append(writer.plain())
    assert reader.told[1:] == sizes[4:]


def test_an_aborted_transaction_lets_its_readers_go_on_too() -> None:
    writer = sole()
    reader = Reader(writer.leader.partition)
    sizes = [writer.in_transaction(), writer.end(committed=False)]
    assert reader.told == [sum(sizes)]


def test_of_two_transactions_the_first_to_end_brings_what_lies_before_the_other() -> None:
    writer = sole()
    reader = Reader(writer.leader.partition)
    before = writer.in_transaction() + writer.plain()
    rest = writer.in_transaction(OTHER_PRODUCER)
    rest += writer.end()
    assert reader.told == [before]
    rest += writer.end(OTHER_PRODUCER)
    assert reader.told == [before, rest]


def test_the_end_of_a_later_transaction_wakes_nobody_while_an_earlier_one_is_open() -> None:
    writer = sole()
    reader = Reader(writer.leader.partition)
    writer.in_transaction()
    writer.in_transaction(OTHER_PRODUCER)
    writer.end(OTHER_PRODUCER)
    assert reader.told == []


def test_a_reader_that_comes_while_a_transaction_is_open_is_told_of_the_bytes_before_its_time() -> None:
    writer = sole()
    writer.plain()
    sizes = [writer.in_transaction(), writer.plain()]
    reader = Reader(writer.leader.partition)
    sizes.append(writer.end())
    assert reader.told == [sum(sizes)]


def test_a_marker_that_is_not_committed_ends_nothing_yet() -> None:
    writer = Writer(Leader(isr=(1, 2), replicas=(1, 2)))
    reader = Reader(writer.leader.partition)
    sizes = [writer.in_transaction(), writer.end()]
    writer.leader.fetched(2, 1)
    assert reader.told == []
    writer.leader.fetched(2, 2)
    assert reader.told == [sum(sizes)]


def test_a_transaction_that_an_old_log_left_open_holds_its_readers_until_it_ends() -> None:
    files, clock = MemoryFiles(), ManualClock(NOW_MS)
    log = Log.open(files, clock, "/t-0", TopicPartition("t", 0), CONFIG)
    append(log, batch(b"plain"))
    append(log, transactional(0))
    log.close()
    opened = Log.open(files, clock, "/t-0", TopicPartition("t", 0), CONFIG)
    writer = Writer(Leader(isr=(1,), replicas=(1,), log=opened))
    reader = Reader(writer.leader.partition)
    assert writer.leader.partition.last_stable_offset == 1
    writer.plain()
    assert reader.told == []
    writer.end(committed=False)
    assert len(reader.told) == 1


def test_a_transaction_over_several_segments_brings_enough_for_everybody() -> None:
    log = Log.open(MemoryFiles(), ManualClock(NOW_MS), "/t-0", TopicPartition("t", 0), small_segments())
    append(log, transactional(0))
    while len(log.segments) < 3:
        append(log, batch(b"v" * 300))
    writer = Writer(Leader(isr=(1,), replicas=(1,), log=log))
    reader = Reader(writer.leader.partition)
    writer.end()
    assert [told >= ENOUGH_BYTES for told in reader.told] == [True]


def test_on_a_follower_readers_of_committed_records_wait_alike() -> None:
    leader = Log.open(MemoryFiles(), ManualClock(NOW_MS), "/l-0", TopicPartition("t", 0), CONFIG)
    own = Log.open(MemoryFiles(), ManualClock(NOW_MS), "/f-0", TopicPartition("t", 0), CONFIG)
    follower = FollowedPartition(b"t" * 16, own, LEADER, 0, 0)
    reader, sizes = Reader(follower), []
    for prepared in (transactional(0), batch(b"plain"), marker(committed=True)):
        assert reader.told == []
        append(leader, prepared)
        region = leader.read(own.log_end_offset, ENOUGH_BYTES, leader.log_end_offset)
        assert region is not None
        sizes.append(follower.take(region.read(), leader.log_end_offset, 0, NOW_MS))
    assert reader.told == [sum(sizes)]


def test_on_a_follower_deleted_records_take_their_open_transaction_along() -> None:
    leader = Log.open(MemoryFiles(), ManualClock(NOW_MS), "/l-0", TopicPartition("t", 0), CONFIG)
    own = Log.open(MemoryFiles(), ManualClock(NOW_MS), "/f-0", TopicPartition("t", 0), CONFIG)
    follower = FollowedPartition(b"t" * 16, own, LEADER, 0, 0)
    reader = Reader(follower)
    for prepared in (transactional(0), batch(b"plain")):
        append(leader, prepared)
    region = leader.read(0, ENOUGH_BYTES, leader.log_end_offset)
    assert region is not None
    follower.take(region.read(), 2, 0, NOW_MS)
    assert (reader.told, follower.last_stable_offset) == ([], 0)
    follower.take(b"", 2, 1, NOW_MS)
    assert (any(reader.told), follower.last_stable_offset) == (True, 2)


def test_who_waits_no_more_is_told_nothing_and_costs_an_append_nothing() -> None:
    writer = sole()
    reader, other = Reader(writer.leader.partition), Reader(writer.leader.partition)
    writer.leader.partition.stop_waiting(reader)
    size = writer.plain()
    assert (reader.told, other.told) == ([], [size])
    writer.leader.partition.stop_waiting(other)
    writer.leader.partition.stop_waiting(other)
    assert not writer.leader.partition.waiters


def test_a_leader_that_resigns_wakes_readers_of_committed_records() -> None:
    writer = sole()
    writer.in_transaction()
    reader = Reader(writer.leader.partition)
    writer.leader.partition.resign()
    assert reader.told[-1] >= ENOUGH_BYTES


def test_what_is_remembered_of_a_transaction_that_stays_open_is_bounded() -> None:
    writer = sole()
    reader = Reader(writer.leader.partition)
    sizes = [writer.in_transaction()]
    sizes += [writer.plain() for _ in range(3 * UNCOMMITTED_MAX)]
    stable = writer.leader.partition._stable
    assert stable is not None
    assert len(stable._unstable) <= UNCOMMITTED_MAX
    sizes.append(writer.end())
    assert reader.told == [sum(sizes)]
