"""DeleteTopics, versions 0 to 6.

A topic is gone when the answer says so: it cannot be read any more and its name is free. Its files are set aside and
removed after `file.delete.delay.ms`.

- 6+: topics by name or by id, not both (KIP-516); what is named twice, be it once by name and once by id, is refused.
- Who may DELETE the cluster may delete every topic, as in Kafka since KRaft.
- `delete.topic.enable=false`: TOPIC_DELETION_DISABLED, or INVALID_REQUEST before version 3, which has no such code.
"""

from collections.abc import Iterable

from moldau.cluster.image import NO_TOPIC_ID, ClusterImage
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.messages.k20_delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from moldau.requests.authorization import CLUSTER, DELETE, DESCRIBE, TOPIC
from moldau.requests.context import RequestContext
from moldau.requests.duplicates import repeated_in_turns
from moldau.requests.pending import holds_order
from moldau.requests.turns import Turns

DELETE_BY_TOPIC_ID = 6  # KIP-516
DELETE_TELLS_DISABLED = 3  # KIP-322


@holds_order
async def handle(request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    image, turns = context.services.metadata.image, Turns()
    asked = {_key(each): each async for each in turns.each(_asked(request, context))}
    names = {key: _name_of(each, image) async for key, each in turns.each(asked.items())}
    twice = await repeated_in_turns((name for name in names.values() if name is not None), turns)
    twice_asked = await repeated_in_turns(map(_key, _asked(request, context)), turns)
    results = []
    async for each in turns.each(asked.values()):
        try:
            if _key(each) in twice_asked or names[_key(each)] in twice:
                raise ApiError(ErrorCode.INVALID_REQUEST, "the topic is there twice")
            results.append(await _delete(each, context))
        except ApiError as error:
            results.append(_refusal(each, error))
    return DeleteTopicsResponse(responses=results)


def _asked(request: DeleteTopicsRequest, context: RequestContext) -> Iterable[DeleteTopicState]:
    if context.api_version >= DELETE_BY_TOPIC_ID:
        return request.topics
    return (DeleteTopicState(name=name) for name in request.topic_names)


def _key(asked: DeleteTopicState) -> tuple[str | None, bytes]:
    return asked.name, asked.topic_id


def _name_of(asked: DeleteTopicState, image: ClusterImage) -> str | None:
    """The topic that is meant, if there is one."""
    by_id = image.topic_names_by_id.get(asked.topic_id)
    return by_id if asked.name is None else asked.name


async def _delete(asked: DeleteTopicState, context: RequestContext) -> DeletableTopicResult:
    metadata = context.services.metadata
    _check(asked, context)
    name = _name_of(asked, metadata.image)
    if name is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
    if not context.may(DELETE, CLUSTER) and not context.may(DELETE, TOPIC, name):
        return _denied(asked, name, context)
    topic = metadata.image.topics.get(name)
    if topic is None:
        raise _no_topic(name)
    await metadata.delete_topic(name)
    return DeletableTopicResult(name=name, topic_id=topic.topic_id)


def _denied(asked: DeleteTopicState, name: str, context: RequestContext) -> DeletableTopicResult:
    """The refusal to one who may not delete a topic; whether it is there, and its name and id, are for those who may
    describe it."""
    code, message = ErrorCode.TOPIC_AUTHORIZATION_FAILED, "authorization failed"
    if not context.may(DESCRIBE, TOPIC, name):
        return _refusal(asked, ApiError(code, message))
    topic = context.services.metadata.image.topics.get(name)
    if topic is None:
        raise _no_topic(name)
    return DeletableTopicResult(name=name, topic_id=topic.topic_id, error_code=code, error_message=message)


def _no_topic(name: str) -> ApiError:
    return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")


def _check(asked: DeleteTopicState, context: RequestContext) -> None:
    if not context.services.config.bool("delete.topic.enable"):
        tells = context.api_version >= DELETE_TELLS_DISABLED
        code = ErrorCode.TOPIC_DELETION_DISABLED if tells else ErrorCode.INVALID_REQUEST
        raise ApiError(code, "delete.topic.enable is false on this broker")
    if asked.name is not None and asked.topic_id != NO_TOPIC_ID:
        raise ApiError(ErrorCode.INVALID_REQUEST, "a topic is deleted by name or by id, not by both")
    if asked.name is None and asked.topic_id == NO_TOPIC_ID:
        raise ApiError(ErrorCode.INVALID_REQUEST, "neither a name nor an id says which topic")


def _refusal(asked: DeleteTopicState, error: ApiError) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=asked.name, topic_id=asked.topic_id, error_code=error.code, error_message=error.message
    )
