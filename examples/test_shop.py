"""A test with a broker of its own: the fixture comes with the package, so there is nothing to import or to start.

pytest examples/test_shop.py
"""

import json

from confluent_kafka import Consumer, Producer

from moldau.testing import BrokerInThread


def place_order(bootstrap: str, topic: str, item: str) -> None:
    """What is tested here: a shop that tells the world what was bought."""
    shop = Producer({"bootstrap.servers": bootstrap})
    shop.produce(topic, key="prague", value=json.dumps({"item": item}))
    shop.flush()


def test_an_order_is_told_to_whoever_listens(moldau_session_broker: BrokerInThread, moldau_topic: str) -> None:
    place_order(moldau_session_broker.bootstrap, moldau_topic, "a trial")

    settings = {
        "bootstrap.servers": moldau_session_broker.bootstrap,
        "group.id": "post",
        "auto.offset.reset": "smallest",
    }
    post = Consumer(settings)
    post.subscribe([moldau_topic])
    [order] = post.consume(1, timeout=10)
    post.close()

    assert (order.key(), json.loads(order.value() or b"")) == (b"prague", {"item": "a trial"})
