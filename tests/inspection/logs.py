"""Logs to look at: one with every kind of batch, one of the old message formats, and those of coordinators."""

from pathlib import Path

from moldau.coordinators.classic.subscription_bytes import ConsumerAssignment, ConsumerPartitions, ConsumerSubscription
from moldau.coordinators.groups import record_tables as tables
from moldau.coordinators.records import CoordinatorRecord, encode_record
from moldau.coordinators.transactions.record_tables import (
    TransactionLogKey,
    TransactionLogValue,
    TransactionPartitions,
)
from moldau.core.clock import ManualClock
from moldau.core.ids import TopicPartition
from moldau.core.real_files import RealFiles
from moldau.core.topic_config import TopicConfig
from moldau.log.log import Log
from moldau.protocol.codec import encode
from moldau.records.batch import Record, build_batch
from moldau.records.legacy import build_message_set
from moldau.records.validate import prepare_own_batch
from tests.log.helpers import (
    NOW_MS,
    PARTITION,
    append,
    batch,
    fill,
    idempotent,
    marker,
    small_segments,
    transactional,
)

TOPIC_ID = bytes(range(16))


def every_kind(directory: Path) -> Path:
    """A closed partition with batches of every kind, codec and epoch over several segments."""
    path = directory / str(PARTITION)
    log = Log.open(RealFiles(), ManualClock(NOW_MS), str(path), PARTITION, small_segments(6000))
    fill(log, 40, size=200)
    for codec in range(5):
        append(log, batch(b"first" * 9, b"second" * 9, codec=codec), leader_epoch=1)
    headers = (("trace", b"1"), ("f\u00fcr", None))
    record = Record(0, NOW_MS, b"key", "Gr\u00fc\u00dfe".encode(), headers)
    append(log, prepare_own_batch(build_batch([record])), leader_epoch=1)
    append(log, prepare_own_batch(build_batch([Record(0, NOW_MS, b"\xff\xfe", None)])), leader_epoch=1)
    append(log, transactional(0), leader_epoch=1)
    append(log, marker(committed=False), leader_epoch=1)
    append(log, transactional(1), leader_epoch=2)
    append(log, marker(committed=True), leader_epoch=2)
    for number in range(7):
        append(log, idempotent(2 * number, 2, producer_id=9), leader_epoch=2)
    append(log, transactional(2), leader_epoch=2)
    log.close()
    return path


def old_formats(directory: Path) -> Path:
    """A segment of messages of the formats v0 and v1, as Kafka 0.8 to 0.10 wrote them."""
    path = directory / "old-0"
    path.mkdir(parents=True)
    data, offset = b"", 0
    for magic, codec in ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 3)):
        times = [NOW_MS + offset + number if magic else -1 for number in range(3)]
        records = [Record(offset + n, times[n], b"k%d" % n if n else None, b"value %d" % n) for n in range(3)]
        data += build_message_set(records, magic=magic, codec=codec)
        offset += 3
    data += build_message_set([Record(offset, NOW_MS, None, None)], magic=1, log_append_time_ms=NOW_MS + 99)
    (path / f"{0:020d}.log").write_bytes(data)
    return path


def _segment(directory: Path, topic: str, records: list[CoordinatorRecord]) -> Path:
    partition = TopicPartition(topic, 0)
    path = directory / str(partition)
    log = Log.open(RealFiles(), ManualClock(NOW_MS), str(path), partition, TopicConfig())
    for each in records:
        key, value = encode_record(each)
        append(log, prepare_own_batch(build_batch([Record(0, NOW_MS, key, value)])))
    unknown = Record(0, NOW_MS, (99).to_bytes(2, "big") + b"?", b"\0\0")
    append(log, prepare_own_batch(build_batch([unknown])))
    log.close()
    return path / f"{0:020d}.log"


def group_records(directory: Path) -> Path:
    """A segment of `__consumer_offsets` with offsets, classic groups and groups of KIP-848."""
    subscription = encode(
        ConsumerSubscription(topics=["visits"], owned_partitions=[ConsumerPartitions(topic="visits", partitions=[0])]),
        1,
        (1).to_bytes(2, "big"),
    )
    assigned = ConsumerAssignment(assigned_partitions=[ConsumerPartitions(topic="visits", partitions=[0, 1])])
    member = tables.MemberMetadata(
        member_id="m-1",
        client_id="c",
        client_host="/127.0.0.1",
        rebalance_timeout=300_000,
        session_timeout=45_000,
        subscription=subscription,
        assignment=encode(assigned, 0, (0).to_bytes(2, "big")),
    )
    odd = tables.MemberMetadata(member_id="m-2", client_id="c", client_host="h", subscription=b"?", assignment=b"")
    keys = {"group_id": "g", "member_id": "m"}
    offset_key = tables.OffsetCommitKey(group="g", topic="visits", partition=3)
    current = tables.CurrentTopicPartitions(topic_id=TOPIC_ID, partitions=[0, 1])
    pairs: list[tuple[object, object]] = [
        (offset_key, tables.OffsetCommitValue(offset=7, metadata="m", commit_timestamp=NOW_MS, leader_epoch=2)),
        (offset_key, tables.OffsetCommitValue(offset=8, metadata="", commit_timestamp=NOW_MS, topic_id=TOPIC_ID)),
        (offset_key, tables.OffsetCommitValue(offset=9, metadata="", commit_timestamp=NOW_MS, expire_timestamp=NOW_MS)),
        (offset_key, None),
        (
            tables.GroupMetadataKey(group="g"),
            tables.GroupMetadataValue(
                protocol_type="consumer", generation=3, protocol="range", leader="m-1", members=[member, odd]
            ),
        ),
        (tables.GroupMetadataKey(group="g"), tables.GroupMetadataValue(protocol_type="connect", protocol=None)),
        (tables.ConsumerGroupMetadataKey(group_id="g"), tables.ConsumerGroupMetadataValue(epoch=4, metadata_hash=77)),
        (
            tables.ConsumerGroupMemberMetadataKey(**keys),
            tables.ConsumerGroupMemberMetadataValue(client_id="c", client_host="h", subscribed_topic_names=["visits"]),
        ),
        (
            tables.ConsumerGroupTargetAssignmentMetadataKey(group_id="g"),
            tables.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=4),
        ),
        (
            tables.ConsumerGroupTargetAssignmentMemberKey(**keys),
            tables.ConsumerGroupTargetAssignmentMemberValue(
                topic_partitions=[tables.TargetTopicPartitions(topic_id=TOPIC_ID, partitions=[0, 1])]
            ),
        ),
        (
            tables.ConsumerGroupCurrentMemberAssignmentKey(**keys),
            tables.ConsumerGroupCurrentMemberAssignmentValue(member_epoch=4, assigned_partitions=[current]),
        ),
        (
            tables.ConsumerGroupRegularExpressionKey(group_id="g", regular_expression="v.*"),
            tables.ConsumerGroupRegularExpressionValue(topics=["visits"], version=1, timestamp=NOW_MS),
        ),
    ]
    return _segment(directory, "__consumer_offsets", [CoordinatorRecord(*pair) for pair in pairs])  # type: ignore[arg-type]


def transaction_records(directory: Path) -> Path:
    """A segment of `__transaction_state`."""
    key = TransactionLogKey(transactional_id="shop")
    partitions = [TransactionPartitions(topic="visits", partition_ids=[0, 2])]
    empty = TransactionLogValue(producer_id=4000, transaction_timeout_ms=60_000, transaction_partitions=None)
    ongoing = TransactionLogValue(
        producer_id=4000,
        previous_producer_id=3999,
        producer_epoch=5,
        transaction_timeout_ms=60_000,
        transaction_status=1,
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=NOW_MS,
        transaction_start_timestamp_ms=NOW_MS - 5,
        client_transaction_version=2,
        last_producer_epoch=4,
    )
    records = [CoordinatorRecord(key, value) for value in (empty, ongoing, None)]
    return _segment(directory, "__transaction_state", records)
