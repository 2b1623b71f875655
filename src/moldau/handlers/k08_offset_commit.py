"""OffsetCommit, versions 0 to 10.

Stores where a group goes on reading, with a note and the leader epoch of the record before. The answer comes when the
offsets are as safe as a write with acks=all.

- Members of a group prove it by generation (or member epoch) and member id; without these (generation -1) anybody may
  commit for a group that has no members: simple consumers and tools.
- A partition that does not exist is refused alone: UNKNOWN_TOPIC_OR_PARTITION. From 10 on an id that no topic has is
  UNKNOWN_TOPIC_ID (KIP-848).
- 0: Kafka put these into ZooKeeper; here they go where all others are. 1: carries a timestamp for each partition.
- 2-4: may ask for a retention of its own. 5+: that is the broker's (KIP-211). 7+: static members (KIP-345).
- 9+: STALE_MEMBER_EPOCH and GROUP_ID_NOT_FOUND are told (KIP-848). An older epoch will do for partitions that the
  member had by then and has kept; if one of them is not, the whole commit is refused (KIP-1251).
"""

from collections.abc import Iterator
from contextlib import suppress

from moldau.coordinators.groups.offsets import Committing, OffsetToCommit
from moldau.coordinators.promise import Promise, mapped
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from moldau.requests.authorization import GROUP, READ, TOPIC
from moldau.requests.context import RequestContext
from moldau.requests.coordinator_topics import have_topic
from moldau.requests.groups_access import awaited
from moldau.requests.pending import PendingAnswer, promised, undecided
from moldau.requests.pieces import Pieces
from moldau.requests.topic_lookup import topic_names_and_ids

COMMITS_FIND_NO_COORDINATOR = 0  # clients of 0.8.1 send them to any broker
COMMIT_BY_TOPIC_ID = 10  # KIP-848

Names = list[tuple[str, bytes] | None]


PIECES = Pieces("topics", "topics", "partitions", "partitions", elements_max=50)


def handle(request: OffsetCommitRequest, context: RequestContext) -> OffsetCommitResponse | PendingAnswer:
    if not context.may(READ, GROUP, request.group_id):
        return _refused(request)
    groups = context.services.groups
    if context.api_version == COMMITS_FIND_NO_COORDINATOR and not groups.has_topic:
        return undecided(_make_topic_then_commit(request, context))
    return promised(_commit(request, context))


def _refused(request: OffsetCommitRequest) -> OffsetCommitResponse:
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    return OffsetCommitResponse(topics=[_answer(topic, [code] * len(topic.partitions)) for topic in request.topics])


async def _make_topic_then_commit(request: OffsetCommitRequest, context: RequestContext) -> OffsetCommitResponse:
    with suppress(ApiError):  # whoever commits then is told that there is no coordinator
        await have_topic(context.services.groups, context.services)
    return await awaited(_commit(request, context))


def _commit(
    request: OffsetCommitRequest, context: RequestContext
) -> OffsetCommitResponse | Promise[OffsetCommitResponse]:
    by_id = context.api_version >= COMMIT_BY_TOPIC_ID
    names = topic_names_and_ids(request.topics, context.services.metadata.image, by_id=by_id)
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    refusals = [_refusals(topic, name, unknown, context) for topic, name in zip(request.topics, names, strict=True)]
    offsets = list(_offsets(request.topics, names, refusals))

    def response(codes: list[int]) -> OffsetCommitResponse:
        left = iter(codes)
        return OffsetCommitResponse(
            topics=[
                _answer(topic, [refusal or next(left) for refusal in refused])
                for topic, refused in zip(request.topics, refusals, strict=True)
            ]
        )

    return mapped(_write(request, offsets, context), response) if offsets else response([])


def _refusals(
    topic: OffsetCommitRequestTopic, name: tuple[str, bytes] | None, unknown: ErrorCode, context: RequestContext
) -> list[int]:
    """The code of each partition for which nothing is committed, and NONE for the others. A client that may not read
    the topic is not told whether it exists; an id that no topic has tells nothing."""
    asked = topic.name if name is None else name[0]
    if asked and not context.may(READ, TOPIC, asked):
        return [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * len(topic.partitions)
    if name is None:
        return [unknown] * len(topic.partitions)
    count = len(context.services.metadata.image.topics[asked].partitions)
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return [ErrorCode.NONE if 0 <= each.partition_index < count else missing for each in topic.partitions]


def _write(
    request: OffsetCommitRequest, offsets: list[OffsetToCommit], context: RequestContext
) -> list[int] | Promise[list[int]]:
    who = Committing(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        context.api_version,
        request.retention_time_ms,
    )
    return context.services.groups.answer(
        request.group_id,
        lambda shard: shard.offsets.commit(who, offsets),
        lambda error: [int(error.code)] * len(offsets),
    )


def _offsets(
    topics: list[OffsetCommitRequestTopic], names: Names, refusals: list[list[int]]
) -> Iterator[OffsetToCommit]:
    for topic, name, refused in zip(topics, names, refusals, strict=True):
        for each, refusal in zip(topic.partitions, refused, strict=True):
            if name is not None and not refusal:
                yield OffsetToCommit(
                    *name,
                    each.partition_index,
                    each.committed_offset,
                    each.committed_leader_epoch,
                    each.committed_metadata,
                    each.commit_timestamp,
                )


def _answer(topic: OffsetCommitRequestTopic, codes: list[int]) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
            for each, code in zip(topic.partitions, codes, strict=True)
        ],
    )
