"""Questions about transactions that a cluster answers on the wire (KIP-664): what coordinators know of them, and what
the leaders of partitions do."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from moldau.cli.failures import ToolError
from moldau.cli.refusals import Refused, patiently
from moldau.cli.wire import WireCluster, WireConnection
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from moldau.protocol.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from moldau.protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from moldau.protocol.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from moldau.protocol.messages.k61_describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from moldau.protocol.messages.k65_describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from moldau.protocol.messages.k66_list_transactions import ListTransactionsRequest, ListTransactionsResponse

Partition = tuple[str, int]

TRANSACTION_KEY = 1
FIND_COORDINATOR_TAKES_SEVERAL = 4  # KIP-699
LIST_TRANSACTIONS_FILTERS_DURATION = 1  # KIP-994
LIST_TRANSACTIONS_FILTERS_PATTERN = 2  # KIP-1152
LATEST = -1
READ_UNCOMMITTED = 0
IS_OPEN = ("Ongoing", "PrepareCommit", "PrepareAbort")


class Listed(NamedTuple):
    """A transactional id, as its coordinator lists it."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


class Transaction(NamedTuple):
    """State of a transactional id, as its coordinator knows it."""

    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: int
    """-1 while no transaction is open."""
    partitions: tuple[Partition, ...]


class Filters(NamedTuple):
    """Filters of the listed transactions; an empty filter lets all pass."""

    states: Sequence[str] = ()
    producer_ids: Sequence[int] = ()
    duration_ms: int = -1
    pattern: str | None = None


EVERYTHING = Filters()


class Marker(NamedTuple):
    """Fields of an abort marker."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int


def list_transactions(cluster: WireCluster, filters: Filters = EVERYTHING) -> list[Listed]:
    """Transactional ids of all coordinators, by name."""
    asked = (partial(transactions_of, cluster, broker, filters) for broker in cluster.brokers())
    return sorted(each for ask in asked for each in patiently(ask))


def transactions_of(cluster: WireCluster, broker: int, filters: Filters) -> list[Listed]:
    """Transactional ids of one coordinator. Raises Refused where it says none, even if that may pass."""
    connection = cluster.broker(broker)
    _check_filters(connection, filters)
    request = ListTransactionsRequest(
        state_filters=list(filters.states),
        producer_id_filters=list(filters.producer_ids),
        duration_filter=filters.duration_ms,
        transactional_id_pattern=filters.pattern,
    )
    answer = connection.request(request, ListTransactionsResponse)
    if answer.error_code != ErrorCode.NONE:
        raise Refused(f"broker {broker} does not list its transactions", answer.error_code)
    if answer.unknown_state_filters:
        raise ToolError(
            f"there is no state {', '.join(answer.unknown_state_filters)}: say Ongoing, CompleteCommit, ..."
        )
    return [
        Listed(each.transactional_id, broker, each.producer_id, each.transaction_state)
        for each in answer.transaction_states
    ]


def _check_filters(connection: WireConnection, filters: Filters) -> None:
    key = ListTransactionsRequest.api_key
    if filters.duration_ms >= 0 and not connection.serves(key, LIST_TRANSACTIONS_FILTERS_DURATION):
        raise ToolError(f"the broker at {connection.address} knows no --duration-filter: it needs Kafka 3.7 or newer")
    if filters.pattern is not None and not connection.serves(key, LIST_TRANSACTIONS_FILTERS_PATTERN):
        raise ToolError(
            f"the broker at {connection.address} knows no --transactional-id-pattern: it needs Kafka 4.1 or newer"
        )


def describe_transaction(cluster: WireCluster, transactional_id: str) -> Transaction:
    """The transaction, as the id's coordinator knows it; raises Refused where the coordinator does not know the id."""
    return patiently(lambda: _described(cluster, transactional_id))


def terminate(cluster: WireCluster, transactional_id: str) -> None:
    """Abort what a transactional id has open, and shut its producer out, by taking the id for a moment (KIP-98)."""
    timeout_ms = describe_transaction(cluster, transactional_id).timeout_ms
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)

    def ask() -> None:
        coordinator = cluster.broker(_coordinator(cluster, transactional_id))
        code = coordinator.request(request, InitProducerIdResponse).error_code
        if code != ErrorCode.NONE:
            raise Refused(f"transactional id {transactional_id!r} is not taken", code)

    patiently(ask)


def _described(cluster: WireCluster, transactional_id: str) -> Transaction:
    (told,) = described_by(cluster, _coordinator(cluster, transactional_id), [transactional_id])
    if isinstance(told, Refused):
        raise told
    return told


def described_by(
    cluster: WireCluster, coordinator: int, transactional_ids: Sequence[str]
) -> list[Transaction | Refused]:
    """Transactions of these ids, as one coordinator knows them; or why it does not say."""
    request = DescribeTransactionsRequest(transactional_ids=list(transactional_ids))
    answer = cluster.broker(coordinator).request(request, DescribeTransactionsResponse)
    return [
        Transaction(
            state.transactional_id,
            coordinator,
            state.producer_id,
            state.producer_epoch,
            state.transaction_state,
            state.transaction_timeout_ms,
            state.transaction_start_time_ms,
            tuple(sorted((each.topic, index) for each in state.topics for index in each.partitions)),
        )
        if state.error_code == ErrorCode.NONE
        else Refused(f"transactional id {state.transactional_id!r} is not described", state.error_code)
        for state in answer.transaction_states
    ]


def _coordinator(cluster: WireCluster, transactional_id: str) -> int:
    connection = cluster.any()
    several = connection.serves(FindCoordinatorRequest.api_key, FIND_COORDINATOR_TAKES_SEVERAL)
    request = (
        FindCoordinatorRequest(key_type=TRANSACTION_KEY, coordinator_keys=[transactional_id])
        if several
        else FindCoordinatorRequest(key_type=TRANSACTION_KEY, key=transactional_id)
    )
    answer = connection.request(request, FindCoordinatorResponse)
    found = answer.coordinators[0] if several else answer
    if found.error_code != ErrorCode.NONE:
        raise Refused(f"transactional id {transactional_id!r} has no coordinator", found.error_code)
    return found.node_id


def leader_of(cluster: WireCluster, partition: Partition) -> int:
    """The broker that leads a partition."""
    return patiently(lambda: _leader(cluster, partition))


def _leader(cluster: WireCluster, partition: Partition) -> int:
    topic, index = partition
    (told,) = cluster.metadata([topic])
    if told.error_code != ErrorCode.NONE:
        raise Refused(f"topic {topic!r} is not described", told.error_code)
    states = {each.partition_index: each for each in told.partitions}
    if index not in states:
        raise ToolError(f"topic {topic!r} has no partition {index}: it has {len(states)}, counted from 0")
    if states[index].leader_id < 0:
        raise Refused(f"{topic}-{index} has no leader", ErrorCode.LEADER_NOT_AVAILABLE)
    return states[index].leader_id


def producers_of(cluster: WireCluster, partition: Partition, broker: int | None = None) -> list[ProducerState]:
    """The producers that the leader of a partition knows, or the named replica; by id."""

    def ask() -> list[ProducerState]:
        asked = _leader(cluster, partition) if broker is None else broker
        answers = producers_on(cluster, asked, [partition])
        answer = answers[partition]
        if isinstance(answer, Refused):
            raise answer
        return answer

    return patiently(ask)


def producers_on(
    cluster: WireCluster, broker: int, partitions: Iterable[Partition]
) -> Mapping[Partition, list[ProducerState] | Refused]:
    """The producers of each partition, as one broker knows them; or why it does not say."""
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    request = DescribeProducersRequest(
        topics=[TopicRequest(name=topic, partition_indexes=indexes) for topic, indexes in topics.items()]
    )
    answer = cluster.broker(broker).request(request, DescribeProducersResponse)
    found: dict[Partition, list[ProducerState] | Refused] = {}
    for told in answer.topics:
        for each in told.partitions:
            what = f"broker {broker} does not describe the producers of {told.name}-{each.partition_index}"
            found[told.name, each.partition_index] = (
                sorted(each.active_producers, key=lambda producer: producer.producer_id)
                if each.error_code == ErrorCode.NONE
                else Refused(what, each.error_code)
            )
    return found


def end_offset(cluster: WireCluster, partition: Partition, isolation: int) -> int:
    """The last stable offset for READ_COMMITTED, the high watermark for READ_UNCOMMITTED."""
    topic, index = partition

    def ask() -> int:
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation,
            topics=[
                ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=index, timestamp=LATEST)])
            ],
        )
        answer = cluster.broker(_leader(cluster, partition)).request(request, ListOffsetsResponse)
        told = answer.topics[0].partitions[0]
        if told.error_code != ErrorCode.NONE:
            raise Refused(f"the offsets of {topic}-{index} are not told", told.error_code)
        return told.offset

    return patiently(ask)


def write_abort_marker(cluster: WireCluster, partition: Partition, marker: Marker) -> None:
    """End the producer's transaction in this partition, as a coordinator would."""
    topic, index = partition

    def ask() -> None:
        request = WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=marker.producer_id,
                    producer_epoch=marker.producer_epoch,
                    transaction_result=False,
                    topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[index])],
                    coordinator_epoch=marker.coordinator_epoch,
                )
            ]
        )
        answer = cluster.broker(_leader(cluster, partition)).request(request, WriteTxnMarkersResponse)
        code = answer.markers[0].topics[0].partitions[0].error_code
        if code != ErrorCode.NONE:
            raise Refused(f"the transaction in {topic}-{index} is not aborted", code)

    patiently(ask)


def transactions_by_producer(cluster: WireCluster, producer_ids: Sequence[int]) -> dict[int, Transaction]:
    """Transactions by producer, for the producers that a coordinator knows."""
    found: dict[int, Transaction] = {}
    for each in list_transactions(cluster, Filters(producer_ids=producer_ids)) if producer_ids else ():
        try:
            found[each.producer_id] = describe_transaction(cluster, each.transactional_id)
        except Refused as error:
            if error.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:  # it has expired since
                raise
    return found


def is_at_work(transaction: Transaction | None, producer: ProducerState, partition: Partition) -> bool:
    """Whether the coordinator has this producer's open transaction in the partition, and will therefore end it."""
    return (
        transaction is not None
        and transaction.producer_id == producer.producer_id
        and transaction.state in IS_OPEN
        and partition in transaction.partitions
    )
