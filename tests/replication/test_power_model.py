"""Power cuts of a simulated cluster: under `log.flush.policy=group` nothing acknowledged is lost."""

import os
from collections.abc import Iterator

import pytest

from moldau.broker.follower_syncs import FollowerSyncs
from moldau.records.batch import iter_records
from tests.log.helpers import batches
from tests.replication.simulation import TOPIC, Cluster
from tests.replication.test_model import Producer, _start, calm, is_level, is_whole, trouble

SEEDS = int(os.environ.get("MOLDAU_POWER_SEEDS", "3"))
CUTS = 4
CALM_S = 60.0
TORN_BYTES_MAX = 400


def cut(cluster: Cluster, *, wipe: bool) -> None:
    """All are off at once; each comes back when it does."""
    states = cluster.store.image.topics[TOPIC].partitions
    spare = [number for number in cluster.nodes if all(set(state.isr) - {number} for state in states)]
    wiped = cluster.random.choice(spare) if wipe and spare else None
    for number, node in cluster.nodes.items():
        torn_bytes = cluster.random.choice((0, cluster.random.randrange(TORN_BYTES_MAX)))
        node.lose_power(torn_bytes=torn_bytes, wiped=number == wiped)
        cluster.loop.call_later(cluster.random.uniform(0.1, 3), _start, node)


def go_on(cluster: Cluster, seconds: float) -> Iterator[None]:
    ends = cluster.loop.time() + seconds
    while cluster.loop.time() < ends:
        cluster.loop.run_until(cluster.loop.time() + cluster.random.uniform(0, 0.6))
        yield


def play(cluster: Cluster, *, wipe: bool) -> list[str]:
    """What was lost."""
    producers = [Producer(cluster, 100 + number, number % 3) for number in range(5)]
    cluster.troubled = True
    for _ in range(CUTS):
        for _ in go_on(cluster, cluster.random.uniform(1, 6)):
            trouble(cluster)
        cut(cluster, wipe=wipe)
        list(go_on(cluster, 4))
        if wipe:  # one disk at a time
            settle(cluster, lambda: is_whole(cluster))
            cluster.troubled = True
    for producer in producers:
        producer.is_stopped = True
    settle(cluster, lambda: all(each.is_idle for each in producers) and is_whole(cluster) and is_level(cluster))
    return [complaint for producer in producers for complaint in missing(cluster, producer)]


def settle(cluster: Cluster, condition: object) -> None:
    assert callable(condition)
    calm(cluster)
    deadline = cluster.loop.time() + CALM_S
    while not condition():
        assert cluster.loop.time() < deadline, f"not settled: {cluster.store.image.topics[TOPIC].partitions}"
        cluster.loop.run_until(cluster.loop.time() + 0.1)


def missing(cluster: Cluster, producer: Producer) -> list[str]:
    complaints: list[str] = []
    for node in cluster.nodes.values():
        kept = {
            record.offset: record.value or b""
            for _, data in batches(node.log_of(producer.index))
            for record in iter_records(data)
        }
        for sequence, offset in producer.acknowledged.items():
            if not kept.get(offset, b"").startswith(b"%d:%d" % (producer.producer_id, sequence)):
                complaints.append(f"broker {node.id}, partition {producer.index}: {kept.get(offset)!r} at {offset}")
    return complaints


@pytest.mark.parametrize("wipe", [False, True], ids=["cut", "cut and one disk lost"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_acknowledged_is_lost_with_the_power(seed: int, wipe: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = int(os.environ.get("MODEL_SEED", seed))
    print(f"MODEL_SEED={seed}")  # noqa: T201  # a run that fails can be repeated
    assert play(Cluster(seed, 3, monkeypatch, "group"), wipe=wipe) == []


def test_the_power_model_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower that says what it has in memory is elected without it."""
    monkeypatch.setattr(FollowerSyncs, "begin", lambda _: None)

    def is_lost(seed: int) -> bool:
        try:
            return bool(play(Cluster(seed, 3, monkeypatch, "group"), wipe=False))
        except AssertionError:  # a producer is told that there is a gap before its records
            return True

    assert any(is_lost(seed) for seed in range(12))
