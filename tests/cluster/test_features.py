"""Finalized features in the store: Kafka's own node of the ZooKeeper era, seen by every broker."""

import json

import pytest

from moldau.cluster import znodes
from moldau.cluster.features import NEWEST, transaction_version
from moldau.cluster.image import ClusterImage
from moldau.cluster.metadata import ATTEMPTS_MAX
from moldau.cluster.store import BadVersion
from moldau.protocol.errors import ErrorCode
from tests.cluster.test_metadata import World, refused, run

TV = "transaction.version"


def test_a_new_store_has_the_newest_levels_in_kafkas_form() -> None:
    async def steps(world: World) -> None:
        metadata = await world.start()
        assert await world.json_at("/feature") == {"version": 2, "status": 1, "features": dict(NEWEST)}
        assert (metadata.image.features, metadata.image.features_epoch) == (NEWEST, 0)

    run(steps)


def test_levels_outlive_the_brokers_and_are_not_raised_by_a_start() -> None:
    async def steps(world: World) -> None:
        metadata = await world.start()
        await metadata.alter_features(lambda levels: {**levels, TV: 1})
        assert (transaction_version(metadata.image), metadata.image.features_epoch) == (1, 1)
        restarted = world.another_broker()
        await restarted.load()
        assert (restarted.image.features, restarted.image.features_epoch) == ({**NEWEST, TV: 1}, 1)

    run(steps)


def test_a_store_of_an_earlier_version_gets_the_newest_levels() -> None:
    async def steps(world: World) -> None:
        await world.start()
        await world.store.delete(znodes.FEATURES)
        later = world.another_broker()
        await later.load()
        assert later.image.features == NEWEST

    run(steps)


@pytest.mark.parametrize(
    ("written", "level"),
    [
        ({"version": 2, "status": 1, "features": {}}, 0),
        ({"version": 2, "status": 1, "features": {TV: 1, "metadata.version": 8}}, 1),
        ({"version": 1, "status": 1, "features": {TV: {"min_version_level": 1, "max_version_level": 2}}}, 2),
        ({"version": 1, "status": 0, "features": {TV: {"min_version_level": 1, "max_version_level": 2}}}, 0),
        ({"version": 2, "status": 1, "features": {TV: 99}}, 2),
    ],
)
def test_a_node_that_kafka_wrote_is_kept_and_understood(written: object, level: int) -> None:
    async def steps(world: World) -> None:
        data = json.dumps(written).encode()
        await world.store.create(znodes.FEATURES, data)
        metadata = await world.start()
        assert transaction_version(metadata.image) == level
        node = await world.store.get(znodes.FEATURES)
        assert node is not None
        assert node.data == data

    run(steps)


def test_a_change_reaches_other_brokers_and_none_is_lost() -> None:
    async def steps(world: World) -> None:
        first, second = await world.start(), world.another_broker()
        await second.load()
        await first.alter_features(lambda levels: {**levels, TV: 1})
        await second.alter_features(lambda levels: {**levels, "other": 3})  # it has not read the change yet
        await first.refresh()
        assert first.image.features == second.image.features == {**NEWEST, TV: 1, "other": 3}
        assert first.image.features_epoch == 2

    run(steps)


def test_a_change_that_others_are_always_quicker_with_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def steps(world: World) -> None:
        metadata = await world.start()
        tried = 0

        async def put(path: str, _data: bytes, _expected_version: int) -> int:
            nonlocal tried
            tried += 1
            raise BadVersion(path)

        monkeypatch.setattr(world.store, "put", put)
        await refused(metadata.alter_features(lambda _levels: {TV: 1}), ErrorCode.REQUEST_TIMED_OUT)
        assert (tried, metadata.image.features) == (ATTEMPTS_MAX, NEWEST)

    run(steps)


def test_an_image_without_features_is_at_level_0() -> None:
    assert transaction_version(ClusterImage()) == 0
