"""LeaderAndIsr (key 4), versions 0 to 7."""

from moldau.protocol.schema import BOOLEAN, INT8, INT16, INT32, INT64, STRING, UUID, Message, Struct, array, field


class LeaderAndIsrPartitionState(Struct):
    topic_name: str = field(STRING, "0-1", ignorable=True)
    partition_index: int = field(INT32)
    controller_epoch: int = field(INT32)
    leader: int = field(INT32)
    leader_epoch: int = field(INT32)
    isr: list[int] = field(array(INT32))
    partition_epoch: int = field(INT32)
    replicas: list[int] = field(array(INT32))
    adding_replicas: list[int] = field(array(INT32), "3+", ignorable=True)
    removing_replicas: list[int] = field(array(INT32), "3+", ignorable=True)
    is_new: bool = field(BOOLEAN, "1+", ignorable=True)
    leader_recovery_state: int = field(INT8, "6+")


class LeaderAndIsrTopicState(Struct):
    topic_name: str = field(STRING, "2+")
    topic_id: bytes = field(UUID, "5+", ignorable=True)
    partition_states: list[LeaderAndIsrPartitionState] = field(array(LeaderAndIsrPartitionState), "2+")


class LeaderAndIsrLiveLeader(Struct):
    broker_id: int = field(INT32)
    host_name: str = field(STRING)
    port: int = field(INT32)


class LeaderAndIsrRequest(Message, api_key=4, versions=(0, 7), flexible=4):
    controller_id: int = field(INT32)
    is_k_raft_controller: bool = field(BOOLEAN, "7+")
    controller_epoch: int = field(INT32)
    broker_epoch: int = field(INT64, "2+", default=-1, ignorable=True)
    type: int = field(INT8, "5+")
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = field(array(LeaderAndIsrPartitionState), "0-1")
    topic_states: list[LeaderAndIsrTopicState] = field(array(LeaderAndIsrTopicState), "2+")
    live_leaders: list[LeaderAndIsrLiveLeader] = field(array(LeaderAndIsrLiveLeader))


class LeaderAndIsrPartitionError(Struct):
    topic_name: str = field(STRING, "0-4", ignorable=True)
    partition_index: int = field(INT32)
    error_code: int = field(INT16)


class LeaderAndIsrTopicError(Struct):
    topic_id: bytes = field(UUID, "5+")
    partition_errors: list[LeaderAndIsrPartitionError] = field(array(LeaderAndIsrPartitionError), "5+")


class LeaderAndIsrResponse(Message, api_key=4, versions=(0, 7), flexible=4):
    error_code: int = field(INT16)
    partition_errors: list[LeaderAndIsrPartitionError] = field(array(LeaderAndIsrPartitionError), "0-4")
    topics: list[LeaderAndIsrTopicError] = field(array(LeaderAndIsrTopicError), "5+")
