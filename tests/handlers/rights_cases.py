"""A table of refusals seen on Apache Kafka 4.3.1 with its StandardAuthorizer, for each API key."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from moldau.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from moldau.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.k12_heartbeat import HeartbeatRequest
from moldau.protocol.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from moldau.protocol.messages.k14_sync_group import SyncGroupRequest
from moldau.protocol.messages.k15_describe_groups import DescribeGroupsRequest
from moldau.protocol.messages.k16_list_groups import ListGroupsRequest
from moldau.protocol.messages.k18_api_versions import ApiVersionsRequest
from moldau.protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from moldau.protocol.messages.k22_init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from moldau.protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTransaction,
)
from moldau.protocol.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest
from moldau.protocol.messages.k26_end_txn import EndTxnRequest
from moldau.protocol.messages.k35_describe_log_dirs import DescribeLogDirsRequest
from moldau.protocol.messages.k37_create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from moldau.protocol.messages.k42_delete_groups import DeleteGroupsRequest
from moldau.protocol.messages.k43_elect_leaders import ElectLeadersRequest, TopicPartitions
from moldau.protocol.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from moldau.protocol.messages.k46_list_partition_reassignments import ListPartitionReassignmentsRequest
from moldau.protocol.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from moldau.protocol.messages.k57_update_features import UpdateFeaturesRequest
from moldau.protocol.messages.k60_describe_cluster import DescribeClusterRequest
from moldau.protocol.messages.k61_describe_producers import DescribeProducersRequest, TopicRequest
from moldau.protocol.messages.k65_describe_transactions import DescribeTransactionsRequest
from moldau.protocol.messages.k66_list_transactions import ListTransactionsRequest
from moldau.protocol.messages.k69_consumer_group_describe import ConsumerGroupDescribeRequest
from moldau.protocol.messages.k71_get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from moldau.protocol.messages.k72_push_telemetry import PushTelemetryRequest
from moldau.protocol.messages.k74_list_config_resources import ListConfigResourcesRequest
from moldau.protocol.messages.k75_describe_topic_partitions import DescribeTopicPartitionsRequest
from moldau.protocol.messages.k75_describe_topic_partitions import TopicRequest as DescribedTopic
from moldau.protocol.schema import Message
from moldau.requests.authorization import (
    ALTER,
    ALTER_CONFIGS,
    CLUSTER,
    CLUSTER_ACTION,
    CREATE,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    IDEMPOTENT_WRITE,
    OPERATIONS,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
)
from moldau.requests.config_resources import ResourceType
from tests.handlers.conftest import World
from tests.handlers.denying import Right
from tests.handlers.rights_requests import (
    CONSUMERS,
    MEMBER_ID,
    NEW,
    TIMEOUT_MS,
    TXN,
    G,
    T,
    add_partitions,
    commit,
    commit_in_transaction,
    committed_offsets,
    describe_configs,
    end_transaction,
    fetch,
    heartbeat,
    join,
    produce,
    replace_configs,
    set_config,
    topic_id,
)

TOPIC_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
TXN_DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
DENIALS = (TOPIC_DENIED, GROUP_DENIED, CLUSTER_DENIED, TXN_DENIED)

SAME = object()


class Case(NamedTuple):
    """A request that is refused for want of a right, and what the refusal looks like."""

    make: Callable[[World], Message]
    denied: tuple[Right, ...]
    told: Callable[[Any], object]
    expected: object
    version: int | None = None
    to_nobody: object = SAME
    """The refusal of one who has no right at all."""

    @property
    def expected_by_nobody(self) -> object:
        return self.expected if self.to_nobody is SAME else self.to_nobody


def code_of(answer: Any) -> int:
    code: int = answer.error_code
    return code


def codes_of(outer: str, inner: str = "") -> Callable[[Any], list[int]]:
    def codes(answer: Any) -> list[int]:
        found = getattr(answer, outer)
        elements: Iterable[Any] = (each for one in found for each in getattr(one, inner)) if inner else found
        return [each.error_code for each in elements]

    return codes


def codes_of_added(answer: Any) -> list[int]:
    topics = answer.results_by_topic_v3_and_below
    return [each.partition_error_code for topic in topics for each in topic.results_by_partition]


INCREMENTAL, NO_SUCH_TYPE = 44, 77
CONFIGS = [
    (TOPIC, ResourceType.TOPIC, T, "retention.ms", TOPIC_DENIED),
    (GROUP, ResourceType.GROUP, G, "consumer.session.timeout.ms", GROUP_DENIED),
    (CLUSTER, ResourceType.BROKER, "", "log.retention.ms", CLUSTER_DENIED),
    (CLUSTER, ResourceType.BROKER_LOGGER, "1", "root", CLUSTER_DENIED),
    (CLUSTER, ResourceType.CLIENT_METRICS, "m", "interval.ms", CLUSTER_DENIED),
    (CLUSTER, NO_SUCH_TYPE, "1", "p", ErrorCode.INVALID_REQUEST),
]


def _of_configs() -> Iterator[Case]:
    for of, type_, name, key, code in CONFIGS:
        request: Message = describe_configs(type_, name)
        yield Case(partial(_given, request), ((DESCRIBE_CONFIGS, of),), codes_of("results"), [code])
        for request in (set_config(type_, name, key), replace_configs(type_, name, key)):
            is_known = type_ != ResourceType.BROKER_LOGGER or request.api_key == INCREMENTAL
            refusal = [code if is_known else ErrorCode.INVALID_REQUEST]
            yield Case(partial(_given, request), ((ALTER_CONFIGS, of),), codes_of("responses"), refusal)


def _given(request: Message, _: World) -> Message:
    return request


CASES = [
    Case(produce, ((WRITE, TOPIC),), codes_of("responses", "partition_responses"), [TOPIC_DENIED]),
    Case(
        lambda world: produce(world, transactional_id=TXN),
        ((WRITE, TRANSACTIONAL_ID),),
        codes_of("responses", "partition_responses"),
        [TXN_DENIED],
    ),
    Case(fetch, ((READ, TOPIC),), codes_of("responses", "partitions"), [TOPIC_DENIED]),
    Case(lambda w: fetch(w, 1), ((CLUSTER_ACTION, CLUSTER),), codes_of("responses", "partitions"), [TOPIC_DENIED]),
    Case(
        lambda _: ListOffsetsRequest(
            topics=[ListOffsetsTopic(name=T, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])]
        ),
        ((DESCRIBE, TOPIC),),
        codes_of("topics", "partitions"),
        [TOPIC_DENIED],
    ),
    Case(
        lambda _: MetadataRequest(topics=[MetadataRequestTopic(name=T), MetadataRequestTopic(name=NEW)]),
        ((DESCRIBE, TOPIC),),
        lambda answer: [(each.error_code, each.name, each.partitions) for each in answer.topics],
        [(TOPIC_DENIED, T, []), (TOPIC_DENIED, NEW, [])],
    ),
    Case(
        lambda world: MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=topic_id(world))]),
        ((DESCRIBE, TOPIC),),
        lambda answer: [(each.error_code, each.name) for each in answer.topics],
        [(TOPIC_DENIED, None)],
    ),
    Case(lambda _: MetadataRequest(topics=None), ((DESCRIBE, TOPIC),), lambda answer: answer.topics, []),
    Case(
        lambda _: MetadataRequest(topics=[MetadataRequestTopic(name=NEW)]),
        ((CREATE, CLUSTER), (CREATE, TOPIC)),
        codes_of("topics"),
        [TOPIC_DENIED],
    ),
    Case(commit, ((READ, GROUP),), codes_of("topics", "partitions"), [GROUP_DENIED]),
    Case(commit, ((READ, TOPIC),), codes_of("topics", "partitions"), [TOPIC_DENIED], to_nobody=[GROUP_DENIED]),
    Case(committed_offsets, ((DESCRIBE, GROUP),), codes_of("groups"), [GROUP_DENIED]),
    Case(
        lambda _: OffsetFetchRequest(group_id=G, topics=[OffsetFetchRequestTopic(name=T, partition_indexes=[0])]),
        ((DESCRIBE, GROUP),),
        codes_of("topics", "partitions"),
        [GROUP_DENIED],
        version=1,
    ),
    Case(
        committed_offsets,
        ((DESCRIBE, TOPIC),),
        lambda answer: [(p.error_code, p.committed_offset) for t in answer.groups[0].topics for p in t.partitions],
        [(TOPIC_DENIED, -1)],
        to_nobody=[],
    ),
    Case(
        lambda world: committed_offsets(world, all_topics=True),
        ((DESCRIBE, TOPIC),),
        lambda answer: [(group.error_code, group.topics) for group in answer.groups],
        [(0, [])],
        to_nobody=[(GROUP_DENIED, [])],
    ),
    Case(
        lambda _: FindCoordinatorRequest(coordinator_keys=[G]),
        ((DESCRIBE, GROUP),),
        lambda answer: [(each.error_code, each.node_id) for each in answer.coordinators],
        [(GROUP_DENIED, -1)],
    ),
    Case(
        lambda _: FindCoordinatorRequest(key=TXN, key_type=1),
        ((DESCRIBE, TRANSACTIONAL_ID),),
        code_of,
        TXN_DENIED,
        version=1,
    ),
    Case(lambda _: join("new group"), ((READ, GROUP),), code_of, GROUP_DENIED),
    Case(
        lambda _: HeartbeatRequest(group_id=G, generation_id=1, member_id="m"), ((READ, GROUP),), code_of, GROUP_DENIED
    ),
    Case(
        lambda _: LeaveGroupRequest(group_id=CONSUMERS, members=[MemberIdentity(member_id=MEMBER_ID)]),
        ((READ, GROUP),),
        code_of,
        GROUP_DENIED,
    ),
    Case(
        lambda _: SyncGroupRequest(
            group_id=G, generation_id=1, member_id="m", protocol_type="consumer", protocol_name="range"
        ),
        ((READ, GROUP),),
        code_of,
        GROUP_DENIED,
    ),
    Case(
        lambda _: DescribeGroupsRequest(groups=[G, "none"]),
        ((DESCRIBE, GROUP),),
        codes_of("groups"),
        [GROUP_DENIED] * 2,
    ),
    Case(lambda _: ListGroupsRequest(), ((DESCRIBE, CLUSTER), (DESCRIBE, GROUP)), lambda answer: answer.groups, []),
    Case(
        lambda _: CreateTopicsRequest(topics=[CreatableTopic(name=NEW, num_partitions=1, replication_factor=1)]),
        ((CREATE, CLUSTER), (CREATE, TOPIC)),
        codes_of("topics"),
        [TOPIC_DENIED],
    ),
    Case(
        lambda _: CreateTopicsRequest(
            topics=[CreatableTopic(name=NEW, num_partitions=1, replication_factor=1)], validate_only=True
        ),
        ((DESCRIBE_CONFIGS, TOPIC),),
        lambda answer: [(t.error_code, t.topic_config_error_code, t.num_partitions, t.configs) for t in answer.topics],
        [(0, TOPIC_DENIED, -1, [])],
        to_nobody=[(TOPIC_DENIED, 0, -1, [])],
    ),
    Case(
        lambda _: DeleteTopicsRequest(
            topics=[DeleteTopicState(name=T), DeleteTopicState(name="none")], timeout_ms=TIMEOUT_MS
        ),
        ((DELETE, CLUSTER), (DELETE, TOPIC)),
        lambda answer: sorted(codes_of("responses")(answer)),  # Kafka shuffles them
        [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, TOPIC_DENIED],
        to_nobody=[TOPIC_DENIED] * 2,
    ),
    Case(
        lambda world: DeleteTopicsRequest(
            topics=[DeleteTopicState(name=None, topic_id=each) for each in (topic_id(world), bytes(15) + b"n")],
            timeout_ms=TIMEOUT_MS,
        ),
        ((DELETE, CLUSTER), (DELETE, TOPIC), (DESCRIBE, TOPIC)),
        lambda answer: sorted((each.error_code, each.name) for each in answer.responses),
        [(TOPIC_DENIED, None), (ErrorCode.UNKNOWN_TOPIC_ID, None)],
    ),
    Case(
        lambda _: DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=T, partitions=[DeleteRecordsPartition(partition_index=0, offset=1)])]
        ),
        ((DELETE, TOPIC),),
        codes_of("topics", "partitions"),
        [TOPIC_DENIED],
    ),
    Case(
        lambda _: InitProducerIdRequest(transactional_id=None),
        ((IDEMPOTENT_WRITE, CLUSTER), (WRITE, TOPIC)),
        lambda answer: (answer.error_code, answer.producer_id),
        (CLUSTER_DENIED, -1),
    ),
    Case(lambda _: InitProducerIdRequest(transactional_id=TXN), ((WRITE, TRANSACTIONAL_ID),), code_of, TXN_DENIED),
    Case(lambda _: add_partitions(), ((WRITE, TRANSACTIONAL_ID),), codes_of_added, [TXN_DENIED], 3),
    Case(lambda _: add_partitions(), ((WRITE, TOPIC),), codes_of_added, [TOPIC_DENIED], 3, to_nobody=[TXN_DENIED]),
    Case(
        lambda _: AddPartitionsToTxnRequest(transactions=[AddPartitionsToTxnTransaction(transactional_id=TXN)]),
        ((CLUSTER_ACTION, CLUSTER),),
        lambda answer: (answer.error_code, answer.results_by_transaction),
        (CLUSTER_DENIED, []),
    ),
    Case(
        lambda _: AddOffsetsToTxnRequest(transactional_id=TXN, group_id=G),
        ((WRITE, TRANSACTIONAL_ID),),
        code_of,
        TXN_DENIED,
    ),
    Case(
        lambda _: AddOffsetsToTxnRequest(transactional_id=TXN, group_id=G),
        ((READ, GROUP),),
        code_of,
        GROUP_DENIED,
        to_nobody=TXN_DENIED,
    ),
    Case(lambda _: EndTxnRequest(transactional_id=TXN), ((WRITE, TRANSACTIONAL_ID),), code_of, TXN_DENIED),
    Case(
        lambda _: DescribeTransactionsRequest(transactional_ids=[TXN]),
        ((DESCRIBE, TRANSACTIONAL_ID),),
        lambda answer: [(each.error_code, each.transaction_state) for each in answer.transaction_states],
        [(TXN_DENIED, "")],
    ),
    Case(
        lambda _: DescribeTransactionsRequest(transactional_ids=[TXN]),
        ((DESCRIBE, TOPIC),),
        lambda answer: [(each.transaction_state, each.topics) for each in answer.transaction_states],
        [("Ongoing", [])],
        to_nobody=[("", [])],
    ),
    Case(
        lambda _: ListTransactionsRequest(),
        ((DESCRIBE, TRANSACTIONAL_ID),),
        lambda answer: (answer.error_code, answer.transaction_states),
        (ErrorCode.NONE, []),
    ),
    Case(
        lambda _: end_transaction(),
        ((ALTER, CLUSTER), (CLUSTER_ACTION, CLUSTER)),
        lambda answer: answer.markers[0].topics[0].partitions[0].error_code,
        CLUSTER_DENIED,
    ),
    Case(
        lambda _: commit_in_transaction(),
        ((WRITE, TRANSACTIONAL_ID),),
        codes_of("topics", "partitions"),
        [TXN_DENIED],
    ),
    Case(
        lambda _: commit_in_transaction(),
        ((READ, GROUP),),
        codes_of("topics", "partitions"),
        [GROUP_DENIED],
        to_nobody=[TXN_DENIED],
    ),
    Case(
        lambda _: commit_in_transaction(),
        ((READ, TOPIC),),
        codes_of("topics", "partitions"),
        [TOPIC_DENIED],
        to_nobody=[TXN_DENIED],
    ),
    Case(
        lambda _: OffsetForLeaderEpochRequest(
            topics=[OffsetForLeaderTopic(topic=T, partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=0)])]
        ),
        ((CLUSTER_ACTION, CLUSTER), (DESCRIBE, TOPIC)),
        codes_of("topics", "partitions"),
        [TOPIC_DENIED],
    ),
    *_of_configs(),
    Case(
        lambda _: DescribeLogDirsRequest(topics=None),
        ((DESCRIBE, CLUSTER),),
        lambda answer: (answer.error_code, answer.results),
        (CLUSTER_DENIED, []),
    ),
    Case(
        lambda _: CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=T, count=3, assignments=None)], timeout_ms=TIMEOUT_MS
        ),
        ((ALTER, TOPIC),),
        codes_of("results"),
        [TOPIC_DENIED],
    ),
    Case(lambda _: DeleteGroupsRequest(groups_names=[G]), ((DELETE, GROUP),), codes_of("results"), [GROUP_DENIED]),
    Case(
        lambda _: ElectLeadersRequest(topic_partitions=[TopicPartitions(topic=T, partitions=[0])]),
        ((ALTER, CLUSTER),),
        lambda answer: (answer.error_code, codes_of("replica_election_results", "partition_result")(answer)),
        (CLUSTER_DENIED, [CLUSTER_DENIED]),
    ),
    Case(
        lambda _: AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=T, partitions=[ReassignablePartition(partition_index=0, replicas=[1])])]
        ),
        ((ALTER, CLUSTER),),
        code_of,
        CLUSTER_DENIED,
    ),
    Case(lambda _: ListPartitionReassignmentsRequest(topics=None), ((DESCRIBE, CLUSTER),), code_of, CLUSTER_DENIED),
    Case(
        lambda _: OffsetDeleteRequest(
            group_id=G,
            topics=[OffsetDeleteRequestTopic(name=T, partitions=[OffsetDeleteRequestPartition(partition_index=0)])],
        ),
        ((DELETE, GROUP),),
        code_of,
        GROUP_DENIED,
    ),
    Case(
        lambda _: OffsetDeleteRequest(
            group_id=G,
            topics=[
                OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
                for name in (T, "none")
            ],
        ),
        ((READ, TOPIC),),
        codes_of("topics", "partitions"),
        [TOPIC_DENIED] * 2,
        to_nobody=[],
    ),
    Case(lambda _: UpdateFeaturesRequest(feature_updates=[]), ((ALTER, CLUSTER),), code_of, CLUSTER_DENIED),
    Case(
        lambda _: DescribeClusterRequest(include_cluster_authorized_operations=True),
        ((DESCRIBE, CLUSTER),),
        lambda answer: (answer.error_code, answer.cluster_authorized_operations),
        (0, 0),
    ),
    Case(
        lambda _: DescribeProducersRequest(topics=[TopicRequest(name=T, partition_indexes=[0])]),
        ((READ, TOPIC),),
        codes_of("topics", "partitions"),
        [TOPIC_DENIED],
    ),
    Case(lambda _: heartbeat("new group"), ((READ, GROUP),), code_of, GROUP_DENIED),
    Case(
        lambda _: heartbeat("new group", T, "none"), ((DESCRIBE, TOPIC),), code_of, TOPIC_DENIED, to_nobody=GROUP_DENIED
    ),
    Case(
        lambda _: ConsumerGroupDescribeRequest(group_ids=[CONSUMERS, "none"]),
        ((DESCRIBE, GROUP),),
        codes_of("groups"),
        [GROUP_DENIED] * 2,
    ),
    Case(
        lambda _: ConsumerGroupDescribeRequest(group_ids=[CONSUMERS]),
        ((DESCRIBE, TOPIC),),
        lambda answer: [(group.error_code, group.members) for group in answer.groups],
        [(TOPIC_DENIED, [])],
        to_nobody=[(GROUP_DENIED, [])],
    ),
    Case(
        lambda _: ListConfigResourcesRequest(),
        ((DESCRIBE_CONFIGS, CLUSTER),),
        lambda answer: (answer.error_code, answer.config_resources),
        (CLUSTER_DENIED, []),
    ),
    Case(
        lambda _: DescribeTopicPartitionsRequest(topics=[DescribedTopic(name=T), DescribedTopic(name="none")]),
        ((DESCRIBE, TOPIC),),
        lambda answer: [(each.error_code, each.partitions) for each in answer.topics],
        [(TOPIC_DENIED, [])] * 2,
    ),
    Case(lambda _: DescribeTopicPartitionsRequest(topics=[]), ((DESCRIBE, TOPIC),), lambda answer: answer.topics, []),
    Case(
        lambda _: ApiVersionsRequest(client_software_name="a", client_software_version="1"),
        tuple((operation, resource) for resource in OPERATIONS for operation in OPERATIONS[resource]),
        code_of,
        ErrorCode.NONE,
    ),
]

WITHOUT_A_RECEIVER = [
    Case(
        partial(_given, request),
        tuple((operation, resource) for resource in OPERATIONS for operation in OPERATIONS[resource]),
        code_of,
        ErrorCode.UNSUPPORTED_VERSION,  # nobody receives telemetry here
    )
    for request in (GetTelemetrySubscriptionsRequest(), PushTelemetryRequest())
]
"""Cases of requests that Apache Kafka serves only where a plugin receives what clients push."""


def label(case: object) -> str:
    assert isinstance(case, Case)
    return "+".join(f"{operation.name}-{resource.name}" for operation, resource in case.denied[:2])
