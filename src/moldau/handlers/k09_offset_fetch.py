"""OffsetFetch, versions 0 to 10.

What a group committed last. A partition without an offset is answered with -1 and no error, and so is a group that
does not exist.

- 0: Kafka read these from ZooKeeper; here they are where all others are, and what is missing is
  UNKNOWN_TOPIC_OR_PARTITION, as such clients expect.
- 2+: null topics mean all that the group has, and an error of the whole group has its own place; 0-1 repeat it for
  every partition. 5+: leader epoch (KIP-320).
- 7+: `require_stable` answers UNSTABLE_OFFSET_COMMIT where a transaction is about to move the offset (KIP-447).
- 8+: many groups in one request (KIP-709). 9+: members of the consumer protocol name themselves and are refused when
  they are stale (KIP-848). 10+: topics by id, UNKNOWN_TOPIC_ID for unknown ones.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from typing import NamedTuple, TypeVar

from moldau.coordinators.groups.offsets import FetchedOffset, WantedOffset
from moldau.coordinators.groups.shard import GroupShard
from moldau.coordinators.outcome import Decision, answered
from moldau.coordinators.promise import Promise, all_of, mapped
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from moldau.requests.authorization import DESCRIBE, GROUP, TOPIC
from moldau.requests.context import RequestContext, Services
from moldau.requests.coordinator_topics import have_topic
from moldau.requests.groups_access import awaited
from moldau.requests.pending import PendingAnswer, promised, undecided
from moldau.requests.pieces import Pieces
from moldau.requests.topic_lookup import topic_names_and_ids
from moldau.requests.turns import Turns

P = TypeVar("P")

FETCH_FINDS_NO_COORDINATOR = 0
GROUP_HAS_AN_ERROR_CODE = 2
FETCH_MANY_GROUPS = 8  # KIP-709
OFFSETS_BY_TOPIC_ID = 10  # KIP-848


class _Found(NamedTuple):
    error_code: int
    topics: list[list[FetchedOffset]]


OF_ONE_GROUP = Pieces("topics", "topics", "partition_indexes", "partitions")
PIECES = {
    0: OF_ONE_GROUP,
    FETCH_MANY_GROUPS: Pieces("groups", "groups", "topics", "topics"),
}


def handle(request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse | PendingAnswer:
    if context.api_version >= FETCH_MANY_GROUPS:
        if any(map(OF_ONE_GROUP.is_long, request.groups)):
            return undecided(_in_turns(request, context))
        groups = all_of([_group_answer(group, request.require_stable, context) for group in request.groups])
        return promised(mapped(groups, lambda answers: OffsetFetchResponse(groups=answers)))
    if context.api_version == FETCH_FINDS_NO_COORDINATOR and not context.services.groups.has_topic:
        return undecided(_make_topic_then_fetch(request, context))
    return promised(_fetch_one(request, context))


async def _in_turns(request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
    """The answer about very many partitions of a group; others are served in between."""
    turns, groups = Turns(), []
    for group in request.groups:
        whole = OffsetFetchResponseGroup(group_id=group.group_id)
        for piece in OF_ONE_GROUP.cut(group) if group.topics else [group]:
            answer = await awaited(_group_answer(piece, request.require_stable, context))
            if answer.error_code:
                whole = answer
                break
            OF_ONE_GROUP.join(whole, answer)
            await turns.give_way()
        groups.append(whole)
    return OffsetFetchResponse(groups=groups)


async def _make_topic_then_fetch(request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
    with suppress(ApiError):  # whoever asks then is told that there is no coordinator
        await have_topic(context.services.groups, context.services)
    return await awaited(_fetch_one(request, context))


def _fetch_one(
    request: OffsetFetchRequest, context: RequestContext
) -> OffsetFetchResponse | Promise[OffsetFetchResponse]:
    topics = request.topics
    wanted = (
        None
        if topics is None
        else [OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes) for topic in topics]
    )
    group = OffsetFetchRequestGroup(group_id=request.group_id, topics=wanted)
    found = _fetch(group, request.require_stable, context)
    return mapped(found, lambda each: _old_answer(each, wanted or [], context.api_version))


def _group_answer(
    group: OffsetFetchRequestGroup, require_stable: bool, context: RequestContext
) -> OffsetFetchResponseGroup | Promise[OffsetFetchResponseGroup]:
    def answer(found: _Found) -> OffsetFetchResponseGroup:
        topics = [_topic_answer(offsets) for offsets in found.topics]
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=found.error_code, topics=topics)

    return mapped(_fetch(group, require_stable, context), answer)


def _fetch(group: OffsetFetchRequestGroup, require_stable: bool, context: RequestContext) -> _Found | Promise[_Found]:
    if not context.may(DESCRIBE, GROUP, group.group_id):
        return _Found(ErrorCode.GROUP_AUTHORIZATION_FAILED, [])
    services = context.services
    by_id = context.api_version >= OFFSETS_BY_TOPIC_ID
    wanted = None if group.topics is None else list(_wanted(group.topics, services, by_id=by_id))
    denied = _denied(wanted or (), context)
    known = None if wanted is None else [each for each in wanted if each.topic and each.topic not in denied]

    def found(offsets: list[FetchedOffset] | ApiError) -> _Found:
        if isinstance(offsets, ApiError):
            return _Found(offsets.code, [])
        if wanted is None:
            hidden = _denied(offsets, context)
            told = [each for each in offsets if each.topic not in hidden]
            return _Found(0, list(_by_topic(_with_ids(told, services) if by_id else told)))
        left = iter(offsets)
        return _Found(0, list(_by_topic(_refused_offset(each, denied) or next(left) for each in wanted)))

    def fetch(shard: GroupShard) -> Decision[list[FetchedOffset]]:
        return answered(
            shard.offsets.fetch(
                group.group_id,
                known,
                require_stable=require_stable,
                member_id=group.member_id,
                member_epoch=group.member_epoch,
            )
        )

    offsets = services.groups.answer(group.group_id, fetch, lambda error: error)
    return offsets.mapped(found) if isinstance(offsets, Promise) else found(offsets)


def _denied(offsets: Iterable[WantedOffset | FetchedOffset], context: RequestContext) -> set[str]:
    """The topics that the one who asks may not describe."""
    topics = {each.topic for each in offsets if each.topic}
    return {topic for topic in topics if not context.may(DESCRIBE, TOPIC, topic)}


def _refused_offset(wanted: WantedOffset, denied: set[str]) -> FetchedOffset | None:
    if not wanted.topic:
        return FetchedOffset(*wanted, error_code=ErrorCode.UNKNOWN_TOPIC_ID)
    is_denied = wanted.topic in denied
    return FetchedOffset(*wanted, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED) if is_denied else None


def _wanted(topics: Sequence[OffsetFetchRequestTopics], services: Services, *, by_id: bool) -> Iterator[WantedOffset]:
    """An empty name stands for an id that no topic has. A topic that is gone may still have offsets by its name."""
    names = topic_names_and_ids(topics, services.metadata.image, by_id=by_id)
    for topic, name in zip(topics, names, strict=True):
        if by_id:
            key = (name[0] if name is not None else "", topic.topic_id)
        else:
            key = name or (topic.name, topic.topic_id)
        for index in topic.partition_indexes:
            yield WantedOffset(*key, index)


def _with_ids(offsets: Iterable[FetchedOffset], services: Services) -> Iterator[FetchedOffset]:
    """Offsets with the ids of their topics; topics that do not exist any more have none, and are left out."""
    topics = services.metadata.image.topics
    for each in offsets:
        if each.topic in topics:
            yield each._replace(topic_id=topics[each.topic].topic_id)


def _by_topic(offsets: Iterable[FetchedOffset]) -> Iterator[list[FetchedOffset]]:
    for _, each in groupby(offsets, lambda offset: (offset.topic, offset.topic_id)):
        yield list(each)


def _topic_answer(offsets: Sequence[FetchedOffset]) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=offsets[0].topic,
        topic_id=offsets[0].topic_id,
        partitions=_partitions(offsets, OffsetFetchResponsePartitions),
    )


def _partitions(offsets: Sequence[FetchedOffset], type_: Callable[..., P]) -> list[P]:
    """The offsets as messages: before version 8 they are of another type, with the same fields."""
    return [
        type_(
            partition_index=each.partition,
            committed_offset=each.offset,
            committed_leader_epoch=each.leader_epoch,
            metadata=each.metadata,
            error_code=each.error_code,
        )
        for each in offsets
    ]


def _old_answer(found: _Found, wanted: Sequence[OffsetFetchRequestTopics], version: int) -> OffsetFetchResponse:
    topics = found.topics
    if found.error_code and version < GROUP_HAS_AN_ERROR_CODE:
        topics = [_refused(topic, found.error_code) for topic in wanted if topic.partition_indexes]
    if version == FETCH_FINDS_NO_COORDINATOR:
        topics = [list(map(_missing_is_an_error, offsets)) for offsets in topics]
    return OffsetFetchResponse(error_code=found.error_code, topics=[_old_topic(offsets) for offsets in topics])


def _refused(topic: OffsetFetchRequestTopics, error_code: int) -> list[FetchedOffset]:
    return [FetchedOffset(topic.name, b"", index, error_code=error_code) for index in topic.partition_indexes]


def _missing_is_an_error(offset: FetchedOffset) -> FetchedOffset:
    is_missing = offset.offset == -1 and offset.error_code == 0
    return offset._replace(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) if is_missing else offset


def _old_topic(offsets: Sequence[FetchedOffset]) -> OffsetFetchResponseTopic:
    return OffsetFetchResponseTopic(
        name=offsets[0].topic, partitions=_partitions(offsets, OffsetFetchResponsePartition)
    )
