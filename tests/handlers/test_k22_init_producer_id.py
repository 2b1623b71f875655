"""InitProducerId. The codes are those that Apache Kafka 4.3.1 gave to the same requests."""

from typing import Any

import pytest

from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.k22_init_producer_id import InitProducerIdRequest
from moldau.requests.producer_ids import ProducerIds
from tests.handlers.conftest import World

NOTHING = (-1, -1)


@pytest.mark.parametrize("version", range(6))
def test_every_producer_gets_an_id_of_its_own(world: World, version: int) -> None:
    answers = [world.ask(InitProducerIdRequest(transactional_id=None), version) for _ in range(3)]
    assert [answer.error_code for answer in answers] == [0, 0, 0]
    assert [answer.producer_epoch for answer in answers] == [0, 0, 0]
    assert len({answer.producer_id for answer in answers}) == 3


def test_ids_go_on_over_the_end_of_a_block(world: World) -> None:
    ids = [world.ask(InitProducerIdRequest(transactional_id=None)).producer_id for _ in range(2001)]
    assert ids == list(range(ids[0], ids[0] + 2001))


def test_an_idempotent_producer_that_lost_track_gets_a_new_id(world: World) -> None:
    answer = world.ask(InitProducerIdRequest(transactional_id=None, producer_id=5000, producer_epoch=3))
    assert (answer.error_code, answer.producer_epoch) == (0, 0)
    assert answer.producer_id != 5000


@pytest.mark.parametrize(("producer_id", "epoch"), [(5, -1), (-1, 5)])
def test_an_id_without_an_epoch_is_refused(world: World, producer_id: int, epoch: int) -> None:
    request = InitProducerIdRequest(transactional_id=None, producer_id=producer_id, producer_epoch=epoch)
    answer = world.ask(request)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert (answer.producer_id, answer.producer_epoch) == NOTHING


def test_an_empty_transactional_id_is_refused(world: World) -> None:
    assert world.ask(InitProducerIdRequest(transactional_id="")).error_code == ErrorCode.INVALID_REQUEST


def begin(
    world: World, version: int | None = None, *, timeout_ms: int = 60_000, producer_id: int = -1, epoch: int = -1
) -> Any:
    request = InitProducerIdRequest(
        transactional_id="x", transaction_timeout_ms=timeout_ms, producer_id=producer_id, producer_epoch=epoch
    )
    return world.ask(request, version)


def test_a_transactional_id_is_refused_by_a_broker_that_does_not_coordinate_it(world: World) -> None:
    answer = begin(world)
    assert answer.error_code == ErrorCode.NOT_COORDINATOR
    assert (answer.producer_id, answer.producer_epoch) == NOTHING


@pytest.mark.parametrize("version", range(6))
def test_a_transactional_id_keeps_its_producer_id_and_each_producer_gets_the_next_epoch(
    world: World, version: int
) -> None:
    world.ask(FindCoordinatorRequest(coordinator_keys=["x"], key_type=1))
    first, second = begin(world, version), begin(world, version)
    assert (first.error_code, second.error_code) == (0, 0)
    assert first.producer_id == second.producer_id
    assert (first.producer_epoch, second.producer_epoch) == (0, 1)


@pytest.mark.parametrize(("version", "code"), [(3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, ErrorCode.PRODUCER_FENCED)])
def test_a_producer_that_was_replaced_is_told_so_in_the_words_of_its_version(
    world: World, version: int, code: ErrorCode
) -> None:
    world.ask(FindCoordinatorRequest(coordinator_keys=["x"], key_type=1))
    first = begin(world)
    begin(world)
    answer = begin(world, version, producer_id=first.producer_id, epoch=0)
    assert answer.error_code == code
    assert (answer.producer_id, answer.producer_epoch) == NOTHING


@pytest.mark.parametrize("timeout_ms", [-1, 0, 900_001])
def test_a_timeout_that_is_none_or_too_long_is_refused(world: World, timeout_ms: int) -> None:
    assert begin(world, timeout_ms=timeout_ms).error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


@pytest.mark.moldau({"transaction.max.timeout.ms": "5000"})
def test_the_longest_timeout_is_configured(world: World) -> None:
    assert begin(world, timeout_ms=5_001).error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert begin(world, timeout_ms=5_000).error_code == ErrorCode.NOT_COORDINATOR


def test_without_the_store_there_may_be_no_id_and_clients_try_again(world: World) -> None:
    async def unreachable() -> range:
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "the metadata store cannot be reached")

    world.replace(producer_ids=ProducerIds(unreachable))
    answer = world.ask(InitProducerIdRequest(transactional_id=None))
    assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert (answer.producer_id, answer.producer_epoch) == NOTHING
