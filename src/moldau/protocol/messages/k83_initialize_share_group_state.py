"""InitializeShareGroupState (key 83), version 0."""

from moldau.protocol.schema import INT16, INT32, INT64, STRING, UUID, Message, Struct, array, field


class PartitionData(Struct):
    partition: int = field(INT32)
    state_epoch: int = field(INT32)
    start_offset: int = field(INT64)


class InitializeStateData(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[PartitionData] = field(array(PartitionData))


class InitializeShareGroupStateRequest(Message, api_key=83, versions=(0, 0), flexible=0):
    group_id: str = field(STRING)
    topics: list[InitializeStateData] = field(array(InitializeStateData))


class PartitionResult(Struct):
    partition: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)


class InitializeStateResult(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[PartitionResult] = field(array(PartitionResult))


class InitializeShareGroupStateResponse(Message, api_key=83, versions=(0, 0), flexible=0):
    results: list[InitializeStateResult] = field(array(InitializeStateResult))
