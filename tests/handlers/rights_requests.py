"""Requests that need rights: the least that each API key can be asked."""

from moldau.protocol.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from moldau.protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from moldau.protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from moldau.protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
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
from moldau.protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.protocol.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from moldau.records.batch import Record, build_batch
from tests.handlers.conftest import World

T, NEW, G, CONSUMERS, TXN = "t", "new", "g", "consumers", "x"
BATCH = build_batch([Record(0, 0, None, b"v")])
IN_TRANSACTION = build_batch(
    [Record(0, 0, None, b"v")], producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
)
MEMBER_ID = "A" * 22
TIMEOUT_MS = 10_000


def topic_id(world: World) -> bytes:
    return world.image.topics[T].topic_id


def add_partitions(producer_id: int = -1) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=TXN,
        v3_and_below_producer_id=producer_id,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=T, partitions=[0])],
    )


def produce(world: World, acks: int = 1, transactional_id: str | None = None) -> ProduceRequest:
    data = [PartitionProduceData(index=0, records=BATCH if transactional_id is None else IN_TRANSACTION)]
    topics = [TopicProduceData(topic_id=topic_id(world), partition_data=data)]
    return ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=1000, topic_data=topics)


def fetch(world: World, replica_id: int = -1) -> FetchRequest:
    partitions = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)]
    return FetchRequest(
        replica_state=ReplicaState(replica_id=replica_id, replica_epoch=0),
        max_wait_ms=0,
        max_bytes=1000,
        session_epoch=-1,
        topics=[FetchTopic(topic_id=topic_id(world), partitions=partitions)],
    )


def commit(world: World) -> OffsetCommitRequest:
    partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=2)]
    topics = [OffsetCommitRequestTopic(topic_id=topic_id(world), partitions=partitions)]
    return OffsetCommitRequest(group_id=G, generation_id_or_member_epoch=-1, topics=topics)


def commit_in_transaction() -> TxnOffsetCommitRequest:
    partitions = [TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=2)]
    topics = [TxnOffsetCommitRequestTopic(name=T, partitions=partitions)]
    return TxnOffsetCommitRequest(transactional_id=TXN, group_id=G, producer_id=1, topics=topics)


def end_transaction() -> WriteTxnMarkersRequest:
    topics = [WritableTxnMarkerTopic(name=T, partition_indexes=[0])]
    return WriteTxnMarkersRequest(markers=[WritableTxnMarker(producer_id=1, topics=topics)])


def committed_offsets(world: World, *, all_topics: bool = False) -> OffsetFetchRequest:
    topics = [OffsetFetchRequestTopics(topic_id=topic_id(world), partition_indexes=[0])]
    return OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=G, topics=None if all_topics else topics, member_epoch=-1)]
    )


def join(group_id: str) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def heartbeat(group_id: str = CONSUMERS, *topics: str) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id=MEMBER_ID,
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=list(topics or (T,)),
        topic_partitions=[],
    )


def set_config(type_: int, name: str, property_: str) -> IncrementalAlterConfigsRequest:
    configs = [AlterableConfig(name=property_, config_operation=0, value="60000")]
    resource = AlterConfigsResource(resource_type=type_, resource_name=name, configs=configs)
    return IncrementalAlterConfigsRequest(resources=[resource])


def replace_configs(type_: int, name: str, property_: str) -> AlterConfigsRequest:
    configs = [ReplacedConfig(name=property_, value="60000")]
    return AlterConfigsRequest(resources=[ReplacedResource(resource_type=type_, resource_name=name, configs=configs)])


def describe_configs(type_: int, name: str) -> DescribeConfigsRequest:
    return DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=type_, resource_name=name)])
