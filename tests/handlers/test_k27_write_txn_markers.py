import pytest

from moldau.handlers import k27_write_txn_markers
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from moldau.requests.authorization import ALTER, CLUSTER, CLUSTER_ACTION
from tests.handlers.conftest import World
from tests.handlers.denying import Deny
from tests.handlers.transacting import PRODUCER, Coordinator, batch, end, produce

V1 = 0


@pytest.mark.parametrize("at_once", [1000, 10])
def test_each_partition_of_each_marker_has_its_own_result(
    world: World, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    """Also where the request has more partitions than are written to in one turn of the loop."""
    monkeypatch.setattr(k27_write_txn_markers, "PARTITIONS_AT_ONCE_MAX", at_once)
    world.create("t", partitions=2)
    world.create("u")
    Coordinator(world)
    produce(world, batch(), batch())
    topics = [
        WritableTxnMarkerTopic(name="t", partition_indexes=[1, 0, 5, 6]),
        WritableTxnMarkerTopic(name="u", partition_indexes=[0]),
        WritableTxnMarkerTopic(name="gone", partition_indexes=[0]),
    ]
    markers = [
        WritableTxnMarker(
            producer_id=producer_id, producer_epoch=1, transaction_result=True, topics=topics, transaction_version=2
        )
        for producer_id in (PRODUCER, 9)
    ]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for result, producer_id in zip(
        world.ask(WriteTxnMarkersRequest(markers=markers)).markers, (PRODUCER, 9), strict=True
    ):
        assert result.producer_id == producer_id
        found = [[(each.partition_index, each.error_code) for each in topic.partitions] for topic in result.topics]
        assert found == [[(1, 0), (0, 0), (5, unknown), (6, unknown)], [(0, 0)], [(0, unknown)]]
    assert world.log_of("t", 1).last_stable_offset == 3


def test_a_marker_of_an_old_version_is_not_strict(world: World) -> None:
    world.create("t")
    Coordinator(world)
    produce(world, batch(), version=11)
    topic = WritableTxnMarkerTopic(name="t", partition_indexes=[0])
    marker = WritableTxnMarker(
        producer_id=PRODUCER, producer_epoch=0, transaction_result=True, topics=[topic], transaction_version=2
    )
    answer = world.ask(WriteTxnMarkersRequest(markers=[marker]), 1)
    assert answer.markers[0].topics[0].partitions[0].error_code == 0


def test_epochs_of_producers_and_coordinators_are_compared(world: World) -> None:
    world.create("t")
    Coordinator(world)
    produce(world, batch(epoch=3))
    assert end(world, committed=True, epoch=3) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert end(world, committed=True, epoch=2, transaction_version=V1) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert end(world, committed=True, epoch=4, coordinator_epoch=5) == [0]
    assert end(world, committed=True, epoch=4, coordinator_epoch=5) == [0], "sent again (KAFKA-19999)"
    assert end(world, committed=True, epoch=5, coordinator_epoch=4) == [ErrorCode.TRANSACTION_COORDINATOR_FENCED]


def test_either_of_two_rights_will_do(world: World) -> None:
    world.create("t")
    for denied, code in (((ALTER,), 0), ((CLUSTER_ACTION,), 0), ((ALTER, CLUSTER_ACTION), 31)):
        world.services.policy.authorize_by(Deny(*((each, CLUSTER) for each in denied)))
        assert end(world, committed=True, epoch=1) == [code]
