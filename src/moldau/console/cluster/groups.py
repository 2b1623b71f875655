"""Groups with their members and committed offsets, asked of each coordinator with raw requests, many at a time.

librdkafka's admin client is not asked. Where a coordinator answers that it is one no more it writes to address 0
(confluentinc/librdkafka#5040), and where one goes away while groups are described an assertion of its fails: the
process ends, just when somebody looks at a console.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from moldau.cli.failures import ToolError
from moldau.cli.wire import WireCluster, WireConnection
from moldau.console.cluster.state import MemberState, Place
from moldau.coordinators.classic.subscription_bytes import parse_assignment
from moldau.protocol.errors import ErrorCode, ProtocolError
from moldau.protocol.messages import k15_describe_groups as classic
from moldau.protocol.messages import k69_consumer_group_describe as consumer
from moldau.protocol.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from moldau.protocol.messages.k16_list_groups import ListGroupsRequest, ListGroupsResponse

SEVERAL_GROUPS: Final = 8  # KIP-709
NAMES_TOPICS: Final = 9
"""Later versions of OffsetFetch name topics by id (KIP-848)."""
ALL_TOPICS: Final = (2, 7)
GROUPS_AT_ONCE_MAX: Final = 100
PROTOCOLS: Final = ("consumer", "")
CONSUMER: Final = "consumer"

Offsets = dict[Place, int | None]


class GroupFacts(NamedTuple):
    """Facts of a group that its coordinator tells."""

    state: str
    kind: str
    assignor: str
    coordinator: int
    members: tuple[MemberState, ...]
    committed: Mapping[Place, int | None]


class Groups:
    """One look at all groups."""

    def __init__(self, wire: WireCluster) -> None:
        self._wire = wire
        self.found: dict[str, GroupFacts] = {}
        self.refused: dict[str, str] = {}
        """Reasons why a group, or those of a broker, were not read."""

    def look(self) -> None:
        """Ask all brokers. Raises ToolError where none answers."""
        for broker in self._wire.brokers():
            try:
                self._of(broker, self._wire.broker(broker))
            except ToolError as error:
                self.refused[f"those of broker {broker}"] = str(error)

    def _of(self, broker: int, connection: WireConnection) -> None:
        listed = connection.request(ListGroupsRequest(), ListGroupsResponse)
        if listed.error_code != ErrorCode.NONE:
            self.refused[f"those of broker {broker}"] = _words(listed.error_code)
            return
        groups = [each for each in listed.groups if each.protocol_type in PROTOCOLS]
        newer = [each.group_id for each in groups if each.group_type.lower() == CONSUMER]
        older = [each.group_id for each in groups if each.group_type.lower() != CONSUMER]
        described = {
            **{name: facts for some in _parts(older) for name, facts in self._classic(broker, connection, some)},
            **{name: facts for some in _parts(newer) for name, facts in self._consumer(broker, connection, some)},
        }
        for some in _parts(list(described)):
            for name, offsets in self._committed(connection, some):
                self.found[name] = described[name]._replace(committed=offsets)

    def _classic(
        self, broker: int, connection: WireConnection, names: Sequence[str]
    ) -> Iterator[tuple[str, GroupFacts]]:
        request = classic.DescribeGroupsRequest(groups=list(names))
        for told in connection.request(request, classic.DescribeGroupsResponse).groups:
            if told.error_code != ErrorCode.NONE:
                self.refused[told.group_id] = _words(told.error_code)
                continue
            members = tuple(
                MemberState(each.member_id, each.client_id, _host(each.client_host), _assigned(each.member_assignment))
                for each in told.members
            )
            yield (
                told.group_id,
                GroupFacts(_state(told.group_state), "classic", told.protocol_data, broker, members, {}),
            )

    def _consumer(
        self, broker: int, connection: WireConnection, names: Sequence[str]
    ) -> Iterator[tuple[str, GroupFacts]]:
        request = consumer.ConsumerGroupDescribeRequest(group_ids=list(names))
        for told in connection.request(request, consumer.ConsumerGroupDescribeResponse).groups:
            if told.error_code != ErrorCode.NONE:
                self.refused[told.group_id] = told.error_message or _words(told.error_code)
                continue
            members = tuple(
                MemberState(
                    each.member_id,
                    each.client_id,
                    _host(each.client_host),
                    tuple(
                        sorted(
                            (topic.topic_name, index)
                            for topic in each.assignment.topic_partitions
                            for index in topic.partitions
                        )
                    ),
                )
                for each in told.members
            )
            yield told.group_id, GroupFacts(_state(told.group_state), CONSUMER, told.assignor_name, broker, members, {})

    def _committed(self, connection: WireConnection, names: Sequence[str]) -> Iterator[tuple[str, Offsets]]:
        newest = connection.newest(OffsetFetchRequest.api_key)
        if newest < SEVERAL_GROUPS:
            for name in names:
                yield from self._committed_of_one(connection, name, min(newest, ALL_TOPICS[1]))
            return
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=each, topics=None) for each in names])
        for told in connection.request(request, OffsetFetchResponse, min(newest, NAMES_TOPICS)).groups:
            if told.error_code != ErrorCode.NONE:
                self.refused[told.group_id] = _words(told.error_code)
                continue
            yield (
                told.group_id,
                {
                    (topic.name, each.partition_index): _offset(each.committed_offset)
                    for topic in told.topics
                    for each in topic.partitions
                    if each.error_code == ErrorCode.NONE
                },
            )

    def _committed_of_one(self, connection: WireConnection, name: str, version: int) -> Iterator[tuple[str, Offsets]]:
        """Offsets from brokers before Kafka 3.0."""
        if version < ALL_TOPICS[0]:
            raise ToolError(f"the broker at {connection.address} is too old to tell all offsets of a group")
        answer = connection.request(OffsetFetchRequest(group_id=name, topics=None), OffsetFetchResponse, version)
        if answer.error_code != ErrorCode.NONE:
            self.refused[name] = _words(answer.error_code)
            return
        yield (
            name,
            {
                (topic.name, each.partition_index): _offset(each.committed_offset)
                for topic in answer.topics
                for each in topic.partitions
                if each.error_code == ErrorCode.NONE
            },
        )


def _parts(names: Sequence[str]) -> Iterator[Sequence[str]]:
    return (names[at : at + GROUPS_AT_ONCE_MAX] for at in range(0, len(names), GROUPS_AT_ONCE_MAX))


def _assigned(assignment: bytes) -> tuple[Place, ...]:
    """Partitions of a classic member; none where its client writes something of its own."""
    if not assignment:
        return ()
    try:
        told = parse_assignment(assignment).assigned_partitions
    except ProtocolError:
        return ()
    return tuple(sorted((each.topic, index) for each in told for index in each.partitions))


def _host(host: str) -> str:
    return host.removeprefix("/")


def _state(state: str) -> str:
    """A state in words: `PreparingRebalance` is preparing rebalance."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", state).lower()


def _offset(committed_offset: int) -> int | None:
    return committed_offset if committed_offset >= 0 else None


def _words(code: int) -> str:
    return ErrorCode(code).name.lower().replace("_", " ") if code in set(ErrorCode) else f"error {code}"
