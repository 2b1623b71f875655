"""A follower against a real leader's log: appending as sent, cutting back to where the logs agree."""

import logging
from random import Random

import pytest

from moldau.core.clock import ManualClock
from moldau.core.ids import TopicPartition
from moldau.core.memory_files import MemoryFiles
from moldau.core.topic_config import TopicConfig
from moldau.log.leader_epochs import EpochStart
from moldau.log.log import Log
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.records.batch import CorruptBatchError, split_batches
from moldau.replication.follower import FollowedPartition
from moldau.replication.throttle import Throttle, is_throttled
from moldau.requests.divergence import diverging_epoch
from tests.log.helpers import NOW_MS, append, batch, idempotent, marker, offsets, small_segments, transactional

TOPIC_ID = bytes(range(16))
PARTITION = TopicPartition("events", 0)
LEADER = 1
CONFIG = TopicConfig(segment_bytes=1 << 20)
ALL_BYTES = 1 << 30


def new_log(config: TopicConfig = CONFIG) -> Log:
    return Log.open(MemoryFiles(), ManualClock(NOW_MS), "/data/events-0", PARTITION, config)


def following(log: Log, *, epoch: int = 0, high_watermark: int = 0) -> FollowedPartition:
    return FollowedPartition(TOPIC_ID, log, LEADER, epoch, high_watermark)


def data_of(log: Log, offset: int | None = None, max_bytes: int = ALL_BYTES) -> bytes:
    """What a leader sends to one who asks for `offset`."""
    start = log.log_start_offset if offset is None else offset
    region = log.read(start, max_bytes, log.log_end_offset)
    return b"" if region is None else region.read()


def contents(log: Log, offset: int | None = None) -> bytes:
    data, offset = b"", log.log_start_offset if offset is None else offset
    while piece := data_of(log, offset):
        data += piece
        offset = split_batches(piece)[-1][0].next_offset
    return data


def fetch(follower: FollowedPartition, leader: Log, high_watermark: int = 0, max_bytes: int = ALL_BYTES) -> bool:
    """One fetch as leader and follower do it; whether it changed the follower's position."""
    log = follower.log
    before = (log.log_end_offset, log.leader_epochs.latest)
    diverging = diverging_epoch(leader, log.leader_epochs.latest, log.log_end_offset)
    if diverging is not None:
        follower.diverged(diverging.epoch, diverging.end_offset)
    elif not leader.log_start_offset <= log.log_end_offset <= leader.log_end_offset:
        follower.truncate_to_leader(leader.log_start_offset, leader.log_end_offset)
    else:
        data = data_of(leader, log.log_end_offset, max_bytes)
        follower.take(data, high_watermark, leader.log_start_offset, NOW_MS)
    return before != (log.log_end_offset, log.leader_epochs.latest)


def catch_up(follower: FollowedPartition, leader: Log) -> int:
    """Fetch until nothing changes; how often."""
    for number in range(1000):
        if not fetch(follower, leader, leader.log_end_offset):
            return number
    raise AssertionError("the follower does not come to an end")


class CountingWaiter:
    def __init__(self) -> None:
        self.bytes = 0

    def advanced(self, appended_bytes: int) -> None:
        self.bytes += appended_bytes


# Taking


def test_batches_are_stored_as_the_leader_sent_them() -> None:
    leader, follower = new_log(), following(new_log())
    for number in range(5):
        append(leader, idempotent(number), leader_epoch=number // 2)
    size = follower.take(data_of(leader), 0, 0, NOW_MS)
    assert contents(follower.log) == contents(leader)
    assert size == leader.size_bytes
    assert follower.log.leader_epochs.entries() == leader.leader_epochs.entries()
    assert follower.log.producers.get(7) is not None


def test_the_high_watermark_is_the_leaders_but_never_past_the_own_end_and_never_back() -> None:
    leader, follower = new_log(), following(new_log())
    append(leader, batch(b"a", b"b"))
    follower.take(data_of(leader), 1, 0, NOW_MS)
    assert follower.high_watermark == 1
    follower.take(b"", 7, 0, NOW_MS)
    assert follower.high_watermark == 2
    follower.take(b"", 0, 0, NOW_MS)
    assert follower.high_watermark == 2


def test_a_remembered_high_watermark_is_kept_within_the_log() -> None:
    log = new_log()
    append(log, batch(b"a", b"b"))
    assert following(log, high_watermark=9).high_watermark == 2
    log.advance_log_start(1)
    assert following(log, high_watermark=0).high_watermark == 1


def test_the_log_start_follows_the_leaders_up_to_the_high_watermark() -> None:
    leader, follower = new_log(), following(new_log())
    append(leader, batch(b"a", b"b", b"c"))
    follower.take(data_of(leader), 2, 3, NOW_MS)
    assert follower.log.log_start_offset == 2
    follower.take(b"", 3, 3, NOW_MS)
    assert follower.log.log_start_offset == 3


def test_a_batch_whose_checksum_is_wrong_is_refused_and_nothing_of_the_answer_is_kept() -> None:
    leader, follower = new_log(), following(new_log())
    append(leader, batch(b"a"))
    append(leader, batch(b"b"))
    broken = bytearray(data_of(leader))
    broken[-1] ^= 1
    with pytest.raises(CorruptBatchError):
        follower.take(broken, 2, 0, NOW_MS)
    assert follower.log.log_end_offset == 0
    assert follower.log.size_bytes == 0


def test_a_batch_that_is_cut_off_is_left_for_the_next_fetch() -> None:
    leader, follower = new_log(), following(new_log())
    append(leader, batch(b"a"))
    append(leader, batch(b"b"))
    data = data_of(leader)
    whole = len(data) // 2
    for size in (3, 11, 60, whole - 1):
        assert follower.take(data[:size], 0, 0, NOW_MS) == 0
    assert follower.take(data[:-1], 0, 0, NOW_MS) == whole
    assert follower.log.log_end_offset == 1
    follower.take(data_of(leader, 1), 0, 0, NOW_MS)
    assert contents(follower.log) == data


def test_what_is_there_already_is_refused() -> None:
    leader, follower = new_log(), following(new_log())
    append(leader, batch(b"a"))
    follower.take(data_of(leader), 0, 0, NOW_MS)
    with pytest.raises(ApiError) as refusal:
        follower.take(data_of(leader), 0, 0, NOW_MS)
    assert refusal.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_slice_of_a_buffer_that_is_used_again_is_stored_by_value() -> None:
    leader, follower = new_log(), following(new_log())
    append(leader, batch(b"a"))
    data = data_of(leader)
    received = bytearray(b"in front" + data + b"behind")
    follower.take(memoryview(received)[8 : 8 + len(data)], 1, 0, NOW_MS)
    received[:] = bytes(len(received))
    assert contents(follower.log) == data


def test_one_answer_spreads_over_segments() -> None:
    config = small_segments(4096)
    leader, follower = new_log(), following(new_log(config))
    for number in range(40):
        append(leader, batch(b"v" * (100 + number)))
    follower.take(data_of(leader), 40, 0, NOW_MS)
    assert contents(follower.log) == contents(leader)
    assert len(follower.log.segments) > 1
    assert follower.log.size_bytes == leader.size_bytes


def test_an_aborted_transaction_is_known_on_the_follower() -> None:
    leader, follower = new_log(), following(new_log())
    append(leader, transactional(0))
    append(leader, marker(committed=False))
    append(leader, transactional(1))
    follower.take(data_of(leader), 3, 0, NOW_MS)
    assert follower.log.aborted_transactions(0, 3) == leader.aborted_transactions(0, 3) != []
    assert follower.last_stable_offset == 2


def test_a_full_disk_leaves_the_log_as_it_was() -> None:
    files = MemoryFiles()
    follower = following(Log.open(files, ManualClock(NOW_MS), "/data/events-0", PARTITION, CONFIG))
    leader = new_log()
    append(leader, batch(b"a"))
    files.fail_next_append()
    with pytest.raises(ApiError) as refusal:
        follower.take(data_of(leader), 1, 0, NOW_MS)
    assert refusal.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (follower.log.log_end_offset, follower.log.failure) == (0, None)


def test_waiting_consumers_are_told_the_bytes_that_were_committed() -> None:
    leader, follower = new_log(), following(new_log())
    waiter = CountingWaiter()
    follower.waiters[waiter] = None
    append(leader, batch(b"a"))
    first = follower.take(data_of(leader), 0, 0, NOW_MS)
    assert waiter.bytes == 0
    append(leader, batch(b"bb"))
    second = follower.take(data_of(leader, 1), 1, 0, NOW_MS)
    assert waiter.bytes == first
    follower.take(b"", 2, 0, NOW_MS)
    assert waiter.bytes == first + second


def test_waiting_consumers_are_woken_for_records_of_before_we_followed() -> None:
    log = new_log()
    append(log, batch(b"a"))
    follower = following(log)
    waiter = CountingWaiter()
    follower.waiters[waiter] = None
    follower.take(b"", 1, 0, NOW_MS)
    assert waiter.bytes > 0


# Cutting back


def test_a_tail_that_the_new_leader_does_not_have_is_cut_off() -> None:
    leader, own = new_log(), new_log()
    for log in (leader, own):
        append(log, batch(b"a"), 0)
        append(log, batch(b"b"), 0)
    append(own, batch(b"lost"), 0)
    append(leader, batch(b"c"), 1)
    follower = following(own, epoch=1, high_watermark=2)
    catch_up(follower, leader)
    assert contents(own) == contents(leader)
    assert own.leader_epochs.entries() == (EpochStart(0, 0), EpochStart(1, 2))


def test_logs_that_took_turns_to_lead_alone_meet_where_they_agree() -> None:
    """KIP-279: epochs 1 and 3 were led by one, 2 and 4 by the other, and neither saw the other's."""
    leader, own = new_log(), new_log()
    for log in (leader, own):
        append(log, batch(b"same"), 0)
    append(own, batch(b"1", b"1"), 1)
    append(leader, batch(b"2"), 2)
    append(own, batch(b"3", b"3", b"3"), 3)
    append(leader, batch(b"4"), 4)
    follower = following(own, epoch=5, high_watermark=1)
    assert catch_up(follower, leader) <= 5
    assert contents(own) == contents(leader)
    assert own.leader_epochs.entries() == leader.leader_epochs.entries()


def test_an_epoch_without_a_record_is_given_up() -> None:
    """It led epoch 2 for a moment and wrote nothing; who leads epoch 3 never heard of it."""
    leader, own = new_log(), new_log()
    for log in (leader, own):
        append(log, batch(b"a"), 1)
    own.leader_epochs.assign(2, own.log_end_offset)
    leader.leader_epochs.assign(3, leader.log_end_offset)
    append(leader, batch(b"b"), 3)
    follower = following(own, epoch=3, high_watermark=1)
    assert catch_up(follower, leader) == 2
    assert own.leader_epochs.entries() == (EpochStart(1, 0), EpochStart(3, 1))
    assert contents(own) == contents(leader)


@pytest.mark.parametrize(
    ("epoch", "end_offset", "end"),
    [
        (0, 3, 2),  # the leader has more of epoch 0 than we: our epoch 0 ended at 2
        (0, 1, 1),
        (1, 9, 2),  # we have no epoch 1; the one before it ended at 2
        (2, 3, 3),
        (2, 9, 5),
    ],
)
def test_where_a_diverging_epoch_cuts(epoch: int, end_offset: int, end: int) -> None:
    own = new_log()
    for value, own_epoch in [(b"0", 0), (b"1", 0), (b"2", 2), (b"3", 2), (b"4", 2)]:
        append(own, batch(value), own_epoch)
    following(own, epoch=4).diverged(epoch, end_offset)
    assert own.log_end_offset == end


def test_cutting_below_the_high_watermark_is_an_error_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    own = new_log()
    for _ in range(3):
        append(own, batch(b"a"), 0)
    follower = following(own, epoch=1, high_watermark=2)
    with caplog.at_level(logging.INFO):
        follower.diverged(0, 2)
    assert [record.levelname for record in caplog.records] == ["INFO"]
    assert "truncated to offset 2 from 3" in caplog.text
    assert follower.high_watermark == 2
    caplog.clear()
    follower.diverged(0, 1)
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "truncated to offset 1, below its high watermark 2" in caplog.text
    assert follower.high_watermark == 1


def test_a_follower_behind_the_leaders_start_starts_over_there() -> None:
    leader, own = new_log(), new_log()
    append(own, batch(b"old"), 0)
    for _ in range(5):
        append(leader, batch(b"a"), 0)
    leader.advance_log_start(3)
    follower = following(own, high_watermark=1)
    follower.truncate_to_leader(3, 5)
    assert (own.log_start_offset, own.log_end_offset, follower.high_watermark) == (3, 3, 3)
    catch_up(follower, leader)
    assert offsets(own) == [3, 4]
    assert follower.high_watermark == 5


def test_a_follower_past_the_leaders_end_is_cut_to_it() -> None:
    own = new_log()
    for _ in range(5):
        append(own, batch(b"a"), 0)
    follower = following(own, high_watermark=2)
    follower.truncate_to_leader(0, 3)
    assert (own.log_end_offset, follower.high_watermark) == (3, 2)


def test_within_the_leaders_range_nothing_is_cut() -> None:
    own = new_log()
    append(own, batch(b"a", b"b"), 0)
    following(own).truncate_to_leader(0, 9)
    assert own.log_end_offset == 2


def test_a_leader_whose_log_starts_inside_a_batch_is_followed_from_that_batch() -> None:
    leader, follower = new_log(), following(new_log())
    append(leader, batch(b"a", b"b", b"c"), 0)
    append(leader, batch(b"d"), 0)
    leader.advance_log_start(1)
    follower.truncate_to_leader(1, 4)
    assert follower.log.log_end_offset == 1
    follower.take(data_of(leader, 1), 4, 1, NOW_MS)
    log = follower.log
    assert (log.log_start_offset, log.log_end_offset, follower.high_watermark) == (1, 4, 4)
    assert offsets(log) == offsets(leader) == [1, 2, 3]


@pytest.mark.parametrize("seed", range(60))
def test_whatever_the_elections_a_follower_ends_as_its_leader(seed: int) -> None:
    random = Random(seed)
    logs = [new_log(small_segments(2048)) for _ in range(3)]
    leader, epoch = 0, 0
    logs[0].leader_epochs.assign(0, 0)
    followers = {each: following(logs[each]) for each in (1, 2)}
    for _ in range(200):
        dice = random.random()
        if dice < 0.4:
            append(logs[leader], batch(*[random.randbytes(random.randrange(200))] * random.randint(1, 3)), epoch)
        elif dice < 0.8:
            fetch(random.choice(list(followers.values())), logs[leader], max_bytes=random.randrange(1, 2000))
        elif dice < 0.87:
            leader = random.randrange(3)
            epoch += 1
            logs[leader].leader_epochs.assign(epoch, logs[leader].log_end_offset)
            followers = {each: following(logs[each], epoch=epoch) for each in range(3) if each != leader}
        elif dice < 0.89:
            logs[leader].advance_log_start(random.randint(logs[leader].log_start_offset, logs[leader].log_end_offset))
    for follower in followers.values():
        catch_up(follower, logs[leader])
        assert follower.log.log_end_offset == logs[leader].log_end_offset
        start = max(follower.log.log_start_offset, logs[leader].log_start_offset)
        assert contents(follower.log, start) == contents(logs[leader], start)


# Throttles


def test_a_rate_is_exceeded_by_more_bytes_per_second_than_it_allows() -> None:
    clock = ManualClock()
    throttle = Throttle(clock, 1000)
    throttle.record(1000)
    assert not throttle.is_exceeded()
    throttle.record(1)
    assert throttle.is_exceeded()
    clock.advance(2000)
    assert not throttle.is_exceeded()
    throttle.record(1500)
    assert throttle.is_exceeded()


def test_what_is_older_than_the_windows_does_not_count() -> None:
    clock = ManualClock()
    throttle = Throttle(clock, 10)
    throttle.record(1_000_000)
    clock.advance(10_999)
    assert throttle.is_exceeded()
    clock.advance(1)
    assert not throttle.is_exceeded()


def test_without_a_rate_nothing_is_exceeded() -> None:
    throttle = Throttle(ManualClock())
    throttle.record(1 << 40)
    assert not throttle.is_exceeded()
    throttle.configure(1)
    assert throttle.is_exceeded()


def test_throttled_replicas_are_named_by_partition_and_broker() -> None:
    assert is_throttled(("*",), 3, 1)
    assert is_throttled(("0:1", "3:1"), 3, 1)
    assert not is_throttled(("0:1", "3:11"), 3, 1)
    assert not is_throttled((), 3, 1)
