"""Internal topics are made by their coordinators, or as these would make them."""

import pytest

from moldau.core.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.k12_heartbeat import HeartbeatRequest
from moldau.protocol.messages.k19_create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from moldau.protocol.messages.k22_init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.k37_create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from tests.handlers.conftest import World

NOT_SERVED = ("__share_group_state",)
SETTINGS = {"num.partitions": "7", "offsets.topic.num.partitions": "3", "offsets.topic.segment.bytes": "1048576"}


def describe(world: World, name: str, version: int | None = None) -> int:
    """Ask for the metadata of a topic; its error code."""
    (topic,) = world.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), version).topics
    code: int = topic.error_code
    return code


def create(world: World, name: str, *, partitions: int = -1, validate_only: bool = False, **configs: str) -> int:
    """Create a topic; its error code."""
    given = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=-1, configs=given)
    (result,) = world.ask(CreateTopicsRequest(topics=[topic], validate_only=validate_only)).topics
    code: int = result.error_code
    return code


@pytest.mark.moldau(SETTINGS)
@pytest.mark.parametrize("version", [0, 4, 9, 13])
def test_metadata_makes_the_topic_of_the_offsets_as_its_coordinator_does(world: World, version: int) -> None:
    assert describe(world, OFFSETS_TOPIC, version) == 0
    made = world.image.topics[OFFSETS_TOPIC]
    assert len(made.partitions) == 3
    assert (made.configs["cleanup.policy"], made.configs["segment.bytes"]) == ("compact", "1048576")
    found = world.ask(FindCoordinatorRequest(key="g"), 3)
    assert found.error_code == 0
    assert world.image.topics[OFFSETS_TOPIC] is made


@pytest.mark.moldau({"offsets.topic.replication.factor": "3"})
def test_too_few_brokers_for_it_are_told_as_kafka_does(world: World) -> None:
    assert describe(world, OFFSETS_TOPIC) == ErrorCode.INVALID_REPLICATION_FACTOR
    assert OFFSETS_TOPIC not in world.image.topics


@pytest.mark.moldau({"auto.create.topics.enable": "false"})
def test_metadata_makes_nothing_where_topics_are_not_to_be_made(world: World) -> None:
    assert describe(world, OFFSETS_TOPIC) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("name", [*NOT_SERVED, "__cluster_metadata"])
def test_a_topic_without_a_coordinator_is_not_made(world: World, name: str) -> None:
    assert describe(world, name) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    expected = ErrorCode.INVALID_TOPIC_EXCEPTION if name in NOT_SERVED else ErrorCode.INVALID_REQUEST
    assert create(world, name) == expected
    assert create(world, name, validate_only=True) == expected
    assert name not in world.image.topics


@pytest.mark.moldau(SETTINGS)
def test_a_user_may_make_the_topic_of_the_offsets_with_other_numbers_but_not_to_be_deleted(world: World) -> None:
    for policy in ("delete", "compact,delete"):
        assert create(world, OFFSETS_TOPIC, cleanup_policy=policy) == ErrorCode.INVALID_CONFIG
    assert create(world, OFFSETS_TOPIC, partitions=5, segment_bytes="2097152") == 0
    made = world.image.topics[OFFSETS_TOPIC]
    assert len(made.partitions) == 5
    assert (made.configs["cleanup.policy"], made.configs["segment.bytes"]) == ("compact", "2097152")


@pytest.mark.moldau(SETTINGS)
def test_what_a_user_leaves_open_is_what_the_coordinator_would_choose(world: World) -> None:
    assert create(world, OFFSETS_TOPIC) == 0
    made = world.image.topics[OFFSETS_TOPIC]
    assert len(made.partitions) == 3
    assert made.configs["cleanup.policy"] == "compact"


@pytest.mark.moldau({"transaction.state.log.num.partitions": "2", "transaction.state.log.segment.bytes": "1048576"})
def test_the_topic_of_the_transactions_is_made_as_its_coordinator_does_whoever_asks(world: World) -> None:
    assert create(world, TRANSACTIONS_TOPIC, cleanup_policy="delete") == ErrorCode.INVALID_CONFIG
    assert create(world, TRANSACTIONS_TOPIC, validate_only=True) == 0
    assert describe(world, TRANSACTIONS_TOPIC) == 0
    made = world.image.topics[TRANSACTIONS_TOPIC]
    assert len(made.partitions) == 2
    assert (made.configs["cleanup.policy"], made.configs["segment.bytes"]) == ("compact", "1048576")


COORDINATED = pytest.mark.parametrize(("kind", "name"), [(0, OFFSETS_TOPIC), (1, TRANSACTIONS_TOPIC)])


@COORDINATED
def test_the_number_of_partitions_of_a_coordinators_topic_cannot_be_changed(world: World, kind: int, name: str) -> None:
    assert world.ask(FindCoordinatorRequest(key="x", key_type=kind), 3).error_code == 0
    made = world.image.topics[name]
    for validate_only in (True, False):
        topic = CreatePartitionsTopic(name=name, count=len(made.partitions) + 1, assignments=None)
        (result,) = world.ask(CreatePartitionsRequest(topics=[topic], validate_only=validate_only)).results
        assert result.error_code == ErrorCode.INVALID_PARTITIONS
    assert world.image.topics[name] is made


@COORDINATED
def test_a_coordinator_stops_when_its_topic_has_got_partitions_from_elsewhere(
    world: World, kind: int, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As tools of old write them into ZooKeeper: ids would be looked for where they are not."""
    assert world.ask(FindCoordinatorRequest(key="x", key_type=kind), 3).error_code == 0
    count = len(world.image.topics[name].partitions)
    world.run(world.metadata.add_partitions(name, [[1]]))
    found = world.ask(FindCoordinatorRequest(key="x", key_type=kind), 3)
    assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert f"{count} to {count + 1} partitions" in found.error_message
    request = (
        InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
        if kind
        else HeartbeatRequest(group_id="x", member_id="m", generation_id=1)
    )
    assert world.ask(request).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert f"coordinator stopped: {name} went from" in caplog.text
