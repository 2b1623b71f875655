from collections.abc import Callable
from typing import Any

import pytest

from moldau.core.ids import TopicPartition
from moldau.log.log import Log
from moldau.log.verification import NOT_VERIFIED
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from moldau.records.batch import EndTxnMarker, Record, build_batch, build_end_txn_marker
from moldau.records.validate import ALLOWED_RECORDS, PreparedBatch, prepare_own_batch
from tests.handlers.conftest import World
from tests.handlers.test_k21_delete_records import delete
from tests.records.hostile import many_records

BY_ID = 13


@pytest.mark.parametrize("version", [3, 12, BY_ID])
def test_clients_cannot_write_to_an_internal_topic(world: World, version: int) -> None:
    world.ask(FindCoordinatorRequest(key="g"), 0)
    offsets = world.image.topics["__consumer_offsets"]
    data = [PartitionProduceData(index=0, records=build_batch([Record(0, world.clock.now_ms(), b"k", b"v")]))]
    if version >= BY_ID:
        topic = TopicProduceData(topic_id=offsets.topic_id, partition_data=data)
    else:
        topic = TopicProduceData(name=offsets.name, partition_data=data)
    answer = world.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic]), version)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert world.log_of("__consumer_offsets").log_end_offset == 0


def _ask(world: World, topic_id: bytes, batch: bytes, version: int, transactional_id: str | None = None) -> int:
    """The code that a batch is answered with."""
    data = [PartitionProduceData(index=0, records=batch)]
    named = {"topic_id": topic_id} if version >= BY_ID else {"name": "t"}
    topic = TopicProduceData(partition_data=data, **named)
    request = ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=1000, topic_data=[topic])
    answer = world.ask(request, version)
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


def _transactional(world: World, sequence: int = 0) -> bytes:
    record = Record(0, world.clock.now_ms(), b"k", b"v")
    return build_batch([record], producer_id=7, producer_epoch=0, base_sequence=sequence, is_transactional=True)


@pytest.mark.parametrize("version", [3, 7, 9, 12, BY_ID])
@pytest.mark.parametrize("configs", [{}, {"cleanup.policy": "compact"}, {"compression.type": "lz4"}])
def test_a_batch_of_a_transaction_without_an_id_is_refused(world: World, version: int, configs: dict[str, str]) -> None:
    topic_id = world.create("t", configs=configs)
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert _ask(world, topic_id, _transactional(world), version) == code
    end = build_end_txn_marker(EndTxnMarker(True, 1), producer_id=7, producer_epoch=0, timestamp=1)
    assert _ask(world, topic_id, end, version) == code
    assert _ask(world, topic_id, end, version, "tx") == ErrorCode.INVALID_RECORD
    log = world.log_of("t")
    assert (log.log_end_offset, log.last_stable_offset) == (0, 0)


def test_deleting_records_past_a_transaction_that_nobody_ends_frees_the_last_stable_offset(world: World) -> None:
    world.create("t")
    partition = world.services.replicas.get("t", 0)
    log, now_ms = partition.log, world.clock.now_ms()

    def append(batch: PreparedBatch) -> None:
        log.append_as_leader(batch, 0, now_ms, NOT_VERIFIED)
        partition.advance_high_watermark(log.log_end_offset, batch.size)

    for sequence in range(2):
        append(prepare_own_batch(_transactional(world, sequence)))  # as brokers took them once
        append(prepare_own_batch(build_batch([Record(0, now_ms, None, b"v")])))
    assert log.last_stable_offset == 0
    log.roll(now_ms)  # with a snapshot that has the transaction
    assert delete(world, "t", 0, 2) == (2, 0)
    assert log.last_stable_offset_below(4) == log.last_stable_offset == 2  # it goes on above the start
    assert delete(world, "t", 0, 3) == (3, 0)
    assert log.last_stable_offset_below(4) == log.last_stable_offset == 4
    log.close()
    opened = Log.open(
        world.files, world.clock, log.directory, TopicPartition("t", 0), log.config, log_start_offset=3, clean=False
    )
    assert (opened.log_start_offset, opened.last_stable_offset) == (3, 4)


class Meanwhile:
    """Opens records at once; something else happens before they are appended."""

    def __init__(self, happens: Callable[[], object]) -> None:
        self._happens = happens

    async def run(self, work: Callable[[], Any]) -> Any:
        opened = work()
        self._happens()
        return opened


@pytest.mark.parametrize("version", [7, BY_ID])
def test_a_leader_that_resigns_while_a_batch_is_opened_does_not_append_it(world: World, version: int) -> None:
    topic_id = world.create("t", configs={"cleanup.policy": "compact"})
    partition = world.services.replicas.get("t", 0)
    world.replace(opener=Meanwhile(lambda: world.services.replicas.remove("t", 0)))
    batch = many_records(ALLOWED_RECORDS + 1, numbered=True, timestamp=world.clock.now_ms())
    assert _ask(world, topic_id, batch, version) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.log.log_end_offset == 0
