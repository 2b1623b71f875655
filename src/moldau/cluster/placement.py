"""Placement of the replicas of new partitions: Kafka's round robin over brokers and racks (KIP-36).

Leaders go round the brokers from a random start, so that every broker leads as many partitions as any other;
followers stand at a distance that grows with each round, so that a dead broker's load falls on all the others. With
racks the brokers are taken from the racks in turn, and a rack gets a second replica only when every rack has one.
A broker that is shutting down gets nothing, unless a manual assignment says so.
"""

from collections.abc import Callable, Mapping, Sequence

from moldau.cluster.image import BrokerInfo, PartitionImage
from moldau.protocol.errors import ApiError, ErrorCode

USE_DEFAULT = -1
PARTITIONS_PER_REQUEST_MAX = 10_000

Brokers = Mapping[int, BrokerInfo]
Assignment = list[list[int]]
RandomBelow = Callable[[int], int]
"""A random number from 0 up to, not including, its argument."""


def place_new_topic(
    brokers: Brokers,
    partitions: int,
    replication_factor: int,
    manual: Mapping[int, Sequence[int]] | None,
    *,
    default_partitions: int,
    default_replication_factor: int,
    random_below: RandomBelow,
) -> Assignment:
    """The replicas of each partition, or an ApiError. -1 takes the default; `manual` wants both to be -1."""
    if manual:
        if partitions != USE_DEFAULT or replication_factor != USE_DEFAULT:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                "give a manual assignment, or numbers of partitions and replicas, not both",
            )
        return _ordered(manual, brokers)
    count = default_partitions if partitions == USE_DEFAULT else partitions
    replicas = default_replication_factor if replication_factor == USE_DEFAULT else replication_factor
    staying = _staying(brokers)
    _check_partition_count(count)
    _check_replication_factor(replicas, staying)
    return assign_replicas(staying, count, replicas, random_below=random_below)


def place_new_partitions(
    brokers: Brokers,
    existing: Sequence[PartitionImage],
    new_count: int,
    manual: Sequence[Sequence[int]] | None,
    *,
    random_below: RandomBelow,
) -> Assignment:
    """The replicas of the partitions that bring a topic to `new_count`, or an ApiError."""
    if any(partition.adding or partition.removing for partition in existing):
        raise ApiError(ErrorCode.REASSIGNMENT_IN_PROGRESS, "the topic's partitions are being moved")
    added = new_count - len(existing)
    if added == 0:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, f"the topic has {new_count} partitions already")
    if added < 0:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, f"the topic has {len(existing)} partitions; none can be removed")
    _check_partition_count(added)
    replication_factor = len(existing[0].replicas)
    if manual is not None:
        return _checked_additions(manual, added, replication_factor, brokers)
    staying = _staying(brokers)
    _check_replication_factor(replication_factor, staying)
    return assign_replicas(
        staying,
        added,
        replication_factor,
        random_below=random_below,
        first_partition=len(existing),
        start=_index_of_first_leader(existing, staying),
    )


def assign_replicas(
    brokers: Brokers,
    partitions: int,
    replication_factor: int,
    *,
    random_below: RandomBelow,
    first_partition: int = 0,
    start: int | None = None,
) -> Assignment:
    """Spread `partitions`, numbered from `first_partition`; `start` is the leader of partition 0 by its index."""
    order, racks = _order_of(brokers)
    begin = random_below(len(order)) if start is None else start
    shift = random_below(len(order)) if start is None else start
    assignment: Assignment = []
    for partition in range(first_partition, first_partition + partitions):
        if partition > 0 and partition % len(order) == 0:
            shift += 1
        leader = (partition + begin) % len(order)
        assignment.append(_replicas_of(order, racks, leader, shift, replication_factor))
    return assignment


def _staying(brokers: Brokers) -> Brokers:
    return {id_: broker for id_, broker in brokers.items() if not broker.shutting_down}


def _order_of(brokers: Brokers) -> tuple[list[int], dict[int, str]]:
    """Broker ids in the order they are gone round, and their racks: none unless every broker has one."""
    racks = {id_: broker.rack for id_, broker in brokers.items() if broker.rack is not None}
    if len(racks) < len(brokers):
        return sorted(brokers), {}
    by_rack: dict[str, list[int]] = {}
    for id_ in sorted(brokers):
        by_rack.setdefault(racks[id_], []).append(id_)
    longest = max(map(len, by_rack.values()), default=0)
    lanes = [by_rack[rack] for rack in sorted(by_rack)]
    return [lane[turn] for turn in range(longest) for lane in lanes if turn < len(lane)], racks


def _replicas_of(order: list[int], racks: dict[int, str], leader: int, shift: int, count: int) -> list[int]:
    replicas = [order[leader]]
    used_racks = {racks.get(order[leader])}
    rack_count = len(set(racks.values()))
    distance = shift * max(rack_count, 1)
    step = 0
    while len(replicas) < count:
        broker = order[(leader + 1 + (distance + step) % (len(order) - 1)) % len(order)]
        step += 1
        rack_is_taken = racks and racks[broker] in used_racks and len(used_racks) < rack_count
        if broker not in replicas and not rack_is_taken:
            replicas.append(broker)
            used_racks.add(racks.get(broker))
    return replicas


def _index_of_first_leader(existing: Sequence[PartitionImage], brokers: Brokers) -> int:
    order, _racks = _order_of(brokers)
    first = existing[0].replicas[0]
    return order.index(first) if first in order else 0


def _check_partition_count(count: int) -> None:
    if count <= 0:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, f"a topic cannot have {count} partitions")
    if count > PARTITIONS_PER_REQUEST_MAX:
        raise ApiError(ErrorCode.POLICY_VIOLATION, f"more than {PARTITIONS_PER_REQUEST_MAX} partitions in one request")


def _check_replication_factor(replication_factor: int, brokers: Brokers) -> None:
    if replication_factor <= 0:
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, f"a partition cannot have {replication_factor} replicas")
    if replication_factor > len(brokers):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{replication_factor} replicas need as many brokers, and {len(brokers)} are alive",
        )


def _ordered(manual: Mapping[int, Sequence[int]], brokers: Brokers) -> Assignment:
    if sorted(manual) != list(range(len(manual))):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "the partitions assigned must be 0, 1, 2 and so on without a gap"
        )
    _check_partition_count(len(manual))
    assignment = [list(manual[partition]) for partition in range(len(manual))]
    _check_manual(assignment, len(assignment[0]), brokers)
    return assignment


def _checked_additions(
    manual: Sequence[Sequence[int]], added: int, replication_factor: int, brokers: Brokers
) -> Assignment:
    if len(manual) != added:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{added} partitions are added, and {len(manual)} assigned"
        )
    assignment = [list(replicas) for replicas in manual]
    _check_manual(assignment, replication_factor, brokers)
    return assignment


def _check_manual(assignment: Assignment, replication_factor: int, brokers: Brokers) -> None:
    for partition, replicas in enumerate(assignment):
        problem = _problem(replicas, replication_factor, brokers)
        if problem:
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"assignment number {partition} {problem}")


def _problem(replicas: list[int], replication_factor: int, brokers: Brokers) -> str | None:
    if not replicas:
        return "has no replicas"
    if len(set(replicas)) < len(replicas):
        return "has a broker twice"
    unknown = [str(broker) for broker in replicas if broker not in brokers]
    if unknown:
        return f"has brokers that are not alive: {', '.join(unknown)}"
    if len(replicas) != replication_factor:
        return f"has {len(replicas)} replicas where the others have {replication_factor}"
    return None
