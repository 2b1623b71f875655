"""Apache Kafka 4.3.1 with its StandardAuthorizer is asked what `rights_cases.CASES` ask, and answers as they say.

Three kinds of users: who may do everything but what a case denies, who may do nothing, and who has exactly the rights
that `authorization.NEEDED` names for an API key.
"""

import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import cast

import pytest

from moldau.protocol.messages.k03_metadata import MetadataRequest
from moldau.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.k15_describe_groups import DescribeGroupsRequest
from moldau.protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.k22_init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.k24_add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from moldau.protocol.messages.k60_describe_cluster import DescribeClusterRequest
from moldau.protocol.messages.k69_consumer_group_describe import ConsumerGroupDescribeRequest
from moldau.requests.authorization import CLUSTER, GROUP, NEEDED, OPERATIONS, TOPIC
from tests.handlers.conftest import World
from tests.handlers.kafka_with_rights import SETTLE_S, KafkaWithRights, everything_but, kafka_with_rights, only
from tests.handlers.rights_cases import CASES, Case, codes_of, label
from tests.handlers.rights_requests import CONSUMERS, TIMEOUT_MS, TXN, G, T, commit, heartbeat, produce
from tests.handlers.test_authorization import check_served

NOBODY = "nobody"
TRANSACTION = 1
TRANSACTION_TIMEOUT_MS = 600_000
DELETE_TOPICS = 20


def _all_but(case: Case) -> str:
    return f"allbut{CASES.index(case)}"


def _only(key: int) -> str:
    return f"only{key}"


@pytest.fixture(scope="module")
def kafka(kafka_classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaWithRights]:
    """With a topic with records, a group with an offset, a group of the consumer protocol with a member, and an open
    transaction."""
    rights = {_all_but(case): everything_but(case.denied) for case in CASES}
    rights |= {_only(key): only(needed) for key, needed in NEEDED.items()}
    with kafka_with_rights(tmp_path_factory.mktemp("kafka"), kafka_classpath, [*rights, NOBODY]) as running:
        _settle(running)
        running.give_rights(rights)
        yield running


def _settle(kafka: KafkaWithRights) -> None:
    topic = CreatableTopic(name=T, num_partitions=1, replication_factor=1)
    kafka.ask(CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS))
    world, deadline = _as_world(kafka), time.monotonic() + SETTLE_S
    steps: list[Callable[[], list[int]]] = [
        lambda: codes_of("responses", "partition_responses")(kafka.ask(produce(world))),
        lambda: codes_of("coordinators")(kafka.ask(FindCoordinatorRequest(coordinator_keys=[G]))),
        lambda: codes_of("topics", "partitions")(kafka.ask(commit(world))),
        lambda: [kafka.ask(heartbeat()).error_code],
        lambda: codes_of("coordinators")(
            kafka.ask(FindCoordinatorRequest(coordinator_keys=[TXN], key_type=TRANSACTION))
        ),
        lambda: _begin(kafka),
    ]
    for step in steps:
        while step() != [0]:
            assert time.monotonic() < deadline, "Kafka does not become ready"


def _begin(kafka: KafkaWithRights) -> list[int]:
    """Leave a transaction open, which cases describe and list."""
    started = kafka.ask(InitProducerIdRequest(transactional_id=TXN, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS), 4)
    if started.error_code:
        return [started.error_code]
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=TXN,
        v3_and_below_producer_id=started.producer_id,
        v3_and_below_producer_epoch=started.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=T, partitions=[0])],
    )
    results = kafka.ask(request, 3).results_by_topic_v3_and_below
    return [each.partition_error_code for topic in results for each in topic.results_by_partition]


def _as_world(kafka: KafkaWithRights) -> World:
    """What cases want to know of the cluster that they are made for: the ids of its topics."""
    topics = {each.name: each for each in kafka.ask(MetadataRequest(topics=None)).topics}
    return cast(World, SimpleNamespace(image=SimpleNamespace(topics=topics)))


@pytest.mark.parametrize("case", CASES, ids=label)
def test_kafka_refuses_as_the_table_says(kafka: KafkaWithRights, case: Case) -> None:
    answer = kafka.ask(case.make(_as_world(kafka)), case.version, user=_all_but(case))
    assert case.told(answer) == case.expected


@pytest.mark.parametrize("case", CASES, ids=label)
def test_kafka_tells_who_may_nothing_what_the_table_says(kafka: KafkaWithRights, case: Case) -> None:
    answer = kafka.ask(case.make(_as_world(kafka)), case.version, user=NOBODY)
    assert case.told(answer) == case.expected_by_nobody


def test_kafka_tells_of_the_same_operations(kafka: KafkaWithRights) -> None:
    topics = kafka.ask(MetadataRequest(include_topic_authorized_operations=True, topics=None)).topics
    cluster = kafka.ask(DescribeClusterRequest(include_cluster_authorized_operations=True))
    classic = kafka.ask(DescribeGroupsRequest(groups=[G], include_authorized_operations=True)).groups
    consumer = kafka.ask(ConsumerGroupDescribeRequest(group_ids=[CONSUMERS], include_authorized_operations=True)).groups
    for told, resource in (
        (topics[0].topic_authorized_operations, TOPIC),
        (cluster.cluster_authorized_operations, CLUSTER),
        (classic[0].authorized_operations, GROUP),
        (consumer[0].authorized_operations, GROUP),
    ):
        assert told == sum(1 << operation for operation in OPERATIONS[resource])


def test_kafka_serves_who_has_the_rights_of_the_table_and_no_others(kafka: KafkaWithRights) -> None:
    """Last: these requests change something."""
    world = _as_world(kafka)
    requests = [(case, case.make(world)) for case in CASES]
    for case, request in sorted(requests, key=lambda each: each[1].api_key == DELETE_TOPICS):
        told = case.told(kafka.ask(request, case.version, user=_only(request.api_key)))
        check_served(case, request.api_key, told)
