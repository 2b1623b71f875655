"""Feeder of the input: numbered records, each written once whatever happens, and not too far ahead of the copiers."""

import random
import time
from collections.abc import Callable, Sequence

from moldau.protocol.messages.k00_produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from moldau.protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from moldau.records.batch import Record, build_batch
from tests.faults.transactions.records import SOURCES, input_value, partition_of
from tests.faults.transactions.wire import Refused, Wire
from tests.faults.workload import Client

PRODUCE_VERSION, INIT_VERSION = 9, 4
ACKS_ALL = -1
WRITE_TIMEOUT_MS = 3_000
BATCH_RECORDS_MAX = 60
AHEAD_MAX = 1_500
"""Records of a source that the copiers may have before them."""
PAUSE_S = 0.01


class Feeder(Client):
    """An idempotent producer by hand."""

    def __init__(self, bootstrap: Sequence[str], seed: int, copied: Callable[[int], int]) -> None:
        """`copied`: how many records of a source have been copied."""
        super().__init__("feeder")
        self.fed = dict.fromkeys(SOURCES, 0)
        self._copied = copied
        self._chance = random.Random(seed)
        self._wire = Wire(bootstrap, "feeder", self._chance)

    def _work(self) -> None:
        producer_id = self._wire.patiently(self._new_producer_id)
        while not self._stopping.is_set():
            behind = [each for each in self.fed if self.fed[each] < self._copied(each) + AHEAD_MAX]
            if behind:
                self._feed(self._chance.choice(behind), producer_id)
            time.sleep(PAUSE_S)
        self._wire.close()

    def _feed(self, source: int, producer_id: int) -> None:
        first, count, now_ms = (
            self.fed[source],
            self._chance.randint(1, BATCH_RECORDS_MAX),
            time.time_ns() // 1_000_000,
        )
        values = [input_value(source, first + at, self._chance) for at in range(count)]
        batch = build_batch(
            [Record(at, now_ms, None, value) for at, value in enumerate(values)],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=first,
        )
        self._wire.patiently(lambda: self._produce(source, batch))
        self.fed[source] += count

    def _produce(self, source: int, batch: bytes) -> None:
        target = partition_of(source)
        data = [PartitionProduceData(index=target.partition, records=batch)]
        topic = TopicProduceData(name=target.topic, partition_data=data)
        request = ProduceRequest(acks=ACKS_ALL, timeout_ms=WRITE_TIMEOUT_MS, topic_data=[topic])
        answer = self._wire.ask_leader(target, PRODUCE_VERSION, request, ProduceResponse)
        (result,) = answer.responses[0].partition_responses
        if result.error_code:
            raise Refused(result.error_code, f"Produce to {target}, sequence {self.fed[source]}")

    def _new_producer_id(self) -> int:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        answer = self._wire.ask_anybody(INIT_VERSION, request, InitProducerIdResponse)
        if answer.error_code:
            raise Refused(answer.error_code, "InitProducerId")
        return answer.producer_id
