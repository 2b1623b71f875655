"""AssignReplicasToDirs (key 73), version 0."""

from moldau.protocol.schema import INT16, INT32, INT64, UUID, Message, Struct, array, field


class AssignReplicasToDirsRequestPartitionData(Struct):
    partition_index: int = field(INT32)


class AssignReplicasToDirsRequestTopicData(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[AssignReplicasToDirsRequestPartitionData] = field(array(AssignReplicasToDirsRequestPartitionData))


class AssignReplicasToDirsRequestDirectoryData(Struct):
    id: bytes = field(UUID)
    topics: list[AssignReplicasToDirsRequestTopicData] = field(array(AssignReplicasToDirsRequestTopicData))


class AssignReplicasToDirsRequest(Message, api_key=73, versions=(0, 0), flexible=0):
    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64, default=-1)
    directories: list[AssignReplicasToDirsRequestDirectoryData] = field(array(AssignReplicasToDirsRequestDirectoryData))


class AssignReplicasToDirsResponsePartitionData(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)


class AssignReplicasToDirsResponseTopicData(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[AssignReplicasToDirsResponsePartitionData] = field(
        array(AssignReplicasToDirsResponsePartitionData)
    )


class AssignReplicasToDirsResponseDirectoryData(Struct):
    id: bytes = field(UUID)
    topics: list[AssignReplicasToDirsResponseTopicData] = field(array(AssignReplicasToDirsResponseTopicData))


class AssignReplicasToDirsResponse(Message, api_key=73, versions=(0, 0), flexible=0):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    directories: list[AssignReplicasToDirsResponseDirectoryData] = field(
        array(AssignReplicasToDirsResponseDirectoryData)
    )
