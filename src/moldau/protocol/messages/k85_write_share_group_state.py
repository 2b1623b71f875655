"""WriteShareGroupState (key 85), versions 0 to 1."""

from moldau.protocol.schema import INT8, INT16, INT32, INT64, STRING, UUID, Message, Struct, array, field


class StateBatch(Struct):
    first_offset: int = field(INT64)
    last_offset: int = field(INT64)
    delivery_state: int = field(INT8)
    delivery_count: int = field(INT16)


class PartitionData(Struct):
    partition: int = field(INT32)
    state_epoch: int = field(INT32)
    leader_epoch: int = field(INT32)
    start_offset: int = field(INT64)
    delivery_complete_count: int = field(INT32, "1+", default=-1, ignorable=True)
    state_batches: list[StateBatch] = field(array(StateBatch))


class WriteStateData(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[PartitionData] = field(array(PartitionData))


class WriteShareGroupStateRequest(Message, api_key=85, versions=(0, 1), flexible=0):
    group_id: str = field(STRING)
    topics: list[WriteStateData] = field(array(WriteStateData))


class PartitionResult(Struct):
    partition: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)


class WriteStateResult(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[PartitionResult] = field(array(PartitionResult))


class WriteShareGroupStateResponse(Message, api_key=85, versions=(0, 1), flexible=0):
    results: list[WriteStateResult] = field(array(WriteStateResult))
