"""CreateTopics, versions 0 to 7.

Topics are created one by one in the order of the request; each has its own result, and a name that comes twice is
refused once. An answer means that the topic exists and can be written to, so `timeout_ms` has nothing to bound.

- The number of partitions and the replication factor may be -1 for the broker's defaults (KIP-464), in every version.
- A manual assignment wants both to be -1, partitions from 0 on without a gap, and brokers that are alive.
- 1+: `validate_only` runs every check and creates nothing. 5+: numbers and configuration come back (KIP-525).
  7+: the topic id comes back (KIP-516); of a topic that is only validated it is zero, as there is no such topic.
- `__consumer_offsets` may be made before its coordinator makes it: with what that would choose where nothing else is
  asked for, and compacted only. The topics of coordinators that are not served yet are INVALID_TOPIC_EXCEPTION.
- More than 10,000 partitions in one request are a POLICY_VIOLATION for all of its topics, as in Kafka.

Gaps: no create.topic.policy.class.name.
"""

from collections.abc import Mapping, Sequence

from moldau.cluster.image import NO_TOPIC_ID
from moldau.cluster.placement import PARTITIONS_PER_REQUEST_MAX, USE_DEFAULT, Assignment, place_new_topic
from moldau.cluster.topic_names import CLUSTER_METADATA_TOPIC
from moldau.core.config_entries import topic_entries
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.messages.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from moldau.requests.authorization import CLUSTER, CREATE, DESCRIBE_CONFIGS, TOPIC, refused
from moldau.requests.config_resources import check_config_count
from moldau.requests.context import RequestContext, Services
from moldau.requests.duplicates import repeated, repeated_in_turns
from moldau.requests.pending import holds_order
from moldau.requests.topic_lookup import COORDINATED, may_auto_create
from moldau.requests.turns import Turns

NOT_TOLD = -1


@holds_order
async def handle(request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
    services = context.services
    may_create_all = context.may(CREATE, CLUSTER)
    turns = Turns()
    too_many = await _partition_count(request.topics, services, turns) > PARTITIONS_PER_REQUEST_MAX
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
            if not (may_create_all or context.may(CREATE, TOPIC, topic.name)):
                raise refused(TOPIC)
            results.append(_as_told(await _create(topic, services, request.validate_only), context))
        except ApiError as error:
            results.append(_refusal(topic.name, error.code, error.message))
    return CreateTopicsResponse(topics=results)


async def _partition_count(topics: Sequence[CreatableTopic], services: Services, turns: Turns) -> int:
    default, total = services.config.int("num.partitions"), 0
    async for topic in turns.each(topics):
        count = default if topic.num_partitions == USE_DEFAULT else topic.num_partitions
        total += len(topic.assignments) or max(count, 0)
    return total


def _refusal(name: str, code: int, message: str | None) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=code, error_message=message)


async def _create(topic: CreatableTopic, services: Services, validate_only: bool) -> CreatableTopicResult:
    name = topic.name
    if name == CLUSTER_METADATA_TOPIC:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{name} is internal to Apache Kafka")
    if not may_auto_create(name):
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is made by its coordinator, which is not served yet")
    configs = _configs(topic.configs)
    if name in COORDINATED:
        configs = _coordinators_configs(name, configs, services)
    services.metadata.check_new_topic(name, configs)
    assignment = _assignment(topic, services)
    topic_id = NO_TOPIC_ID
    if not validate_only:
        topic_id = (await services.metadata.create_topic(name, assignment, configs)).topic_id
        await services.logs_made()
    return CreatableTopicResult(
        name=name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=len(assignment),
        replication_factor=len(assignment[0]),
        configs=_effective_configs(configs, services),
    )


def _as_told(created: CreatableTopicResult, context: RequestContext) -> CreatableTopicResult:
    """The result as it is told to the one who asks: numbers and configuration are for those who may describe them."""
    if context.may(DESCRIBE_CONFIGS, TOPIC, created.name):
        return created
    return CreatableTopicResult(
        name=created.name,
        topic_id=created.topic_id,
        error_message=None,
        topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        num_partitions=NOT_TOLD,
        replication_factor=NOT_TOLD,
        configs=[],
    )


def _coordinators_configs(name: str, given: dict[str, str], services: Services) -> dict[str, str]:
    """Configuration that the coordinator would give its topic, where nothing else is asked for. Kafka takes any cleanup
    policy here; but one that deletes takes the offsets of every group after a week, and nobody means that."""
    configs = {**COORDINATED[name](services.config).configs, **given}
    if configs["cleanup.policy"] != "compact":
        reason = f"cleanup.policy of {name} is compact: its coordinator would lose its state"
        raise ApiError(ErrorCode.INVALID_CONFIG, reason)
    return configs


def _configs(configs: Sequence[CreatableTopicConfig]) -> dict[str, str]:
    check_config_count(configs)
    given: dict[str, str] = {}
    for config in configs:
        if config.value is None:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"{config.name}: a topic's property cannot be null")
        given[config.name] = config.value
    return given


def _assignment(topic: CreatableTopic, services: Services) -> Assignment:
    config, image = services.config, services.metadata.image
    if topic.name in COORDINATED:
        settings = COORDINATED[topic.name](config)
        partitions, replication_factor = settings.partitions, settings.replicas_among(image.brokers)
    else:
        partitions, replication_factor = config.int("num.partitions"), config.int("default.replication.factor")
    return place_new_topic(
        image.brokers,
        topic.num_partitions,
        topic.replication_factor,
        _manual(topic.assignments),
        default_partitions=partitions,
        default_replication_factor=replication_factor,
        random_below=services.random.randrange,
    )


def _manual(assignments: Sequence[CreatableReplicaAssignment]) -> Mapping[int, Sequence[int]]:
    twice = repeated(assignment.partition_index for assignment in assignments)
    if twice:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"partition {min(twice)} is assigned twice")
    return {assignment.partition_index: assignment.broker_ids for assignment in assignments}


def _effective_configs(configs: Mapping[str, str], services: Services) -> list[CreatableTopicConfigs]:
    return [
        CreatableTopicConfigs(
            name=entry.name,
            value=entry.value,
            read_only=entry.is_read_only,
            config_source=entry.source,
            is_sensitive=entry.is_sensitive,
        )
        for entry in topic_entries(services.config, configs)
    ]
