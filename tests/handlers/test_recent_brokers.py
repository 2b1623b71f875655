"""Brokers that died are told of for a little while; those that left in order are not."""

from moldau.cluster.image import BrokerInfo, ClusterImage, Endpoint
from moldau.core.clock import ManualClock
from moldau.protocol.messages.k03_metadata import MetadataRequest
from moldau.protocol.messages.k60_describe_cluster import DescribeClusterRequest
from moldau.requests.recent_brokers import LISTED_MS, RecentBrokers
from tests.handlers.conftest import World


def image(*brokers: BrokerInfo) -> ClusterImage:
    made = ClusterImage()
    for broker in brokers:
        made = made.with_broker(broker)
    return made


def broker(number: int, port: int = 9092, shutting_down: bool = False) -> BrokerInfo:
    return BrokerInfo(number, None, (Endpoint("PLAINTEXT", "h", port, "PLAINTEXT"),), shutting_down=shutting_down)


def test_a_dead_broker_is_listed_for_a_while() -> None:
    clock = ManualClock()
    departed = RecentBrokers(clock)
    left = image(broker(1))
    departed.note(image(broker(1), broker(2)), left)
    clock.advance(LISTED_MS - 1)
    assert list(departed.listed(left)) == [broker(2)]
    clock.advance(1)
    assert list(departed.listed(left)) == []


def test_one_that_returned_is_not_listed_twice() -> None:
    departed = RecentBrokers(ManualClock())
    departed.note(image(broker(1), broker(2)), image(broker(1)))
    assert list(departed.listed(image(broker(1), broker(2, port=9999)))) == []


def test_one_that_shut_down_in_order_is_not_listed() -> None:
    departed = RecentBrokers(ManualClock())
    departed.note(image(broker(1), broker(2, shutting_down=True)), image(broker(1)))
    assert list(departed.listed(image(broker(1)))) == []


def test_old_departures_are_forgotten() -> None:
    clock = ManualClock()
    departed = RecentBrokers(clock)
    departed.note(image(broker(1), broker(2)), image(broker(1)))
    clock.advance(LISTED_MS)
    departed.note(image(broker(1), broker(3)), image(broker(1)))
    assert [gone.id for gone in departed.listed(image(broker(1)))] == [3]


def test_metadata_alone_lists_a_dead_broker(world: World) -> None:
    world.run(world.metadata.register_broker(broker(2)))
    world.run(world.store.delete("/brokers/ids/2"))
    world.run(world.metadata.refresh())
    assert [told.node_id for told in world.ask(MetadataRequest(topics=[])).brokers] == [1, 2]
    assert [told.broker_id for told in world.ask(DescribeClusterRequest()).brokers] == [1]
    world.clock.advance(LISTED_MS)
    assert [told.node_id for told in world.ask(MetadataRequest(topics=[])).brokers] == [1]
