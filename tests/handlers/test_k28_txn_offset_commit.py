import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.protocol.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from moldau.protocol.messages.k42_delete_groups import DeleteGroupsRequest
from moldau.protocol.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from moldau.requests.transaction_verification import TransactionOperation
from tests.handlers.conftest import World
from tests.handlers.transacting import PRODUCER, Coordinator, commit, committed, end, find_group_coordinator

OFFSETS = "__consumer_offsets"
UNSTABLE = (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)


@pytest.fixture
def coordinator(world: World) -> Coordinator:
    world.create("t")
    find_group_coordinator(world)
    return Coordinator(world)


def group_partition(world: World) -> int:
    return world.groups.partition("g").topic_partition.partition


def end_group(world: World, *, is_committed: bool, epoch: int = 1, version: int = 2) -> int:
    (code,) = end(
        world,
        committed=is_committed,
        epoch=epoch,
        topic=OFFSETS,
        partitions=[group_partition(world)],
        transaction_version=version,
    )
    return code


def plain_commit(world: World, offset: int) -> int:
    partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)]
    topics = [OffsetCommitRequestTopic(name="t", partitions=partitions)]
    answer = world.ask(OffsetCommitRequest(group_id="g", topics=topics), 8)
    code: int = answer.topics[0].partitions[0].error_code
    return code


def reload(world: World) -> None:
    """As if this broker had just come to lead the group's partition."""
    world.groups._start(group_partition(world))
    if world.groups._loading is not None:
        world.run(world.groups._loading)


@pytest.mark.parametrize("version", range(6))
def test_offsets_of_a_transaction_are_visible_when_it_is_committed(
    world: World, coordinator: Coordinator, version: int
) -> None:
    assert plain_commit(world, 1) == 0
    assert commit(world, 5, version=version) == 0
    assert committed(world) == (1, 0)
    assert committed(world, require_stable=True) == UNSTABLE
    assert end_group(world, is_committed=True) == 0
    assert committed(world, require_stable=True) == (5, 0)
    operation = TransactionOperation.ADD if version == 5 else TransactionOperation.VERIFY
    operation = TransactionOperation.VERIFY_OLD if version < 4 else operation
    assert coordinator.asked == [(("tx", PRODUCER, 0), [(OFFSETS, group_partition(world))], operation)]


def test_offsets_of_an_aborted_transaction_never_were(world: World, coordinator: Coordinator) -> None:
    plain_commit(world, 1)
    assert [commit(world, 5), commit(world, 6)] == [0, 0]
    assert len(coordinator.asked) == 1, "the second belongs to a transaction that is open"
    assert end_group(world, is_committed=False) == 0
    assert committed(world, require_stable=True) == (1, 0)
    assert commit(world, 7, epoch=0) == ErrorCode.INVALID_PRODUCER_EPOCH, "its epoch has gone by"


@pytest.mark.usefixtures("coordinator")
@pytest.mark.parametrize("is_committed", [True, False])
def test_the_markers_in_the_log_decide_when_a_group_is_loaded(world: World, is_committed: bool) -> None:
    plain_commit(world, 1)
    commit(world, 5)
    reload(world)
    assert (committed(world), committed(world, require_stable=True)) == ((1, 0), UNSTABLE)
    assert end_group(world, is_committed=is_committed) == 0
    reload(world)
    assert committed(world, require_stable=True) == ((5 if is_committed else 1), 0)


@pytest.mark.usefixtures("coordinator")
def test_of_a_plain_commit_and_a_transaction_the_later_record_counts(world: World) -> None:
    commit(world, 5)
    plain_commit(world, 9)
    assert end_group(world, is_committed=True) == 0
    assert committed(world) == (9, 0)
    reload(world)
    assert committed(world) == (9, 0)


@pytest.mark.usefixtures("coordinator")
def test_deleting_a_group_or_its_offsets_deletes_what_a_transaction_carries(world: World) -> None:
    commit(world, 5)
    topic = OffsetDeleteRequestTopic(name="t", partitions=[OffsetDeleteRequestPartition(partition_index=0)])
    answer = world.ask(OffsetDeleteRequest(group_id="g", topics=[topic]))
    assert (answer.error_code, answer.topics[0].partitions[0].error_code) == (0, 0)
    assert committed(world, require_stable=True) == (-1, 0)
    commit(world, 6)
    assert world.ask(DeleteGroupsRequest(groups_names=["g"])).results[0].error_code == 0
    assert end_group(world, is_committed=True) == 0
    assert committed(world, require_stable=True) == (-1, 0)


@pytest.mark.parametrize(
    ("code", "version", "told"),
    [
        (ErrorCode.NETWORK_EXCEPTION, 5, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.NETWORK_EXCEPTION, 1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, 4, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.INVALID_TXN_STATE, 3, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.INVALID_PRODUCER_EPOCH, 3, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 5, ErrorCode.CONCURRENT_TRANSACTIONS),
    ],
)
def test_what_the_transaction_coordinator_refuses_is_told(
    world: World, coordinator: Coordinator, code: ErrorCode, version: int, told: ErrorCode
) -> None:
    coordinator.code = code
    assert commit(world, 5, version=version) == told
    assert committed(world, require_stable=True) == (-1, 0)


@pytest.mark.usefixtures("coordinator")
def test_who_names_a_member_is_held_to_it(world: World) -> None:
    assert commit(world, 5, generation_id=1, member_id="m") == ErrorCode.ILLEGAL_GENERATION
    plain_commit(world, 1)  # now there is a group, without members
    assert commit(world, 5, generation_id=1, member_id="m") == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(world, 5, member_id="m", generation_id=-1) == 0, "as Kafka: an empty group takes it"


def test_a_topic_that_is_not_there_is_refused_alone(world: World, coordinator: Coordinator) -> None:
    assert commit(world, 5, topic="missing") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert coordinator.asked == []


@pytest.mark.usefixtures("coordinator")
def test_a_partition_that_is_not_there_is_refused_alone(world: World) -> None:
    partitions = [TxnOffsetCommitRequestPartition(partition_index=each, committed_offset=7) for each in (1, 0, -1)]
    request = TxnOffsetCommitRequest(
        transactional_id="tx",
        group_id="g",
        producer_id=PRODUCER,
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=partitions)],
    )
    (topic,) = world.ask(request, 5).topics
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    told = [(each.partition_index, each.error_code) for each in topic.partitions]
    assert told == [(1, unknown), (0, 0), (-1, unknown)]


def test_a_producer_that_the_groups_partition_knows_to_be_fenced_is_told_without_asking(
    world: World, coordinator: Coordinator
) -> None:
    assert end_group(world, is_committed=False, epoch=3) == 0
    assert commit(world, 1, epoch=2) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert coordinator.asked == []


def test_a_broker_that_does_not_coordinate_the_group_says_so(world: World) -> None:
    world.create("t")
    Coordinator(world)
    assert commit(world, 5) == ErrorCode.NOT_COORDINATOR
    assert end(world, committed=True, epoch=1, topic=OFFSETS) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    world.create(OFFSETS, partitions=2)
    world.groups._shards.clear()
    told = end(world, committed=True, epoch=1, topic=OFFSETS, partitions=[0, 2, -1])
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert told == [ErrorCode.NOT_LEADER_OR_FOLLOWER, unknown, unknown]
