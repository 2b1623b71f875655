"""Vote (key 52), versions 0 to 2."""

from moldau.protocol.schema import BOOLEAN, INT16, INT32, INT64, STRING, UINT16, UUID, Message, Struct, array, field


class VoteRequestPartitionData(Struct):
    partition_index: int = field(INT32)
    replica_epoch: int = field(INT32)
    replica_id: int = field(INT32)
    replica_directory_id: bytes = field(UUID, "1+", ignorable=True)
    voter_directory_id: bytes = field(UUID, "1+", ignorable=True)
    last_offset_epoch: int = field(INT32)
    last_offset: int = field(INT64)
    pre_vote: bool = field(BOOLEAN, "2+")


class VoteRequestTopicData(Struct):
    topic_name: str = field(STRING)
    partitions: list[VoteRequestPartitionData] = field(array(VoteRequestPartitionData))


class VoteRequest(Message, api_key=52, versions=(0, 2), flexible=0):
    cluster_id: str | None = field(STRING, nullable="0+", default=None)
    voter_id: int = field(INT32, "1+", default=-1, ignorable=True)
    topics: list[VoteRequestTopicData] = field(array(VoteRequestTopicData))


class VoteResponsePartitionData(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32)
    vote_granted: bool = field(BOOLEAN)


class VoteResponseTopicData(Struct):
    topic_name: str = field(STRING)
    partitions: list[VoteResponsePartitionData] = field(array(VoteResponsePartitionData))


class NodeEndpoint(Struct):
    node_id: int = field(INT32, "1+")
    host: str = field(STRING, "1+")
    port: int = field(UINT16, "1+")


class VoteResponse(Message, api_key=52, versions=(0, 2), flexible=0):
    error_code: int = field(INT16)
    topics: list[VoteResponseTopicData] = field(array(VoteResponseTopicData))
    node_endpoints: list[NodeEndpoint] = field(array(NodeEndpoint), "1+", tag=0)
