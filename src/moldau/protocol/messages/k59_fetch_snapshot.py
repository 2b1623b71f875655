"""FetchSnapshot (key 59), versions 0 to 1."""

from moldau.protocol.schema import (
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UINT16,
    UUID,
    Message,
    RecordData,
    Struct,
    array,
    field,
)


class SnapshotId(Struct):
    end_offset: int = field(INT64)
    epoch: int = field(INT32)


class FetchSnapshotRequestPartitionSnapshot(Struct):
    partition: int = field(INT32)
    current_leader_epoch: int = field(INT32)
    snapshot_id: SnapshotId = field(SnapshotId)
    position: int = field(INT64)
    replica_directory_id: bytes = field(UUID, "1+", tag=0, ignorable=True)


class FetchSnapshotRequestTopicSnapshot(Struct):
    name: str = field(STRING)
    partitions: list[FetchSnapshotRequestPartitionSnapshot] = field(array(FetchSnapshotRequestPartitionSnapshot))


class FetchSnapshotRequest(Message, api_key=59, versions=(0, 1), flexible=0):
    cluster_id: str | None = field(STRING, nullable="0+", default=None, tag=0)
    replica_id: int = field(INT32, default=-1)
    max_bytes: int = field(INT32, default=2**31 - 1)
    topics: list[FetchSnapshotRequestTopicSnapshot] = field(array(FetchSnapshotRequestTopicSnapshot))


class LeaderIdAndEpoch(Struct):
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32)


class FetchSnapshotResponsePartitionSnapshot(Struct):
    index: int = field(INT32)
    error_code: int = field(INT16)
    snapshot_id: SnapshotId = field(SnapshotId)
    current_leader: LeaderIdAndEpoch = field(LeaderIdAndEpoch, tag=0)
    size: int = field(INT64)
    position: int = field(INT64)
    unaligned_records: RecordData | None = field(RECORDS)


class FetchSnapshotResponseTopicSnapshot(Struct):
    name: str = field(STRING)
    partitions: list[FetchSnapshotResponsePartitionSnapshot] = field(array(FetchSnapshotResponsePartitionSnapshot))


class NodeEndpoint(Struct):
    node_id: int = field(INT32, "1+")
    host: str = field(STRING, "1+")
    port: int = field(UINT16, "1+")


class FetchSnapshotResponse(Message, api_key=59, versions=(0, 1), flexible=0):
    throttle_time_ms: int = field(INT32, ignorable=True)
    error_code: int = field(INT16)
    topics: list[FetchSnapshotResponseTopicSnapshot] = field(array(FetchSnapshotResponseTopicSnapshot))
    node_endpoints: list[NodeEndpoint] = field(array(NodeEndpoint), "1+", tag=0)
