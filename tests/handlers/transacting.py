"""Transactions against a broker without a transaction coordinator: one who says what the test wants takes its place."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from moldau.core.ids import TopicPartition
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from moldau.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
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
from moldau.records.batch import Record, build_batch
from moldau.requests.transaction_verification import TransactionOperation, VerifiedTransaction
from tests.handlers.conftest import World

PRODUCER = 7
V2 = 2


class Coordinator:
    """Says the same code to everybody, and writes down who asked; `says` may be awaited first."""

    def __init__(self, world: World, code: ErrorCode = ErrorCode.NONE) -> None:
        self.code = code
        self.asked: list[tuple[VerifiedTransaction, list[TopicPartition], TransactionOperation]] = []
        self.until: asyncio.Event | None = None
        world.replace(verifier=self)

    async def verify(
        self, transaction: VerifiedTransaction, partitions: Sequence[TopicPartition], operation: TransactionOperation
    ) -> Mapping[TopicPartition, ErrorCode]:
        self.asked.append((transaction, list(partitions), operation))
        if self.until is not None:
            await self.until.wait()
        return dict.fromkeys(partitions, self.code)


def batch(sequence: int = 0, *, epoch: int = 0, producer_id: int = PRODUCER, count: int = 1) -> bytes:
    records = [Record(number, 1, b"k", b"v") for number in range(count)]
    return build_batch(
        records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, is_transactional=True
    )


def produce_request(*batches: bytes, topic: str = "t", transactional_id: str | None = "tx") -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=each) for index, each in enumerate(batches)]
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name=topic, partition_data=data)],
    )


def produce(world: World, *batches: bytes, version: int = 12, transactional_id: str | None = "tx") -> list[int]:
    """The codes of batches for the partitions of `t`, from the first on."""
    answer = world.ask(produce_request(*batches, transactional_id=transactional_id), version)
    return [each.error_code for each in answer.responses[0].partition_responses]


def end(
    world: World,
    *,
    committed: bool,
    epoch: int,
    topic: str = "t",
    partitions: Sequence[int] = (0,),
    coordinator_epoch: int = 0,
    transaction_version: int = V2,
) -> list[int]:
    """The codes of a marker."""
    marker = WritableTxnMarker(
        producer_id=PRODUCER,
        producer_epoch=epoch,
        transaction_result=committed,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=list(partitions))],
        coordinator_epoch=coordinator_epoch,
        transaction_version=transaction_version,
    )
    answer = world.ask(WriteTxnMarkersRequest(markers=[marker]))
    return [each.error_code for each in answer.markers[0].topics[0].partitions]


def commit(world: World, offset: int, *, version: int = 5, epoch: int = 0, topic: str = "t", **member: Any) -> int:
    """The code of an offset that a transaction carries."""
    partitions = [TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)]
    request = TxnOffsetCommitRequest(
        transactional_id="tx",
        group_id="g",
        producer_id=PRODUCER,
        producer_epoch=epoch,
        topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=partitions)],
        **member,
    )
    code: int = world.ask(request, version).topics[0].partitions[0].error_code
    return code


def committed(world: World, *, require_stable: bool = False) -> tuple[int, int]:
    """The committed offset of the group, and the code."""
    group = OffsetFetchRequestGroup(group_id="g", topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0])])
    answer = world.ask(OffsetFetchRequest(groups=[group], require_stable=require_stable), 8)
    found = answer.groups[0].topics[0].partitions[0]
    return found.committed_offset, found.error_code


def find_group_coordinator(world: World) -> None:
    world.ask(FindCoordinatorRequest(key="g"), 0)
