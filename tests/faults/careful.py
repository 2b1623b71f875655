"""A producer by hand: one record at a time, sent with the same sequence until it is acknowledged.

A client library has ideas of its own. After a change of leader librdkafka may send a partition's second batch before
the first one, also with one request in flight per connection; it is told that this is out of order, begins a new epoch,
and sends again what is there (its issue 4953). This one never does, so a broker has no excuse: no record of it may be
in a log twice, and none may be called out of order.
"""

import time
from collections.abc import Callable, Sequence

from moldau.core.ids import TopicPartition as Name
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k00_produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from moldau.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from moldau.protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from moldau.protocol.schema import Message
from moldau.records.batch import Record, build_batch
from tests.broker.raw import R, RawClient
from tests.faults.workload import FLUSH_TIMEOUT_S, SEND_EVERY_S, Sender

PRODUCE, METADATA, INIT_PRODUCER_ID = 0, 3, 22
PRODUCE_VERSION, METADATA_VERSION, INIT_PRODUCER_ID_VERSION = 12, 9, 4
ACKS_ALL = -1
ANSWER_S = 4.0
AGAIN_S = 0.05
WRONG = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.CORRUPT_MESSAGE,
    }
)
"""Errors that no fault excuses: this producer always sends the next record, or the last one again."""


class Refused(Exception):
    """Error: the record is to be sent again."""


class CarefulSender(Sender):
    """Sender with nothing but a socket."""

    def __init__(self, name: str, bootstrap: str, partitions: Sequence[Name], seed: int) -> None:
        super().__init__(name, partitions, seed)
        self._bootstrap = bootstrap.split(",")
        self._sequences = dict.fromkeys(partitions, 0)
        self._connections: dict[str, RawClient] = {}
        self._leaders: dict[Name, str] = {}

    def _work(self) -> None:
        number, producer_id = 0, self._until_it_works(self._new_producer_id)
        while not self._stopping.is_set():
            self._send(number, producer_id)
            number += 1
            self._stopping.wait(SEND_EVERY_S)
        for connection in self._connections.values():
            connection.socket.close()

    def _send(self, number: int, producer_id: int) -> None:
        partition, sent_at = self._random.choice(self._partitions), time.monotonic()
        record = Record(0, time.time_ns() // 1_000_000, None, self._new_value(number))
        sequence = self._sequences[partition]
        batch = build_batch([record], producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
        offset = self._until_it_works(lambda: self._produce(partition, batch))
        self._sequences[partition] += 1
        self._acknowledged(partition, number, offset, sent_at)

    def _until_it_works(self, attempt: Callable[[], int]) -> int:
        gives_up: float | None = None
        while True:
            try:
                return attempt()
            except (OSError, Refused):
                self._leaders.clear()
            if gives_up is None and self._stopping.is_set():
                gives_up = time.monotonic() + FLUSH_TIMEOUT_S
            if gives_up is not None and time.monotonic() > gives_up:
                raise TimeoutError(f"no outcome after {FLUSH_TIMEOUT_S:g} s")
            time.sleep(AGAIN_S)

    def _produce(self, partition: Name, batch: bytes) -> int:
        """Send a batch; returns the offset that it got."""
        data = [PartitionProduceData(index=partition.partition, records=batch)]
        topic = TopicProduceData(name=partition.topic, partition_data=data)
        request = ProduceRequest(acks=ACKS_ALL, timeout_ms=int(ANSWER_S * 1000), topic_data=[topic])
        answer = self._ask(self._leader_of(partition), PRODUCE, PRODUCE_VERSION, request, ProduceResponse)
        (result,) = answer.responses[0].partition_responses
        if result.error_code in WRONG and len(self.complaints) < 5:
            code = ErrorCode(result.error_code).name
            self.complaints.append(f"{self.name}: {partition}, sequence {self._sequences[partition]}: {code}")
        if result.error_code:
            raise Refused(result.error_code)
        return result.base_offset

    def _new_producer_id(self) -> int:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        address = self._random.choice(self._bootstrap)
        answer = self._ask(address, INIT_PRODUCER_ID, INIT_PRODUCER_ID_VERSION, request, InitProducerIdResponse)
        if answer.error_code:
            raise Refused(answer.error_code)
        return answer.producer_id

    def _leader_of(self, partition: Name) -> str:
        if not self._leaders:
            self._leaders = self._ask_for_leaders(self._random.choice(self._bootstrap))
        if partition not in self._leaders:
            raise Refused(ErrorCode.LEADER_NOT_AVAILABLE)
        return self._leaders[partition]

    def _ask_for_leaders(self, address: str) -> dict[Name, str]:
        names = sorted({each.topic for each in self._partitions})
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False
        )
        answer = self._ask(address, METADATA, METADATA_VERSION, request, MetadataResponse)
        brokers = {broker.node_id: f"{broker.host}:{broker.port}" for broker in answer.brokers}
        return {
            Name(topic.name or "", each.partition_index): brokers[each.leader_id]
            for topic in answer.topics
            for each in topic.partitions
            if each.leader_id in brokers
        }

    def _ask(self, address: str, key: int, version: int, request: Message, answer: type[R]) -> R:
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connections[address] = RawClient(address)
            connection.socket.settimeout(ANSWER_S)
        try:
            return connection.ask(key, version, request, answer)
        except OSError:
            self._connections.pop(address).socket.close()
            raise
