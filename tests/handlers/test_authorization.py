"""Who may not do what it asks for is told so by Kafka's code, for each API key, and nothing has changed.

`CASES` is a table of answers seen on Apache Kafka 4.3.1 with its StandardAuthorizer: `test_rights_of_kafka.py` asks it
the same again.
"""

from collections.abc import Iterator

import pytest

from moldau.protocol.errors import ErrorCode, ProtocolError
from moldau.protocol.messages.k03_metadata import MetadataRequest
from moldau.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.k15_describe_groups import DescribeGroupsRequest
from moldau.protocol.messages.k16_list_groups import ListGroupsRequest
from moldau.protocol.messages.k22_init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.k60_describe_cluster import DescribeClusterRequest
from moldau.protocol.messages.k65_describe_transactions import DescribeTransactionsRequest
from moldau.protocol.messages.k69_consumer_group_describe import ConsumerGroupDescribeRequest
from moldau.requests import registry
from moldau.requests.authorization import (
    ALTER,
    CLUSTER,
    DELETE,
    GROUP,
    NEEDED,
    OPERATIONS,
    TOPIC,
    WRITE,
    Operation,
    Resource,
)
from tests.handlers.conftest import World
from tests.handlers.denying import Allow, Deny, Right
from tests.handlers.rights_cases import (
    CASES,
    DENIALS,
    TXN_DENIED,
    WITHOUT_A_RECEIVER,
    Case,
    codes_of,
    codes_of_added,
    label,
)
from tests.handlers.rights_requests import (
    CONSUMERS,
    TXN,
    G,
    T,
    add_partitions,
    commit,
    committed_offsets,
    heartbeat,
    produce,
)

NEVER_REFUSED = (18, 71, 72)
TELL_RIGHTS = (60, 75)
"""API keys that ask also for rights which they only tell of."""

ALL_CASES = [*CASES, *WITHOUT_A_RECEIVER]


@pytest.fixture
def settled(world: World) -> World:
    """A topic with records, a group with an offset, a group of the consumer protocol with a member, and an open
    transaction."""
    world.create(T)
    world.produce(T, 3)
    world.ask(FindCoordinatorRequest(coordinator_keys=[G]))
    assert codes_of("topics", "partitions")(world.ask(commit(world))) == [0]
    assert world.ask(heartbeat()).error_code == 0
    world.ask(FindCoordinatorRequest(coordinator_keys=[TXN], key_type=1))
    begun = world.ask(InitProducerIdRequest(transactional_id=TXN, transaction_timeout_ms=60_000))
    assert codes_of_added(world.ask(add_partitions(begun.producer_id), 3)) == [0]
    return world


def _state(world: World) -> object:
    """All that a request might change."""
    log, groups = world.log_of(T), world.ask(ListGroupsRequest()).groups
    members = world.ask(ConsumerGroupDescribeRequest(group_ids=[CONSUMERS])).groups
    offsets = world.ask(committed_offsets(world, all_topics=True)).groups
    transactions = world.ask(DescribeTransactionsRequest(transactional_ids=[TXN])).transaction_states
    return log.log_start_offset, log.log_end_offset, repr(groups), repr(members), repr(offsets), repr(transactions)


@pytest.mark.parametrize("case", ALL_CASES, ids=label)
def test_who_may_not_is_told_so_and_nothing_has_changed(settled: World, case: Case) -> None:
    policy = settled.services.policy
    request, allowing, image, before = case.make(settled), policy.authorizer, settled.image, _state(settled)
    policy.authorize_by(Deny(*case.denied))
    assert case.told(settled.ask(request, case.version)) == case.expected
    policy.authorize_by(allowing)
    assert settled.image is image
    assert _state(settled) == before


EVERYTHING = tuple((operation, resource) for operation in Operation for resource in Resource)


@pytest.mark.parametrize("case", ALL_CASES, ids=label)
def test_who_may_nothing_is_told_what_kafka_tells_it(settled: World, case: Case) -> None:
    request = case.make(settled)
    settled.services.policy.authorize_by(Deny(*EVERYTHING))
    assert case.told(settled.ask(request, case.version)) == case.expected_by_nobody


@pytest.mark.parametrize("case", [case for case in ALL_CASES if case.expected != TXN_DENIED], ids=label)
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
        settled.ask(produce(settled, acks=0))


def test_every_handler_asks_for_what_the_table_says_and_for_nothing_else(settled: World) -> None:
    asked: dict[int, set[Right]] = {key: set() for key in registry.modules()}
    for case in ALL_CASES:
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
