"""CreatePartitions, versions 0 to 3 (KIP-195).

Brings topics to a higher number of partitions, placed by the broker or by an assignment with one entry for each new
partition. A count that is no increase is INVALID_PARTITIONS, a topic that comes twice INVALID_REQUEST, more than
10,000 new partitions in one request POLICY_VIOLATION, a topic that is being reassigned REASSIGNMENT_IN_PROGRESS.
`validate_only` checks and changes nothing.

Internal topics keep their number, INVALID_PARTITIONS: a group or a transactional id would belong to another partition
from then on, where nothing is known of it. Kafka 4.3.1 adds the partitions.
"""

from collections.abc import Sequence

from moldau.cluster.placement import PARTITIONS_PER_REQUEST_MAX, place_new_partitions
from moldau.core.internal_topics import INTERNAL_TOPICS
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.messages.k37_create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from moldau.requests.authorization import ALTER, TOPIC
from moldau.requests.context import RequestContext, Services
from moldau.requests.duplicates import repeated_in_turns
from moldau.requests.pending import holds_order
from moldau.requests.turns import Turns


@holds_order
async def handle(request: CreatePartitionsRequest, context: RequestContext) -> CreatePartitionsResponse:
    services = context.services
    turns = Turns()
    too_many = await _added(request.topics, services, turns) > PARTITIONS_PER_REQUEST_MAX
    twice = await repeated_in_turns((topic.name for topic in request.topics), turns)
    results = [_refusal(name, ErrorCode.INVALID_REQUEST, f"topic {name!r} is there twice") for name in twice]
    async for topic in turns.each(request.topics):
        if topic.name in twice:
            continue
        try:
            if too_many:
                raise ApiError(
                    ErrorCode.POLICY_VIOLATION, f"more than {PARTITIONS_PER_REQUEST_MAX} partitions in one request"
                )
            context.require(ALTER, TOPIC, topic.name)
            await _add(topic, services, request.validate_only)
        except ApiError as error:
            results.append(_refusal(topic.name, error.code, error.message))
        else:
            results.append(CreatePartitionsTopicResult(name=topic.name))
    return CreatePartitionsResponse(results=results)


async def _added(topics: Sequence[CreatePartitionsTopic], services: Services, turns: Turns) -> int:
    known, total = services.metadata.image.topics, 0
    async for each in turns.each(topics):
        if each.name in known:
            total += max(each.count - len(known[each.name].partitions), 0)
    return total


def _refusal(name: str, code: int, message: str | None) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=name, error_code=code, error_message=message)


async def _add(asked: CreatePartitionsTopic, services: Services, validate_only: bool) -> None:
    image = services.metadata.image
    topic = image.topics.get(asked.name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {asked.name!r}")
    if asked.name in INTERNAL_TOPICS:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, f"the number of partitions of {asked.name!r} cannot be changed")
    assignment = place_new_partitions(
        image.brokers,
        topic.partitions,
        asked.count,
        _manual(asked.assignments),
        random_below=services.random.randrange,
    )
    if not validate_only:
        await services.metadata.add_partitions(asked.name, assignment)
        await services.logs_made()


def _manual(assignments: Sequence[CreatePartitionsAssignment] | None) -> list[list[int]] | None:
    return None if assignments is None else [assignment.broker_ids for assignment in assignments]
