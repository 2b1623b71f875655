"""ControlledShutdown (key 7), versions 0 to 3."""

from moldau.protocol.schema import INT16, INT32, INT64, STRING, Message, Struct, array, field


class ControlledShutdownRequest(Message, api_key=7, versions=(0, 3), flexible=3):
    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64, "2+", default=-1, ignorable=True)


class RemainingPartition(Struct):
    topic_name: str = field(STRING)
    partition_index: int = field(INT32)


class ControlledShutdownResponse(Message, api_key=7, versions=(0, 3), flexible=3):
    error_code: int = field(INT16)
    remaining_partitions: list[RemainingPartition] = field(array(RemainingPartition))
