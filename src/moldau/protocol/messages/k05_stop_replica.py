"""StopReplica (key 5), versions 0 to 4."""

from moldau.protocol.schema import BOOLEAN, INT16, INT32, INT64, STRING, Message, Struct, array, field


class StopReplicaPartitionV0(Struct):
    topic_name: str = field(STRING, "0")
    partition_index: int = field(INT32, "0")


class StopReplicaTopicV1(Struct):
    name: str = field(STRING, "1-2")
    partition_indexes: list[int] = field(array(INT32), "1-2")


class StopReplicaPartitionState(Struct):
    partition_index: int = field(INT32, "3+")
    leader_epoch: int = field(INT32, "3+", default=-1)
    delete_partition: bool = field(BOOLEAN, "3+")


class StopReplicaTopicState(Struct):
    topic_name: str = field(STRING, "3+")
    partition_states: list[StopReplicaPartitionState] = field(array(StopReplicaPartitionState), "3+")


class StopReplicaRequest(Message, api_key=5, versions=(0, 4), flexible=2):
    controller_id: int = field(INT32)
    is_k_raft_controller: bool = field(BOOLEAN, "4+")
    controller_epoch: int = field(INT32)
    broker_epoch: int = field(INT64, "1+", default=-1, ignorable=True)
    delete_partitions: bool = field(BOOLEAN, "0-2")
    ungrouped_partitions: list[StopReplicaPartitionV0] = field(array(StopReplicaPartitionV0), "0")
    topics: list[StopReplicaTopicV1] = field(array(StopReplicaTopicV1), "1-2")
    topic_states: list[StopReplicaTopicState] = field(array(StopReplicaTopicState), "3+")


class StopReplicaPartitionError(Struct):
    topic_name: str = field(STRING)
    partition_index: int = field(INT32)
    error_code: int = field(INT16)


class StopReplicaResponse(Message, api_key=5, versions=(0, 4), flexible=2):
    error_code: int = field(INT16)
    partition_errors: list[StopReplicaPartitionError] = field(array(StopReplicaPartitionError))
