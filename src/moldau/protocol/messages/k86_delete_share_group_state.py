"""DeleteShareGroupState (key 86), version 0."""

from moldau.protocol.schema import INT16, INT32, STRING, UUID, Message, Struct, array, field


class PartitionData(Struct):
    partition: int = field(INT32)


class DeleteStateData(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[PartitionData] = field(array(PartitionData))


class DeleteShareGroupStateRequest(Message, api_key=86, versions=(0, 0), flexible=0):
    group_id: str = field(STRING)
    topics: list[DeleteStateData] = field(array(DeleteStateData))


class PartitionResult(Struct):
    partition: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)


class DeleteStateResult(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[PartitionResult] = field(array(PartitionResult))


class DeleteShareGroupStateResponse(Message, api_key=86, versions=(0, 0), flexible=0):
    results: list[DeleteStateResult] = field(array(DeleteStateResult))
