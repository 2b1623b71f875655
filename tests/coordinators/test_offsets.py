from collections.abc import Sequence
from typing import Any, cast

import pytest

from moldau.coordinators.groups.group import Group, OffsetExpiry
from moldau.coordinators.groups.offsets import Committing, FetchedOffset, Offsets, OffsetToCommit, WantedOffset
from moldau.coordinators.groups.record_tables import (
    GroupMetadataKey,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from moldau.coordinators.outcome import Outcome
from moldau.coordinators.records import CoordinatorRecord
from moldau.core.clock import ManualClock
from moldau.core.ids import TopicPartition
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.schema import ZERO_UUID
from tests.coordinators.worlds import made_up_world, topic_id

DAY_MS = 86_400_000
RETENTION_MS = 7 * DAY_MS
PRODUCER = 9


class MadeUpGroup:
    """Answers as it is told."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.is_empty = True
        self.subscribed: set[str] = set()
        self.expiry: OffsetExpiry | None = OffsetExpiry(None)
        self.refusal: ErrorCode | None = None
        self.kept_alive: list[str] = []

    def _check(self) -> None:
        if self.refusal is not None:
            raise ApiError(self.refusal)

    def validate_commit(self, *_: object, **__: object) -> None:
        self._check()

    def validate_fetch(self, *_: object) -> None:
        self._check()

    def validate_offset_delete(self) -> None:
        self._check()

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscribed

    def offset_expiry(self) -> OffsetExpiry | None:
        return self.expiry

    def keep_alive(self, member_id: str) -> None:
        self.kept_alive.append(member_id)

    def tombstones(self) -> list[CoordinatorRecord]:
        return [CoordinatorRecord(GroupMetadataKey(group=self.group_id), None)]


class Bench:
    """Offsets with groups that are made up, and a runtime that commits at once."""

    def __init__(self, properties: dict[str, str] | None = None) -> None:
        self.clock = ManualClock()
        self.groups: dict[str, MadeUpGroup] = {}
        self.offsets = Offsets(made_up_world(properties, clock=self.clock), self)

    def find(self, group_id: str) -> Group | None:
        return cast(Group | None, self.groups.get(group_id))

    def ensure_simple(self, group_id: str) -> Group:
        return cast(Group, self.groups.setdefault(group_id, MadeUpGroup(group_id)))

    def ids(self) -> Sequence[str]:
        return list(self.groups)

    def apply(self, outcome: Outcome) -> list[CoordinatorRecord]:
        for record in outcome.records:
            if not self.offsets.replay(record):
                del self.groups[cast(GroupMetadataKey, record.key).group]
        outcome.committed(0)
        return list(outcome.records)

    def commit(self, who: Committing, *offsets: OffsetToCommit) -> list[int]:
        outcome, answer = self.offsets.commit(who, offsets)
        self.apply(outcome)
        return answer.value

    def fetch(self, partition: int = 0, **options: Any) -> FetchedOffset:
        return self.offsets.fetch("g", [WantedOffset("t", ZERO_UUID, partition)], **options)[0]

    def delete(self, *partitions: TopicPartition) -> list[int]:
        outcome, answer = self.offsets.delete("g", partitions)
        self.apply(outcome)
        return answer.value


def at(offset: int, partition: int = 0, topic: str = "t", **more: Any) -> OffsetToCommit:
    return OffsetToCommit(topic, topic_id(topic), partition, offset, **more)


def refusal(action: Any) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        action()
    return caught.value.code


def test_a_commit_is_fetched_with_its_note_and_leader_epoch() -> None:
    bench = Bench()
    assert bench.commit(Committing("g"), at(7, leader_epoch=3, metadata="note"), at(9, partition=1)) == [0, 0]
    assert bench.fetch(0)[3:] == (7, 3, "note", 0)
    assert bench.fetch(1)[3:] == (9, -1, "", 0)


def test_what_was_never_committed_is_minus_one_without_an_error() -> None:
    bench = Bench()
    assert bench.fetch(0)[3:] == (-1, -1, "", 0)
    bench.commit(Committing("g"), at(7))
    assert bench.fetch(1).offset == -1


def test_a_simple_consumer_makes_the_group_and_a_member_of_a_lost_group_does_not() -> None:
    bench = Bench()
    gone = Committing("gone", "m", None, 3, api_version=8)
    assert refusal(lambda: bench.commit(gone, at(1))) == ErrorCode.ILLEGAL_GENERATION
    assert refusal(lambda: bench.commit(gone._replace(api_version=9), at(1))) == ErrorCode.GROUP_ID_NOT_FOUND
    bench.commit(Committing("g"), at(1))
    assert list(bench.groups) == ["g"]


def test_the_group_may_refuse_and_a_commit_keeps_its_member_alive() -> None:
    bench = Bench()
    bench.commit(Committing("g"), at(1))
    bench.commit(Committing("g", "m", None, 4), at(2))
    group = bench.groups["g"]
    assert group.kept_alive == ["m"]
    group.refusal = ErrorCode.ILLEGAL_GENERATION
    assert refusal(lambda: bench.commit(Committing("g", "m", None, 3), at(3))) == ErrorCode.ILLEGAL_GENERATION
    group.refusal = ErrorCode.STALE_MEMBER_EPOCH
    assert refusal(lambda: bench.fetch()) == ErrorCode.STALE_MEMBER_EPOCH
    group.refusal = None
    assert bench.fetch().offset == 2


def test_a_note_that_is_too_long_is_refused_alone() -> None:
    bench = Bench({"offset.metadata.max.bytes": "4"})
    codes = bench.commit(Committing("g"), at(1, metadata="long!"), at(2, partition=1, metadata="four"))
    assert codes == [ErrorCode.OFFSET_METADATA_TOO_LARGE, 0]
    assert (bench.fetch(0).offset, bench.fetch(1).offset) == (-1, 2)


def test_fetching_all_gives_everything_of_this_group_only() -> None:
    bench = Bench()
    bench.commit(Committing("g"), at(1), at(2, topic="u"))
    bench.commit(Committing("other"), at(3, topic="v"))
    found = bench.offsets.fetch("g", None)
    assert [(each.topic, each.partition, each.offset) for each in found] == [("t", 0, 1), ("u", 0, 2)]
    assert bench.offsets.fetch("none", None) == []


def test_an_offset_of_a_topic_that_was_made_anew_is_not_found_by_its_new_id() -> None:
    bench = Bench()
    bench.commit(Committing("g"), at(5))
    assert bench.offsets.fetch("g", [WantedOffset("t", b"n" * 16, 0)])[0].offset == -1
    assert bench.offsets.fetch("g", [WantedOffset("t", topic_id("t"), 0)])[0].offset == 5


def test_offsets_of_an_open_transaction_wait_for_its_end() -> None:
    bench = Bench()
    bench.commit(Committing("g"), at(1))
    record = CoordinatorRecord(OffsetCommitKey(group="g", topic="t", partition=0), OffsetCommitValue(offset=50))
    bench.offsets.replay(record, PRODUCER)
    assert bench.fetch().offset == 1
    assert bench.fetch(require_stable=True).error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    bench.offsets.end_transaction(PRODUCER, committed=True)
    assert bench.fetch(require_stable=True).offset == 50
    bench.offsets.replay(record._replace(value=OffsetCommitValue(offset=60)), PRODUCER)
    bench.offsets.end_transaction(PRODUCER, committed=False)
    assert bench.fetch(require_stable=True).offset == 50


def test_deleting_spares_topics_that_members_read() -> None:
    bench = Bench()
    bench.commit(Committing("g"), at(1), at(2, topic="u"))
    bench.groups["g"].subscribed = {"t"}
    partitions = [TopicPartition("t", 0), TopicPartition("u", 0), TopicPartition("u", 5)]
    assert bench.delete(*partitions) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, 0, 0]
    assert [each.topic for each in bench.offsets.fetch("g", None)] == ["t"]


def test_deleting_asks_the_group_first() -> None:
    bench = Bench()
    assert refusal(lambda: bench.delete(TopicPartition("t", 0))) == ErrorCode.GROUP_ID_NOT_FOUND
    bench.commit(Committing("g"), at(1))
    bench.groups["g"].refusal = ErrorCode.NON_EMPTY_GROUP
    assert refusal(lambda: bench.delete(TopicPartition("t", 0))) == ErrorCode.NON_EMPTY_GROUP


def test_offsets_of_a_deleted_topic_go_and_those_of_its_successor_stay() -> None:
    bench = Bench()
    bench.commit(Committing("g"), at(1), at(2, partition=1)._replace(topic_id=b"n" * 16), at(3, topic="u"))
    bench.apply(bench.offsets.topics_deleted({"t": topic_id("t")}))
    assert [(each.topic, each.partition) for each in bench.offsets.fetch("g", None)] == [("t", 1), ("u", 0)]


def test_offsets_age_from_their_commit_and_take_the_empty_group_along() -> None:
    bench = Bench()
    bench.commit(Committing("g"), at(1))
    bench.clock.advance(DAY_MS)
    bench.commit(Committing("g"), at(2, partition=1))
    bench.clock.advance(RETENTION_MS - DAY_MS - 1)
    assert bench.apply(bench.offsets.expire()) == []
    bench.clock.advance(1)
    bench.apply(bench.offsets.expire())
    assert [each.partition for each in bench.offsets.fetch("g", None)] == [1]
    assert "g" in bench.groups
    bench.clock.advance(DAY_MS)
    bench.apply(bench.offsets.expire())
    assert bench.groups == {}


def test_offsets_of_a_group_that_fell_empty_age_from_that_moment() -> None:
    bench = Bench()
    bench.commit(Committing("g"), at(1))
    bench.clock.advance(RETENTION_MS)
    bench.groups["g"].expiry = OffsetExpiry(bench.clock.now_ms())
    assert bench.apply(bench.offsets.expire()) == []
    bench.clock.advance(RETENTION_MS)
    assert len(bench.apply(bench.offsets.expire())) == 2


def test_nothing_of_a_rebalancing_group_or_of_a_subscribed_topic_ages() -> None:
    bench = Bench()
    bench.commit(Committing("g"), at(1), at(2, topic="u"))
    group = bench.groups["g"]
    group.is_empty, group.expiry = False, None
    bench.clock.advance(RETENTION_MS)
    assert bench.apply(bench.offsets.expire()) == []
    group.expiry, group.subscribed = OffsetExpiry(None), {"t"}
    bench.apply(bench.offsets.expire())
    assert [each.topic for each in bench.offsets.fetch("g", None)] == ["t"]


def test_an_old_client_may_ask_for_a_retention_of_its_own() -> None:
    bench = Bench()
    bench.commit(Committing("g", retention_ms=1_000), at(1))
    bench.clock.advance(999)
    assert bench.apply(bench.offsets.expire()) == []
    bench.clock.advance(1)
    assert len(bench.apply(bench.offsets.expire())) == 2


def test_what_kafka_0_8_wrote_is_understood() -> None:
    bench = Bench()
    key = LegacyOffsetCommitKey(group="g", topic="t", partition=0)
    assert bench.offsets.replay(CoordinatorRecord(key, LegacyOffsetCommitValue(offset=4, metadata="old")))
    assert bench.fetch()[3:] == (4, -1, "old", 0)


def test_records_of_others_are_left_alone() -> None:
    assert not Bench().offsets.replay(CoordinatorRecord(GroupMetadataKey(group="g"), None))
