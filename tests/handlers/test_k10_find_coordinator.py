import pytest

from moldau.broker.log_maker import AT_ONCE_MAX
from moldau.coordinators.key_partition import KEY_BYTES_MAX, partition_of
from moldau.core.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.protocol.messages.k13_leave_group import LeaveGroupRequest
from moldau.protocol.messages.k22_init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest
from moldau.protocol.schema import Message
from tests.handlers.conftest import BROKER_ID, KAFKAS_PARTITIONS, World

GROUP, TRANSACTION, SHARE = range(3)


def test_the_coordinator_is_told_at_the_clients_listener(world: World) -> None:
    found = world.ask(FindCoordinatorRequest(key="g", key_type=GROUP), 3, listener="OUT")
    assert (found.error_code, found.node_id, found.host, found.port) == (0, BROKER_ID, "outside", 443)


def test_many_groups_are_found_at_once(world: World) -> None:
    found = world.ask(FindCoordinatorRequest(coordinator_keys=["a", "b"], key_type=GROUP), 6).coordinators
    assert [(each.key, each.node_id, each.error_code) for each in found] == [("a", BROKER_ID, 0), ("b", BROKER_ID, 0)]


@pytest.mark.moldau(KAFKAS_PARTITIONS)
def test_the_topic_of_the_offsets_is_made_at_the_first_question(world: World) -> None:
    assert OFFSETS_TOPIC not in world.image.topics
    world.ask(FindCoordinatorRequest(key="g"), 0)
    topic = world.image.topics[OFFSETS_TOPIC]
    assert len(topic.partitions) == 50
    assert topic.configs["cleanup.policy"] == "compact"
    assert topic.configs["segment.bytes"] == "104857600"


@pytest.mark.moldau(KAFKAS_PARTITIONS)
@pytest.mark.parametrize("version", [1, 3, 6])
def test_the_coordinator_of_a_transactional_id_is_found_and_its_topic_made(world: World, version: int) -> None:
    if version < 4:
        found = world.ask(FindCoordinatorRequest(key="t", key_type=TRANSACTION), version)
    else:
        request = FindCoordinatorRequest(coordinator_keys=["t"], key_type=TRANSACTION)
        (found,) = world.ask(request, version).coordinators
    assert (found.error_code, found.node_id, found.host) == (0, BROKER_ID, "inside")
    topic = world.image.topics[TRANSACTIONS_TOPIC]
    assert len(topic.partitions) == 50
    assert topic.configs == {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "2",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    }


@pytest.mark.moldau(KAFKAS_PARTITIONS)
def test_the_coordinator_that_is_told_is_ready(world: World) -> None:
    """A client that were told NOT_COORDINATOR by it would look for another one, some of them a minute later."""
    world.ask(FindCoordinatorRequest(key="g"), 0)
    assert len(world.groups.loaded_shards()) == 50


@pytest.mark.moldau(KAFKAS_PARTITIONS)
def test_a_shard_whose_log_is_still_to_be_made_is_loading_and_not_elsewhere(world: World) -> None:
    late = next(name for name in map(str, range(1000)) if partition_of(name, 50) == 49)
    told: list[int] = []

    async def ask_at_once() -> None:
        await world.groups.ensure_topic()
        assert len(world.groups.loaded_shards()) < 50 - AT_ONCE_MAX
        told.append(heartbeat(world, late))
        await world.roles.made()
        told.append(heartbeat(world, late))

    world.run(ask_at_once())
    assert told == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID]


TOO_LONG = "g" * (KEY_BYTES_MAX + 1)


@pytest.mark.parametrize("key_type", [GROUP, TRANSACTION])
def test_an_id_that_no_record_has_place_for_has_no_coordinator(world: World, key_type: int) -> None:
    found = world.ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[TOO_LONG, "g"]))
    assert [each.error_code for each in found.coordinators] == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]


@pytest.mark.parametrize(
    "asked",
    [
        HeartbeatRequest(group_id=TOO_LONG),
        LeaveGroupRequest(group_id=TOO_LONG, members=[]),
        AddOffsetsToTxnRequest(transactional_id="t", group_id=TOO_LONG),
        AddOffsetsToTxnRequest(transactional_id=TOO_LONG, group_id="g"),
        InitProducerIdRequest(transactional_id=TOO_LONG, transaction_timeout_ms=1000),
    ],
    ids=lambda asked: type(asked).__name__,
)
def test_an_id_that_no_record_has_place_for_is_told_so(world: World, asked: Message) -> None:
    world.ask(FindCoordinatorRequest(coordinator_keys=["g"]))
    world.ask(FindCoordinatorRequest(coordinator_keys=["t"], key_type=TRANSACTION))
    assert world.ask(asked).error_code == ErrorCode.INVALID_REQUEST


def heartbeat(world: World, group: str) -> int:
    def refused(error: ApiError) -> HeartbeatResponse:
        return HeartbeatResponse(error_code=error.code)

    request = HeartbeatRequest(group_id=group, generation_id=1, member_id="m")
    answer = world.groups.answer(group, lambda shard: shard.groups.heartbeat(request), refused)
    assert isinstance(answer, HeartbeatResponse)
    return answer.error_code


@pytest.mark.moldau({"transaction.state.log.replication.factor": "3"})
def test_a_promise_of_more_replicas_than_brokers_leaves_transactions_without_a_coordinator(world: World) -> None:
    found = world.ask(FindCoordinatorRequest(key="t", key_type=TRANSACTION), 3)
    assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert TRANSACTIONS_TOPIC not in world.image.topics


def test_a_kind_of_coordinator_that_we_lack_is_refused_for_good(world: World) -> None:
    (found,) = world.ask(FindCoordinatorRequest(coordinator_keys=["t"], key_type=SHARE)).coordinators
    assert (found.error_code, found.node_id) == (ErrorCode.INVALID_REQUEST, -1)
    assert world.ask(FindCoordinatorRequest(key="t", key_type=SHARE), 2).error_code == ErrorCode.INVALID_REQUEST
