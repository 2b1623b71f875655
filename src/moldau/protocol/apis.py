"""Every API key: its name, the versions we speak and where its tables are. Importing this imports no table.

The upper end is the version that Apache Kafka 4.3 serves by default, that is without unstable versions. The lower end
is 0, also where Kafka 4 begins later. The one exception is version 0 of the share group keys: an early access, dropped
by 4.1.
"""

from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import Final, NamedTuple, cast

from moldau.protocol.schema import Message

NEVER: Final = 32767

BROKER: Final = "broker"
"""Keys that a broker serves to clients and to other brokers."""
CONTROLLER: Final = "controller"
"""Keys that only KRaft nodes use, between each other."""
ZOOKEEPER: Final = "zookeeper"
"""Keys between brokers of the ZooKeeper era; Kafka 4 dropped them."""


class Api(NamedTuple):
    """A row of the table."""

    key: int
    name: str
    min_version: int
    max_version: int
    flexible_from: int
    """The first flexible version (KIP-482); one past the last version if there is none."""
    module: str
    listener: str

    @property
    def flexible(self) -> int | None:
        return None if self.flexible_from == NEVER else self.flexible_from


APIS: Final = (
    Api(0, "Produce", 0, 13, 9, "k00_produce", BROKER),
    Api(1, "Fetch", 0, 18, 12, "k01_fetch", BROKER),
    Api(2, "ListOffsets", 0, 11, 6, "k02_list_offsets", BROKER),
    Api(3, "Metadata", 0, 13, 9, "k03_metadata", BROKER),
    Api(4, "LeaderAndIsr", 0, 7, 4, "k04_leader_and_isr", ZOOKEEPER),
    Api(5, "StopReplica", 0, 4, 2, "k05_stop_replica", ZOOKEEPER),
    Api(6, "UpdateMetadata", 0, 8, 6, "k06_update_metadata", ZOOKEEPER),
    Api(7, "ControlledShutdown", 0, 3, 3, "k07_controlled_shutdown", ZOOKEEPER),
    Api(8, "OffsetCommit", 0, 10, 8, "k08_offset_commit", BROKER),
    Api(9, "OffsetFetch", 0, 10, 6, "k09_offset_fetch", BROKER),
    Api(10, "FindCoordinator", 0, 6, 3, "k10_find_coordinator", BROKER),
    Api(11, "JoinGroup", 0, 9, 6, "k11_join_group", BROKER),
    Api(12, "Heartbeat", 0, 4, 4, "k12_heartbeat", BROKER),
    Api(13, "LeaveGroup", 0, 5, 4, "k13_leave_group", BROKER),
    Api(14, "SyncGroup", 0, 5, 4, "k14_sync_group", BROKER),
    Api(15, "DescribeGroups", 0, 6, 5, "k15_describe_groups", BROKER),
    Api(16, "ListGroups", 0, 5, 3, "k16_list_groups", BROKER),
    Api(17, "SaslHandshake", 0, 1, NEVER, "k17_sasl_handshake", BROKER),
    Api(18, "ApiVersions", 0, 4, 3, "k18_api_versions", BROKER),
    Api(19, "CreateTopics", 0, 7, 5, "k19_create_topics", BROKER),
    Api(20, "DeleteTopics", 0, 6, 4, "k20_delete_topics", BROKER),
    Api(21, "DeleteRecords", 0, 2, 2, "k21_delete_records", BROKER),
    Api(22, "InitProducerId", 0, 5, 2, "k22_init_producer_id", BROKER),
    Api(23, "OffsetForLeaderEpoch", 0, 4, 4, "k23_offset_for_leader_epoch", BROKER),
    Api(24, "AddPartitionsToTxn", 0, 5, 3, "k24_add_partitions_to_txn", BROKER),
    Api(25, "AddOffsetsToTxn", 0, 4, 3, "k25_add_offsets_to_txn", BROKER),
    Api(26, "EndTxn", 0, 5, 3, "k26_end_txn", BROKER),
    Api(27, "WriteTxnMarkers", 0, 2, 1, "k27_write_txn_markers", BROKER),
    Api(28, "TxnOffsetCommit", 0, 5, 3, "k28_txn_offset_commit", BROKER),
    Api(29, "DescribeAcls", 0, 3, 2, "k29_describe_acls", BROKER),
    Api(30, "CreateAcls", 0, 3, 2, "k30_create_acls", BROKER),
    Api(31, "DeleteAcls", 0, 3, 2, "k31_delete_acls", BROKER),
    Api(32, "DescribeConfigs", 0, 4, 4, "k32_describe_configs", BROKER),
    Api(33, "AlterConfigs", 0, 2, 2, "k33_alter_configs", BROKER),
    Api(34, "AlterReplicaLogDirs", 0, 2, 2, "k34_alter_replica_log_dirs", BROKER),
    Api(35, "DescribeLogDirs", 0, 5, 2, "k35_describe_log_dirs", BROKER),
    Api(36, "SaslAuthenticate", 0, 2, 2, "k36_sasl_authenticate", BROKER),
    Api(37, "CreatePartitions", 0, 3, 2, "k37_create_partitions", BROKER),
    Api(38, "CreateDelegationToken", 0, 3, 2, "k38_create_delegation_token", BROKER),
    Api(39, "RenewDelegationToken", 0, 2, 2, "k39_renew_delegation_token", BROKER),
    Api(40, "ExpireDelegationToken", 0, 2, 2, "k40_expire_delegation_token", BROKER),
    Api(41, "DescribeDelegationToken", 0, 3, 2, "k41_describe_delegation_token", BROKER),
    Api(42, "DeleteGroups", 0, 2, 2, "k42_delete_groups", BROKER),
    Api(43, "ElectLeaders", 0, 2, 2, "k43_elect_leaders", BROKER),
    Api(44, "IncrementalAlterConfigs", 0, 1, 1, "k44_incremental_alter_configs", BROKER),
    Api(45, "AlterPartitionReassignments", 0, 1, 0, "k45_alter_partition_reassignments", BROKER),
    Api(46, "ListPartitionReassignments", 0, 0, 0, "k46_list_partition_reassignments", BROKER),
    Api(47, "OffsetDelete", 0, 0, NEVER, "k47_offset_delete", BROKER),
    Api(48, "DescribeClientQuotas", 0, 1, 1, "k48_describe_client_quotas", BROKER),
    Api(49, "AlterClientQuotas", 0, 1, 1, "k49_alter_client_quotas", BROKER),
    Api(50, "DescribeUserScramCredentials", 0, 0, 0, "k50_describe_user_scram_credentials", BROKER),
    Api(51, "AlterUserScramCredentials", 0, 0, 0, "k51_alter_user_scram_credentials", BROKER),
    Api(52, "Vote", 0, 2, 0, "k52_vote", CONTROLLER),
    Api(53, "BeginQuorumEpoch", 0, 1, 1, "k53_begin_quorum_epoch", CONTROLLER),
    Api(54, "EndQuorumEpoch", 0, 1, 1, "k54_end_quorum_epoch", CONTROLLER),
    Api(55, "DescribeQuorum", 0, 2, 0, "k55_describe_quorum", BROKER),
    Api(56, "AlterPartition", 0, 3, 0, "k56_alter_partition", CONTROLLER),
    Api(57, "UpdateFeatures", 0, 2, 0, "k57_update_features", BROKER),
    Api(58, "Envelope", 0, 0, 0, "k58_envelope", CONTROLLER),
    Api(59, "FetchSnapshot", 0, 1, 0, "k59_fetch_snapshot", CONTROLLER),
    Api(60, "DescribeCluster", 0, 2, 0, "k60_describe_cluster", BROKER),
    Api(61, "DescribeProducers", 0, 0, 0, "k61_describe_producers", BROKER),
    Api(62, "BrokerRegistration", 0, 4, 0, "k62_broker_registration", CONTROLLER),
    Api(63, "BrokerHeartbeat", 0, 2, 0, "k63_broker_heartbeat", CONTROLLER),
    Api(64, "UnregisterBroker", 0, 0, 0, "k64_unregister_broker", BROKER),
    Api(65, "DescribeTransactions", 0, 0, 0, "k65_describe_transactions", BROKER),
    Api(66, "ListTransactions", 0, 2, 0, "k66_list_transactions", BROKER),
    Api(67, "AllocateProducerIds", 0, 0, 0, "k67_allocate_producer_ids", CONTROLLER),
    Api(68, "ConsumerGroupHeartbeat", 0, 1, 0, "k68_consumer_group_heartbeat", BROKER),
    Api(69, "ConsumerGroupDescribe", 0, 1, 0, "k69_consumer_group_describe", BROKER),
    Api(70, "ControllerRegistration", 0, 0, 0, "k70_controller_registration", CONTROLLER),
    Api(71, "GetTelemetrySubscriptions", 0, 0, 0, "k71_get_telemetry_subscriptions", BROKER),
    Api(72, "PushTelemetry", 0, 0, 0, "k72_push_telemetry", BROKER),
    Api(73, "AssignReplicasToDirs", 0, 0, 0, "k73_assign_replicas_to_dirs", CONTROLLER),
    Api(74, "ListConfigResources", 0, 1, 0, "k74_list_config_resources", BROKER),
    Api(75, "DescribeTopicPartitions", 0, 0, 0, "k75_describe_topic_partitions", BROKER),
    Api(76, "ShareGroupHeartbeat", 1, 1, 0, "k76_share_group_heartbeat", BROKER),
    Api(77, "ShareGroupDescribe", 1, 1, 0, "k77_share_group_describe", BROKER),
    Api(78, "ShareFetch", 1, 2, 0, "k78_share_fetch", BROKER),
    Api(79, "ShareAcknowledge", 1, 2, 0, "k79_share_acknowledge", BROKER),
    Api(80, "AddRaftVoter", 0, 1, 0, "k80_add_raft_voter", BROKER),
    Api(81, "RemoveRaftVoter", 0, 0, 0, "k81_remove_raft_voter", BROKER),
    Api(82, "UpdateRaftVoter", 0, 0, 0, "k82_update_raft_voter", CONTROLLER),
    Api(83, "InitializeShareGroupState", 0, 0, 0, "k83_initialize_share_group_state", BROKER),
    Api(84, "ReadShareGroupState", 0, 0, 0, "k84_read_share_group_state", BROKER),
    Api(85, "WriteShareGroupState", 0, 1, 0, "k85_write_share_group_state", BROKER),
    Api(86, "DeleteShareGroupState", 0, 0, 0, "k86_delete_share_group_state", BROKER),
    Api(87, "ReadShareGroupStateSummary", 0, 1, 0, "k87_read_share_group_state_summary", BROKER),
    Api(88, "StreamsGroupHeartbeat", 0, 0, 0, "k88_streams_group_heartbeat", BROKER),
    Api(89, "StreamsGroupDescribe", 0, 0, 0, "k89_streams_group_describe", BROKER),
    Api(90, "DescribeShareGroupOffsets", 0, 1, 0, "k90_describe_share_group_offsets", BROKER),
    Api(91, "AlterShareGroupOffsets", 0, 0, 0, "k91_alter_share_group_offsets", BROKER),
    Api(92, "DeleteShareGroupOffsets", 0, 0, 0, "k92_delete_share_group_offsets", BROKER),
)

PRODUCE: Final = 0
FETCH: Final = 1
CONTROLLED_SHUTDOWN: Final = 7
API_VERSIONS: Final = 18

find: Final[Callable[[int], Api | None]] = {api.key: api for api in APIS}.get
"""The row of a key, or None."""


def request_type(key: int) -> type[Message]:
    """The table of a key's request; imported when first asked for."""
    return _table(key, "Request")


def response_type(key: int) -> type[Message]:
    """The table of a key's response; imported when first asked for."""
    return _table(key, "Response")


@lru_cache(maxsize=2 * len(APIS))
def _table(key: int, kind: str) -> type[Message]:
    api = find(key)
    if api is None:
        raise LookupError(f"there is no API key {key}")
    module = import_module(f"moldau.protocol.messages.{api.module}")
    return cast(type[Message], getattr(module, api.name + kind))
