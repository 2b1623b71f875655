"""Checks of a cluster, by questions on the wire: partitions, settings, brokers, disks and transactions."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from moldau.cli.diagnosis import CRITICAL, NOTICE, WARNING, Diagnosis, some
from moldau.cli.failures import ToolError
from moldau.cli.refusals import Refused, error_name
from moldau.cli.transaction_queries import (
    IS_OPEN,
    describe_transaction,
    is_at_work,
    list_transactions,
    producers_on,
    transactions_by_producer,
)
from moldau.cli.wire import WireCluster
from moldau.protocol.messages.k03_metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from moldau.protocol.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from moldau.protocol.messages.k35_describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
MIN_ISR, UNCLEAN = "min.insync.replicas", "unclean.leader.election.enable"
SEVERAL_BROKERS = 3
DISK_CRITICAL, DISK_LOW = 0.03, 0.10
"""Shares of a disk that are free."""
HANGING_MS = 15 * 60_000
"""Age of a transaction from which it is old: Kafka's `transaction.max.timeout.ms`."""
UNBALANCED_SHARE = 0.1
"""Share of a broker's preferred partitions that others lead, as `leader.imbalance.per.broker.percentage`."""
TOPICS_AT_ONCE = 500


class Cluster(NamedTuple):
    """Facts about a cluster that several checks look at."""

    wire: WireCluster
    brokers: Mapping[int, str]
    controller: int
    topics: Sequence[MetadataResponseTopic]
    settings: Mapping[str, Mapping[str, str]]
    """Settings of topics that are looked at, by topic."""
    served: Mapping[int, Mapping[int, tuple[int, int]]]
    """Versions of requests that brokers serve; those that do not answer are not in it."""
    silent: Mapping[int, str]
    """Brokers that are registered and do not answer, and why."""

    def partitions(self) -> Iterator[tuple[str, MetadataResponseTopic, MetadataResponsePartition]]:
        for topic in self.topics:
            for partition in topic.partitions:
                yield f"{topic.name}-{partition.partition_index}", topic, partition


def look(wire: WireCluster) -> Cluster:
    """The facts, asked for."""
    wire.metadata([])
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    told = wire.any().request(request, MetadataResponse)
    brokers = {each.node_id: f"{each.host}:{each.port}" for each in told.brokers}
    topics = sorted(told.topics, key=lambda each: each.name or "")
    served, silent = {}, {}
    for broker in brokers:
        try:
            served[broker] = wire.broker(broker).served
        except ToolError as error:
            silent[broker] = str(error)
    settings = _settings(wire, [each.name or "" for each in topics])
    return Cluster(wire, brokers, told.controller_id, topics, settings, served, silent)


def _settings(wire: WireCluster, names: Sequence[str]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for start in range(0, len(names), TOPICS_AT_ONCE):
        resources = [
            DescribeConfigsResource(
                resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=[MIN_ISR, UNCLEAN]
            )
            for name in names[start : start + TOPICS_AT_ONCE]
        ]
        answer = wire.any().request(DescribeConfigsRequest(resources=resources), DescribeConfigsResponse)
        for result in answer.results:
            found[result.resource_name] = {each.name: each.value or "" for each in result.configs}
    return found


# --- partitions ---


def check_controller(cluster: Cluster) -> Iterator[Diagnosis]:
    """A cluster without a controller elects nobody."""
    if cluster.controller not in cluster.brokers:
        what = "there is no controller: leaders are not elected, topics are not made"
        remedy = "look at the brokers' logs and at the metadata store (ZooKeeper, controllers); restart a broker"
        yield Diagnosis(CRITICAL, "no-controller", what, remedy)


def check_leaders(cluster: Cluster) -> Iterator[Diagnosis]:
    """Partitions that nobody leads."""
    offline = [(name, partition) for name, _, partition in cluster.partitions() if partition.leader_id < 0]
    if offline:
        missing = sorted({each for _, p in offline for each in p.replica_nodes} - set(cluster.served))
        start = f"start broker {', '.join(map(str, missing))}" if missing else "look at `moldau brokers describe`"
        names = [name for name, _ in offline]
        what = f"{len(names)} partitions have no leader, and can be neither read nor written: {some(names)}"
        remedy = (
            f"{start}; if it is lost for ever: moldau elect --election-type unclean --all-topic-partitions (loses "
            "records that only it had)"
        )
        yield Diagnosis(CRITICAL, "offline-partitions", what, remedy, names)


def check_replicas(cluster: Cluster) -> Iterator[Diagnosis]:
    """Partitions with too few replicas in sync."""
    below: list[str] = []
    behind: list[str] = []
    away: set[int] = set()
    for name, topic, partition in cluster.partitions():
        if partition.leader_id < 0 or len(partition.isr_nodes) >= len(partition.replica_nodes):
            continue
        least = cluster.settings.get(topic.name or "", {}).get(MIN_ISR, "1")
        too_few = least.isdecimal() and len(partition.isr_nodes) < int(least)
        (below if too_few else behind).append(name)
        away |= set(partition.replica_nodes) - set(partition.isr_nodes)
    gone = sorted(away - set(cluster.served))
    slow = sorted(away & set(cluster.served))
    remedy = f"start broker {', '.join(map(str, gone))}" if gone else ""
    if slow:
        numbers = ", ".join(map(str, slow))
        remedy += ("; " if remedy else "") + f"look why broker {numbers} does not keep up: moldau brokers describe"
    if below:
        what = f"{len(below)} partitions refuse producers with acks=all, as too few replicas are in sync: {some(below)}"
        yield Diagnosis(CRITICAL, "under-min-isr", what, remedy, below)
    if behind:
        what = f"{len(behind)} partitions have replicas that are not in sync: {some(behind)}"
        yield Diagnosis(WARNING, "under-replicated", what, remedy, behind)


def check_balance(cluster: Cluster) -> Iterator[Diagnosis]:
    """Brokers whose partitions others lead."""
    preferred: dict[int, int] = {}
    elsewhere: dict[int, list[str]] = {}
    for name, _, partition in cluster.partitions():
        first = partition.replica_nodes[0] if partition.replica_nodes else -1
        if first not in cluster.brokers or first not in partition.isr_nodes:
            continue
        preferred[first] = preferred.get(first, 0) + 1
        if partition.leader_id not in (first, -1):
            elsewhere.setdefault(first, []).append(name)
    names = [
        name for first, found in elsewhere.items() if len(found) > UNBALANCED_SHARE * preferred[first] for name in found
    ]
    if names:
        what = f"{len(names)} partitions are not led by their preferred broker, others have more to do: {some(names)}"
        remedy = "moldau elect --election-type preferred --all-topic-partitions"
        yield Diagnosis(NOTICE, "leaders-unbalanced", what, remedy, names)


def check_copies(cluster: Cluster) -> Iterator[Diagnosis]:
    """Topics of which there is one copy, where there could be more."""
    if len(cluster.brokers) < 2:
        return
    single = [t for t in cluster.topics if t.partitions and all(len(p.replica_nodes) == 1 for p in t.partitions)]
    internal = [t.name or "" for t in single if t.is_internal]
    if internal and len(cluster.brokers) >= SEVERAL_BROKERS:
        what = f"there is one copy of {', '.join(internal)} on {len(cluster.brokers)} brokers: groups and transactions "
        what += "stop with a broker"
        remedy = f"moldau reassign plan --topic {internal[0]} --replication-factor 3 --file plan.json, "
        remedy += "then: moldau reassign execute plan.json; and set "
        remedy += "offsets.topic.replication.factor and transaction.state.log.replication.factor to 3"
        yield Diagnosis(WARNING, "internal-topics-single", what, remedy, internal)
    names = [t.name or "" for t in single if not t.is_internal]
    if names:
        what = f"{len(names)} topics have one copy on {len(cluster.brokers)} brokers: with a broker their records are "
        what += f"gone: {some(names)}"
        count = min(3, len(cluster.brokers))
        remedy = f"moldau reassign plan --topic {names[0]} --replication-factor {count} --file plan.json, "
        remedy += "then: moldau reassign execute plan.json"
        yield Diagnosis(WARNING, "topics-single", what, remedy, names)


def check_unclean(cluster: Cluster) -> Iterator[Diagnosis]:
    """Topics that may elect a leader that is not in sync."""
    names = [name for name, found in cluster.settings.items() if found.get(UNCLEAN) == "true"]
    if names:
        what = f"unclean elections are on: a broker that was behind may lead, and records are lost: {some(names)}"
        remedy = f"moldau topics alter {names[0]} --config {UNCLEAN}=false (or in the brokers' properties)"
        yield Diagnosis(WARNING, "unclean-election", what, remedy, names)


# --- brokers ---


def check_brokers(cluster: Cluster) -> Iterator[Diagnosis]:
    """Brokers that are registered and do not answer, or serve other versions than the rest."""
    for broker, reason in cluster.silent.items():
        what = f"broker {broker} is registered and does not answer: {reason}"
        remedy = f"look whether it runs, and is reached from here at {cluster.brokers[broker]} (advertised.listeners)"
        yield Diagnosis(CRITICAL, "broker-unreachable", what, remedy, [str(broker)])
    tables = cluster.served
    if len({tuple(sorted(table.items())) for table in tables.values()}) > 1:
        first = min(tables)
        others = [str(broker) for broker in tables if tables[broker] != tables[first]]
        what = f"broker {', '.join(others)} serves other versions of requests than broker {first}: releases differ"
        yield Diagnosis(WARNING, "versions-differ", what, "bring all brokers to one release, one by one", others)


def check_disks(cluster: Cluster) -> Iterator[Diagnosis]:
    """Data directories that are offline, and disks that are nearly full."""
    for broker in cluster.served:
        answer = cluster.wire.broker(broker).request(DescribeLogDirsRequest(topics=[]), DescribeLogDirsResponse)
        for each in answer.results:
            place = f"broker {broker} {each.log_dir}"
            if each.error_code:
                what = f"{place} is offline ({error_name(each.error_code)}): others lead its partitions, or nobody"
                remedy = "look at the disk (dmesg, df) and at the broker's log; restart the broker when it is mended"
                yield Diagnosis(CRITICAL, "offline-directory", what, remedy, [place])
            elif each.total_bytes > 0 and each.usable_bytes < DISK_LOW * each.total_bytes:
                share = each.usable_bytes / each.total_bytes
                severity = CRITICAL if share < DISK_CRITICAL else WARNING
                what = f"{place} is on a disk with {share:.0%} free ({each.usable_bytes >> 20} MiB)"
                remedy = "keep less (moldau topics alter TOPIC --config retention.ms=...), or add a disk to log.dirs"
                yield Diagnosis(severity, "disk-nearly-full", what, remedy, [place])


# --- transactions ---


def check_transactions(cluster: Cluster) -> Iterator[Diagnosis]:
    """Transactions that are open for too long: readers of committed records wait for them."""
    now_ms = time.time_ns() // 1_000_000
    old = []
    for each in list_transactions(cluster.wire):
        if each.state not in IS_OPEN:
            continue
        try:
            found = describe_transaction(cluster.wire, each.transactional_id)
        except Refused:
            continue  # it has ended since
        if found.start_ms >= 0 and now_ms - found.start_ms > max(found.timeout_ms, 0) + HANGING_MS:
            old.append(each.transactional_id)
    if old:
        what = f"{len(old)} transactions are open for longer than their timeout: {some(old)}"
        remedy = f"moldau transactions describe --transactional-id {old[0]}; look at its coordinator's log"
        yield Diagnosis(WARNING, "transactions-old", what, remedy, old)
    yield from _hanging(cluster, now_ms)


def _hanging(cluster: Cluster, now_ms: int) -> Iterator[Diagnosis]:
    """Transactions in partitions that no coordinator knows of."""
    hanging = []
    for broker in cluster.served:
        led = [
            (topic.name or "", partition.partition_index)
            for _, topic, partition in cluster.partitions()
            if partition.leader_id == broker
        ]
        told = producers_on(cluster.wire, broker, led) if led else {}
        open_ones = [
            (place, each)
            for place, producers in told.items()
            for each in ([] if isinstance(producers, Refused) else producers)
            if each.current_txn_start_offset >= 0 and now_ms - each.last_timestamp > HANGING_MS
        ]
        known = transactions_by_producer(cluster.wire, sorted({each.producer_id for _, each in open_ones}))
        hanging += [
            (place, each) for place, each in open_ones if not is_at_work(known.get(each.producer_id), each, place)
        ]
    if hanging:
        (topic, index), first = hanging[0]
        names = [f"{topic}-{index}" for (topic, index), _ in hanging]
        what = f"{len(names)} transactions hang, and hold back readers of committed records for ever: {some(names)}"
        remedy = (
            f"moldau transactions abort --topic {topic} --partition {index} "
            f"--start-offset {first.current_txn_start_offset}"
        )
        yield Diagnosis(CRITICAL, "transactions-hang", what, remedy, names)


CHECKS: Sequence[Callable[[Cluster], Iterator[Diagnosis]]] = (
    check_controller,
    check_leaders,
    check_replicas,
    check_balance,
    check_copies,
    check_unclean,
    check_brokers,
    check_disks,
    check_transactions,
)
