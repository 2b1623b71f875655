"""Assignors that run on the broker and decide which member reads which partition (KIP-848).

Pure functions of the members' subscriptions, what they are meant to own so far, and the topics' sizes. The result
depends on nothing else, in particular not on the order in which members came.

- `uniform`: every member gets the same number of partitions, give or take one, and keeps what it has where that
  allows it. If subscriptions differ, the same holds among the subscribers of each topic as far as it can.
- `range`: every topic is cut into contiguous ranges, one for each subscriber in order. Topics of the same size with
  the same subscribers are cut alike, so equal keys of two such topics meet at one member. Keeps nothing on purpose.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

Partitions = Mapping[bytes, frozenset[int]]
"""Topic id to partitions."""
GroupAssignment = dict[str, dict[bytes, frozenset[int]]]
_Owned = dict[bytes, set[int]]
_Partition = tuple[bytes, int]

BALANCE_ROUNDS_MAX = 16
"""Bounds the search for a better balance of differing subscriptions; two or three rounds are usual."""


class MemberSpec(NamedTuple):
    """Facts about a member for an assignor. `topics` are the subscribed topics that exist."""

    topics: frozenset[bytes]
    owned: Partitions
    instance_id: str | None = None


Members = Mapping[str, MemberSpec]
Assignor = Callable[[Members, Mapping[bytes, int]], GroupAssignment]


def assign_range(members: Members, partition_counts: Mapping[bytes, int]) -> GroupAssignment:
    assignment: GroupAssignment = {member_id: {} for member_id in members}
    subscribers = _subscribers(members, _in_order(members))
    for topic, readers in subscribers.items():
        for reader, share in zip(readers, _ranges(partition_counts[topic], len(readers)), strict=True):
            if share:
                assignment[reader][topic] = frozenset(share)
    return assignment


def _ranges(partition_count: int, parts: int) -> Iterator[range]:
    """Contiguous ranges; the first ones are longer by one if it does not divide."""
    size, longer = divmod(partition_count, parts)
    first = 0
    for part in range(parts):
        end = first + size + (part < longer)
        yield range(first, end)
        first = end


def _in_order(members: Members) -> list[str]:
    """Static members first, by their instance id, so that a restart under a new member id changes nothing."""

    def rank(member_id: str) -> tuple[bool, str]:
        instance_id = members[member_id].instance_id
        return instance_id is None, member_id if instance_id is None else instance_id

    return sorted(members, key=rank)


def _subscribers(members: Members, order: Sequence[str]) -> dict[bytes, list[str]]:
    subscribers: dict[bytes, list[str]] = {}
    for member_id in order:
        for topic in members[member_id].topics:
            subscribers.setdefault(topic, []).append(member_id)
    return subscribers


def assign_uniform(members: Members, partition_counts: Mapping[bytes, int]) -> GroupAssignment:
    if len(members) == 1:
        return assign_range(members, partition_counts)  # everything, and soon found out: most groups have one member
    order = _in_order(members)
    owned = {member_id: _still_valid(members[member_id], partition_counts) for member_id in order}
    if len({members[member_id].topics for member_id in order}) <= 1:
        _share_equally(members, order, owned, partition_counts)
    else:
        _share_by_subscription(_subscribers(members, order), owned, partition_counts)
    return {
        member_id: {topic: frozenset(partitions) for topic, partitions in topics.items() if partitions}
        for member_id, topics in owned.items()
    }


def _still_valid(member: MemberSpec, partition_counts: Mapping[bytes, int]) -> _Owned:
    """Partitions that a member can keep: it still subscribes to the topic, and the partition still exists."""
    kept = ((topic, partitions) for topic, partitions in member.owned.items() if topic in member.topics)
    return {topic: {each for each in partitions if each < partition_counts[topic]} for topic, partitions in kept}


def _share_equally(
    members: Members, order: Sequence[str], owned: dict[str, _Owned], partition_counts: Mapping[bytes, int]
) -> None:
    """All subscribe to the same topics: everybody gets its quota, and keeps up to it."""
    topics = sorted(next((members[member_id].topics for member_id in order), frozenset()))
    quotas = _quotas(owned, sum(partition_counts[topic] for topic in topics))
    for member_id, quota in quotas.items():
        _trim(owned[member_id], quota)
    free = _unowned(topics, owned, partition_counts)
    for member_id in order:
        missing = quotas[member_id] - _load(owned[member_id])
        for topic, partition in islice(free, missing):
            owned[member_id].setdefault(topic, set()).add(partition)


def _quotas(owned: Mapping[str, _Owned], partition_count: int) -> dict[str, int]:
    """The one too many goes to those who have most already: less is moved."""
    if not owned:
        return {}
    size, longer = divmod(partition_count, len(owned))
    by_load = sorted(owned, key=lambda member_id: -_load(owned[member_id]))
    return {member_id: size + (position < longer) for position, member_id in enumerate(by_load)}


def _trim(owned: _Owned, quota: int) -> None:
    for topic in sorted(owned):
        kept = sorted(owned[topic])[:quota]
        owned[topic] = set(kept)
        quota -= len(kept)


def _load(owned: _Owned) -> int:
    return sum(map(len, owned.values()))


def _unowned(
    topics: Sequence[bytes], owned: Mapping[str, _Owned], partition_counts: Mapping[bytes, int]
) -> Iterator[_Partition]:
    """Computed before the first is taken: the caller gives them away while it goes on."""
    taken = {
        (topic, each) for topics_ in owned.values() for topic, partitions in topics_.items() for each in partitions
    }
    every = ((topic, partition) for topic in topics for partition in range(partition_counts[topic]))
    return iter([each for each in every if each not in taken])


def _share_by_subscription(
    subscribers: Mapping[bytes, Sequence[str]], owned: dict[str, _Owned], partition_counts: Mapping[bytes, int]
) -> None:
    """Subscriptions differ: topics with few subscribers are given away first, as they leave the least choice."""
    topics = sorted(subscribers, key=lambda topic: (len(subscribers[topic]), topic))
    loads = {member_id: _load(topics_) for member_id, topics_ in owned.items()}
    for topic, partition in _unowned(topics, owned, partition_counts):
        reader = min(subscribers[topic], key=loads.__getitem__)
        owned[reader].setdefault(topic, set()).add(partition)
        loads[reader] += 1
    for _ in range(BALANCE_ROUNDS_MAX):
        moved = [_balance_topic(topic, subscribers[topic], owned, loads) for topic in topics]
        if not any(moved):
            return


def _balance_topic(topic: bytes, readers: Sequence[str], owned: dict[str, _Owned], loads: dict[str, int]) -> bool:
    """Move partitions of one topic from its busiest owner to its idlest subscriber until that gains nothing."""
    moved = False
    while True:
        owners = [reader for reader in readers if owned[reader].get(topic)]
        if not owners:
            return moved
        giver, taker = max(owners, key=loads.__getitem__), min(readers, key=loads.__getitem__)
        if loads[giver] - loads[taker] <= 1:
            return moved
        partition = max(owned[giver][topic])
        owned[giver][topic].discard(partition)
        owned[taker].setdefault(topic, set()).add(partition)
        loads[giver] -= 1
        loads[taker] += 1
        moved = True


ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
