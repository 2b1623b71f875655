"""ElectLeaders: preferred and unclean."""

from collections.abc import Mapping, Sequence

from moldau.cluster.changes import Change
from moldau.cluster.image import NO_LEADER, BrokerInfo
from moldau.cluster.metadata import ATTEMPTS_MAX, NO_STARTS, Conflict
from moldau.cluster.store import Operation, StoreUnavailable
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k43_elect_leaders import ElectLeadersRequest, TopicPartitions
from tests.handlers.conftest import World

PREFERRED, UNCLEAN = 0, 1


def elect(
    world: World, election_type: int, *partitions: tuple[str, int], version: int = 2
) -> dict[tuple[str, int], int]:
    """Partition to error; no partitions at all asks for every one."""
    topics = [TopicPartitions(topic=topic, partitions=[index]) for topic, index in partitions]
    request = ElectLeadersRequest(election_type=election_type, topic_partitions=topics or None)
    answer = world.ask(request, version)
    assert answer.error_code == 0
    results = answer.replica_election_results
    return {
        (each.topic, result.partition_id): result.error_code for each in results for result in each.partition_result
    }


def topic_led_by_the_second(world: World) -> None:
    """Replicas 2 and 1 in sync, 1 leads partitions 0 and 1; partition 2 has its preferred leader."""
    world.run(world.metadata.register_broker(BrokerInfo(2, None, ())))
    topic = world.run(world.metadata.create_topic("t", [[2, 1], [2, 1], [1, 2]]))
    for index in (0, 1):
        world.run(world.metadata.update_partition("t", index, topic.partitions[index]._replace(leader=1)))


def leaders(world: World) -> list[int]:
    return [state.leader for state in world.image.topics["t"].partitions]


def test_preferred_replicas_are_made_leaders_in_every_version(world: World) -> None:
    for version in (0, 1, 2):
        world = World({})
        topic_led_by_the_second(world)
        assert elect(world, PREFERRED, ("t", 0), ("t", 2), ("t", 9), ("no", 0), version=version) == {
            ("no", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("t", 0): ErrorCode.NONE,
            ("t", 2): ErrorCode.ELECTION_NOT_NEEDED,
            ("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert leaders(world) == [2, 1, 1]
        world.close()


def test_all_partitions_are_meant_when_none_is_named(world: World) -> None:
    topic_led_by_the_second(world)
    assert elect(world, PREFERRED) == {("t", 0): ErrorCode.NONE, ("t", 1): ErrorCode.NONE}
    assert leaders(world) == [2, 2, 1]
    assert elect(world, PREFERRED) == {}


def test_a_preferred_replica_that_is_dead_is_not_elected(world: World) -> None:
    topic_led_by_the_second(world)
    world.run(world.store.delete("/brokers/ids/2"))
    world.run(world.metadata.refresh())
    assert elect(world, PREFERRED, ("t", 0)) == {("t", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}


def test_a_partition_without_leader_is_led_by_whom_there_is(world: World) -> None:
    topic = world.run(world.metadata.create_topic("t", [[2, 1], [2]]))
    dead = topic.partitions[0]._replace(leader=NO_LEADER, isr=(2,))
    world.run(world.metadata.update_partition("t", 0, dead))
    assert elect(world, UNCLEAN, ("t", 0), ("t", 1)) == {
        ("t", 0): ErrorCode.NONE,
        ("t", 1): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    }
    assert world.image.topics["t"].partitions[0].isr == (1,)
    assert elect(world, UNCLEAN, ("t", 0)) == {("t", 0): ErrorCode.ELECTION_NOT_NEEDED}


def test_another_kind_of_election_is_refused(world: World) -> None:
    assert (
        world.ask(ElectLeadersRequest(election_type=2, topic_partitions=None)).error_code == ErrorCode.INVALID_REQUEST
    )


class Refusing:
    """Stands in for `Metadata.write`: fails so many times first."""

    def __init__(self, world: World, times: int, error: Exception) -> None:
        self.write, self.times, self.error, self.calls = world.metadata.write, times, error, 0

    async def __call__(
        self, changes: Sequence[Change], guards: Sequence[Operation] = (), starts: Mapping[int, int] = NO_STARTS
    ) -> None:
        self.calls += 1
        if self.calls <= self.times:
            raise self.error
        await self.write(changes, guards, starts)


def test_an_election_is_tried_again_when_others_are_quicker(world: World) -> None:
    topic_led_by_the_second(world)
    world.metadata.write = refusing = Refusing(world, 2, Conflict())  # type: ignore[method-assign]
    assert elect(world, PREFERRED, ("t", 0)) == {("t", 0): ErrorCode.NONE}
    assert refusing.calls == 3
    world.metadata.write = refusing = Refusing(world, 99, Conflict())  # type: ignore[method-assign]
    assert elect(world, PREFERRED, ("t", 1), ("t", 2)) == {
        ("t", 1): ErrorCode.REQUEST_TIMED_OUT,
        ("t", 2): ErrorCode.ELECTION_NOT_NEEDED,
    }
    assert refusing.calls == ATTEMPTS_MAX
    world.metadata.write = refusing = Refusing(world, 99, StoreUnavailable("/"))  # type: ignore[method-assign]
    assert elect(world, PREFERRED, ("t", 1)) == {("t", 1): ErrorCode.REQUEST_TIMED_OUT}
    assert refusing.calls == 1
