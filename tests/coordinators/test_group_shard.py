import pytest

from moldau.coordinators.groups.offsets import Committing, OffsetToCommit, WantedOffset
from moldau.coordinators.groups.record_tables import OffsetCommitKey, OffsetCommitValue
from moldau.coordinators.groups.shard import GroupShard
from moldau.coordinators.key_partition import KEY_BYTES_MAX, partition_of
from moldau.coordinators.outcome import Outcome
from moldau.coordinators.records import CoordinatorRecord
from moldau.coordinators.timers import ManualTimers
from moldau.protocol.errors import ApiError, ErrorCode
from tests.coordinators.worlds import made_up_world, topic_id


@pytest.mark.parametrize(
    ("group_id", "partition"),
    [
        ("", 0),
        ("g", 3),
        ("my-group", 12),
        ("console-consumer-12345", 6),
        ("grüße-日本", 25),
        ("\N{GRINNING FACE}", 49),
        ("polygenelubricants", 0),  # its hash is the smallest int of Java, which has no absolute value
        ("connect-cluster", 13),
        ("g" * KEY_BYTES_MAX, 17),
    ],
)
def test_a_group_belongs_to_the_partition_that_kafka_chooses(group_id: str, partition: int) -> None:
    """Expected values: `Utils.abs(group.hashCode()) % 50` in Java."""
    assert partition_of(group_id, 50) == partition


@pytest.mark.parametrize("key", ["g" * (KEY_BYTES_MAX + 1), "日" * 11_000, "g" * 1_000_000])
def test_a_key_that_no_record_has_place_for_belongs_to_no_partition(key: str) -> None:
    """To hash a megabyte held the event loop for 150 ms, and it was remembered."""
    with pytest.raises(ApiError) as error:
        partition_of(key, 50)
    assert error.value.code == ErrorCode.INVALID_REQUEST


def test_a_shard_that_replays_the_same_records_answers_the_same() -> None:
    live, restarted = GroupShard(made_up_world()), GroupShard(made_up_world())
    outcome, _ = live.offsets.commit(Committing("g"), [OffsetToCommit("t", topic_id("t"), 0, 7)])
    for shard in (live, restarted):
        for record in outcome.records:
            shard.replay(record)
        shard.on_loaded()
    wanted = [WantedOffset("t", topic_id("t"), 0)]
    assert live.offsets.fetch("g", wanted) == restarted.offsets.fetch("g", wanted)
    assert restarted.offsets.fetch("g", wanted)[0].offset == 7
    assert [group.group_id for group in restarted.groups.listed()] == ["g"]


def test_a_decision_changes_nothing_before_its_records_are_replayed() -> None:
    shard = GroupShard(made_up_world())
    outcome, answer = shard.offsets.commit(Committing("g"), [OffsetToCommit("t", topic_id("t"), 0, 7)])
    assert shard.offsets.fetch("g", [WantedOffset("t", topic_id("t"), 0)])[0].offset == -1
    assert not answer.done
    outcome.committed(0)
    assert answer.value == [0]


def test_an_offset_makes_a_group_that_can_be_deleted() -> None:
    shard = GroupShard(made_up_world())
    shard.replay(CoordinatorRecord(OffsetCommitKey(group="g", topic="t", partition=0), OffsetCommitValue(offset=1)))
    shard.on_loaded()
    outcome, _ = shard.groups.delete("g", shard.offsets.tombstones("g", 10))
    for record in outcome.records:
        shard.replay(record)
    assert shard.groups.find("g") is None
    assert shard.offsets.fetch("g", None) == []


def test_timers_run_in_order_and_may_schedule_others() -> None:
    timers, ran = ManualTimers(), []

    def note(name: str) -> Outcome:
        ran.append((name, timers.now_ms))
        if name == "first":
            timers.schedule("third", 5, lambda: note("third"))
            timers.cancel("never")
        return Outcome()

    timers.schedule("second", 12, lambda: note("second"))
    timers.schedule("first", 3, lambda: note("first"))
    timers.schedule("first", 10, lambda: note("first"))
    timers.schedule("never", 11, lambda: note("never"))
    assert len(timers.advance(20)) == 3
    assert ran == [("first", 10), ("second", 12), ("third", 15)]
