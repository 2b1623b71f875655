"""DescribeLogDirs, versions 0 to 5 (KIP-113).

The data directories of this broker, what each partition takes there, and how much room there is.

- `topics` null asks for all partitions, a list for those of them that are here; an empty list for none.
- A directory that failed is there with KAFKA_STORAGE_ERROR and without partitions.
- 4+: bytes of the file system in total and free for us, -1 where it cannot be asked (KIP-827).
- 5+: no directory is cordoned. Nothing moves between directories, so there are no future replicas and no lag.
"""

import os
from collections import defaultdict

from moldau.core.ids import TopicPartition
from moldau.log.data_directory import DataDirectory
from moldau.log.log import Log
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k35_describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from moldau.requests.authorization import CLUSTER, DESCRIBE
from moldau.requests.context import RequestContext, Services
from moldau.requests.pending import holds_order
from moldau.requests.turns import Turns

NOT_KNOWN = -1


@holds_order
async def handle(request: DescribeLogDirsRequest, context: RequestContext) -> DescribeLogDirsResponse:
    if not context.may(DESCRIBE, CLUSTER):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    services = context.services
    logs = _by_directory(await _asked(request), services)
    return DescribeLogDirsResponse(
        results=[_directory(directory, logs[directory.path]) for directory in services.logs.directories]
    )


async def _asked(request: DescribeLogDirsRequest) -> set[TopicPartition] | None:
    if request.topics is None:
        return None
    asked: set[TopicPartition] = set()
    turns = Turns()
    async for topic in turns.each(request.topics):
        async for index in turns.each(topic.partitions):
            asked.add(TopicPartition(topic.topic, index))
    return asked


def _by_directory(asked: set[TopicPartition] | None, services: Services) -> dict[str, list[Log]]:
    logs: dict[str, list[Log]] = defaultdict(list)
    for log in services.logs:
        home = services.logs.home_of(log.topic_partition)
        if home is not None and (asked is None or log.topic_partition in asked):
            logs[home].append(log)
    return logs


def _directory(directory: DataDirectory, logs: list[Log]) -> DescribeLogDirsResult:
    if directory.failure is not None:
        return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=_absolute(directory))
    topics: dict[str, list[DescribeLogDirsPartition]] = defaultdict(list)
    for log in logs:
        topic, index = log.topic_partition
        topics[topic].append(DescribeLogDirsPartition(partition_index=index, partition_size=log.size_bytes))
    total_bytes, usable_bytes = _room(directory.path)
    return DescribeLogDirsResult(
        log_dir=_absolute(directory),
        topics=[DescribeLogDirsTopic(name=name, partitions=topics[name]) for name in topics],
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
    )


def _absolute(directory: DataDirectory) -> str:
    return os.path.abspath(directory.path)


def _room(path: str) -> tuple[int, int]:
    """Bytes in total, bytes that we may still use."""
    try:
        room = os.statvfs(path)
    except OSError:
        return NOT_KNOWN, NOT_KNOWN
    return room.f_blocks * room.f_frsize, room.f_bavail * room.f_frsize
