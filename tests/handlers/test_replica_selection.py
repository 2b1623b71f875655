"""Which replica a consumer is sent to (KIP-392)."""

import pytest

from moldau.cluster.image import BrokerInfo, ClusterImage
from moldau.core.clock import ManualClock
from moldau.replication.partition import Partition
from moldau.requests.replica_selection import preferred_read_replica
from tests.log.helpers import append, batch, memory_log

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER, SAME, NEAR, NEARER, FAR = 1, 2, 3, 4, 5
IMAGE = ClusterImage(
    brokers={
        LEADER: BrokerInfo(LEADER, "east", ()),
        SAME: BrokerInfo(SAME, "east", ()),
        NEAR: BrokerInfo(NEAR, "west", ()),
        NEARER: BrokerInfo(NEARER, "west", ()),
        FAR: BrokerInfo(FAR, None, ()),
    }
)


def partition(isr: tuple[int, ...] = (LEADER, SAME, NEAR, NEARER, FAR)) -> Partition:
    log = memory_log()
    for _ in range(10):
        append(log, batch(b"a"))
    replicas = (LEADER, SAME, NEAR, NEARER, FAR)
    led = Partition(bytes(16), log, 0, isr, broker_id=LEADER, replicas=replicas, clock=ManualClock())
    for replica_id, end in ((SAME, 10), (NEAR, 5), (NEARER, 8), (FAR, 10)):
        led.followers[replica_id].log_start_offset = 2
        led.followers[replica_id].log_end_offset = end
    return led


@pytest.mark.parametrize(
    ("offset", "rack", "chosen"),
    [
        (3, "west", NEARER),  # of two the one that is further
        (8, "west", NEARER),
        (9, "west", -1),  # nobody there has it yet
        (1, "west", -1),  # or any more
        (3, "east", -1),  # the leader is there itself
        (3, "south", -1),
        (3, "", -1),
    ],
)
def test_a_consumer_reads_in_its_own_rack_where_it_can(offset: int, rack: str, chosen: int) -> None:
    assert preferred_read_replica(partition(), offset, rack, IMAGE, RACK_AWARE) == chosen


def test_only_replicas_that_are_in_sync_and_alive_are_chosen() -> None:
    assert preferred_read_replica(partition((LEADER, NEAR)), 3, "west", IMAGE, RACK_AWARE) == NEAR
    gone = IMAGE.without_broker(NEAR)
    assert preferred_read_replica(partition((LEADER, NEAR)), 3, "west", gone, RACK_AWARE) == -1


@pytest.mark.parametrize("selector", [None, "org.apache.kafka.common.replica.LeaderSelector"])
def test_without_the_selector_the_leader_serves(selector: str | None) -> None:
    assert preferred_read_replica(partition(), 3, "west", IMAGE, selector) == -1
