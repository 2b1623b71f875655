"""UpdateMetadata (key 6), versions 0 to 8."""

from moldau.protocol.schema import BOOLEAN, INT8, INT16, INT32, INT64, STRING, UUID, Message, Struct, array, field


class UpdateMetadataPartitionState(Struct):
    topic_name: str = field(STRING, "0-4", ignorable=True)
    partition_index: int = field(INT32)
    controller_epoch: int = field(INT32)
    leader: int = field(INT32)
    leader_epoch: int = field(INT32)
    isr: list[int] = field(array(INT32))
    zk_version: int = field(INT32)
    replicas: list[int] = field(array(INT32))
    offline_replicas: list[int] = field(array(INT32), "4+", ignorable=True)


class UpdateMetadataTopicState(Struct):
    topic_name: str = field(STRING, "5+")
    topic_id: bytes = field(UUID, "7+", ignorable=True)
    partition_states: list[UpdateMetadataPartitionState] = field(array(UpdateMetadataPartitionState), "5+")


class UpdateMetadataEndpoint(Struct):
    port: int = field(INT32, "1+")
    host: str = field(STRING, "1+")
    listener: str = field(STRING, "3+", ignorable=True)
    security_protocol: int = field(INT16, "1+")


class UpdateMetadataBroker(Struct):
    id: int = field(INT32)
    v0_host: str = field(STRING, "0", ignorable=True)
    v0_port: int = field(INT32, "0", ignorable=True)
    endpoints: list[UpdateMetadataEndpoint] = field(array(UpdateMetadataEndpoint), "1+", ignorable=True)
    rack: str | None = field(STRING, "2+", nullable="0+", ignorable=True)


class UpdateMetadataRequest(Message, api_key=6, versions=(0, 8), flexible=6):
    controller_id: int = field(INT32)
    is_k_raft_controller: bool = field(BOOLEAN, "8+")
    type: int = field(INT8, "8+", tag=0)
    controller_epoch: int = field(INT32)
    broker_epoch: int = field(INT64, "5+", default=-1, ignorable=True)
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = field(array(UpdateMetadataPartitionState), "0-4")
    topic_states: list[UpdateMetadataTopicState] = field(array(UpdateMetadataTopicState), "5+")
    live_brokers: list[UpdateMetadataBroker] = field(array(UpdateMetadataBroker))


class UpdateMetadataResponse(Message, api_key=6, versions=(0, 8), flexible=6):
    error_code: int = field(INT16)
