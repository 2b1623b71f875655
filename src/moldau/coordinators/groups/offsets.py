"""Committed offsets: where each group goes on reading.

Law: what a group committed last is what it fetches; only a commit, a deletion or its age changes that, and each of
them is a record. Offsets that a transaction carries stay aside until the transaction's end.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple, Protocol

from moldau.coordinators.groups.group import Group, OffsetExpiry
from moldau.coordinators.groups.record_tables import LegacyOffsetCommitKey, LegacyOffsetCommitValue, OffsetCommitKey
from moldau.coordinators.groups.record_tables import OffsetCommitValue as CommittedOffset
from moldau.coordinators.groups.world import World
from moldau.coordinators.outcome import NOTHING, Decision, Outcome, answered
from moldau.coordinators.records import CoordinatorRecord
from moldau.core.ids import NO_PRODUCER_ID, TopicPartition
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.schema import ZERO_UUID

NEVER = -1
"""An expire timestamp that is none."""
DEFAULT_RETENTION = -1
TIMESTAMP_MAX = 2**63 - 1
GROUP_ID_NOT_FOUND_IS_TOLD = 9
"""OffsetCommit 9 (KIP-848): a member of a group that is gone learns so; older ones are told ILLEGAL_GENERATION."""
MINUTE_MS = 60_000


class Committing(NamedTuple):
    """Sender of a commit. `generation` is a member epoch in the consumer protocol, -1 outside of any membership."""

    group_id: str
    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1
    api_version: int = 10
    retention_ms: int = DEFAULT_RETENTION


class OffsetToCommit(NamedTuple):
    """One partition of a commit. `timestamp_ms` -1: now."""

    topic: str
    topic_id: bytes
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str | None = None
    timestamp_ms: int = -1


class WantedOffset(NamedTuple):
    """One partition of a fetch; the zero id matches every topic of that name."""

    topic: str
    topic_id: bytes
    partition: int


class FetchedOffset(NamedTuple):
    """Committed offset that a fetch found; offset -1: there is none."""

    topic: str
    topic_id: bytes
    partition: int
    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    error_code: int = ErrorCode.NONE


class GroupDirectory(Protocol):
    """Questions to `Groups`."""

    def find(self, group_id: str) -> Group | None:
        """The group, None if there is none."""
        ...

    def ensure_simple(self, group_id: str) -> Group:
        """The group, or a new empty one that never had a member: in memory only, its offsets bring it back."""
        ...

    def ids(self) -> Sequence[str]:
        """The ids of all groups, as they are now."""
        ...


Partitions = dict[TopicPartition, CommittedOffset]


class _Pending(NamedTuple):
    """An offset that an open transaction carries."""

    record: int
    """The place of its record among all that were replayed."""
    offset: CommittedOffset
    is_overtaken: bool = False
    """A record behind it has been committed."""


class Offsets:
    """The offsets of the groups of one shard."""

    def __init__(self, world: World, groups: GroupDirectory) -> None:
        self._world = world
        self._groups = groups
        self._committed: dict[str, Partitions] = {}
        self._pending: dict[int, dict[str, dict[TopicPartition, _Pending]]] = {}
        """Offsets of open transactions, by producer id."""
        self._records = 0
        """Number of offsets that were replayed, in the order of the log."""

    def commit(self, who: Committing, offsets: Sequence[OffsetToCommit]) -> Decision[list[int]]:
        """Error codes in the order of `offsets`; raises ApiError if the whole commit is refused."""
        group = self._group_for_commit(who)
        group.validate_commit(
            who.member_id,
            who.instance_id,
            who.generation,
            is_transactional=False,
            api_version=who.api_version,
            partitions=[(each.topic_id, each.partition) for each in offsets],
        )
        if who.member_id:
            group.keep_alive(who.member_id)
        codes = [self._reason_to_refuse(each) for each in offsets]
        records = [self._record(who, each) for each, code in zip(offsets, codes, strict=True) if code == 0]
        return answered(codes, records)

    def commit_in_transaction(self, who: Committing, offsets: Sequence[OffsetToCommit]) -> Decision[list[int]]:
        """Commit offsets in a producer's transaction (TxnOffsetCommit). A generation, a member or an instance that is
        named is checked (KIP-447)."""
        group = self._groups.find(who.group_id)
        if group is None and who.generation >= 0:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION, f"group {who.group_id!r} is gone")
        try:
            (group or self._groups.ensure_simple(who.group_id)).validate_commit(
                who.member_id,
                who.instance_id,
                who.generation,
                is_transactional=True,
                api_version=who.api_version,
            )
        except ApiError as error:
            if error.code == ErrorCode.STALE_MEMBER_EPOCH:  # which producers do not know
                raise ApiError(ErrorCode.ILLEGAL_GENERATION, error.message) from error
            raise
        codes = [self._reason_to_refuse(each) for each in offsets]
        records = [self._record(who, each) for each, code in zip(offsets, codes, strict=True) if code == 0]
        return answered(codes, records)

    def _group_for_commit(self, who: Committing) -> Group:
        group = self._groups.find(who.group_id)
        if group is not None:
            return group
        if who.generation < 0:
            return self._groups.ensure_simple(who.group_id)
        if who.api_version >= GROUP_ID_NOT_FOUND_IS_TOLD:
            raise _no_such_group(who.group_id)
        raise ApiError(ErrorCode.ILLEGAL_GENERATION, f"group {who.group_id!r} is gone")

    def _reason_to_refuse(self, each: OffsetToCommit) -> int:
        longest = self._world.config().int("offset.metadata.max.bytes")
        too_long = each.metadata is not None and len(each.metadata) > longest
        return ErrorCode.OFFSET_METADATA_TOO_LARGE if too_long else ErrorCode.NONE

    def _record(self, who: Committing, each: OffsetToCommit) -> CoordinatorRecord:
        now_ms = self._world.clock.now_ms()
        return CoordinatorRecord(
            OffsetCommitKey(group=who.group_id, topic=each.topic, partition=each.partition),
            CommittedOffset(
                offset=each.offset,
                leader_epoch=each.leader_epoch,
                metadata=each.metadata or "",
                commit_timestamp=now_ms if each.timestamp_ms < 0 else each.timestamp_ms,
                expire_timestamp=_expire_timestamp(now_ms, who.retention_ms),
                topic_id=each.topic_id,
            ),
        )

    def fetch(
        self,
        group_id: str,
        wanted: Sequence[WantedOffset] | None,
        *,
        require_stable: bool = False,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> list[FetchedOffset]:
        """Committed offsets of the wanted partitions, or of all; raises ApiError if the member may not ask."""
        group = self._groups.find(group_id)
        if group is not None:
            group.validate_fetch(member_id, member_epoch)
        committed = self._committed.get(group_id, {}) if group is not None else {}
        if wanted is None:
            wanted = [WantedOffset(topic, ZERO_UUID, partition) for topic, partition in committed]
        unstable = self._unstable(group_id) if require_stable else set()
        return [_fetched(each, committed, unstable) for each in wanted]

    def committed(self, group_id: str) -> Partitions:
        """A copy of what a group has committed."""
        return dict(self._committed.get(group_id, {}))

    def _unstable(self, group_id: str) -> set[TopicPartition]:
        """Partitions for which an open transaction has an offset (KIP-447)."""
        return {each for groups in self._pending.values() for each in groups.get(group_id, {})}

    def delete(self, group_id: str, partitions: Sequence[TopicPartition]) -> Decision[list[int]]:
        """Error codes in the order of `partitions`; raises ApiError if nothing may be deleted."""
        group = self._groups.find(group_id)
        if group is None:
            raise _no_such_group(group_id)
        group.validate_offset_delete()
        there = {*self._committed.get(group_id, {}), *self._unstable(group_id)}
        subscribed = {topic for topic in {each.topic for each in partitions} if group.is_subscribed_to(topic)}
        codes = [
            ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if each.topic in subscribed else ErrorCode.NONE for each in partitions
        ]
        gone = [each for each in dict.fromkeys(partitions) if each in there and each.topic not in subscribed]
        return answered([int(code) for code in codes], [_tombstone(group_id, each) for each in gone])

    def tombstones(self, group_id: str, count_max: int) -> list[CoordinatorRecord]:
        """Tombstones of the first offsets of a group, also of those of open transactions."""
        committed = self._committed.get(group_id, {})
        unstable = sorted(self._unstable(group_id).difference(committed))
        return [_tombstone(group_id, each) for each in islice(chain(committed, unstable), count_max)]

    def topics_deleted(self, topics: Mapping[str, bytes]) -> Outcome:
        """Forget what was committed for topics that are gone; a new topic of the same name has another id."""

        def is_gone(each: TopicPartition, offset: CommittedOffset) -> bool:
            return each.topic in topics and offset.topic_id in (ZERO_UUID, topics[each.topic])

        records = dict.fromkeys((group, each) for group, each, offset in self._all() if is_gone(each, offset))
        return Outcome([_tombstone(group, each) for group, each in records])

    def _all(self) -> Iterator[tuple[str, TopicPartition, CommittedOffset]]:
        for group, partitions in self._committed.items():
            for each, offset in partitions.items():
                yield group, each, offset
        for groups in self._pending.values():
            for group, pending in groups.items():
                for each, (_, offset, _) in pending.items():
                    yield group, each, offset

    def expire(self) -> Outcome:
        """Remove offsets that are too old (KIP-211), and groups that are empty and have none left."""
        now_ms = self._world.clock.now_ms()
        retention_ms = self._world.config().int("offsets.retention.minutes") * MINUTE_MS
        records: list[CoordinatorRecord] = []
        for group_id in self._groups.ids():
            group = self._groups.find(group_id)
            if group is not None:
                records += self._expire_group(group, now_ms, retention_ms)
        return Outcome(records) if records else NOTHING

    def _expire_group(self, group: Group, now_ms: int, retention_ms: int) -> list[CoordinatorRecord]:
        committed = self._committed.get(group.group_id, {})
        unstable = self._unstable(group.group_id)
        rule = group.offset_expiry()
        if committed and rule is None:
            return []
        expired = [
            each
            for each, offset in committed.items()
            if rule is not None
            and each not in unstable
            and _is_expired(offset, rule, now_ms, retention_ms)
            and not group.is_subscribed_to(each.topic)
        ]
        records = [_tombstone(group.group_id, each) for each in expired]
        if len(expired) == len(committed) and not unstable and group.is_empty:
            records += group.tombstones()
        return records

    def replay(self, record: CoordinatorRecord, producer_id: int = NO_PRODUCER_ID) -> bool:
        """Take a record in; False if it is none of ours."""
        key, value = record
        if not isinstance(key, OffsetCommitKey | LegacyOffsetCommitKey):
            return False
        partition = TopicPartition(key.topic, key.partition)
        if isinstance(value, LegacyOffsetCommitValue):
            value = CommittedOffset(
                offset=value.offset, metadata=value.metadata, commit_timestamp=value.commit_timestamp
            )
        if isinstance(value, CommittedOffset):
            self._groups.ensure_simple(key.group)
            self._records += 1
            if producer_id == NO_PRODUCER_ID:
                self._committed.setdefault(key.group, {})[partition] = value
                self._overtake(key.group, partition, self._records)
            else:
                groups = self._pending.setdefault(producer_id, {})
                groups.setdefault(key.group, {})[partition] = _Pending(self._records, value)
        else:
            self._forget(key.group, partition)
        return True

    def _overtake(self, group_id: str, partition: TopicPartition, record: int) -> None:
        """Mark pending offsets that a later record replaces. Among transactions and plain commits the last record in
        the log counts, whatever the order of the markers: compaction keeps it, and a reload must come to the same."""
        for groups in self._pending.values():
            pending = groups.get(group_id, {})
            known = pending.get(partition)
            if known is not None and known.record < record:
                pending[partition] = known._replace(is_overtaken=True)

    def _forget(self, group_id: str, partition: TopicPartition) -> None:
        stores: tuple[dict[str, dict[TopicPartition, Any]], ...] = (self._committed, *self._pending.values())
        for groups in stores:
            partitions = groups.get(group_id, {})
            partitions.pop(partition, None)
            if not partitions:
                groups.pop(group_id, None)
        self._pending = {producer: groups for producer, groups in self._pending.items() if groups}

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """The marker of a transaction: what it carried counts now, or never did."""
        ended = self._pending.pop(producer_id, {})
        if not committed:
            return
        for group_id, partitions in ended.items():
            for partition, (record, offset, is_overtaken) in partitions.items():
                if not is_overtaken:
                    self._committed.setdefault(group_id, {})[partition] = offset
                    self._overtake(group_id, partition, record)


def _fetched(wanted: WantedOffset, committed: Partitions, unstable: set[TopicPartition]) -> FetchedOffset:
    partition = TopicPartition(wanted.topic, wanted.partition)
    if partition in unstable:
        return FetchedOffset(*wanted, error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT)
    found = committed.get(partition)
    if found is None or _is_of_another_topic(found.topic_id, wanted.topic_id):
        return FetchedOffset(*wanted)
    return FetchedOffset(*wanted, offset=found.offset, leader_epoch=found.leader_epoch, metadata=found.metadata)


def _is_of_another_topic(committed: bytes, wanted: bytes) -> bool:
    """Both are known and differ: the topic was deleted and made anew in between."""
    return ZERO_UUID not in (committed, wanted) and committed != wanted


def _is_expired(offset: CommittedOffset, rule: OffsetExpiry, now_ms: int, retention_ms: int) -> bool:
    if offset.expire_timestamp != NEVER:
        return now_ms >= offset.expire_timestamp
    since_ms = offset.commit_timestamp if rule.idle_since_ms is None else rule.idle_since_ms
    return now_ms - since_ms >= retention_ms


def _expire_timestamp(now_ms: int, retention_ms: int) -> int:
    """Time at which an offset expires by the retention that its client asks for (2-4), at most what the field can
    hold."""
    return NEVER if retention_ms == DEFAULT_RETENTION else min(now_ms + retention_ms, TIMESTAMP_MAX)


def _tombstone(group_id: str, partition: TopicPartition) -> CoordinatorRecord:
    return CoordinatorRecord(
        OffsetCommitKey(group=group_id, topic=partition.topic, partition=partition.partition), None
    )


def _no_such_group(group_id: str) -> ApiError:
    return ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
