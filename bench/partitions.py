"""Three brokers with 200 and with 2,000 partitions of three replicas: what starting, failing over and idling cost.

Per size, on a fresh cluster: seconds to create the partitions; CPU per broker while nobody uses them, in percent of
a core; seconds from the kill -9 of a broker until a producer is answered by a partition that it led, and until the
last partition has a new leader; seconds until it is back in every ISR; and seconds from the start of the stopped
cluster to the first answers and to every partition being whole. `--kafka` does the same with Apache Kafka.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence

from bench import kafka, report
from bench.kafka_cluster import NODES, Cluster, kafka_cluster, moldau_cluster
from bench.replicated import STEADY_RECORDS, Sender, States, wait_until
from bench.side_by_side import note

SIZES = (200, 2_000)
TOPICS = 20
IDLE_S = 20.0
LOOK_S = 0.02


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m bench.partitions", description=__doc__)
    parser.add_argument("--kafka", action="store_true", help="Apache Kafka too")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="numbers of partitions, with commas")
    options = parser.parse_args(argv)
    sizes = [int(size) for size in options.sizes.split(",")]
    for make in (moldau_cluster, kafka_cluster) if options.kafka else (moldau_cluster,):
        sys.stdout.write(_table(make, sizes) + "\n")
    return 0


def _table(make: Callable[[], Cluster], sizes: Sequence[int]) -> str:
    columns = []
    for size in sizes:
        with make() as cluster:
            columns.append(_measure(cluster, size))
            name = cluster.name
    rows = [f"| {figure} | {' | '.join(f'{column[figure]:.2f}' for column in columns)} |" for figure in columns[0]]
    head = f"| {name}, partitions on {NODES} brokers | {' | '.join(f'{size:,}' for size in sizes)} |"
    return report.table(head, f"|---|{'---:|' * len(sizes)}", rows)


def _measure(cluster: Cluster, size: int) -> dict[str, float]:
    cluster.start()
    states = States(cluster.bootstrap)
    topics = [f"topic-{number}" for number in range(TOPICS)]
    figures = {"create, s": _create(cluster, states, topics, size // TOPICS)}
    figures["idle CPU per broker, % of a core"] = _idle_percent(cluster)
    figures |= _fail_over(cluster, topics)
    figures["resident per broker, MB"] = cluster.resident_mb() / NODES
    cluster.stop()
    begun = time.monotonic()
    figures["start, s"] = cluster.start()
    wait_until(lambda: _are_whole(states, topics), "the cluster did not come back", LOOK_S)
    figures["start to every ISR whole, s"] = time.monotonic() - begun
    note(f"  {cluster.name} {size}: {figures}")
    return figures


def _create(cluster: Cluster, states: States, topics: Sequence[str], partitions: int) -> float:
    begun = time.monotonic()
    for topic in topics:
        kafka.create_topic(cluster.bootstrap, topic, partitions, NODES, min_insync_replicas="2")
    wait_until(lambda: _are_whole(states, topics), "the partitions did not come up", LOOK_S)
    return time.monotonic() - begun


def _idle_percent(cluster: Cluster) -> float:
    time.sleep(2.0)  # what creating them left behind is not idleness
    before_s = cluster.cpu_s()
    time.sleep(IDLE_S)
    return (cluster.cpu_s() - before_s) / IDLE_S / NODES * 100


def _fail_over(cluster: Cluster, topics: Sequence[str]) -> dict[str, float]:
    """Two kills: waiting for a producer would hide how soon the elections were over."""
    dead, others = _victim(cluster, topics)
    killed = time.monotonic()
    cluster.nodes[dead].kill()
    wait_until(lambda: not others.led_by(topics, (dead, -1)), "not every partition has a new leader", LOOK_S)
    elected_s = time.monotonic() - killed
    returned_s = _return(cluster, dead, others, topics)
    dead, others = _victim(cluster, topics)
    sender = Sender(cluster.bootstrap, topics[0])
    sender.send_until(lambda: sender.acknowledged >= STEADY_RECORDS)
    answered_s = sender.seconds_to_get_over(cluster.nodes[dead].kill)
    sender.close()
    _return(cluster, dead, others, topics)
    return {
        "kill -9 to the last election, s": elected_s,
        "return to every ISR whole, s": returned_s,
        "kill -9 to the first acknowledgement to librdkafka, s": answered_s,
    }


def _victim(cluster: Cluster, topics: Sequence[str]) -> tuple[int, States]:
    """The leader of the partition that is written to, and the eyes of the others."""
    dead = States(cluster.bootstrap).leaders(topics[0])[0]
    others = States(",".join(node.bootstrap for number, node in cluster.nodes.items() if number != dead))
    others.leaders(topics[0])  # connected before anything happens
    return dead, others


def _return(cluster: Cluster, number: int, others: States, topics: Sequence[str]) -> float:
    begun = time.monotonic()
    cluster.nodes[number].begin()
    cluster.nodes[number].wait_until_it_answers()
    wait_until(lambda: _are_whole(others, topics), "the broker did not come back", LOOK_S)
    return time.monotonic() - begun


def _are_whole(states: States, topics: Sequence[str]) -> bool:
    return all(map(states.are_whole, topics))


if __name__ == "__main__":
    sys.exit(main())
