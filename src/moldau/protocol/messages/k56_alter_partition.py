"""AlterPartition (key 56), versions 0 to 3."""

from moldau.protocol.schema import INT8, INT16, INT32, INT64, STRING, UUID, Message, Struct, array, field


class BrokerState(Struct):
    broker_id: int = field(INT32, "3+")
    broker_epoch: int = field(INT64, "3+", default=-1)


class AlterPartitionRequestPartitionData(Struct):
    partition_index: int = field(INT32)
    leader_epoch: int = field(INT32)
    new_isr: list[int] = field(array(INT32), "0-2")
    new_isr_with_epochs: list[BrokerState] = field(array(BrokerState), "3+")
    leader_recovery_state: int = field(INT8, "1+")
    partition_epoch: int = field(INT32)


class AlterPartitionRequestTopicData(Struct):
    topic_name: str = field(STRING, "0-1", ignorable=True)
    topic_id: bytes = field(UUID, "2+", ignorable=True)
    partitions: list[AlterPartitionRequestPartitionData] = field(array(AlterPartitionRequestPartitionData))


class AlterPartitionRequest(Message, api_key=56, versions=(0, 3), flexible=0):
    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64, default=-1)
    topics: list[AlterPartitionRequestTopicData] = field(array(AlterPartitionRequestTopicData))


class AlterPartitionResponsePartitionData(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32)
    isr: list[int] = field(array(INT32))
    leader_recovery_state: int = field(INT8, "1+", ignorable=True)
    partition_epoch: int = field(INT32)


class AlterPartitionResponseTopicData(Struct):
    topic_name: str = field(STRING, "0-1", ignorable=True)
    topic_id: bytes = field(UUID, "2+", ignorable=True)
    partitions: list[AlterPartitionResponsePartitionData] = field(array(AlterPartitionResponsePartitionData))


class AlterPartitionResponse(Message, api_key=56, versions=(0, 3), flexible=0):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    topics: list[AlterPartitionResponseTopicData] = field(array(AlterPartitionResponseTopicData))
