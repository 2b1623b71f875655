"""EndQuorumEpoch (key 54), versions 0 to 1."""

from moldau.protocol.schema import INT16, INT32, STRING, UINT16, UUID, Message, Struct, array, field


class ReplicaInfo(Struct):
    candidate_id: int = field(INT32, "1+")
    candidate_directory_id: bytes = field(UUID, "1+")


class EndQuorumEpochRequestPartitionData(Struct):
    partition_index: int = field(INT32)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32)
    preferred_successors: list[int] = field(array(INT32), "0", ignorable=True)
    preferred_candidates: list[ReplicaInfo] = field(array(ReplicaInfo), "1+", ignorable=True)


class EndQuorumEpochRequestTopicData(Struct):
    topic_name: str = field(STRING)
    partitions: list[EndQuorumEpochRequestPartitionData] = field(array(EndQuorumEpochRequestPartitionData))


class LeaderEndpoint(Struct):
    name: str = field(STRING, "1+")
    host: str = field(STRING, "1+")
    port: int = field(UINT16, "1+")


class EndQuorumEpochRequest(Message, api_key=54, versions=(0, 1), flexible=1):
    cluster_id: str | None = field(STRING, nullable="0+", default=None)
    topics: list[EndQuorumEpochRequestTopicData] = field(array(EndQuorumEpochRequestTopicData))
    leader_endpoints: list[LeaderEndpoint] = field(array(LeaderEndpoint), "1+", ignorable=True)


class EndQuorumEpochResponsePartitionData(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32)


class EndQuorumEpochResponseTopicData(Struct):
    topic_name: str = field(STRING)
    partitions: list[EndQuorumEpochResponsePartitionData] = field(array(EndQuorumEpochResponsePartitionData))


class NodeEndpoint(Struct):
    node_id: int = field(INT32, "1+")
    host: str = field(STRING, "1+")
    port: int = field(UINT16, "1+")


class EndQuorumEpochResponse(Message, api_key=54, versions=(0, 1), flexible=1):
    error_code: int = field(INT16)
    topics: list[EndQuorumEpochResponseTopicData] = field(array(EndQuorumEpochResponseTopicData))
    node_endpoints: list[NodeEndpoint] = field(array(NodeEndpoint), "1+", tag=0)
