"""Tables of Kafka's own records in `__consumer_offsets`.

A key's `record_type` is the int16 in front of its bytes; a value's `written_version` is what Kafka 4.3 writes, and
ours too: a broker of ours and one of Kafka's can take over each other's data. All versions are read.

Not here: records of share groups and streams groups (types 9 to 15 and 17 on), which a replay skips.
"""

from moldau.coordinators.records import RecordKey, RecordTypes, RecordValue
from moldau.protocol.schema import BYTES, INT8, INT32, INT64, STRING, UUID, Struct, array, field

OFFSET_COMMIT_WITH_EXPIRY = 1
"""The one version of an offset that says when it expires."""


class LegacyOffsetCommitKey(RecordKey, record_type=0):
    """Kafka 0.8's."""

    group: str = field(STRING)
    topic: str = field(STRING)
    partition: int = field(INT32)


class OffsetCommitKey(RecordKey, record_type=1):
    group: str = field(STRING)
    topic: str = field(STRING)
    partition: int = field(INT32)


class OffsetCommitValue(RecordValue, written=4, versions=(0, 4), flexible=4):
    """`expire_timestamp` comes from the retention that old clients ask for; it is kept only in version 1."""

    offset: int = field(INT64)
    leader_epoch: int = field(INT32, "3+", default=-1, ignorable=True)
    metadata: str = field(STRING)
    commit_timestamp: int = field(INT64)
    expire_timestamp: int = field(INT64, "1", default=-1, ignorable=True)
    topic_id: bytes = field(UUID, "4+", tag=0, ignorable=True)

    def version_to_write(self) -> int:
        return self.written_version if self.expire_timestamp == -1 else OFFSET_COMMIT_WITH_EXPIRY


class GroupMetadataKey(RecordKey, record_type=2):
    group: str = field(STRING)


class MemberMetadata(Struct):
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, "3+", nullable="3+", default=None, ignorable=True)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    rebalance_timeout: int = field(INT32, "1+", default=-1, ignorable=True)
    session_timeout: int = field(INT32)
    subscription: bytes = field(BYTES)
    assignment: bytes = field(BYTES)


class GroupMetadataValue(RecordValue, written=3, versions=(0, 4), flexible=4):
    protocol_type: str = field(STRING)
    generation: int = field(INT32)
    protocol: str | None = field(STRING, nullable="0+")
    leader: str | None = field(STRING, nullable="0+")
    current_state_timestamp: int = field(INT64, "2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = field(array(MemberMetadata))


class ConsumerGroupMetadataKey(RecordKey, record_type=3):
    group_id: str = field(STRING)


class ConsumerGroupMetadataValue(RecordValue, written=0):
    epoch: int = field(INT32)
    metadata_hash: int = field(INT64, tag=0)


class ConsumerGroupPartitionMetadataKey(RecordKey, record_type=4):
    """Written up to Kafka 4.0; since then the group's epoch record has a hash instead (KIP-1101)."""

    group_id: str = field(STRING)


class PartitionMetadata(Struct):
    partition: int = field(INT32)
    racks: list[str] = field(array(STRING))


class TopicMetadata(Struct):
    topic_id: bytes = field(UUID)
    topic_name: str = field(STRING)
    num_partitions: int = field(INT32)
    partition_metadata: list[PartitionMetadata] = field(array(PartitionMetadata))


class ConsumerGroupPartitionMetadataValue(RecordValue, written=0):
    topics: list[TopicMetadata] = field(array(TopicMetadata))


class ConsumerGroupMemberMetadataKey(RecordKey, record_type=5):
    group_id: str = field(STRING)
    member_id: str = field(STRING)


class ClassicProtocol(Struct):
    name: str = field(STRING)
    metadata: bytes = field(BYTES)


class ClassicMemberMetadata(Struct):
    session_timeout_ms: int = field(INT32)
    supported_protocols: list[ClassicProtocol] = field(array(ClassicProtocol))


class ConsumerGroupMemberMetadataValue(RecordValue, written=0):
    instance_id: str | None = field(STRING, nullable="0+")
    rack_id: str | None = field(STRING, nullable="0+")
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    subscribed_topic_names: list[str] = field(array(STRING))
    subscribed_topic_regex: str | None = field(STRING, nullable="0+")
    rebalance_timeout_ms: int = field(INT32, default=-1)
    server_assignor: str | None = field(STRING, nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = field(
        ClassicMemberMetadata, nullable="0+", default=None, tag=0
    )


class ConsumerGroupTargetAssignmentMetadataKey(RecordKey, record_type=6):
    group_id: str = field(STRING)


class ConsumerGroupTargetAssignmentMetadataValue(RecordValue, written=0):
    assignment_epoch: int = field(INT32)
    assignment_timestamp: int = field(INT64, tag=0, ignorable=True)


class ConsumerGroupTargetAssignmentMemberKey(RecordKey, record_type=7):
    group_id: str = field(STRING)
    member_id: str = field(STRING)


class TargetTopicPartitions(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[int] = field(array(INT32))


class ConsumerGroupTargetAssignmentMemberValue(RecordValue, written=0):
    topic_partitions: list[TargetTopicPartitions] = field(array(TargetTopicPartitions))


class ConsumerGroupCurrentMemberAssignmentKey(RecordKey, record_type=8):
    group_id: str = field(STRING)
    member_id: str = field(STRING)


class CurrentTopicPartitions(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[int] = field(array(INT32))
    assignment_epochs: list[int] | None = field(array(INT32), nullable="0+", default=None, tag=0)


class ConsumerGroupCurrentMemberAssignmentValue(RecordValue, written=0):
    member_epoch: int = field(INT32)
    previous_member_epoch: int = field(INT32)
    state: int = field(INT8)
    assigned_partitions: list[CurrentTopicPartitions] = field(array(CurrentTopicPartitions))
    partitions_pending_revocation: list[CurrentTopicPartitions] = field(array(CurrentTopicPartitions))


class ConsumerGroupRegularExpressionKey(RecordKey, record_type=16):
    group_id: str = field(STRING)
    regular_expression: str = field(STRING)


class ConsumerGroupRegularExpressionValue(RecordValue, written=0):
    topics: list[str] = field(array(STRING))
    version: int = field(INT64)
    timestamp: int = field(INT64)


class LegacyOffsetCommitValue(RecordValue, written=0, flexible=None):
    offset: int = field(INT64)
    metadata: str = field(STRING)
    commit_timestamp: int = field(INT64)


VALUE_OF_KEY: dict[type[RecordKey], type[RecordValue]] = {
    LegacyOffsetCommitKey: LegacyOffsetCommitValue,
    OffsetCommitKey: OffsetCommitValue,
    GroupMetadataKey: GroupMetadataValue,
    ConsumerGroupMetadataKey: ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey: ConsumerGroupPartitionMetadataValue,
    ConsumerGroupMemberMetadataKey: ConsumerGroupMemberMetadataValue,
    ConsumerGroupTargetAssignmentMetadataKey: ConsumerGroupTargetAssignmentMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey: ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupCurrentMemberAssignmentKey: ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupRegularExpressionKey: ConsumerGroupRegularExpressionValue,
}
GROUP_RECORDS = RecordTypes(VALUE_OF_KEY)
