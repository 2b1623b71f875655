"""A broker that coordinates a transactional id, and whose partitions take markers when a test lets them."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from moldau.coordinators.promise import Promise
from moldau.core.ids import TopicPartition
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.k22_init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from moldau.protocol.messages.k26_end_txn import EndTxnRequest
from moldau.protocol.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from moldau.protocol.messages.k65_describe_transactions import DescribeTransactionsRequest
from tests.handlers.conftest import World

ID = "copier"
TRANSACTION = 1


class PlayedWriter:
    """Stands for the partitions of a broker: keeps the markers it is given, and answers what a test has set."""

    def __init__(self) -> None:
        self.asked: list[list[WritableTxnMarker]] = []
        self.codes: dict[TopicPartition, list[ErrorCode]] = {}
        """What a partition says, one after the other; NONE when there is nothing left."""
        self.may_answer = True
        self._held: list[tuple[WriteTxnMarkersRequest, Promise[WriteTxnMarkersResponse]]] = []

    def write(self, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse | Promise[WriteTxnMarkersResponse]:
        self.asked.append(request.markers)
        if self.may_answer:
            return self._answer(request)
        promise: Promise[WriteTxnMarkersResponse] = Promise()
        self._held.append((request, promise))
        return promise

    def release(self) -> None:
        """Answer what was held back, and all that comes."""
        self.may_answer = True
        held, self._held = self._held, []
        for request, promise in held:
            promise.complete(self._answer(request))

    def _answer(self, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        return WriteTxnMarkersResponse(markers=[self._result(each) for each in request.markers])

    def _result(self, marker: WritableTxnMarker) -> WritableTxnMarkerResult:
        return WritableTxnMarkerResult(
            producer_id=marker.producer_id,
            topics=[
                WritableTxnMarkerTopicResult(
                    name=topic.name,
                    partitions=[
                        WritableTxnMarkerPartitionResult(
                            partition_index=each, error_code=self._code(TopicPartition(topic.name, each))
                        )
                        for each in topic.partition_indexes
                    ],
                )
                for topic in marker.topics
            ],
        )

    def _code(self, partition: TopicPartition) -> ErrorCode:
        codes = self.codes.get(partition)
        return codes.pop(0) if codes else ErrorCode.NONE


class Producer:
    """A transactional producer of the broker `world`, which asks in old or in new versions."""

    def __init__(self, world: World, *, is_new: bool = True, transactional_id: str = ID) -> None:
        self.world = world
        self.is_new = is_new
        self.id = transactional_id
        self.writer = PlayedWriter()
        world.transactions.markers.local = self.writer
        world.ask(FindCoordinatorRequest(coordinator_keys=[transactional_id], key_type=TRANSACTION))
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        answer = world.ask(request)
        assert answer.error_code == 0
        self.producer_id: int = answer.producer_id
        self.epoch: int = answer.producer_epoch

    def add(
        self, topics: Mapping[str, Sequence[int]], version: int | None = None, *, verify: bool = False
    ) -> dict[str, int]:
        """The code of each partition."""
        named = [AddPartitionsToTxnTopic(name=name, partitions=list(numbers)) for name, numbers in topics.items()]
        version = (5 if self.is_new else 0) if version is None else version
        if version < 4:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.id,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=named,
            )
            results = self.world.ask(request, version).results_by_topic_v3_and_below
        else:
            asked = AddPartitionsToTxnTransaction(
                transactional_id=self.id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                verify_only=verify,
                topics=named,
            )
            answer = self.world.ask(AddPartitionsToTxnRequest(transactions=[asked]), version)
            (result,) = answer.results_by_transaction
            assert result.transactional_id == self.id
            results = result.topic_results
        return {
            f"{topic.name}-{each.partition_index}": each.partition_error_code
            for topic in results
            for each in topic.results_by_partition
        }

    def end(self, *, committed: bool = True, version: int | None = None) -> Any:
        request = EndTxnRequest(
            transactional_id=self.id, producer_id=self.producer_id, producer_epoch=self.epoch, committed=committed
        )
        answer = self.world.ask(request, (5 if self.is_new else 4) if version is None else version)
        if answer.error_code == 0 and answer.producer_id >= 0:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return answer

    def state(self) -> Any:
        (found,) = self.world.ask(DescribeTransactionsRequest(transactional_ids=[self.id])).transaction_states
        return found

    def until(self, state: str) -> None:
        """Let the loop run until the transaction is in this state."""

        async def wait() -> None:
            async with asyncio.timeout(10):
                while self._now() != state:
                    await asyncio.sleep(0)

        self.world.run(wait())

    def _now(self) -> str:
        found = self.world.transactions.read(self.id, lambda shard: shard.get(self.id))
        return "" if found is None else found.state.value
