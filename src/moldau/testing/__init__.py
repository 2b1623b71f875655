"""Kafka brokers for tests: in this process, on free ports, in a temporary directory, ready in milliseconds.

    with moldau.testing.broker() as kafka:            # plain code: runs in a thread
        producer = Producer({"bootstrap.servers": kafka.bootstrap})

    async with moldau.testing.async_broker() as kafka:  # asyncio code: runs in your loop
        ...

    with moldau.testing.cluster(3) as kafka:          # three brokers, of which you may kill some
        kafka.kill(1)

With pytest, ask for a fixture: `moldau_broker` or `moldau_cluster` for one test, `moldau_session_broker` or
`moldau_session_cluster` for the whole run, with `moldau_topic` for a name that no other test has.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moldau.testing.brokers import BrokerInLoop, BrokerInThread, async_broker, broker
    from moldau.testing.clusters import ClusterInThread, cluster

__all__ = ["BrokerInLoop", "BrokerInThread", "ClusterInThread", "async_broker", "broker", "cluster"]

_HOMES = {
    "BrokerInLoop": "brokers",
    "BrokerInThread": "brokers",
    "ClusterInThread": "clusters",
    "async_broker": "brokers",
    "broker": "brokers",
    "cluster": "clusters",
}


def __getattr__(name: str) -> object:
    """The name's object, imported when asked for: the plugin is loaded in every test run, and most need no broker."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
