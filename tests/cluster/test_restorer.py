"""A partition whose state nobody knows is led by the replica that has all that was acknowledged, or by nobody."""

from moldau.cluster import znodes
from moldau.cluster.image import NO_LEADER
from moldau.cluster.restorer import Claim, agreed_state, kept_replicas
from moldau.cluster.znodes import LogEnd
from tests.cluster.test_metadata import World, run

STATE = "/brokers/topics/t/partitions/0/state"


def test_the_last_epoch_leads_before_the_longest_log() -> None:
    state = agreed_state({1: LogEnd(4, 900), 2: LogEnd(5, 100), 3: LogEnd(5, 101)}, (1, 2, 3))
    assert state is not None
    assert state[:4] == (3, 6, (3,), (1, 2, 3))


def test_nobody_leads_while_a_replica_has_not_said_where_its_log_ends() -> None:
    assert agreed_state({1: LogEnd(4, 900), 3: LogEnd(5, 101)}, (1, 2, 3)) is None


def test_claims_are_no_state() -> None:
    data = znodes.claims_json({1: LogEnd(4, 900)})
    assert znodes.parse_claims(data) == {1: LogEnd(4, 900)}
    assert znodes.parse_claims(b"{") == znodes.parse_claims(b'{"claims":7}') == {}
    try:
        znodes.parse_state(data, 0)
    except znodes.MalformedNode:
        return
    raise AssertionError("it was taken for a state")


def test_replicas_come_one_by_one_and_the_last_decides() -> None:
    async def steps(world: World) -> None:
        metadata = await world.start()
        await metadata.create_topic("t", [[1, 2]])
        await world.store.put(STATE, b"?")
        other = world.another_broker()
        await other.load()
        assert other.image.topics["t"].partitions[0].leader == NO_LEADER
        await other.restorer.claim(Claim("t", 0, (1, 2), 2, LogEnd(3, 70)))
        assert other.image.topics["t"].partitions[0].leader == NO_LEADER
        await other.restorer.claim(Claim("t", 0, (1, 2), 1, LogEnd(3, 60)))
        assert other.image.topics["t"].partitions[0][:3] == (2, 4, (2,))
        await other.restorer.claim(Claim("t", 0, (1, 2), 1, LogEnd(9, 900)))  # too late: it has a state
        assert other.image.topics["t"].partitions[0].leader == 2

    run(steps)


def test_only_the_leader_counts_as_in_sync_where_a_writing_was_missed() -> None:
    async def steps(world: World) -> None:
        metadata = await world.start()
        await metadata.create_topic("t", [[1, 2]])
        state = metadata.image.topics["t"].partitions[0]
        await metadata.update_partition("t", 0, state._replace(isr=(1, 2)))
        await world.store.put(STATE, b"?")
        await metadata.refresh()
        assert set(metadata.image.topics["t"].partitions[0].isr) == {1, 2}
        await world.store.put(STATE, b"??")
        await world.store.put(STATE, b"???")
        await metadata.refresh()
        assert set(metadata.image.topics["t"].partitions[0].isr) == {1}
        assert metadata.image.overwritten_states == {("t", 0)}

    run(steps)


def test_a_topic_that_a_tool_made_smaller_has_its_partitions_again_at_the_next_start() -> None:
    async def steps(world: World) -> None:
        metadata = await world.start()
        topic = await metadata.create_topic("t", [[1], [1]])
        await world.store.put("/brokers/topics/t", b'{"version":1,"partitions":{"0":[9]}}')
        other = world.another_broker()
        await other.load()
        assert other.image.topics["t"].partitions == topic.partitions

    run(steps)


def test_a_partition_of_which_nothing_is_known_is_not_given_up() -> None:
    async def steps(world: World) -> None:
        metadata = await world.start()
        topic = await metadata.create_topic("t", [[1], [1]])
        assert kept_replicas(topic._replace(partitions=topic.partitions[:1]), [topic.partitions[0], None]) is None
        await world.store.put(STATE.replace("/0/", "/1/"), b"?")
        await world.store.put("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1]}}')
        other = world.another_broker()
        await other.load()
        assert other.image.unreadable_topics == {"t"}  # so that its logs are kept

    run(steps)


def test_the_state_of_a_new_partition_is_read_though_the_topics_node_leaves_it_out() -> None:
    async def steps(world: World) -> None:
        metadata = await world.start()
        await metadata.create_topic("t", [[1]])
        other = world.another_broker()
        await other.load()
        await world.store.put("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1],"1":[1]}}')
        await other.refresh()
        await world.store.create("/brokers/topics/t/partitions/1", b"")
        await world.store.create(
            "/brokers/topics/t/partitions/1/state", znodes.state_json(metadata.image.topics["t"].partitions[0], 1)
        )
        await world.store.put("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1]}}')
        await other.refresh()
        assert [state.leader for state in other.image.topics["t"].partitions] == [1, 1]

    run(steps)
