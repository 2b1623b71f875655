import asyncio

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.messages.k02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from moldau.protocol.messages.k61_describe_producers import DescribeProducersRequest, TopicRequest
from moldau.records.batch import EndTxnMarker, Record, build_batch, iter_records
from moldau.records.compression import Codec
from moldau.requests import registry
from moldau.requests.authorization import TOPIC, WRITE
from moldau.requests.context import RequestContext
from moldau.requests.pending import PendingAnswer
from moldau.requests.transaction_verification import TransactionOperation
from tests.handlers.conftest import World
from tests.handlers.denying import Deny
from tests.handlers.test_k21_delete_records import delete
from tests.handlers.transacting import PRODUCER, Coordinator, batch, end, produce, produce_request


def list_offset(world: World, isolation_level: int) -> int:
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
    topic = ListOffsetsTopic(name="t", partitions=[partition])
    answer = world.ask(ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=[topic]))
    offset: int = answer.topics[0].partitions[0].offset
    return offset


@pytest.mark.parametrize(
    ("version", "operation"),
    [
        (3, TransactionOperation.VERIFY_OLD),
        (10, TransactionOperation.VERIFY_OLD),
        (11, TransactionOperation.VERIFY),
        (12, TransactionOperation.ADD),
    ],
)
def test_only_the_first_batch_of_a_transaction_in_a_partition_is_verified(
    world: World, version: int, operation: TransactionOperation
) -> None:
    world.create("t", partitions=2)
    coordinator = Coordinator(world)
    assert produce(world, batch(0), batch(0), version=version) == [0, 0]
    assert produce(world, batch(1), batch(1), version=version) == [0, 0]
    ((transaction, partitions, asked),) = coordinator.asked
    assert (transaction, partitions, asked) == (("tx", PRODUCER, 0), [("t", 0), ("t", 1)], operation)
    assert (list_offset(world, 0), list_offset(world, 1)) == (2, 0)
    assert end(world, committed=True, epoch=1, partitions=[0, 1]) == [0, 0]
    assert (list_offset(world, 0), list_offset(world, 1)) == (3, 3)
    assert produce(world, batch(0, epoch=1), version=version) == [0]
    assert len(coordinator.asked) == 2


@pytest.mark.parametrize(
    ("code", "version", "told"),
    [
        (ErrorCode.INVALID_TXN_STATE, 10, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 11, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.INVALID_PRODUCER_EPOCH, 12, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 12, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.NETWORK_EXCEPTION, 12, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 10, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, 12, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NOT_COORDINATOR, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 12, ErrorCode.CONCURRENT_TRANSACTIONS),
    ],
)
def test_what_the_coordinator_refuses_is_told_as_producers_know_it(
    world: World, code: ErrorCode, version: int, told: ErrorCode
) -> None:
    world.create("t")
    Coordinator(world, code)
    assert produce(world, batch(), version=version) == [told]
    assert world.log_of("t").log_end_offset == 0


@pytest.mark.parametrize("version", [10, 11, 12])
def test_of_a_producer_that_the_partition_knows_to_be_fenced_the_coordinator_is_not_asked(
    world: World, version: int
) -> None:
    """Kafka's order of checks: what another transactional id would be told does not matter any more."""
    world.create("t")
    coordinator = Coordinator(world, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    assert end(world, committed=False, epoch=3) == [0]
    assert produce(world, batch(epoch=2), version=version) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert coordinator.asked == []


def test_a_batch_of_a_transaction_needs_the_right_on_its_id(world: World) -> None:
    world.create("t")
    coordinator = Coordinator(world)
    assert produce(world, batch(), transactional_id=None) == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
    plain = build_batch([Record(0, 1, None, b"v")])
    assert produce(world, plain, transactional_id="tx") == [0], "the id alone makes no transaction"
    assert coordinator.asked == []


def test_transactional_batches_of_two_producers_are_refused_together(world: World) -> None:
    world.create("t", partitions=2)
    Coordinator(world)
    code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert produce(world, batch(), batch(producer_id=8)) == [code, code]


def test_a_partition_that_is_not_led_here_is_not_asked_about(world: World) -> None:
    world.create("t")
    coordinator = Coordinator(world)
    assert produce(world, batch(), batch()) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert coordinator.asked[0][1] == [("t", 0)]


@pytest.mark.moldau({"transaction.partition.verification.enable": "false"})
def test_without_verification_old_clients_are_believed_and_new_ones_still_add_partitions(world: World) -> None:
    world.create("t")
    coordinator = Coordinator(world)
    assert produce(world, batch(), version=11) == [0]
    assert coordinator.asked == []
    assert end(world, committed=True, epoch=1) == [0]
    assert produce(world, batch(epoch=1), version=12) == [0]
    assert len(coordinator.asked) == 1


def test_an_abort_while_the_coordinator_is_asked_lets_nothing_in(world: World) -> None:
    world.create("t")
    coordinator = Coordinator(world)

    async def race() -> int:
        coordinator.until = asyncio.Event()
        context = RequestContext(world.services, 11, "test", "PLAINTEXT", "127.0.0.1")
        pending = registry.handler(0)(produce_request(batch()), context)
        assert isinstance(pending, PendingAnswer)
        assert pending.holds_order, "what the connection sends behind it must wait"
        await asyncio.sleep(0)
        partition = world.services.replicas.get("t", 0)
        partition.append_marker(EndTxnMarker(False, 0), PRODUCER, 0, 0, world.clock.now_ms())
        coordinator.until.set()
        answer = await pending
        code: int = answer.responses[0].partition_responses[0].error_code
        return code

    assert world.run(race()) == ErrorCode.INVALID_TXN_STATE
    assert world.log_of("t").last_stable_offset == 1


@pytest.mark.parametrize("configs", [{}, {"cleanup.policy": "compact"}, {"compression.type": "lz4"}])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.ZSTD])
def test_a_compressed_batch_is_the_same_after_it_was_verified(
    world: World, codec: Codec, configs: dict[str, str]
) -> None:
    """KAFKA-15653: what was sent must not be overwritten while the coordinator is asked."""
    world.create("t", configs=configs)
    Coordinator(world)
    records = [Record(number, 1, b"%d" % number, b"v" * 100) for number in range(50)]
    sent = build_batch(
        records, codec=codec, producer_id=PRODUCER, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    assert produce(world, sent) == [0]
    region = world.log_of("t").read(0, 1 << 20, 50)
    assert region is not None
    assert [(each.key, each.value) for each in iter_records(region.read())] == [(r.key, r.value) for r in records]


def fetch(world: World, offset: int, isolation_level: int) -> tuple[int, list[tuple[int, int]] | None, int]:
    """The bytes of records, the aborted transactions, and the last stable offset."""
    topic_id = world.image.topics["t"].topic_id
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=isolation_level,
        topics=[FetchTopic(topic_id=topic_id, partitions=[partition])],
    )
    (found,) = world.ask(request).responses[0].partitions
    aborted = found.aborted_transactions
    return (
        len(found.records or b""),
        None if aborted is None else [(each.producer_id, each.first_offset) for each in aborted],
        found.last_stable_offset,
    )


def test_a_reader_of_committed_records_gets_what_is_stable_and_is_told_what_was_aborted(world: World) -> None:
    world.create("t")
    Coordinator(world)
    world.produce("t", 1)
    assert produce(world, batch()) == [0]
    world.produce("t", 1)
    whole, aborted, stable = fetch(world, 0, 0)
    assert (aborted, stable) == (None, 1)
    before, aborted, stable = fetch(world, 0, 1)
    assert (before < whole, aborted, stable) == (True, [], 1)
    assert fetch(world, 1, 1)[0] == 0
    assert end(world, committed=False, epoch=1) == [0]
    found, aborted, stable = fetch(world, 0, 1)
    assert (found > whole, aborted, stable) == (True, [(PRODUCER, 1)], 4)


def test_an_open_transaction_is_described_with_its_start_and_its_coordinators_epoch(world: World) -> None:
    world.create("t")
    Coordinator(world)
    world.produce("t", 3)
    produce(world, batch(epoch=0))
    end(world, committed=True, epoch=1, coordinator_epoch=4)
    produce(world, batch(0, epoch=1), version=12)
    answer = world.ask(DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])]))
    (state,) = answer.topics[0].partitions[0].active_producers
    assert (state.producer_id, state.producer_epoch, state.last_sequence) == (PRODUCER, 1, 0)
    assert (state.coordinator_epoch, state.current_txn_start_offset, state.last_timestamp) == (4, 5, 1)


def test_deleting_records_past_an_open_transaction_frees_those_who_wait_for_its_end(world: World) -> None:
    world.create("t")
    Coordinator(world)
    produce(world, batch())
    world.produce("t", 1)
    partition = world.services.replicas.get("t", 0)
    told: list[int] = []

    class Waiter:
        def advanced(self, appended_bytes: int) -> None:
            told.append(appended_bytes)

    partition.wait(Waiter(), committed=True)
    assert delete(world, "t", 0, 1) == (1, 0)
    assert (any(told), partition.last_stable_offset) == (True, 2)
    assert end(world, committed=True, epoch=1) == [0], "its coordinator does not know"
    assert partition.last_stable_offset == 3


def test_a_topic_that_is_deleted_takes_its_transactions_along(world: World) -> None:
    world.create("t")
    Coordinator(world)
    produce(world, batch())
    world.services.replicas.remove("t", 0)
    assert end(world, committed=True, epoch=1)[0] in (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    )


def test_a_topic_that_one_may_not_write_is_not_added_to_a_transaction(world: World) -> None:
    world.create("t")
    coordinator = Coordinator(world)
    world.services.policy.authorize_by(Deny((WRITE, TOPIC)))
    assert produce(world, batch()) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert coordinator.asked == []
