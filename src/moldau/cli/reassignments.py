"""Reassignments: shown as a table, begun, held back by a throttle, and freed from it again."""

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from moldau.cli.cluster_queries import (
    BROKER,
    TOPIC,
    alter_configs,
    describe_configs,
    ensure_alive,
    move_replicas,
    moves_under_way,
    sizes_on,
)
from moldau.cli.elections import elect_leaders
from moldau.cli.failures import ToolError
from moldau.cli.output import confirm, show_table
from moldau.cli.partition_queries import Partition, shown
from moldau.cli.reassignment_plans import Plan, States
from moldau.cli.refusals import raise_first
from moldau.cli.wire import WireCluster

BROKER_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADER_REPLICAS, FOLLOWER_REPLICAS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
DYNAMIC_BROKER, DYNAMIC_TOPIC = 2, 1
MOVE_COLUMNS = {
    "topic": "TOPIC",
    "partition": "PARTITION",
    "from": "REPLICAS",
    "to": "NEW-REPLICAS",
    "bytes": "BYTES-TO-COPY",
}


def sizes(cluster: WireCluster, brokers: Iterable[int]) -> dict[Partition, int]:
    """The bytes of the largest replica of each partition."""
    found: dict[Partition, int] = {}
    for broker in brokers:
        for each, size in sizes_on(cluster, broker).items():
            found[each] = max(size, found.get(each, 0))
    return found


def show_moves(options: argparse.Namespace, states: States, plan: Plan, of: Mapping[Partition, int]) -> None:
    """Show what a plan moves: the largest first."""
    rows: list[dict[str, Any]] = [
        {
            "topic": each[0],
            "partition": each[1],
            "from": list(states[each].replicas),
            "to": list(replicas),
            "bytes": of.get(each, 0) * len(set(replicas) - set(states[each].replicas)),
        }
        for each, replicas in plan.items()
    ]
    rows.sort(key=lambda row: (-row["bytes"], row["topic"], row["partition"]))
    show_table(options, rows, MOVE_COLUMNS, "there is nothing to move")


def ensure_settled(cluster: WireCluster, states: States) -> None:
    """Raise ToolError while one of these partitions moves: its replicas are those of before and after together."""
    moving = [each for each in moves_under_way(cluster) if each in states]
    if moving:
        raise ToolError(f"{shown(moving[0])} is being moved: wait until `moldau reassign list` is empty, or cancel it")


def check_plan(cluster: WireCluster, states: States, plan: Plan) -> None:
    """Raise ToolError where a plan names a partition or a broker that is not there."""
    for each in plan:
        if each not in states:
            raise ToolError(f"there is no partition {shown(each)}: `moldau topics describe {each[0]}`")
    ensure_alive(cluster, sorted({broker for replicas in plan.values() for broker in replicas}))


def begin(cluster: WireCluster, states: States, plan: Plan, throttle: int | None = None) -> None:
    """Begin to move. Where only the order of replicas changes, the first of them leads at once."""
    if throttle is not None:
        set_throttle(cluster, states, plan, throttle)
    raise_first([*move_replicas(cluster, plan).values()])
    reordered = [
        each
        for each, replicas in plan.items()
        if set(replicas) == set(states[each].replicas) and replicas[0] in states[each].isr
    ]
    if reordered:
        elect_leaders(cluster, reordered, "preferred")


def begin_if_asked(options: argparse.Namespace, cluster: WireCluster, states: States, plan: Plan) -> None:
    """Begin a plan that has been shown, with --execute and after a question."""
    if not plan:
        return
    if not options.execute:
        sys.stderr.write("Nothing was moved: --execute does it.\n")
        return
    confirm(options, f"Reassign {len(plan)} partitions?")
    begin(cluster, states, plan, options.throttle)
    if any(set(replicas) != set(states[each].replicas) for each, replicas in plan.items()):
        sys.stderr.write("Begun: `moldau reassign list` shows what is not done yet.\n")
    if options.throttle is not None:
        sys.stderr.write("The throttle stays until `moldau reassign verify` or `cancel` takes it away.\n")


# --- throttles ---


def set_throttle(cluster: WireCluster, states: States, plan: Plan, rate: int) -> None:
    """Let all brokers that take part copy at most so many bytes a second for these moves."""
    brokers = {broker for each, replicas in plan.items() for broker in (*replicas, *states[each].replicas)}
    for broker in sorted(brokers & set(cluster.brokers())):
        alter_configs(cluster, (BROKER, str(broker)), dict.fromkeys(BROKER_RATES, str(rate)))
    for topic in sorted({topic for topic, _ in plan}):
        own = {each: replicas for each, replicas in plan.items() if each[0] == topic}
        leaders = [f"{index}:{broker}" for (name, index) in own for broker in states[name, index].replicas]
        followers = [
            f"{index}:{broker}"
            for (name, index), replicas in own.items()
            for broker in replicas
            if broker not in states[name, index].replicas
        ]
        _throttle_replicas(cluster, topic, {LEADER_REPLICAS: leaders, FOLLOWER_REPLICAS: followers})


def _throttle_replicas(cluster: WireCluster, topic: str, wanted: Mapping[str, Sequence[str]]) -> None:
    """Add replicas to those of a topic that are throttled by a move before this one."""
    present = {
        each.name: (each.value or "").split(",")
        for each in describe_configs(cluster, (TOPIC, topic), list(wanted))
        if each.config_source == DYNAMIC_TOPIC
    }
    merged = {key: sorted({*filter(None, present.get(key, [])), *replicas}) for key, replicas in wanted.items()}
    alter_configs(cluster, (TOPIC, topic), {key: ",".join(replicas) for key, replicas in merged.items()})


def clear_throttle(cluster: WireCluster, topics: Sequence[str]) -> list[str]:
    """Take throttles away from all brokers and these topics; returns what was done, in Kafka's words."""
    said = []
    brokers = [
        broker for broker in cluster.brokers() if _clear(cluster, (BROKER, str(broker)), BROKER_RATES, DYNAMIC_BROKER)
    ]
    if brokers:
        said.append(f"Clearing broker-level throttles on brokers {','.join(map(str, brokers))}")
    cleared = [
        topic
        for topic in topics
        if _clear(cluster, (TOPIC, topic), (LEADER_REPLICAS, FOLLOWER_REPLICAS), DYNAMIC_TOPIC)
    ]
    if cleared:
        said.append(f"Clearing topic-level throttles on topics {','.join(cleared)}")
    return said


def _clear(cluster: WireCluster, resource: tuple[int, str], keys: Sequence[str], source: int) -> bool:
    present = [each.name for each in describe_configs(cluster, resource, keys) if each.config_source == source]
    if present:
        alter_configs(cluster, resource, dict.fromkeys(present))
    return bool(present)
