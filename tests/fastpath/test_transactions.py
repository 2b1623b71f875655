"""Batches of transactions: the first of each is verified, those behind it take the fast path."""

from collections.abc import Iterator

import pytest

from moldau.protocol.apis import PRODUCE
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.records.batch import EndTxnMarker
from tests.fastpath.sides import TOPIC, BothSides, decoded
from tests.handlers.transacting import PRODUCER, batch

VERSION = 13


@pytest.fixture
def both() -> Iterator[BothSides]:
    both = BothSides()
    yield both
    both.close()


def send(both: BothSides, *batches: bytes) -> list[int]:
    """The codes of batches for the partitions from the first on."""
    data = [PartitionProduceData(index=index, records=each) for index, each in enumerate(batches)]
    topic = TopicProduceData(topic_id=both.topic_ids[TOPIC], partition_data=data)
    request = ProduceRequest(transactional_id="tx", acks=-1, timeout_ms=1000, topic_data=[topic])
    told = decoded(PRODUCE, VERSION, both.send(both.frame(request, VERSION)))
    return [each.error_code for each in told.responses[0].partition_responses]


def end(both: BothSides, *, epoch: int) -> None:
    """A marker of transaction version 2 into the first partition."""
    both.do(
        lambda side: side.services.replicas.get(TOPIC, 0).append_marker(EndTxnMarker(True, 0), PRODUCER, epoch, 2, 1)
    )


def questions(both: BothSides) -> int:
    return len(both.fast.coordinator.asked)


def test_only_the_first_batch_of_a_transaction_is_verified(both: BothSides) -> None:
    for epoch in range(3):
        for sequence in range(3):
            assert send(both, batch(sequence, epoch=epoch)) == [0]
            assert both.is_repeat == (sequence > 0)
        end(both, epoch=epoch + 1)
    assert questions(both) == 3


def test_a_transaction_that_is_open_in_one_of_two_partitions_is_verified_before_anything_is_appended(
    both: BothSides,
) -> None:
    send(both, batch(0), batch(0))
    end(both, epoch=1)
    send(both, batch(0, epoch=1))
    assert send(both, batch(1, epoch=1), batch(0, epoch=1)) == [0, 0]
    assert not both.is_repeat
    assert questions(both) == 3


def test_a_batch_that_comes_after_the_end_of_its_transaction_is_refused(both: BothSides) -> None:
    for sequence in range(2):
        send(both, batch(sequence))
    end(both, epoch=1)
    assert send(both, batch(2)) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    both.check_state()


def test_batches_of_two_producers_in_one_request_are_refused(both: BothSides) -> None:
    for sequence in range(2):
        send(both, batch(sequence), batch(sequence))
        send(both, batch(sequence, producer_id=8), batch(sequence, producer_id=8))
    assert send(both, batch(2), batch(2, producer_id=8)) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    both.check_state()
