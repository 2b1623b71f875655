"""Who may not do what it asks for is told so by Kafka's code, for each API key, and nothing has changed.

`CASES` is a table of answers seen on Apache Kafka 4.3.1 with its StandardAuthorizer: `test_rights_of_kafka.py` asks it
the same again.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import pytest

from moldau.protocol.errors import ErrorCode, ProtocolError
from moldau.protocol.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from moldau.protocol.messages.k02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from moldau.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from moldau.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
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
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from moldau.protocol.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest
from moldau.protocol.messages.k26_end_txn import EndTxnRequest
from moldau.protocol.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from moldau.protocol.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from moldau.protocol.messages.k32_describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from moldau.protocol.messages.k33_alter_configs import AlterableConfig as ReplacedConfig
from moldau.protocol.messages.k33_alter_configs import AlterConfigsRequest
from moldau.protocol.messages.k33_alter_configs import AlterConfigsResource as ReplacedResource
from moldau.protocol.messages.k35_describe_log_dirs import DescribeLogDirsRequest
from moldau.protocol.messages.k37_create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from moldau.protocol.messages.k42_delete_groups import DeleteGroupsRequest
from moldau.protocol.messages.k43_elect_leaders import ElectLeadersRequest, TopicPartitions
from moldau.protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
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
from moldau.protocol.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from moldau.protocol.messages.k69_consumer_group_describe import ConsumerGroupDescribeRequest
from moldau.protocol.messages.k74_list_config_resources import ListConfigResourcesRequest
from moldau.protocol.messages.k75_describe_topic_partitions import DescribeTopicPartitionsRequest
from moldau.protocol.messages.k75_describe_topic_partitions import TopicRequest as DescribedTopic
from moldau.protocol.schema import Message
from moldau.records.batch import Record, build_batch
from moldau.requests import registry
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
    NEEDED,
    OPERATIONS,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    Operation,
    Resource,
)
from moldau.requests.config_resources import ResourceType
from tests.handlers.conftest import World
from tests.handlers.denying import Allow, Deny, Right

T, NEW, G, CONSUMERS, TXN = "t", "new", "g", "consumers", "x"
TOPIC_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
TXN_DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
DENIALS = (TOPIC_DENIED, GROUP_DENIED, CLUSTER_DENIED, TXN_DENIED)
NEVER_REFUSED = (18,)
TELL_RIGHTS = (60, 75)
"""API keys that ask also for rights which they only tell of."""

SAME = object()
BATCH = build_batch([Record(0, 0, None, b"v")])
IN_TRANSACTION = build_batch(
    [Record(0, 0, None, b"v")], producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
)
MEMBER_ID = "A" * 22
TIMEOUT_MS = 10_000


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


def _id(world: World) -> bytes:
    return world.image.topics[T].topic_id


def _add_partitions(producer_id: int = -1) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=TXN,
        v3_and_below_producer_id=producer_id,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=T, partitions=[0])],
    )


def _codes_of_added(answer: Any) -> list[int]:
    topics = answer.results_by_topic_v3_and_below
    return [each.partition_error_code for topic in topics for each in topic.results_by_partition]


def _produce(world: World, acks: int = 1, transactional_id: str | None = None) -> ProduceRequest:
    data = [PartitionProduceData(index=0, records=BATCH if transactional_id is None else IN_TRANSACTION)]
    topics = [TopicProduceData(topic_id=_id(world), partition_data=data)]
    return ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=1000, topic_data=topics)


def _fetch(world: World, replica_id: int = -1) -> FetchRequest:
    partitions = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)]
    return FetchRequest(
        replica_state=ReplicaState(replica_id=replica_id, replica_epoch=0),
        max_wait_ms=0,
        max_bytes=1000,
        session_epoch=-1,
        topics=[FetchTopic(topic_id=_id(world), partitions=partitions)],
    )


def _commit(world: World) -> OffsetCommitRequest:
    partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=2)]
    topics = [OffsetCommitRequestTopic(topic_id=_id(world), partitions=partitions)]
    return OffsetCommitRequest(group_id=G, generation_id_or_member_epoch=-1, topics=topics)


def _commit_in_transaction() -> TxnOffsetCommitRequest:
    partitions = [TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=2)]
    topics = [TxnOffsetCommitRequestTopic(name=T, partitions=partitions)]
    return TxnOffsetCommitRequest(transactional_id=TXN, group_id=G, producer_id=1, topics=topics)


def _end() -> WriteTxnMarkersRequest:
    topics = [WritableTxnMarkerTopic(name=T, partition_indexes=[0])]
    return WriteTxnMarkersRequest(markers=[WritableTxnMarker(producer_id=1, topics=topics)])


def _offsets(world: World, *, all_topics: bool = False) -> OffsetFetchRequest:
    topics = [OffsetFetchRequestTopics(topic_id=_id(world), partition_indexes=[0])]
    return OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=G, topics=None if all_topics else topics, member_epoch=-1)]
    )


def _join(group_id: str) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def _heartbeat(group_id: str = CONSUMERS, *topics: str) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id=MEMBER_ID,
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=list(topics or (T,)),
        topic_partitions=[],
    )


def _set(type_: int, name: str, property_: str) -> IncrementalAlterConfigsRequest:
    configs = [AlterableConfig(name=property_, config_operation=0, value="60000")]
    resource = AlterConfigsResource(resource_type=type_, resource_name=name, configs=configs)
    return IncrementalAlterConfigsRequest(resources=[resource])


def _replace(type_: int, name: str, property_: str) -> AlterConfigsRequest:
    configs = [ReplacedConfig(name=property_, value="60000")]
    return AlterConfigsRequest(resources=[ReplacedResource(resource_type=type_, resource_name=name, configs=configs)])


def _describe(type_: int, name: str) -> DescribeConfigsRequest:
    return DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=type_, resource_name=name)])


def _code(answer: Any) -> int:
    code: int = answer.error_code
    return code


def _codes(outer: str, inner: str = "") -> Callable[[Any], list[int]]:
    def codes(answer: Any) -> list[int]:
        found = getattr(answer, outer)
        elements: Iterable[Any] = (each for one in found for each in getattr(one, inner)) if inner else found
        return [each.error_code for each in elements]

    return codes


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
        request: Message = _describe(type_, name)
        yield Case(partial(_given, request), ((DESCRIBE_CONFIGS, of),), _codes("results"), [code])
        for request in (_set(type_, name, key), _replace(type_, name, key)):
            is_known = type_ != ResourceType.BROKER_LOGGER or request.api_key == INCREMENTAL
            refusal = [code if is_known else ErrorCode.INVALID_REQUEST]
            yield Case(partial(_given, request), ((ALTER_CONFIGS, of),), _codes("responses"), refusal)


def _given(request: Message, _: World) -> Message:
    return request


CASES = [
    Case(_produce, ((WRITE, TOPIC),), _codes("responses", "partition_responses"), [TOPIC_DENIED]),
    Case(
        lambda world: _produce(world, transactional_id=TXN),
        ((WRITE, TRANSACTIONAL_ID),),
        _codes("responses", "partition_responses"),
        [TXN_DENIED],
    ),
    Case(_fetch, ((READ, TOPIC),), _codes("responses", "partitions"), [TOPIC_DENIED]),
    Case(lambda w: _fetch(w, 1), ((CLUSTER_ACTION, CLUSTER),), _codes("responses", "partitions"), [TOPIC_DENIED]),
    Case(
        lambda _: ListOffsetsRequest(
            topics=[ListOffsetsTopic(name=T, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])]
        ),
        ((DESCRIBE, TOPIC),),
        _codes("topics", "partitions"),
        [TOPIC_DENIED],
    ),
    Case(
        lambda _: MetadataRequest(topics=[MetadataRequestTopic(name=T), MetadataRequestTopic(name=NEW)]),
        ((DESCRIBE, TOPIC),),
        lambda answer: [(each.error_code, each.name, each.partitions) for each in answer.topics],
        [(TOPIC_DENIED, T, []), (TOPIC_DENIED, NEW, [])],
    ),
    Case(
        lambda world: MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=_id(world))]),
        ((DESCRIBE, TOPIC),),
        lambda answer: [(each.error_code, each.name) for each in answer.topics],
        [(TOPIC_DENIED, None)],
    ),
    Case(lambda _: MetadataRequest(topics=None), ((DESCRIBE, TOPIC),), lambda answer: answer.topics, []),
    Case(
        lambda _: MetadataRequest(topics=[MetadataRequestTopic(name=NEW)]),
        ((CREATE, CLUSTER), (CREATE, TOPIC)),
        _codes("topics"),
        [TOPIC_DENIED],
    ),
    Case(_commit, ((READ, GROUP),), _codes("topics", "partitions"), [GROUP_DENIED]),
    Case(_commit, ((READ, TOPIC),), _codes("topics", "partitions"), [TOPIC_DENIED], to_nobody=[GROUP_DENIED]),
    Case(_offsets, ((DESCRIBE, GROUP),), _codes("groups"), [GROUP_DENIED]),
    Case(
        lambda _: OffsetFetchRequest(group_id=G, topics=[OffsetFetchRequestTopic(name=T, partition_indexes=[0])]),
        ((DESCRIBE, GROUP),),
        _codes("topics", "partitions"),
        [GROUP_DENIED],
        version=1,
    ),
    Case(
        _offsets,
        ((DESCRIBE, TOPIC),),
        lambda answer: [(p.error_code, p.committed_offset) for t in answer.groups[0].topics for p in t.partitions],
        [(TOPIC_DENIED, -1)],
        to_nobody=[],
    ),
    Case(
        lambda world: _offsets(world, all_topics=True),
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
        _code,
        TXN_DENIED,
        version=1,
    ),
    Case(lambda _: _join("new group"), ((READ, GROUP),), _code, GROUP_DENIED),
    Case(lambda _: HeartbeatRequest(group_id=G, generation_id=1, member_id="m"), ((READ, GROUP),), _code, GROUP_DENIED),
    Case(
        lambda _: LeaveGroupRequest(group_id=CONSUMERS, members=[MemberIdentity(member_id=MEMBER_ID)]),
        ((READ, GROUP),),
        _code,
        GROUP_DENIED,
    ),
    Case(
        lambda _: SyncGroupRequest(
            group_id=G, generation_id=1, member_id="m", protocol_type="consumer", protocol_name="range"
        ),
        ((READ, GROUP),),
        _code,
        GROUP_DENIED,
    ),
    Case(
        lambda _: DescribeGroupsRequest(groups=[G, "none"]), ((DESCRIBE, GROUP),), _codes("groups"), [GROUP_DENIED] * 2
    ),
    Case(lambda _: ListGroupsRequest(), ((DESCRIBE, CLUSTER), (DESCRIBE, GROUP)), lambda answer: answer.groups, []),
    Case(
        lambda _: CreateTopicsRequest(topics=[CreatableTopic(name=NEW, num_partitions=1, replication_factor=1)]),
        ((CREATE, CLUSTER), (CREATE, TOPIC)),
        _codes("topics"),
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
        lambda answer: sorted(_codes("responses")(answer)),  # Kafka shuffles them
        [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, TOPIC_DENIED],
        to_nobody=[TOPIC_DENIED] * 2,
    ),
    Case(
        lambda world: DeleteTopicsRequest(
            topics=[DeleteTopicState(name=None, topic_id=each) for each in (_id(world), bytes(15) + b"n")],
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
        _codes("topics", "partitions"),
        [TOPIC_DENIED],
    ),
    Case(
        lambda _: InitProducerIdRequest(transactional_id=None),
        ((IDEMPOTENT_WRITE, CLUSTER), (WRITE, TOPIC)),
        lambda answer: (answer.error_code, answer.producer_id),
        (CLUSTER_DENIED, -1),
    ),
    Case(lambda _: InitProducerIdRequest(transactional_id=TXN), ((WRITE, TRANSACTIONAL_ID),), _code, TXN_DENIED),
    Case(lambda _: _add_partitions(), ((WRITE, TRANSACTIONAL_ID),), _codes_of_added, [TXN_DENIED], 3),
    Case(lambda _: _add_partitions(), ((WRITE, TOPIC),), _codes_of_added, [TOPIC_DENIED], 3, to_nobody=[TXN_DENIED]),
    Case(
        lambda _: AddPartitionsToTxnRequest(transactions=[AddPartitionsToTxnTransaction(transactional_id=TXN)]),
        ((CLUSTER_ACTION, CLUSTER),),
        lambda answer: (answer.error_code, answer.results_by_transaction),
        (CLUSTER_DENIED, []),
    ),
    Case(
        lambda _: AddOffsetsToTxnRequest(transactional_id=TXN, group_id=G),
        ((WRITE, TRANSACTIONAL_ID),),
        _code,
        TXN_DENIED,
    ),
    Case(
        lambda _: AddOffsetsToTxnRequest(transactional_id=TXN, group_id=G),
        ((READ, GROUP),),
        _code,
        GROUP_DENIED,
        to_nobody=TXN_DENIED,
    ),
    Case(lambda _: EndTxnRequest(transactional_id=TXN), ((WRITE, TRANSACTIONAL_ID),), _code, TXN_DENIED),
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
        lambda _: _end(),
        ((ALTER, CLUSTER), (CLUSTER_ACTION, CLUSTER)),
        lambda answer: answer.markers[0].topics[0].partitions[0].error_code,
        CLUSTER_DENIED,
    ),
    Case(
        lambda _: _commit_in_transaction(),
        ((WRITE, TRANSACTIONAL_ID),),
        _codes("topics", "partitions"),
        [TXN_DENIED],
    ),
    Case(
        lambda _: _commit_in_transaction(),
        ((READ, GROUP),),
        _codes("topics", "partitions"),
        [GROUP_DENIED],
        to_nobody=[TXN_DENIED],
    ),
    Case(
        lambda _: _commit_in_transaction(),
        ((READ, TOPIC),),
        _codes("topics", "partitions"),
        [TOPIC_DENIED],
        to_nobody=[TXN_DENIED],
    ),
    Case(
        lambda _: OffsetForLeaderEpochRequest(
            topics=[OffsetForLeaderTopic(topic=T, partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=0)])]
        ),
        ((CLUSTER_ACTION, CLUSTER), (DESCRIBE, TOPIC)),
        _codes("topics", "partitions"),
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
        _codes("results"),
        [TOPIC_DENIED],
    ),
    Case(lambda _: DeleteGroupsRequest(groups_names=[G]), ((DELETE, GROUP),), _codes("results"), [GROUP_DENIED]),
    Case(
        lambda _: ElectLeadersRequest(topic_partitions=[TopicPartitions(topic=T, partitions=[0])]),
        ((ALTER, CLUSTER),),
        lambda answer: (answer.error_code, _codes("replica_election_results", "partition_result")(answer)),
        (CLUSTER_DENIED, [CLUSTER_DENIED]),
    ),
    Case(
        lambda _: AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=T, partitions=[ReassignablePartition(partition_index=0, replicas=[1])])]
        ),
        ((ALTER, CLUSTER),),
        _code,
        CLUSTER_DENIED,
    ),
    Case(lambda _: ListPartitionReassignmentsRequest(topics=None), ((DESCRIBE, CLUSTER),), _code, CLUSTER_DENIED),
    Case(
        lambda _: OffsetDeleteRequest(
            group_id=G,
            topics=[OffsetDeleteRequestTopic(name=T, partitions=[OffsetDeleteRequestPartition(partition_index=0)])],
        ),
        ((DELETE, GROUP),),
        _code,
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
        _codes("topics", "partitions"),
        [TOPIC_DENIED] * 2,
        to_nobody=[],
    ),
    Case(lambda _: UpdateFeaturesRequest(feature_updates=[]), ((ALTER, CLUSTER),), _code, CLUSTER_DENIED),
    Case(
        lambda _: DescribeClusterRequest(include_cluster_authorized_operations=True),
        ((DESCRIBE, CLUSTER),),
        lambda answer: (answer.error_code, answer.cluster_authorized_operations),
        (0, 0),
    ),
    Case(
        lambda _: DescribeProducersRequest(topics=[TopicRequest(name=T, partition_indexes=[0])]),
        ((READ, TOPIC),),
        _codes("topics", "partitions"),
        [TOPIC_DENIED],
    ),
    Case(lambda _: _heartbeat("new group"), ((READ, GROUP),), _code, GROUP_DENIED),
    Case(
        lambda _: _heartbeat("new group", T, "none"), ((DESCRIBE, TOPIC),), _code, TOPIC_DENIED, to_nobody=GROUP_DENIED
    ),
    Case(
        lambda _: ConsumerGroupDescribeRequest(group_ids=[CONSUMERS, "none"]),
        ((DESCRIBE, GROUP),),
        _codes("groups"),
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
        _code,
        ErrorCode.NONE,
    ),
]


def _label(case: object) -> str:
    assert isinstance(case, Case)
    return "+".join(f"{operation.name}-{resource.name}" for operation, resource in case.denied[:2])


@pytest.fixture
def settled(world: World) -> World:
    """A topic with records, a group with an offset, a group of the consumer protocol with a member, and an open
    transaction."""
    world.create(T)
    world.produce(T, 3)
    world.ask(FindCoordinatorRequest(coordinator_keys=[G]))
    assert _codes("topics", "partitions")(world.ask(_commit(world))) == [0]
    assert world.ask(_heartbeat()).error_code == 0
    world.ask(FindCoordinatorRequest(coordinator_keys=[TXN], key_type=1))
    begun = world.ask(InitProducerIdRequest(transactional_id=TXN, transaction_timeout_ms=60_000))
    assert _codes_of_added(world.ask(_add_partitions(begun.producer_id), 3)) == [0]
    return world


def _state(world: World) -> object:
    """All that a request might change."""
    log, groups = world.log_of(T), world.ask(ListGroupsRequest()).groups
    members = world.ask(ConsumerGroupDescribeRequest(group_ids=[CONSUMERS])).groups
    offsets = world.ask(_offsets(world, all_topics=True)).groups
    transactions = world.ask(DescribeTransactionsRequest(transactional_ids=[TXN])).transaction_states
    return log.log_start_offset, log.log_end_offset, repr(groups), repr(members), repr(offsets), repr(transactions)


@pytest.mark.parametrize("case", CASES, ids=_label)
def test_who_may_not_is_told_so_and_nothing_has_changed(settled: World, case: Case) -> None:
    policy = settled.services.policy
    request, allowing, image, before = case.make(settled), policy.authorizer, settled.image, _state(settled)
    policy.authorize_by(Deny(*case.denied))
    assert case.told(settled.ask(request, case.version)) == case.expected
    policy.authorize_by(allowing)
    assert settled.image is image
    assert _state(settled) == before


EVERYTHING = tuple((operation, resource) for operation in Operation for resource in Resource)


@pytest.mark.parametrize("case", CASES, ids=_label)
def test_who_may_nothing_is_told_what_kafka_tells_it(settled: World, case: Case) -> None:
    request = case.make(settled)
    settled.services.policy.authorize_by(Deny(*EVERYTHING))
    assert case.told(settled.ask(request, case.version)) == case.expected_by_nobody


@pytest.mark.parametrize("case", [case for case in CASES if case.expected != TXN_DENIED], ids=_label)
def test_who_has_the_rights_of_the_table_and_no_others_is_not_refused(settled: World, case: Case) -> None:
    """But for transactions: without a coordinator of theirs everybody is refused by that code (keys 10 and 22)."""
    request = case.make(settled)
    settled.services.policy.authorize_by(Allow(*NEEDED[request.api_key]))
    check_served(case, request.api_key, case.told(settled.ask(request, case.version)))


def check_served(case: Case, key: int, told: object) -> None:
    """Whoever was told this was not refused."""
    assert not {*_numbers(told)} & {*DENIALS}
    assert told != case.expected or key in NEVER_REFUSED or case.expected == [ErrorCode.INVALID_REQUEST]


def _numbers(told: object) -> Iterator[int]:
    if isinstance(told, int):
        yield told
    elif isinstance(told, list | tuple):
        for each in told:
            yield from _numbers(each)


def test_a_write_without_acks_that_is_not_allowed_closes_the_connection(settled: World) -> None:
    settled.services.policy.authorize_by(Deny((WRITE, TOPIC)))
    with pytest.raises(ProtocolError, match="authorization failed"):
        settled.ask(_produce(settled, acks=0))


def test_every_handler_asks_for_what_the_table_says_and_for_nothing_else(settled: World) -> None:
    asked: dict[int, set[Right]] = {key: set() for key in registry.modules()}
    for case in CASES:
        request = case.make(settled)
        deny = Deny(*case.denied)
        settled.services.policy.authorize_by(deny)
        settled.ask(request, case.version)
        needed = NEEDED[request.api_key]
        asked[request.api_key] |= deny.asked & {*needed} if request.api_key in TELL_RIGHTS else deny.asked
    assert asked == {key: set(needed) for key, needed in NEEDED.items()}


def test_rights_are_told_as_far_as_they_go(settled: World) -> None:
    settled.services.policy.authorize_by(Deny((WRITE, TOPIC), (ALTER, CLUSTER), (DELETE, GROUP)))
    request = MetadataRequest(topics=None, include_topic_authorized_operations=True)
    (topic,) = [each for each in settled.ask(request).topics if each.name == T]
    cluster = settled.ask(DescribeClusterRequest(include_cluster_authorized_operations=True))
    (group,) = settled.ask(DescribeGroupsRequest(groups=[G], include_authorized_operations=True)).groups
    for rights, resource, denied in (
        (topic.topic_authorized_operations, TOPIC, WRITE),
        (cluster.cluster_authorized_operations, CLUSTER, ALTER),
        (group.authorized_operations, GROUP, DELETE),
    ):
        assert rights == sum(1 << each for each in OPERATIONS[resource] if each is not denied)
