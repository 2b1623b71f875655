"""A transactional producer made of raw requests, of any version and with any producer id and epoch, sane or not.

Every step tells what the broker said in words that do not depend on which broker it is: names of codes, epochs, and
whether a producer id is the one from before. A connection that the broker closes is an answer, too.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from moldau.protocol.apis import response_type
from moldau.protocol.errors import ErrorCode
from moldau.protocol.fetch_values import READ_COMMITTED
from moldau.protocol.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.messages.k02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from moldau.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.k22_init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from moldau.protocol.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest
from moldau.protocol.messages.k26_end_txn import EndTxnRequest
from moldau.protocol.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from moldau.protocol.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from moldau.protocol.messages.k61_describe_producers import DescribeProducersRequest, TopicRequest
from moldau.protocol.messages.k65_describe_transactions import DescribeTransactionsRequest
from moldau.protocol.messages.k66_list_transactions import ListTransactionsRequest
from moldau.protocol.schema import Message
from moldau.records.batch import Record, build_batch
from tests.broker.raw import RawClient

GROUP, TRANSACTION = 0, 1
CLOSED = "connection closed"
WAIT_S = 30.0
BROKERS_ADD = 4
END_TELLS_THE_NEXT_PRODUCER = 5


def name_of(code: int) -> str:
    return ErrorCode(code).name


class Connection:
    """A connection to one broker that is made anew when the broker closes it."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._client: RawClient | None = None

    def ask(self, request: Message, version: int) -> Any:
        """The answer, or None if the broker closed the connection."""
        if self._client is None:
            self._client = RawClient(self._bootstrap)
        try:
            return self._client.ask(request.api_key, version, request, response_type(request.api_key))
        except ConnectionError:
            self.close()
            return None

    def close(self) -> None:
        if self._client is not None:
            self._client.socket.close()
            self._client = None

    def find_coordinator(self, key: str, kind: int) -> None:
        """Returns when there is one, and it has read its log."""
        request = FindCoordinatorRequest(coordinator_keys=[key], key_type=kind)
        until(lambda: self.ask(request, 4).coordinators[0].error_code == 0)

    def last_stable_offset(self, topic: str, partition: int = 0) -> int:
        """Offset before which every transaction has ended."""
        asked = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=partition, timestamp=-1)])
        answer = self.ask(ListOffsetsRequest(replica_id=-1, isolation_level=READ_COMMITTED, topics=[asked]), 5)
        found: int = answer.topics[0].partitions[0].offset
        return found

    def listed(self, names: Mapping[str, str], version: int = 2, **filters: Any) -> str:
        """ListTransactions: the code, unknown states, and which of the ids are listed, under the names of the test."""
        answer = self.ask(ListTransactionsRequest(**filters), version)
        if answer is None:
            return CLOSED
        ids = {each.transactional_id for each in answer.transaction_states}
        known = [name for name, transactional_id in names.items() if transactional_id in ids]
        return f"{name_of(answer.error_code)} unknown {sorted(answer.unknown_state_filters)} {known}"

    def described(self, *ids: str) -> str:
        """DescribeTransactions: code and state of each."""
        answer = self.ask(DescribeTransactionsRequest(transactional_ids=list(ids)), 0)
        if answer is None:
            return CLOSED
        found = answer.transaction_states
        return "; ".join(
            f"{name_of(each.error_code)} {each.transaction_state} {each.transaction_timeout_ms} {each.producer_epoch} "
            f"{[(topic.topic, sorted(topic.partitions)) for topic in sorted(each.topics, key=lambda t: t.topic)]}"
            for each in found
        )

    def producers(self, topics: Mapping[str, Sequence[int]]) -> str:
        """DescribeProducers: the codes."""
        named = [TopicRequest(name=topic, partition_indexes=list(numbers)) for topic, numbers in topics.items()]
        answer = self.ask(DescribeProducersRequest(topics=named), 0)
        if answer is None:
            return CLOSED
        return codes(answer.topics, "partitions", "error_code")


class Producer:
    """One transactional id; `producer_id` and `epoch` are those of the last answer, or what a test sets."""

    def __init__(self, connection: Connection, transactional_id: str) -> None:
        self.connection = connection
        self.id = transactional_id
        self.producer_id = -1
        self.epoch = -1

    def init(
        self, version: int = 5, *, timeout_ms: int = 60_000, producer_id: int = -1, epoch: int = -1, as_is: bool = False
    ) -> str:
        """InitProducerId; `as_is`: say who the producer is."""
        if as_is:
            producer_id, epoch = self.producer_id, self.epoch
        request = InitProducerIdRequest(
            transactional_id=self.id,
            transaction_timeout_ms=timeout_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        return self._next(self.connection.ask(request, version))

    def begin(self, version: int = 5) -> None:
        """Have a producer id, whatever was before."""
        self.connection.find_coordinator(self.id or "x", TRANSACTION)
        until(lambda: self.init(version).startswith("NONE"))

    def add(self, topics: Mapping[str, Sequence[int]], version: int = 3, *, verify: bool = False) -> str:
        named = [AddPartitionsToTxnTopic(name=name, partitions=list(numbers)) for name, numbers in topics.items()]
        return self.add_topics(named, version, verify=verify)

    def add_topics(self, named: list[AddPartitionsToTxnTopic], version: int = 3, *, verify: bool = False) -> str:
        """AddPartitionsToTxn: the code of each partition."""
        if version < BROKERS_ADD:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.id,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=named,
            )
        else:
            asked = AddPartitionsToTxnTransaction(
                transactional_id=self.id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                verify_only=verify,
                topics=named,
            )
            request = AddPartitionsToTxnRequest(transactions=[asked])
        answer = self.connection.ask(request, version)
        if answer is None:
            return CLOSED
        if version < BROKERS_ADD:
            return codes(answer.results_by_topic_v3_and_below, "results_by_partition", "partition_error_code")
        told = [
            codes(each.topic_results, "results_by_partition", "partition_error_code")
            for each in answer.results_by_transaction
        ]
        return f"{name_of(answer.error_code)} {told}"

    def add_offsets(self, group: str, version: int = 3) -> str:
        """AddOffsetsToTxn: the code."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self.id, producer_id=self.producer_id, producer_epoch=self.epoch, group_id=group
        )
        return code_of(self.connection.ask(request, version))

    def end(self, version: int = 4, *, committed: bool = True) -> str:
        """EndTxn: the code, and from version 5 on who the producer is from now on."""
        request = EndTxnRequest(
            transactional_id=self.id, producer_id=self.producer_id, producer_epoch=self.epoch, committed=committed
        )
        answer = self.connection.ask(request, version)
        return self._next(answer) if version >= END_TELLS_THE_NEXT_PRODUCER else code_of(answer)

    def end_and_wait(self, version: int = 4, *, committed: bool = True) -> str:
        """EndTxn, and return when all markers are written."""
        told = self.end(version, committed=committed)
        self.wait_for("CompleteCommit" if committed else "CompleteAbort")
        return told

    def wait_for(self, state: str) -> None:
        until(lambda: self.state() == state)

    def state(self) -> str:
        request = DescribeTransactionsRequest(transactional_ids=[self.id])
        found: str = self.connection.ask(request, 0).transaction_states[0].transaction_state
        return found

    def write_markers(
        self,
        topics: Mapping[str, Sequence[int]],
        version: int = 1,
        *,
        committed: bool = True,
        coordinator_epoch: int = 0,
        transaction_version: int = 0,
    ) -> str:
        """WriteTxnMarkers: the code of each partition."""
        marker = WritableTxnMarker(
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            transaction_result=committed,
            topics=[
                WritableTxnMarkerTopic(name=name, partition_indexes=list(numbers)) for name, numbers in topics.items()
            ],
            coordinator_epoch=coordinator_epoch,
            transaction_version=transaction_version,
        )
        answer = self.connection.ask(WriteTxnMarkersRequest(markers=[marker]), version)
        if answer is None:
            return CLOSED
        return "; ".join(codes(each.topics, "partitions", "error_code") for each in answer.markers)

    def commit(
        self, group: str, topics: Mapping[str, Sequence[int]], version: int = 5, *, offset: int = 3, **member: Any
    ) -> str:
        """TxnOffsetCommit: the code of each partition."""
        request = TxnOffsetCommitRequest(
            transactional_id=self.id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=name,
                    partitions=[
                        TxnOffsetCommitRequestPartition(partition_index=each, committed_offset=offset)
                        for each in numbers
                    ],
                )
                for name, numbers in topics.items()
            ],
            **member,
        )
        answer = self.connection.ask(request, version)
        return CLOSED if answer is None else codes(answer.topics, "partitions", "error_code")

    def produce(
        self,
        topic: str,
        partition: int = 0,
        version: int = 12,
        *,
        sequence: int = 0,
        is_transactional: bool = True,
        transactional_id: str | None = "",
    ) -> str:
        """Produce one record: the code. A transactional id of "" stands for the producer's own."""
        batch = build_batch(
            [Record(0, time.time_ns() // 1_000_000, b"key", b"value", ())],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )
        data = PartitionProduceData(index=partition, records=batch)
        request = ProduceRequest(
            transactional_id=self.id if transactional_id == "" else transactional_id,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )
        answer = self.connection.ask(request, version)
        return CLOSED if answer is None else codes(answer.responses, "partition_responses", "error_code")

    def _next(self, answer: Any) -> str:
        if answer is None or answer.error_code:
            return code_of(answer)
        if answer.producer_id < 0:
            return f"NONE nobody, epoch {answer.producer_epoch}"
        which = "same" if answer.producer_id == self.producer_id else "another"
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return f"NONE {which} id, epoch {self.epoch}"


def code_of(answer: Any) -> str:
    return CLOSED if answer is None else name_of(answer.error_code)


def codes(topics: Sequence[Any], partitions: str, code: str) -> str:
    """The codes of an answer, by topic and partition; Kafka's order is that of hashes."""
    found = [
        f"{topic.name}-{getattr(each, 'partition_index', getattr(each, 'index', None))}:{name_of(getattr(each, code))}"
        for topic in topics
        for each in getattr(topic, partitions)
    ]
    return " ".join(sorted(found))


def until(condition: Callable[[], bool]) -> None:
    """Ask again and again: what is waited for is a state of the broker."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "the broker does not get there"
