"""Questions about consumer groups that their coordinators answer, and what may be done to a group.

librdkafka's admin client is not asked: it does not know the states, epochs and subscriptions of groups of the consumer
protocol (KIP-848).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from moldau.cli.failures import ToolError
from moldau.cli.partition_queries import Partition, by_topic
from moldau.cli.refusals import Refused, check, patiently
from moldau.cli.wire import WireCluster, WireConnection
from moldau.coordinators.classic.subscription_bytes import parse_assignment, parse_subscription
from moldau.protocol.errors import ErrorCode, ProtocolError
from moldau.protocol.messages import k15_describe_groups as classic
from moldau.protocol.messages import k69_consumer_group_describe as consumer
from moldau.protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from moldau.protocol.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from moldau.protocol.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from moldau.protocol.messages.k16_list_groups import ListGroupsRequest, ListGroupsResponse
from moldau.protocol.messages.k42_delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from moldau.protocol.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)

T = TypeVar("T")

GROUP_KEY = 0
FIND_COORDINATOR_TAKES_SEVERAL = 4  # KIP-699
OFFSET_FETCH_NAMES_TOPICS = 9  # later versions name them by id (KIP-848)
OFFSET_COMMIT_NAMES_TOPICS = 9
LIST_GROUPS_TELLS_STATES = 4  # KIP-518
LIST_GROUPS_TELLS_TYPES = 5  # KIP-848
STATES = (
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Dead",
    "Empty",
    "Assigning",
    "Reconciling",
    "Unknown",
)
INACTIVE = ("Empty", "Dead")
TYPES = ("Classic", "Consumer")
CONSUMER_PROTOCOLS = ("consumer", "")
"""Protocol types of the groups that consumers are in; empty where offsets were committed without membership."""


class Listed(NamedTuple):
    """A group, as its coordinator lists it."""

    group: str
    type: str
    state: str
    coordinator: int


class Member(NamedTuple):
    """A member of a group."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[Partition, ...]
    topics: tuple[str, ...] = ()
    """The names of topics that it has subscribed to."""
    pattern: str | None = None
    """The regular expression that it has subscribed to, if the broker resolves it."""
    epoch: int | None = None
    target: tuple[Partition, ...] | None = None
    """Partitions that it is to have; None in a classic group."""


class Group(NamedTuple):
    """A group, as its coordinator describes it."""

    group: str
    type: str
    state: str
    coordinator: int
    coordinator_address: str
    assignor: str
    members: tuple[Member, ...]
    epoch: int | None = None
    assignment_epoch: int | None = None

    @property
    def is_active(self) -> bool:
        return self.state not in INACTIVE


class Committed(NamedTuple):
    """A committed offset."""

    offset: int
    leader_epoch: int | None
    metadata: str


def list_groups(cluster: WireCluster, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[Listed]:
    """Consumer groups of all coordinators, by name."""
    asked = (partial(_listed, cluster, broker, states, types) for broker in cluster.brokers())
    return sorted({each.group: each for ask in asked for each in patiently(ask)}.values())


def _listed(cluster: WireCluster, broker: int, states: Sequence[str], types: Sequence[str]) -> list[Listed]:
    connection = cluster.broker(broker)
    key = ListGroupsRequest.api_key
    if (states and not connection.serves(key, LIST_GROUPS_TELLS_STATES)) or (
        types and not connection.serves(key, LIST_GROUPS_TELLS_TYPES)
    ):
        raise ToolError(f"the broker at {connection.address} is too old to tell groups by their state or type")
    request = ListGroupsRequest(states_filter=list(states), types_filter=[each.lower() for each in types])
    answer = connection.request(request, ListGroupsResponse)
    check(f"broker {broker} does not list its groups", answer.error_code)
    return [
        Listed(each.group_id, each.group_type.capitalize() or "Classic", each.group_state, broker)
        for each in answer.groups
        if each.protocol_type in CONSUMER_PROTOCOLS and (each.group_type.capitalize() or "Classic") in TYPES
    ]


def describe_group(cluster: WireCluster, group: str) -> Group:
    """The group, as its coordinator knows it; raises Refused with GROUP_ID_NOT_FOUND where there is none."""

    def ask(connection: WireConnection, coordinator: int) -> Group:
        if connection.serves(consumer.ConsumerGroupDescribeRequest.api_key):
            found = _consumer_group(connection, coordinator, group)
            if found is not None:
                return found
        return _classic_group(connection, coordinator, group)

    return _at_coordinator(cluster, group, ask)


def state_of(cluster: WireCluster, group: str) -> str:
    """The state of a group; Dead where there is none."""
    try:
        return describe_group(cluster, group).state
    except Refused as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return "Dead"


def committed_offsets(cluster: WireCluster, group: str) -> dict[Partition, Committed]:
    """All committed offsets of a group."""

    def ask(connection: WireConnection, _: int) -> dict[Partition, Committed]:
        version = OFFSET_FETCH_NAMES_TOPICS if connection.serves(9, OFFSET_FETCH_NAMES_TOPICS) else 8
        if not connection.serves(9, version):
            raise ToolError(f"the broker at {connection.address} is too old: it needs Kafka 3.0 or newer")
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
        answer = connection.request(request, OffsetFetchResponse, version).groups[0]
        check(f"the offsets of group {group!r} are not told", answer.error_code)
        return {
            (topic.name, each.partition_index): Committed(
                each.committed_offset,
                None if each.committed_leader_epoch < 0 else each.committed_leader_epoch,
                each.metadata or "",
            )
            for topic in answer.topics
            for each in topic.partitions
            if each.committed_offset >= 0
        }

    return dict(sorted(_at_coordinator(cluster, group, ask).items()))


def commit_offsets(cluster: WireCluster, group: str, offsets: Mapping[Partition, int]) -> None:
    """Commit offsets for a group that nobody is in."""

    def ask(connection: WireConnection, _: int) -> None:
        version = min(OFFSET_COMMIT_NAMES_TOPICS, connection.newest(OffsetCommitRequest.api_key))
        request = OffsetCommitRequest(
            group_id=group,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=index, committed_offset=offsets[topic, index], committed_metadata=""
                        )
                        for index in indexes
                    ],
                )
                for topic, indexes in by_topic(offsets).items()
            ],
        )
        answer = connection.request(request, OffsetCommitResponse, version)
        for topic in answer.topics:
            for each in topic.partitions:
                what = f"the offset of {topic.name}-{each.partition_index} is not committed for group {group!r}"
                check(what, each.error_code)

    _at_coordinator(cluster, group, ask)


def delete_group(cluster: WireCluster, group: str) -> None:
    """Delete a group that nobody is in."""

    def ask(connection: WireConnection, _: int) -> None:
        answer = connection.request(DeleteGroupsRequest(groups_names=[group]), DeleteGroupsResponse)
        check(f"group {group!r} is not deleted", answer.results[0].error_code)

    _at_coordinator(cluster, group, ask)


def delete_offsets(cluster: WireCluster, group: str, partitions: Iterable[Partition]) -> dict[Partition, int]:
    """Delete committed offsets; returns an error code for each partition."""
    topics = [
        OffsetDeleteRequestTopic(
            name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
        )
        for topic, indexes in by_topic(partitions).items()
    ]

    def ask(connection: WireConnection, _: int) -> dict[Partition, int]:
        answer = connection.request(OffsetDeleteRequest(group_id=group, topics=topics), OffsetDeleteResponse)
        check(f"the offsets of group {group!r} are not deleted", answer.error_code)
        return {
            (topic.name, each.partition_index): each.error_code for topic in answer.topics for each in topic.partitions
        }

    return _at_coordinator(cluster, group, ask)


def _at_coordinator(cluster: WireCluster, group: str, ask: Callable[[WireConnection, int], T]) -> T:
    """The answer of the group's coordinator, wherever it is by then."""

    def find_and_ask() -> T:
        coordinator = _coordinator(cluster, group)
        return ask(cluster.broker(coordinator), coordinator)

    return patiently(find_and_ask)


def _coordinator(cluster: WireCluster, group: str) -> int:
    connection = cluster.any()
    several = connection.serves(FindCoordinatorRequest.api_key, FIND_COORDINATOR_TAKES_SEVERAL)
    request = (
        FindCoordinatorRequest(key_type=GROUP_KEY, coordinator_keys=[group])
        if several
        else FindCoordinatorRequest(key=group)
    )
    answer = connection.request(request, FindCoordinatorResponse)
    found = answer.coordinators[0] if several else answer
    check(f"group {group!r} has no coordinator", found.error_code, found.error_message)
    return found.node_id


def _consumer_group(connection: WireConnection, coordinator: int, group: str) -> Group | None:
    """The group, if it is one of the consumer protocol."""
    request = consumer.ConsumerGroupDescribeRequest(group_ids=[group])
    told = connection.request(request, consumer.ConsumerGroupDescribeResponse).groups[0]
    if told.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
        return None
    check(f"group {group!r} is not described", told.error_code, told.error_message)
    members = (
        Member(
            each.member_id,
            each.instance_id,
            each.client_id,
            each.client_host,
            _consumer_partitions(each.assignment),
            tuple(each.subscribed_topic_names),
            each.subscribed_topic_regex or None,
            each.member_epoch,
            _consumer_partitions(each.target_assignment),
        )
        for each in told.members
    )
    return Group(
        group,
        "Consumer",
        told.group_state,
        coordinator,
        str(connection.address),
        told.assignor_name,
        tuple(sorted(members)),
        told.group_epoch,
        told.assignment_epoch,
    )


def _consumer_partitions(assignment: consumer.Assignment) -> tuple[Partition, ...]:
    return tuple(sorted((each.topic_name, index) for each in assignment.topic_partitions for index in each.partitions))


def _classic_group(connection: WireConnection, coordinator: int, group: str) -> Group:
    told = connection.request(classic.DescribeGroupsRequest(groups=[group]), classic.DescribeGroupsResponse).groups[0]
    is_missing = told.error_code == ErrorCode.NONE and told.group_state == "Dead"
    code = ErrorCode.GROUP_ID_NOT_FOUND if is_missing else told.error_code
    # Kafka's message only repeats the name.
    check(f"there is no group {group!r}" if code == ErrorCode.GROUP_ID_NOT_FOUND else f"group {group!r}", code)
    if told.protocol_type not in CONSUMER_PROTOCOLS:
        raise ToolError(f"group {group!r} is not a group of consumers: its protocol is {told.protocol_type!r}")
    members = (_classic_member(group, each) for each in told.members)
    return Group(
        group,
        "Classic",
        told.group_state,
        coordinator,
        str(connection.address),
        told.protocol_data,
        tuple(sorted(members)),
    )


def _classic_member(group: str, told: classic.DescribedGroupMember) -> Member:
    try:
        assigned = parse_assignment(told.member_assignment).assigned_partitions
        # While a group has not chosen its assignor, a coordinator tells no subscriptions.
        topics = parse_subscription(told.member_metadata).topics if told.member_metadata else []
    except ProtocolError as error:
        raise ToolError(f"member {told.member_id} of group {group!r} is not a consumer: {error}") from error
    partitions = tuple(sorted((each.topic, index) for each in assigned for index in each.partitions))
    return Member(
        told.member_id, told.group_instance_id, told.client_id, told.client_host, partitions, tuple(sorted(topics))
    )


def ensure_inactive(cluster: WireCluster, group: str) -> None:
    """Raise ToolError, in Kafka's words, while somebody is in the group."""
    state = state_of(cluster, group)
    if state not in INACTIVE:
        raise ToolError(
            f"Assignments can only be reset if the group {group!r} is inactive, but the current state is {state}: "
            "stop its consumers first"
        )


def assignment_shown(partitions: Iterable[Partition]) -> str:
    """Partitions by topic, as Kafka's tool writes them: `visits:0,1;orders:2`."""
    return ";".join(f"{topic}:{','.join(map(str, indexes))}" for topic, indexes in by_topic(partitions).items())
