"""BeginQuorumEpoch (key 53), versions 0 to 1."""

from moldau.protocol.schema import INT16, INT32, STRING, UINT16, UUID, Message, Struct, array, field


class BeginQuorumEpochRequestPartitionData(Struct):
    partition_index: int = field(INT32)
    voter_directory_id: bytes = field(UUID, "1+", ignorable=True)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32)


class BeginQuorumEpochRequestTopicData(Struct):
    topic_name: str = field(STRING)
    partitions: list[BeginQuorumEpochRequestPartitionData] = field(array(BeginQuorumEpochRequestPartitionData))


class LeaderEndpoint(Struct):
    name: str = field(STRING, "1+")
    host: str = field(STRING, "1+")
    port: int = field(UINT16, "1+")


class BeginQuorumEpochRequest(Message, api_key=53, versions=(0, 1), flexible=1):
    cluster_id: str | None = field(STRING, nullable="0+", default=None)
    voter_id: int = field(INT32, "1+", default=-1, ignorable=True)
    topics: list[BeginQuorumEpochRequestTopicData] = field(array(BeginQuorumEpochRequestTopicData))
    leader_endpoints: list[LeaderEndpoint] = field(array(LeaderEndpoint), "1+", ignorable=True)


class BeginQuorumEpochResponsePartitionData(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32)


class BeginQuorumEpochResponseTopicData(Struct):
    topic_name: str = field(STRING)
    partitions: list[BeginQuorumEpochResponsePartitionData] = field(array(BeginQuorumEpochResponsePartitionData))


class NodeEndpoint(Struct):
    node_id: int = field(INT32, "1+")
    host: str = field(STRING, "1+")
    port: int = field(UINT16, "1+")


class BeginQuorumEpochResponse(Message, api_key=53, versions=(0, 1), flexible=1):
    error_code: int = field(INT16)
    topics: list[BeginQuorumEpochResponseTopicData] = field(array(BeginQuorumEpochResponseTopicData))
    node_endpoints: list[NodeEndpoint] = field(array(NodeEndpoint), "1+", tag=0)
