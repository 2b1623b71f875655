"""Nodes that tools of other eras write, and nodes that nobody can understand, never change what a topic is."""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Mapping

import pytest

from moldau.cluster import znodes
from moldau.cluster.image import NO_TOPIC_ID, TopicImage
from moldau.cluster.metadata import Metadata
from tests.cluster.test_metadata import World, run

PATH = "/brokers/topics/t"
STATE = f"{PATH}/partitions/0/state"
MALFORMED = (b"", b"null", b"[]", b"{", b"\xff", b'{"partitions":7}', b'{"partitions":{"1":[1]}}', b'{"version":1}')


def old_form(replicas: Mapping[int, list[int]]) -> bytes:
    """A topic's node as TopicCommand of 0.8.0 to 2.7 writes it."""
    return json.dumps({"version": 1, "partitions": {str(index): ids for index, ids in replicas.items()}}).encode()


async def with_topic(world: World) -> tuple[Metadata, TopicImage]:
    metadata = await world.start()
    return metadata, await metadata.create_topic("t", [[1], [1]])


async def seen_by_others(world: World) -> TopicImage:
    """The topic as a broker reads it that has just started."""
    other = world.another_broker()
    await other.load()
    return other.image.topics["t"]


def test_partitions_that_an_old_tool_adds_leave_the_others_what_they_were() -> None:
    async def steps(world: World) -> None:
        metadata, topic = await with_topic(world)
        await world.store.put(PATH, old_form({0: [1], 1: [1], 2: [1]}))
        await metadata.refresh()
        grown = metadata.image.topics["t"]
        assert grown.topic_id == topic.topic_id
        assert grown.partitions[:2] == topic.partitions
        assert len(grown.partitions) == 3
        assert metadata.image.topic_by_id(topic.topic_id) == grown
        restarted = await seen_by_others(world)
        assert (restarted.topic_id, restarted.partitions[:2]) == (topic.topic_id, topic.partitions)

    run(steps)


def test_the_controller_puts_the_id_back_into_the_node() -> None:
    async def steps(world: World) -> None:
        metadata, topic = await with_topic(world)
        await world.store.put(PATH, old_form({0: [1], 1: [1], 2: [1]}))
        await metadata.refresh()
        await metadata.give_topic_id(metadata.image.topics["t"])
        written = await world.json_at(PATH)
        assert written["topic_id"] == znodes.id_text(topic.topic_id)
        assert written["partitions"] == {"0": [1], "1": [1], "2": [1]}
        assert not metadata.image.topics["t"].lacks_id

    run(steps)


def test_a_change_of_the_topic_is_possible_while_its_node_has_no_id() -> None:
    async def steps(world: World) -> None:
        metadata, topic = await with_topic(world)
        await world.store.put(PATH, old_form({0: [1], 1: [1]}))
        await metadata.refresh()
        state = metadata.image.topics["t"].partitions[0]
        await metadata.update_partition("t", 0, state._replace(leader_epoch=7))
        grown = await metadata.add_partitions("t", [[1]])
        assert (grown.topic_id, grown.partitions[0].leader_epoch, len(grown.partitions)) == (topic.topic_id, 7, 3)

    run(steps)


def test_an_old_tool_takes_no_partition_away_and_moves_none() -> None:
    async def steps(world: World) -> None:
        metadata, topic = await with_topic(world)
        await world.store.put(PATH, old_form({0: [9, 8]}))
        await metadata.refresh()
        assert metadata.image.topics["t"].partitions == topic.partitions

    run(steps)


def test_the_id_is_known_from_before_where_an_older_version_did_not_keep_it_beside_the_node() -> None:
    async def steps(world: World) -> None:
        metadata, topic = await with_topic(world)
        await world.store.put(f"{PATH}/partitions", b"")
        await world.store.put(PATH, old_form({0: [1], 1: [1]}))
        await metadata.refresh()
        assert metadata.image.topics["t"].topic_id == topic.topic_id

    run(steps)


def test_a_controller_keeps_the_ids_of_topics_that_an_older_version_made() -> None:
    async def steps(world: World) -> None:
        metadata, topic = await with_topic(world)
        await world.store.put(f"{PATH}/partitions", b"")
        await metadata.keep_topics()
        await world.store.put(PATH, old_form({0: [1], 1: [1]}))
        assert (await seen_by_others(world)).topic_id == topic.topic_id

    run(steps)


def test_a_topic_that_an_old_tool_deletes_and_makes_anew_is_another_one() -> None:
    async def steps(world: World) -> None:
        metadata, topic = await with_topic(world)
        for path in (STATE, STATE.replace("/0/", "/1/")):
            await world.store.delete(path)
            await world.store.delete(path.removesuffix("/state"))
        await world.store.delete(f"{PATH}/partitions")
        await world.store.delete(PATH)
        await world.store.create(PATH, old_form({0: [1]}))
        await metadata.refresh()
        assert metadata.image.topics["t"].topic_id == NO_TOPIC_ID
        await metadata.give_topic_id(metadata.image.topics["t"])
        assert metadata.image.topics["t"].topic_id not in (NO_TOPIC_ID, topic.topic_id)

    run(steps)


@pytest.mark.parametrize("data", MALFORMED)
def test_a_topic_whose_node_cannot_be_understood_stays_as_it_was(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def steps(world: World) -> None:
        metadata, topic = await with_topic(world)
        await world.store.put(PATH, data)
        await metadata.refresh()
        now = metadata.image.topics["t"]
        assert (now.topic_id, now.partitions, now.configs) == (topic.topic_id, topic.partitions, topic.configs)
        assert PATH in caplog.text
        other = world.another_broker()
        await other.load()
        assert other.image.unreadable_topics == {"t"}  # so that its logs are kept
        await metadata.give_topic_id(now)  # as the controller does
        await other.refresh()
        assert other.image.topics["t"].topic_id == topic.topic_id
        assert other.image.unreadable_topics == frozenset()

    run(steps)


@pytest.mark.parametrize("data", [*MALFORMED, b'{"leader":"1","leader_epoch":0,"isr":[]}'])
def test_a_state_that_cannot_be_understood_leaves_leader_and_isr(data: bytes) -> None:
    async def steps(world: World) -> None:
        metadata, topic = await with_topic(world)
        await world.store.put(STATE, data)
        await metadata.refresh()
        now = metadata.image.topics["t"].partitions[0]
        assert now[:4] == topic.partitions[0][:4]
        await metadata.update_partition("t", 0, now._replace(leader_epoch=5))  # and can be written again
        assert (await world.json_at(STATE))["leader_epoch"] == 5

    run(steps)


@pytest.mark.parametrize("data", MALFORMED[2:5])
def test_a_configuration_that_cannot_be_understood_leaves_the_settings(data: bytes) -> None:
    async def steps(world: World) -> None:
        metadata = await world.start()
        await metadata.create_topic("t", [[1]], {"retention.ms": "5"})
        await world.store.put("/config/topics/t", data)
        await metadata.refresh()
        assert metadata.image.topics["t"].configs == {"retention.ms": "5"}
        await metadata.set_topic_configs("t", {"retention.ms": "6"})
        assert metadata.image.topics["t"].configs == {"retention.ms": "6"}

    run(steps)


def test_strange_nodes_beside_ours_are_no_hindrance() -> None:
    async def steps(world: World) -> None:
        await with_topic(world)
        await world.store.create("/brokers/ids/broker-x", b"?")
        await world.store.create("/brokers/ids/7", b"?")
        await world.store.create(f"{PATH}/partitions/x", b"?")
        await world.store.create(f"{PATH}/partitions/x/state", b"?")
        other = world.another_broker()
        await other.load()
        await other.refresh()
        assert set(other.image.brokers) == {1}
        assert len(other.image.topics["t"].partitions) == 2

    run(steps)


def test_whatever_is_written_a_topic_keeps_its_id_and_its_partitions() -> None:
    for seed in range(60):
        run(_any_writes(seed))


def _any_writes(seed: int) -> Callable[[World], Awaitable[None]]:
    async def steps(world: World) -> None:
        rng = random.Random(seed)
        metadata, topic = await with_topic(world)
        known = 2
        for _ in range(20):
            write = rng.randrange(5)
            if write == 0:
                known = max(known, wanted := rng.randrange(1, 6))
                await world.store.put(PATH, old_form({index: [1] for index in range(wanted)}))
            elif write == 1:
                await world.store.put(PATH, rng.choice(MALFORMED))
            elif write == 2:
                await world.store.put(STATE, rng.choice(MALFORMED))
            elif write == 3:
                await world.store.put("/config/topics/t", rng.choice((*MALFORMED, b'{"config":{"x":1}}')))
            else:
                await metadata.refresh()
                if metadata.image.topics["t"].lacks_id:
                    await metadata.give_topic_id(metadata.image.topics["t"])
            await asyncio.sleep(0)
            if rng.randrange(2):
                await metadata.refresh()
                now = metadata.image.topics["t"]
                assert now.topic_id == topic.topic_id, f"seed {seed}"
                assert len(now.partitions) >= 2, f"seed {seed}"
                assert [each[:4] for each in now.partitions[:2]] == [each[:4] for each in topic.partitions], (
                    f"seed {seed}"
                )

    return steps


def test_a_topic_that_gets_its_first_id_is_still_the_same() -> None:
    nameless = TopicImage("t", NO_TOPIC_ID, (), {}, version=4)
    one, other = bytes(range(16)), bytes(range(1, 17))
    named = nameless._replace(topic_id=one, version=5)
    assert nameless.is_still(nameless._replace(version=5))
    assert nameless.is_still(named)
    assert named.is_still(named._replace(version=6))
    assert not nameless.is_still(named._replace(version=0)), "made anew: its node begins again"
    assert not named.is_still(named._replace(topic_id=other, version=6))
    assert not named.is_still(None)
