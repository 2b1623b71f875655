"""Plans of where replicas are to be: generated for a list of brokers, balanced, and without one broker. No I/O is here.

A plan has only the partitions that change. Nothing in it is left to chance: the same cluster gives the same plan.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from moldau.cli.failures import ToolError
from moldau.cli.partition_queries import Partition, PartitionState, shown

Replicas = tuple[int, ...]
Plan = dict[Partition, Replicas]
States = Mapping[Partition, PartitionState]

ANY_DIRECTORY = "any"
BALANCED_WITHIN = 0.1
"""Brokers whose bytes differ by less than this share of the mean are balanced."""
MOVES_MAX = 100_000


# --- files ---


def plan_in(text: str, path: str) -> Plan:
    """The plan of a JSON file of Kafka's tool; ToolError says what is wrong with it."""
    form = '{"version": 1, "partitions": [{"topic": "a", "partition": 0, "replicas": [1, 2]}]}'
    try:
        rows = json.loads(text)["partitions"]
        found = [(row["topic"], row["partition"], row["replicas"], row.get("log_dirs", [])) for row in rows]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ToolError(f"{path} is not of the form {form}") from error
    plan: Plan = {}
    for topic, index, replicas, directories in found:
        if not isinstance(topic, str) or type(index) is not int or not _is_replicas(replicas):
            raise ToolError(f"{path} is not of the form {form}")
        if (topic, index) in plan:
            raise ToolError(f"{path} names {topic}-{index} twice")
        if not isinstance(directories, list) or any(each != ANY_DIRECTORY for each in directories):
            raise ToolError(f'{path}: log_dirs of {topic}-{index}: replicas are moved between brokers only, say "any"')
        plan[topic, index] = tuple(replicas)
    if not plan:
        raise ToolError(f"{path} names no partitions")
    return plan


def _is_replicas(value: object) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(type(each) is int and each >= 0 for each in value)
        and len(set(value)) == len(value)
    )


def topics_in(text: str, path: str) -> list[str]:
    """The topics that a JSON file of Kafka's tool wants to move."""
    try:
        found = [row["topic"] for row in json.loads(text)["topics"]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ToolError(f'{path} is not of the form {{"version": 1, "topics": [{{"topic": "a"}}]}}') from error
    if not found or not all(isinstance(topic, str) for topic in found):
        raise ToolError(f"{path} names no topics")
    return found


def document(plan: Mapping[Partition, Sequence[int]]) -> dict[str, Any]:
    """The plan, as Kafka's tool writes it into JSON."""
    rows = [
        {"topic": topic, "partition": index, "replicas": list(replicas), "log_dirs": [ANY_DIRECTORY] * len(replicas)}
        for (topic, index), replicas in sorted(plan.items())
    ]
    return {"version": 1, "partitions": rows}


def current(states: States) -> Plan:
    """The replicas as they are."""
    return {each: state.replicas for each, state in states.items()}


# --- plans ---


def generated(states: States, brokers: Sequence[int], racks: Mapping[int, str | None]) -> Plan:
    """Replicas of all partitions on these brokers, in turn; those of one partition in different racks, where there are
    any."""
    order = _by_rack(brokers, racks)
    found: Plan = {}
    for place, (each, state) in enumerate(sorted(states.items())):
        count = len(state.replicas)
        if count > len(order):
            raise ToolError(f"{shown(each)} has {count} replicas: name at least {count} brokers")
        # Each time around, followers stand one broker further from their leader, so that they are spread, too.
        shift = 1 + (place // len(order)) % max(1, len(order) - 1)
        first = place % len(order)
        turn = [order[(first + shift + step) % len(order)] for step in range(len(order))]
        others = _racks_first([broker for broker in turn if broker != order[first]], order[first], racks)
        found[each] = (order[first], *others[: count - 1])
    return found


def with_copies(states: States, brokers: Sequence[int], racks: Mapping[int, str | None], count: int) -> Plan:
    """Plan with so many replicas of each partition. The first ones stay; each that is added is in a rack of its own,
    where there is one, on the broker that has the fewest."""
    load = Counter(replica for state in states.values() for replica in state.replicas)
    found: Plan = {}
    for each, state in sorted(states.items()):
        replicas = list(state.replicas[:count])
        while len(replicas) < count:
            seen = {racks.get(replica) for replica in replicas} - {None}
            free = [broker for broker in brokers if broker not in replicas]
            if not free:
                raise ToolError(f"{count} replicas of {shown(each)} need as many brokers: there are {len(brokers)}")
            replicas.append(min(free, key=lambda broker: (racks.get(broker) in seen, load[broker], broker)))
            load[replicas[-1]] += 1
        found[each] = tuple(replicas)
    return found


def _by_rack(brokers: Sequence[int], racks: Mapping[int, str | None]) -> list[int]:
    """The brokers, so that neighbours are in different racks where that is possible."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(brokers):
        by_rack.setdefault(racks.get(broker) or "", []).append(broker)
    columns = [by_rack[rack] for rack in sorted(by_rack)]
    return [column[row] for row in range(max(map(len, columns))) for column in columns if row < len(column)]


def _racks_first(brokers: Sequence[int], leader: int, racks: Mapping[int, str | None]) -> list[int]:
    """The brokers, one of each rack that the leader is not in before all others."""
    seen = {racks.get(leader)}
    fresh = []
    for broker in brokers:
        if racks.get(broker) is not None and racks.get(broker) not in seen:
            seen.add(racks.get(broker))
            fresh.append(broker)
    return [*fresh, *(broker for broker in brokers if broker not in fresh)]


def drained(
    states: States, broker: int, others: Sequence[int], sizes: Mapping[Partition, int], may_shrink: bool = False
) -> Plan:
    """Replicas without one broker: each goes to the broker with the fewest bytes that has none of the partition.

    Where every other broker has one, the partition has a replica less if it `may_shrink`.
    """
    load = _load(current(states), others, sizes)
    found: Plan = {}
    for each, state in sorted(states.items(), key=lambda item: (-sizes.get(item[0], 0), item[0])):
        if broker not in state.replicas:
            continue
        free = [other for other in others if other not in state.replicas]
        if not free and may_shrink and len(state.replicas) > 1:
            found[each] = tuple(replica for replica in state.replicas if replica != broker)
            continue
        if not free:
            raise ToolError(
                f"{shown(each)} has a replica on every other broker: add a broker, or say --allow-fewer-replicas"
            )
        heir = min(free, key=lambda other: (load[other], other))
        load[heir] += _weight(each, sizes)
        found[each] = tuple(heir if replica == broker else replica for replica in state.replicas)
    return found


def without_leaderships(states: States, broker: int) -> Plan:
    """The same replicas, with one broker behind all others that are in sync; what only it has stays with it."""
    found = {}
    for each, state in states.items():
        in_sync = [replica for replica in state.replicas if replica != broker and replica in state.isr]
        if broker in (state.leader, *state.replicas[:1]) and in_sync:
            rest = [replica for replica in state.replicas if replica not in (broker, in_sync[0])]
            found[each] = (in_sync[0], *rest, broker)
    return found


def balanced(states: States, brokers: Sequence[int], sizes: Mapping[Partition, int]) -> Plan:
    """Replicas so that brokers have about the same bytes, and are preferred leaders of about as many partitions.

    Replicas on brokers that are not listed stay where they are.
    """
    plan = current(states)
    _balance_bytes(plan, brokers, sizes)
    balance_leaders(plan, brokers)
    return {each: replicas for each, replicas in plan.items() if replicas != states[each].replicas}


def leaders_balanced(states: States, brokers: Sequence[int]) -> Plan:
    """The same replicas, in an order that makes brokers preferred leaders of about as many partitions."""
    plan = current(states)
    balance_leaders(plan, brokers)
    return {each: replicas for each, replicas in plan.items() if replicas != states[each].replicas}


def _weight(partition: Partition, sizes: Mapping[Partition, int]) -> int:
    """Bytes of a replica; an empty one counts a little, so that new partitions are spread as well."""
    return sizes.get(partition, 0) + 1


def _load(plan: Plan, brokers: Iterable[int], sizes: Mapping[Partition, int]) -> dict[int, int]:
    load = dict.fromkeys(brokers, 0)
    for each, replicas in plan.items():
        for broker in replicas:
            if broker in load:
                load[broker] += _weight(each, sizes)
    return load


def _balance_bytes(plan: Plan, brokers: Sequence[int], sizes: Mapping[Partition, int]) -> None:
    load = _load(plan, brokers, sizes)
    tolerance = BALANCED_WITHIN * sum(load.values()) / len(brokers)
    for _ in range(MOVES_MAX):
        heavy = max(brokers, key=lambda broker: (load[broker], -broker))
        light = min(brokers, key=lambda broker: (load[broker], broker))
        gap = load[heavy] - load[light]
        fitting = [
            each
            for each, replicas in plan.items()
            if heavy in replicas and light not in replicas and _weight(each, sizes) < gap
        ]
        if gap <= tolerance or not fitting:
            return
        # The best replica to move is the one that halves the difference.
        best = min(fitting, key=lambda each: (abs(gap - 2 * _weight(each, sizes)), each))
        plan[best] = tuple(light if broker == heavy else broker for broker in plan[best])
        load[heavy] -= _weight(best, sizes)
        load[light] += _weight(best, sizes)


def balance_leaders(plan: Plan, brokers: Sequence[int]) -> None:
    """Change the order of replicas until no broker is first of two more partitions than another that could be."""
    counts = dict.fromkeys(brokers, 0)
    for replicas in plan.values():
        if replicas and replicas[0] in counts:
            counts[replicas[0]] += 1
    for _ in range(MOVES_MAX):
        swap = _best_swap(plan, counts)
        if swap is None:
            return
        each, heir = swap
        first = plan[each][0]
        plan[each] = (heir, *(first if broker == heir else broker for broker in plan[each][1:]))
        counts[first] -= 1
        counts[heir] += 1


def _best_swap(plan: Plan, counts: Mapping[int, int]) -> tuple[Partition, int] | None:
    """The partition and the new first replica that even out the most; None where nothing does."""
    best: tuple[int, Partition, int] | None = None
    for each, replicas in plan.items():
        if not replicas or replicas[0] not in counts:
            continue
        for broker in replicas[1:]:
            gain = counts[replicas[0]] - counts[broker] if broker in counts else 0
            if gain > 1 and (best is None or (-gain, each, broker) < best):
                best = (-gain, each, broker)
    return None if best is None else (best[1], best[2])
