import pytest

from moldau.log.log import Log
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.replication.follower import FollowedPartition
from moldau.replication.partition import Partition
from moldau.replication.replica import ENOUGH_BYTES
from moldau.replication.replicas import Replicas
from tests.log.helpers import PARTITION, memory_log
from tests.replication.helpers import Answer

TOPIC, INDEX = PARTITION
ID = b"t" * 16


class Lookup:
    """A cluster with one topic of two partitions."""

    def exists(self, topic: str, index: int) -> bool:
        return topic == "elsewhere" and index < 2

    def name_of(self, topic_id: bytes) -> str | None:
        return "elsewhere" if topic_id == b"e" * 16 else None


class Looking:
    """Notes what is there at the moment at which it is woken."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self.saw: list[object] = []

    def advanced(self, appended_bytes: int) -> None:
        assert appended_bytes == ENOUGH_BYTES
        self.saw.append(self._replicas.replica(TOPIC, INDEX))


def led(log: Log, epoch: int = 1) -> Partition:
    return Partition(ID, log, epoch, (1, 2))


def followed(log: Log, epoch: int = 2) -> FollowedPartition:
    return FollowedPartition(ID, log, 2, epoch, 0)


def error_of(replicas: Replicas, topic: str, index: int) -> ErrorCode:
    with pytest.raises(ApiError) as refused:
        replicas.get(topic, index)
    return refused.value.code


def test_a_partition_is_led_or_followed_and_never_both() -> None:
    replicas, log = Replicas(), memory_log()
    leader = led(log)
    replicas.lead(leader)
    assert (replicas.get(TOPIC, INDEX), replicas.led(), replicas.followed()) == (leader, [leader], [])
    follower = followed(log)
    replicas.follow(follower)
    assert (replicas.find(TOPIC, INDEX), replicas.led(), replicas.followed()) == (None, [], [follower])
    assert list(replicas) == [replicas.replica(TOPIC, INDEX)] == [replicas.readable(TOPIC, INDEX)] == [follower]


def test_the_old_role_ends_when_the_new_one_is_there() -> None:
    replicas, log = Replicas(), memory_log()
    leader, answer, looking = led(log), Answer(), Looking(replicas)
    replicas.lead(leader)
    leader.wait_for_commit(1, answer)
    leader.waiters[looking] = None
    follower = followed(log)
    replicas.follow(follower)
    assert not leader.is_led
    assert answer.codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert looking.saw == [follower]
    follower.waiters[looking] = None
    again = led(log, 3)
    replicas.lead(again)
    assert looking.saw == [follower, again]
    replicas.lead(led(log, 4))
    assert not again.is_led


def test_what_is_elsewhere_is_not_unknown() -> None:
    replicas = Replicas(Lookup())
    replicas.follow(followed(memory_log()))
    assert error_of(replicas, TOPIC, INDEX) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert error_of(replicas, "elsewhere", 1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert error_of(replicas, "elsewhere", 2) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert error_of(Replicas(), "elsewhere", 1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (replicas.name_of(ID), replicas.name_of(b"e" * 16), replicas.name_of(b"x" * 16)) == (
        TOPIC,
        "elsewhere",
        None,
    )


def test_what_is_removed_is_told_and_forgotten() -> None:
    replicas = Replicas()
    leader, answer = led(memory_log()), Answer()
    replicas.lead(leader)
    leader.wait_for_commit(1, answer)
    assert replicas.remove(TOPIC, INDEX) is leader
    assert answer.codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert (list(replicas), replicas.name_of(ID), replicas.remove(TOPIC, INDEX)) == ([], None, None)
