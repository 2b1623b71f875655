"""The image follows the store; what is written is Kafka's layout."""

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from moldau.cluster.embedded.store import EmbeddedStore
from moldau.cluster.image import BrokerInfo, ClusterImage, Endpoint, PartitionImage
from moldau.cluster.metadata import Metadata
from moldau.cluster.store import Create, Operation, Put
from moldau.cluster.znodes import id_text
from moldau.core.clock import ManualClock
from moldau.protocol.errors import ApiError, ErrorCode

BROKER = BrokerInfo(1, "r1", (Endpoint("PLAINTEXT", "::1", 9092, "PLAINTEXT"), Endpoint("OUT", "h", 443, "SSL")))


class World:
    """One store, one broker's metadata that is loaded and registered, and what others would see."""

    def __init__(self) -> None:
        self.store = EmbeddedStore(":memory:")
        self.stale_calls = 0
        self.images: list[tuple[ClusterImage, ClusterImage]] = []
        self.metadata = self.another_broker()

    def another_broker(self) -> Metadata:
        """A second view on the same store, as another broker has it."""
        counter = itertools.count(1)
        return Metadata(self.store, ManualClock(), lambda size: next(counter).to_bytes(size, "little"), self._stale)

    def _stale(self) -> None:
        self.stale_calls += 1

    async def start(self) -> Metadata:
        await self.metadata.load()
        await self.metadata.register_broker(BROKER)
        await self.metadata.claim_controller(1)
        self.metadata.subscribe(lambda old, new: self.images.append((old, new)))
        return self.metadata

    async def json_at(self, path: str) -> Any:
        node = await self.store.get(path)
        assert node is not None
        return json.loads(node.data)


def run(steps: Callable[[World], Awaitable[None]]) -> None:
    async def with_world() -> None:
        world = World()
        try:
            await steps(world)
        finally:
            await world.store.close()

    asyncio.run(with_world())


async def refused(operation: Awaitable[object], code: ErrorCode) -> None:
    with pytest.raises(ApiError) as error:
        await operation
    assert error.value.code is code


def test_a_new_topic_is_in_the_image_at_once_and_in_kafkas_layout_in_the_store() -> None:
    async def steps(world: World) -> None:
        metadata = await world.start()
        topic = await metadata.create_topic("t", [[1], [1]], {"retention.ms": "5"})
        assert metadata.image.topics["t"] == topic
        assert metadata.image.topic_by_id(topic.topic_id) == topic
        assert topic.partitions[1] == PartitionImage(1, 0, (1,), (1,), 0)
        assert await world.json_at("/brokers/topics/t") == {
            "version": 3,
            "partitions": {"0": [1], "1": [1]},
            "topic_id": id_text(topic.topic_id),
            "adding_replicas": {},
            "removing_replicas": {},
        }
        assert await world.json_at("/brokers/topics/t/partitions/1/state") == {
            "controller_epoch": 1,
            "leader": 1,
            "version": 1,
            "leader_epoch": 0,
            "isr": [1],
        }
        assert await world.json_at("/config/topics/t") == {"version": 1, "config": {"retention.ms": "5"}}

    run(steps)


def test_a_broker_registers_as_kafka_does() -> None:
    async def steps(world: World) -> None:
        metadata = await world.start()
        assert await world.json_at("/brokers/ids/1") == {
            "features": {},
            "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT", "OUT": "SSL"},
            "endpoints": ["PLAINTEXT://[::1]:9092", "OUT://h:443"],
            "rack": "r1",
            "jmx_port": -1,
            "host": "::1",
            "port": 9092,
            "version": 5,
            "timestamp": "1700000000000",
        }
        registered = metadata.image.brokers[1]
        assert registered._replace(epoch=-1) == BROKER
        assert registered.epoch > 0
        await refused(metadata.register_broker(BROKER), ErrorCode.DUPLICATE_BROKER_REGISTRATION)

    run(steps)


def test_there_is_one_controller_and_every_new_one_has_a_new_epoch() -> None:
    async def steps(world: World) -> None:
        metadata = await world.start()
        other = world.another_broker()
        await other.load()
        assert metadata.image.controller_id == 1
        assert not await other.claim_controller(2)
        await world.store.delete("/controller")
        assert await other.claim_controller(2)
        await metadata.refresh()
        assert metadata.image.controller_id == other.image.controller_id == 2
        node = await world.store.get("/controller_epoch")
        assert node is not None
        assert node.data == b"2"

    run(steps)


def test_everything_is_there_after_loading_again() -> None:
    async def steps(world: World) -> None:
        metadata = await world.start()
        await metadata.create_topic("a", [[1]] * 3, {"segment.bytes": "100"})
        await metadata.create_topic("b", [[1]])
        await metadata.set_broker_configs("", {"log.retention.ms": "7"})
        await metadata.set_broker_configs("1", {"log.retention.ms": "8"})
        await metadata.alter_group_configs("a/b", lambda _old: {"consumer.session.timeout.ms": "50000"})
        other = world.another_broker()
        await other.load()
        assert other.image == metadata.image
        assert other.image.broker_configs == {"": {"log.retention.ms": "7"}, "1": {"log.retention.ms": "8"}}
        assert other.image.group_configs == {"a/b": {"consumer.session.timeout.ms": "50000"}}
        assert len(other.image.cluster_id) == 22

    run(steps)


def test_own_writes_show_at_once_and_reading_them_again_changes_nothing() -> None:
    async def steps(world: World) -> None:
        metadata = await world.start()
        await metadata.create_topic("t", [[1]])
        await metadata.add_partitions("t", [[1]])
        await metadata.set_topic_configs("t", {"retention.ms": "1"})
        await metadata.set_broker_configs("1", {"log.retention.ms": "1"})
        await metadata.update_partition("t", 0, metadata.image.topics["t"].partitions[0])
        await metadata.update_registration(BROKER._replace(shutting_down=True))
        assert metadata.image.brokers[1].shutting_down
        before = metadata.image
        metadata._stale = {"/brokers"}
        await metadata.refresh()
        assert metadata.image is before
        await metadata.delete_topic("t")
        assert len(world.images) == 7
        assert all(new is next_old for (_old, new), (next_old, _new) in itertools.pairwise(world.images))

    run(steps)


def test_news_are_told_once_until_they_are_read() -> None:
    async def steps(world: World) -> None:
        metadata = await world.start()
        await metadata.refresh()
        before = world.stale_calls
        for number in range(3):
            await world.store.create(f"/config/topics/t{number}")
        assert world.stale_calls == before + 1
        await metadata.refresh()
        await world.store.delete("/config/topics/t0")
        assert world.stale_calls == before + 2

    run(steps)


def test_what_another_broker_changes_arrives_with_a_refresh() -> None:
    async def steps(world: World) -> None:
        metadata = await world.start()
        other = world.another_broker()
        await other.load()
        await other.create_topic("t", [[1]])
        await other.add_partitions("t", [[1]])
        await other.set_topic_configs("t", {"retention.ms": "9"})
        await other.set_broker_configs("", {"log.retention.ms": "1"})
        await other.alter_group_configs("..", lambda _old: {"consumer.session.timeout.ms": "50000"})
        await other.register_broker(BROKER._replace(id=2))
        assert "t" not in metadata.image.topics
        assert world.stale_calls > 0
        await metadata.refresh()
        assert metadata.image == other.image
        state = metadata.image.topics["t"].partitions[1]
        await other.update_partition("t", 1, state._replace(leader=-1, leader_epoch=1))
        await metadata.refresh()
        assert metadata.image.topics["t"].partitions[1] == PartitionImage(-1, 1, (1,), (1,), 1)
        await other.delete_topic("t")
        await world.store.delete("/brokers/ids/2")
        await metadata.refresh()
        await other.refresh()
        assert metadata.image == other.image
        assert metadata.image.topics == {}
        assert list(metadata.image.brokers) == [1]

    run(steps)


def test_missed_changes_are_found_by_reading_everything() -> None:
    async def steps(world: World) -> None:
        metadata = await world.start()
        other = world.another_broker()
        await other.load()
        await other.create_topic("t", [[1]])
        metadata._stale = {"/brokers"}  # what a store says after a lost connection
        await metadata.refresh()
        assert metadata.image == other.image

    run(steps)


@pytest.mark.parametrize(
    ("name", "configs", "code"),
    [
        ("t", {}, ErrorCode.TOPIC_ALREADY_EXISTS),
        ("a b", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("d_t", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("new", {"nonsense": "1"}, ErrorCode.INVALID_CONFIG),
        ("new", {"retention.ms": "x"}, ErrorCode.INVALID_CONFIG),
    ],
)
def test_topics_that_cannot_be_created_change_nothing(name: str, configs: dict[str, str], code: ErrorCode) -> None:
    async def steps(world: World) -> None:
        metadata = await world.start()
        await metadata.create_topic("t", [[1]])
        await metadata.create_topic("d.t", [[1]])
        before = metadata.image
        await refused(metadata.create_topic(name, [[1]], configs), code)
        assert metadata.image is before
        assert await world.store.children("/brokers/topics") == ["d.t", "t"]

    run(steps)


def test_a_topic_that_another_broker_created_first_is_not_created_twice() -> None:
    async def steps(world: World) -> None:
        metadata = await world.start()
        other = world.another_broker()
        await other.load()
        theirs = await other.create_topic("t", [[1]], {"retention.ms": "1"})
        await refused(metadata.create_topic("t", [[1], [1]]), ErrorCode.TOPIC_ALREADY_EXISTS)
        assert metadata.image.topics["t"] == theirs

    run(steps)


def test_a_topic_begins_with_its_live_replicas_in_sync() -> None:
    async def steps(world: World) -> None:
        metadata = await world.start()
        topic = await metadata.create_topic("t", [[9, 1], [9]])
        assert topic.partitions[0] == PartitionImage(1, 0, (1,), (9, 1), 0)
        assert topic.partitions[1] == PartitionImage(-1, 0, (9,), (9,), 0)

    run(steps)


def test_a_deleted_topic_leaves_nothing_and_its_name_is_free() -> None:
    async def steps(world: World) -> None:
        metadata = await world.start()
        first = await metadata.create_topic("t", [[1]] * 3, {"retention.ms": "1"})
        await metadata.delete_topic("t")
        assert metadata.image.topics == {}
        assert metadata.image.topic_names_by_id == {}
        assert await world.store.children("/brokers/topics") == []
        assert await world.store.children("/config/topics") == []
        second = await metadata.create_topic("t", [[1]])
        assert second.topic_id != first.topic_id
        assert second.configs == {}
        await metadata.add_partitions("t", [[1]])

    run(steps)


@pytest.mark.parametrize("operation", ["delete", "add", "configs"])
def test_unknown_topics_are_refused(operation: str) -> None:
    async def steps(world: World) -> None:
        metadata = await world.start()
        doing = {
            "delete": metadata.delete_topic("no"),
            "add": metadata.add_partitions("no", [[1]]),
            "configs": metadata.set_topic_configs("no", {}),
        }
        await refused(doing.pop(operation), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        for other in doing.values():
            other.close()

    run(steps)


def test_a_topic_deleted_by_another_broker_is_unknown() -> None:
    async def steps(world: World) -> None:
        metadata = await world.start()
        await metadata.create_topic("t", [[1]])
        other = world.another_broker()
        await other.load()
        await other.delete_topic("t")
        await refused(metadata.add_partitions("t", [[1]]), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert "t" not in metadata.image.topics

    run(steps)


def test_partitions_added_at_the_same_time_are_not_lost() -> None:
    async def steps(world: World) -> None:
        metadata = await world.start()
        await metadata.create_topic("t", [[1]])
        other = world.another_broker()
        await other.load()
        await other.add_partitions("t", [[1]])
        await refused(metadata.add_partitions("t", [[1], [1]]), ErrorCode.REQUEST_TIMED_OUT)
        assert len(metadata.image.topics["t"].partitions) == 2
        topic = await metadata.add_partitions("t", [[1]])
        assert len(topic.partitions) == 3
        assert (await world.json_at("/brokers/topics/t"))["partitions"] == {"0": [1], "1": [1], "2": [1]}
        assert (await world.json_at("/brokers/topics/t"))["topic_id"] == id_text(topic.topic_id)

    run(steps)


def test_a_partition_changes_only_from_the_epoch_that_was_seen() -> None:
    async def steps(world: World) -> None:
        metadata = await world.start()
        state = (await metadata.create_topic("t", [[1]])).partitions[0]
        changed = await metadata.update_partition("t", 0, state._replace(leader_epoch=1))
        assert changed.partition_epoch == 1
        assert metadata.image.topics["t"].partitions[0] == changed
        await refused(metadata.update_partition("t", 0, state), ErrorCode.INVALID_UPDATE_VERSION)
        assert metadata.image.topics["t"].partitions[0] == changed

    run(steps)


def test_an_alteration_is_applied_again_when_another_was_first() -> None:
    async def steps(world: World) -> None:
        metadata = await world.start()
        await metadata.create_topic("t", [[1]])
        path = "/config/topics/t"
        seen: list[dict[str, str]] = []

        def alter(old: Any) -> dict[str, str]:
            seen.append(dict(old))
            if len(seen) == 1:  # another broker comes between our read and our write
                world.store._tree._database.execute(
                    "UPDATE node SET version = version + 1, data = ? WHERE path = ?",
                    (b'{"version":1,"config":{"segment.ms":"3"}}', path),
                )
            return {**old, "retention.ms": "5"}

        await metadata.alter_topic_configs("t", alter)
        assert seen == [{}, {"segment.ms": "3"}]
        assert metadata.image.topics["t"].configs == {"segment.ms": "3", "retention.ms": "5"}

    run(steps)


def test_bad_configs_are_refused_with_kafkas_codes() -> None:
    async def steps(world: World) -> None:
        metadata = await world.start()
        await metadata.create_topic("t", [[1]])
        await refused(metadata.set_topic_configs("t", {"retention.ms": "x"}), ErrorCode.INVALID_CONFIG)
        await refused(metadata.set_broker_configs("1", {"num.partitions": "3"}), ErrorCode.INVALID_REQUEST)
        await refused(metadata.set_broker_configs("", {"listeners": "PLAINTEXT://:1"}), ErrorCode.INVALID_REQUEST)

    run(steps)


def test_emptied_broker_configs_are_gone_from_the_image() -> None:
    async def steps(world: World) -> None:
        metadata = await world.start()
        await metadata.set_broker_configs("", {"log.retention.ms": "5"})
        assert await world.json_at("/config/brokers/<default>") == {"version": 1, "config": {"log.retention.ms": "5"}}
        await metadata.set_broker_configs("", {})
        assert metadata.image.broker_configs == {}

    run(steps)


def test_producer_ids_come_in_blocks_that_nobody_shares() -> None:
    async def steps(world: World) -> None:
        metadata = await world.start()
        assert await metadata.next_producer_id_block(1) == range(1000)
        other = world.another_broker()
        await other.load()
        assert await other.next_producer_id_block(2) == range(1000, 2000)
        assert await world.json_at("/latest_producer_id_block") == {
            "version": 1,
            "broker": 2,
            "block_start": "1000",
            "block_end": "1999",
        }

    run(steps)


def test_generated_broker_ids_lie_above_the_reserved_ones() -> None:
    async def steps(world: World) -> None:
        metadata = await world.start()
        assert [await metadata.generate_broker_id(1000) for _ in range(3)] == [1001, 1002, 1003]

    run(steps)


def test_a_topic_made_by_a_tool_from_before_topic_ids_is_read() -> None:
    async def steps(world: World) -> None:
        metadata = await world.start()
        old_style: Sequence[Operation] = [Create("/brokers/topics/old", b'{"version":1,"partitions":{"0":[1]}}')]
        await world.store.multi(old_style)
        await metadata.refresh()
        topic = metadata.image.topics["old"]
        assert topic.topic_id == bytes(16)
        assert metadata.image.topic_names_by_id == {}
        assert topic.partitions == (PartitionImage(-1, -1, (), (1,), -1),)
        await world.store.multi([Put("/brokers/topics/old", b'{"version":1,"partitions":{"0":[1],"1":[1]}}')])
        await metadata.refresh()
        assert len(metadata.image.topics["old"].partitions) == 2

    run(steps)


def test_ids_are_version_4_uuids_whose_text_no_tool_takes_for_an_option() -> None:
    raw = iter([b"\xf8" + bytes(15), bytes(16)])
    metadata = Metadata(EmbeddedStore(":memory:"), ManualClock(), lambda _size: next(raw))
    id_ = metadata.new_id()
    assert id_[:6] == bytes(6)
    assert id_[6] >> 4 == 4
    assert id_[8] >> 6 == 2
    assert not id_text(id_).startswith("-")


def test_a_change_of_one_topic_shares_the_others() -> None:
    async def steps(world: World) -> None:
        metadata = await world.start()
        await metadata.create_topic("a", [[1]] * 10)
        kept = metadata.image.topics["a"]
        brokers = metadata.image.brokers
        await metadata.create_topic("b", [[1]])
        assert metadata.image.topics["a"] is kept
        assert metadata.image.brokers is brokers

    run(steps)
