"""Questions about a cluster that brokers answer: who is there, settings, sizes on disk, moves under way, features."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from moldau.cli.failures import ToolError
from moldau.cli.partition_queries import Partition, by_topic
from moldau.cli.refusals import Refused, check
from moldau.cli.wire import WireCluster, WireConnection
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from moldau.protocol.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from moldau.protocol.messages.k35_describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from moldau.protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from moldau.protocol.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from moldau.protocol.messages.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from moldau.protocol.messages.k60_describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from moldau.protocol.messages.k74_list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
"""Kinds of resources that have settings."""
SET, DELETE = 0, 1
CONFIG_SOURCES = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "CLIENT_METRICS_CONFIG",
    8: "GROUP_CONFIG",
}
API_VERSIONS_TELLS_FEATURES = 3  # KIP-584
LIST_CONFIG_RESOURCES_NAMES_KINDS = 1  # KIP-1142

Resource = tuple[int, str]
"""Kind and name."""


class Cluster(NamedTuple):
    """Cluster, as a broker describes it."""

    cluster_id: str
    controller: int
    brokers: tuple[DescribeClusterBroker, ...]


class Move(NamedTuple):
    """A reassignment under way."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class Feature(NamedTuple):
    """A feature: the levels that the broker supports, and the one that the cluster goes by."""

    name: str
    supported_min: int
    supported_max: int
    finalized: int


def describe_cluster(cluster: WireCluster) -> Cluster:
    """The brokers, with racks."""
    answer = cluster.any().request(DescribeClusterRequest(), DescribeClusterResponse)
    check("the cluster is not described", answer.error_code, answer.error_message)
    brokers = sorted(answer.brokers, key=lambda each: each.broker_id)
    return Cluster(answer.cluster_id, answer.controller_id, tuple(brokers))


# --- settings ---


def _asked_of(cluster: WireCluster, resource: Resource) -> WireConnection:
    """The broker that knows the resource: itself, of its own settings and loggers; any, of everything else."""
    kind, name = resource
    if kind not in (BROKER, BROKER_LOGGER) or not name:
        return cluster.any()
    if not name.isdecimal() or len(name) > 9:
        raise ToolError(f"{name!r} is not the id of a broker: `moldau brokers list` shows those that there are")
    return cluster.broker(int(name))


def describe_configs(
    cluster: WireCluster, resource: Resource, keys: Sequence[str] | None = None
) -> list[DescribeConfigsResourceResult]:
    """The settings of a topic, a broker, its loggers or a group, by name."""
    kind, name = resource
    wanted = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None if keys is None else list(keys)
    )
    request = DescribeConfigsRequest(resources=[wanted], include_synonyms=True)
    told = _asked_of(cluster, resource).request(request, DescribeConfigsResponse).results[0]
    check(f"the settings of {name or 'all brokers'} are not told", told.error_code, told.error_message)
    return sorted(told.configs, key=lambda each: each.name)


def alter_configs(
    cluster: WireCluster, resource: Resource, changes: Mapping[str, str | None], validate_only: bool = False
) -> None:
    """Give settings of a resource these values, and the default where there is none."""
    kind, name = resource
    configs = [
        AlterableConfig(name=key, config_operation=DELETE if value is None else SET, value=value)
        for key, value in changes.items()
    ]
    request = IncrementalAlterConfigsRequest(
        resources=[AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)],
        validate_only=validate_only,
    )
    told = _asked_of(cluster, resource).request(request, IncrementalAlterConfigsResponse).responses[0]
    check(f"the settings of {name or 'all brokers'} are not altered", told.error_code, told.error_message)


def config_resources(cluster: WireCluster, kind: int) -> list[str]:
    """The names of the resources of a kind that settings were made for."""
    connection = cluster.any()
    if not connection.serves(ListConfigResourcesRequest.api_key, LIST_CONFIG_RESOURCES_NAMES_KINDS):
        raise ToolError(f"the broker at {connection.address} does not list resources: it needs Kafka 4.1 or newer")
    answer = connection.request(ListConfigResourcesRequest(resource_types=[kind]), ListConfigResourcesResponse)
    check("resources are not listed", answer.error_code)
    return sorted(each.resource_name for each in answer.config_resources if each.resource_type == kind)


# --- disks ---


def log_dirs(cluster: WireCluster, broker: int) -> list[DescribeLogDirsResult]:
    """The log directories of a broker, with the replicas in them."""
    answer = cluster.broker(broker).request(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
    check(f"broker {broker} does not describe its log directories", answer.error_code)
    return sorted(answer.results, key=lambda each: each.log_dir)


def sizes_on(cluster: WireCluster, broker: int) -> dict[Partition, int]:
    """The bytes of each replica that a broker has."""
    return {
        (topic.name, each.partition_index): each.partition_size
        for directory in log_dirs(cluster, broker)
        for topic in directory.topics
        for each in topic.partitions
        if not each.is_future_key
    }


# --- moves of replicas ---


def moves_under_way(cluster: WireCluster) -> dict[Partition, Move]:
    """All reassignments that are not done yet."""
    answer = cluster.any().request(ListPartitionReassignmentsRequest(topics=None), ListPartitionReassignmentsResponse)
    check("reassignments are not listed", answer.error_code, answer.error_message)
    return {
        (topic.name, each.partition_index): Move(
            tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
        )
        for topic in answer.topics
        for each in topic.partitions
    }


def move_replicas(cluster: WireCluster, plan: Mapping[Partition, Sequence[int] | None]) -> dict[Partition, Refused]:
    """Begin to move partitions to these replicas; None gives a move up. Returns those that the cluster refuses."""
    topics = []
    for topic, indexes in by_topic(plan).items():
        wanted = ((index, plan[topic, index]) for index in indexes)
        parts = [
            ReassignablePartition(partition_index=index, replicas=None if replicas is None else list(replicas))
            for index, replicas in wanted
        ]
        topics.append(ReassignableTopic(name=topic, partitions=parts))
    request = AlterPartitionReassignmentsRequest(topics=topics)
    answer = cluster.any().request(request, AlterPartitionReassignmentsResponse)
    check("the cluster moves nothing", answer.error_code, answer.error_message)
    return {
        (topic.name, each.partition_index): Refused(
            f"{topic.name}-{each.partition_index} is not moved", each.error_code, each.error_message
        )
        for topic in answer.responses
        for each in topic.partitions
        if each.error_code != ErrorCode.NONE
    }


# --- features ---


def features_of(connection: WireConnection) -> tuple[int, list[Feature]]:
    """The epoch of the finalized features, and the features that a broker supports."""
    if not connection.serves(ApiVersionsRequest.api_key, API_VERSIONS_TELLS_FEATURES):
        raise ToolError(f"the broker at {connection.address} knows no features: it needs Kafka 2.7 or newer")
    request = ApiVersionsRequest(client_software_name="moldau", client_software_version="1")
    answer = connection.request(request, ApiVersionsResponse)
    levels = {each.name: each.max_version_level for each in answer.finalized_features}
    found = [
        Feature(each.name, each.min_version, each.max_version, levels.get(each.name, 0))
        for each in answer.supported_features
    ]
    return answer.finalized_features_epoch, sorted(found)


def broker_ids(text: str) -> list[int]:
    """Ids of brokers, from `1,2,3`."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and len(word) <= 9 for word in words) or len(set(words)) != len(words):
        raise ToolError(f"{text!r:.60} is not a list of different broker ids such as 1,2,3")
    return [int(word) for word in words]


def ensure_alive(cluster: WireCluster, brokers: Iterable[int]) -> None:
    """Raise ToolError where one of these brokers is not there."""
    alive = cluster.brokers()
    for each in brokers:
        if each not in alive:
            raise ToolError(f"there is no broker {each} that is alive: the brokers are {', '.join(map(str, alive))}")
