"""Transactions through the handlers: AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, and what is told of them."""

import pytest

from moldau.coordinators.key_partition import partition_of
from moldau.coordinators.transactions import transaction
from moldau.core.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k22_init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.k24_add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTransaction
from moldau.protocol.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest
from moldau.protocol.messages.k26_end_txn import EndTxnRequest
from moldau.protocol.messages.k65_describe_transactions import DescribeTransactionsRequest
from moldau.protocol.messages.k66_list_transactions import ListTransactionsRequest
from moldau.requests.groups_access import awaited
from tests.handlers.conftest import KAFKAS_PARTITIONS, World
from tests.handlers.transactions import ID, Producer

OLD_EPOCH = [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)]


@pytest.fixture
def topics(world: World) -> World:
    world.create("a", 2)
    world.create("b", 1)
    return world


# AddPartitionsToTxn


@pytest.mark.parametrize("version", range(6))
def test_partitions_are_added_in_every_version(topics: World, version: int) -> None:
    producer = Producer(topics)
    assert producer.add({"a": [0, 1], "b": [0]}, version) == {"a-0": 0, "a-1": 0, "b-0": 0}
    state = producer.state()
    assert (state.transaction_state, state.producer_id, state.producer_epoch) == ("Ongoing", producer.producer_id, 0)
    assert [(each.topic, each.partitions) for each in state.topics] == [("a", [0, 1]), ("b", [0])]
    assert state.transaction_start_time_ms == topics.clock.now_ms()
    assert state.transaction_timeout_ms == 60_000


@pytest.mark.parametrize("version", [0, 3, 4, 5])
def test_one_unknown_partition_keeps_all_others_out(topics: World, version: int) -> None:
    producer = Producer(topics)
    assert producer.add({"a": [0, 7], "none": [0]}, version) == {
        "a-0": ErrorCode.OPERATION_NOT_ATTEMPTED,
        "a-7": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "none-0": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert producer.state().transaction_state == "Empty"


@pytest.mark.parametrize("version", [3, 5])
def test_very_many_partitions_are_looked_through_in_turns(topics: World, version: int) -> None:
    producer = Producer(topics)
    codes = producer.add({"a": [0, *range(5, 1000)], "b": [0]}, version)
    assert len(codes) == 997
    assert codes["a-0"] == codes["b-0"] == ErrorCode.OPERATION_NOT_ATTEMPTED
    assert codes["a-999"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert producer.add({"a": [0, 1] * 500}, version) == {"a-0": 0, "a-1": 0}
    assert producer.state().transaction_state == "Ongoing"


def test_a_client_cannot_add_partitions_of_internal_topics_but_a_broker_can(topics: World) -> None:
    producer = Producer(topics)
    name = f"{TRANSACTIONS_TOPIC}-0"
    assert producer.add({TRANSACTIONS_TOPIC: [0]}, 3) == {name: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert producer.add({TRANSACTIONS_TOPIC: [0]}, 4) == {name: 0}


def test_an_empty_transactional_id_is_an_invalid_request(topics: World) -> None:
    producer = Producer(topics)
    producer.id = ""
    assert producer.add({"a": [0]}, 3) == {"a-0": ErrorCode.INVALID_REQUEST}
    assert producer.end().error_code == ErrorCode.INVALID_REQUEST
    assert producer.state().error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(("version", "code"), OLD_EPOCH)
def test_a_fenced_producer_is_told_so_in_the_words_of_its_version(topics: World, version: int, code: ErrorCode) -> None:
    producer = Producer(topics)
    topics.ask(InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000))
    assert producer.add({"a": [0]}, version) == {"a-0": code}
    assert producer.end(version=version).error_code == code
    assert add_offsets(producer, version=version) == code


def test_many_transactions_are_asked_for_at_once_and_each_is_answered(topics: World) -> None:
    first, second = Producer(topics), Producer(topics, transactional_id="other")
    named = [
        AddPartitionsToTxnTransaction(
            transactional_id=each.id, producer_id=first.producer_id, producer_epoch=0, verify_only=each is second
        )
        for each in (first, second)
    ]
    answer = topics.ask(AddPartitionsToTxnRequest(transactions=named))
    assert [each.transactional_id for each in answer.results_by_transaction] == [ID, "other"]


def test_verification_adds_nothing(topics: World) -> None:
    producer = Producer(topics)
    assert producer.add({"a": [0]}, 5, verify=True) == {"a-0": ErrorCode.TRANSACTION_ABORTABLE}
    assert producer.add({"a": [0]}) == {"a-0": 0}
    assert producer.add({"a": [0, 1]}, 4, verify=True) == {"a-0": 0, "a-1": ErrorCode.TRANSACTION_ABORTABLE}
    assert [each.partitions for each in producer.state().topics] == [[0]]


def test_a_broker_that_does_not_coordinate_the_id_says_so(topics: World) -> None:
    request = EndTxnRequest(transactional_id="x", producer_id=1, producer_epoch=0, committed=True)
    assert topics.ask(request).error_code == ErrorCode.NOT_COORDINATOR
    (state,) = topics.ask(DescribeTransactionsRequest(transactional_ids=["x"])).transaction_states
    assert state.error_code == ErrorCode.NOT_COORDINATOR


# AddOffsetsToTxn


def add_offsets(producer: Producer, group_id: str = "g", version: int | None = None) -> int:
    request = AddOffsetsToTxnRequest(
        transactional_id=producer.id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        group_id=group_id,
    )
    code: int = producer.world.ask(request, version).error_code
    return code


@pytest.mark.moldau(KAFKAS_PARTITIONS)
@pytest.mark.parametrize("version", range(5))
def test_the_partition_of_a_groups_offsets_becomes_part_of_the_transaction(world: World, version: int) -> None:
    producer = Producer(world)
    assert OFFSETS_TOPIC not in world.image.topics
    assert add_offsets(producer, version=version) == 0
    (topic,) = producer.state().topics
    assert (topic.topic, topic.partitions) == (OFFSETS_TOPIC, [partition_of("g", 50)])
    assert add_offsets(producer, version=version) == 0


# EndTxn


@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_ends_with_markers_in_all_its_partitions(topics: World, is_new: bool, committed: bool) -> None:
    producer = Producer(topics, is_new=is_new)
    producer_id = producer.producer_id
    producer.add({"a": [0, 1], "b": [0]})
    answer = producer.end(committed=committed)
    assert answer.error_code == 0
    assert (answer.producer_id, answer.producer_epoch) == ((producer_id, 1) if is_new else (-1, -1))
    producer.until("CompleteCommit" if committed else "CompleteAbort")
    ((marker,),) = producer.writer.asked
    assert (marker.producer_id, marker.producer_epoch) == (producer_id, 1 if is_new else 0)
    assert marker.transaction_result is committed
    assert marker.coordinator_epoch == 0
    assert marker.transaction_version == (2 if is_new else 0)
    assert {topic.name: sorted(topic.partition_indexes) for topic in marker.topics} == {"a": [0, 1], "b": [0]}
    assert producer.state().topics == []
    assert producer.add({"a": [0]}) == {"a-0": 0}


def test_the_next_transaction_waits_for_the_markers(topics: World) -> None:
    producer = Producer(topics)
    producer.writer.may_answer = False
    producer.add({"a": [0]})
    assert producer.end().error_code == 0
    assert producer.add({"a": [0]}) == {"a-0": ErrorCode.CONCURRENT_TRANSACTIONS}
    producer.writer.release()
    producer.until("CompleteCommit")
    assert producer.add({"a": [0]}) == {"a-0": 0}


def test_the_state_is_read_again_from_the_log(topics: World) -> None:
    producer = Producer(topics)
    producer.add({"a": [0]})
    before = repr(producer.state())
    topic = topics.image.topics[TRANSACTIONS_TOPIC]
    index = partition_of(ID, len(topic.partitions))
    topics.transactions._shards.pop(index).close()

    async def start() -> None:
        topics.transactions._start(index)
        loading = topics.transactions._loading
        if loading is not None:
            await loading

    topics.run(start())
    assert repr(producer.state()) == before
    assert producer.end().error_code == 0
    producer.until("CompleteCommit")


# DescribeTransactions, ListTransactions


def test_an_unknown_id_is_not_found(world: World) -> None:
    Producer(world)
    asked = [ID, *(f"none-{number}" for number in range(3))]
    states = world.ask(DescribeTransactionsRequest(transactional_ids=asked)).transaction_states
    assert [each.error_code for each in states] == [0, *[ErrorCode.TRANSACTIONAL_ID_NOT_FOUND] * 3]
    assert states[0].transaction_start_time_ms == -1


def listed(world: World, version: int = 2, **filters: object) -> list[tuple[str, str]]:
    answer = world.ask(ListTransactionsRequest(**filters), version)  # type: ignore[arg-type]
    assert answer.error_code == 0
    return sorted((each.transactional_id, each.transaction_state) for each in answer.transaction_states)


def test_transactions_are_listed_by_every_filter(topics: World) -> None:
    Producer(topics, transactional_id="idle")
    busy = Producer(topics, transactional_id="busy")
    busy.add({"a": [0]})
    topics.clock.advance(1_000)
    assert listed(topics, 0) == [("busy", "Ongoing"), ("idle", "Empty")]
    assert listed(topics, state_filters=["Ongoing"]) == [("busy", "Ongoing")]
    assert listed(topics, producer_id_filters=[busy.producer_id]) == [("busy", "Ongoing")]
    assert listed(topics, 1, state_filters=["Ongoing"], duration_filter=999) == [("busy", "Ongoing")]
    assert listed(topics, 1, state_filters=["Ongoing"], duration_filter=1_000) == []
    assert listed(topics, transactional_id_pattern="i.*") == [("idle", "Empty")]


def test_names_of_no_state_are_told_back_and_a_bad_pattern_is_refused(world: World) -> None:
    Producer(world)
    answer = world.ask(ListTransactionsRequest(state_filters=["Nonsense", "Empty", "Nonsense"]))
    assert answer.unknown_state_filters == ["Nonsense"]
    assert len(answer.transaction_states) == 1
    assert world.ask(ListTransactionsRequest(state_filters=["Nonsense"])).transaction_states == []
    bad = world.ask(ListTransactionsRequest(transactional_id_pattern="(a"))
    assert bad.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_an_end_whose_coordinator_lost_its_log_before_it_was_written_is_to_be_asked_elsewhere(world: World) -> None:
    """A directory that fails takes the partition away between the decision and the append."""
    world.create("t")
    producer = Producer(world)
    producer.add({"t": [0]})
    unhandled: list[object] = []
    world.runner.get_loop().set_exception_handler(lambda _, context: unhandled.append(context))

    async def end() -> object:
        known = transaction.Producer(producer.producer_id, producer.epoch)
        answer = world.transactions.answer(
            ID, lambda shard: shard.end(ID, known, committed=True, client_version=2), lambda error: error.code
        )
        for each in world.services.replicas.of_topic(TRANSACTIONS_TOPIC):
            world.services.replicas.remove(*each.topic_partition)
        return await awaited(answer)

    assert world.run(end()) == ErrorCode.NOT_COORDINATOR
    assert producer.end().error_code == ErrorCode.NOT_COORDINATOR
    assert unhandled == []
