"""The state of a cluster at one moment, as values that pages only read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

Place = tuple[str, int]
"""Topic and partition."""
BAD_RULES = ("stop", "rewind", "stall", "warn")
"""Rules of `core/group_status.py`, the worst first."""
NOT_KNOWN_YET = "unknown"
"""Rule of a group whose lag was not seen for long enough to say more."""


@dataclass(frozen=True, slots=True)
class BrokerState:
    """A broker that the cluster names."""

    id: int
    host: str
    port: int

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition. Offsets are None where its leader has not told them."""

    id: int
    leader: int
    """-1: there is none."""
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    start: int | None = None
    end: int | None = None
    """The high watermark."""
    stable: int | None = None
    """The last stable offset: readers of committed records stop there."""
    size: int | None = None
    """Bytes of its largest copy."""

    @property
    def is_offline(self) -> bool:
        return self.leader < 0

    @property
    def is_under_replicated(self) -> bool:
        return len(self.isr) < len(self.replicas)

    @property
    def blocked(self) -> int:
        """Offsets that an open transaction holds back."""
        return max(0, self.end - self.stable) if self.end is not None and self.stable is not None else 0


@dataclass(frozen=True)
class TopicState:
    """A topic."""

    name: str
    is_internal: bool
    partitions: tuple[PartitionState, ...]

    @cached_property
    def size(self) -> int | None:
        sizes = [each.size for each in self.partitions if each.size is not None]
        return sum(sizes) if sizes else None

    @cached_property
    def offset_range(self) -> int:
        """Offsets between start and end: more than there are records, where it is compacted or transactional."""
        return sum(max(0, (each.end or 0) - (each.start or 0)) for each in self.partitions)

    @cached_property
    def end_sum(self) -> int:
        return sum(each.end or 0 for each in self.partitions)

    @cached_property
    def offline(self) -> int:
        return sum(each.is_offline for each in self.partitions)

    @cached_property
    def under_replicated(self) -> int:
        return sum(each.is_under_replicated for each in self.partitions)

    @cached_property
    def blocked(self) -> int:
        return sum(each.blocked for each in self.partitions)


@dataclass(frozen=True, slots=True)
class MemberState:
    """A member of a group."""

    id: str
    client_id: str
    host: str
    assignment: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class GroupLag:
    """Distance of a group from the end of a partition."""

    committed: int | None
    """None: nothing is committed, and the lag is not known."""
    records: int | None
    seconds: float | None
    """The age of the record at the committed offset; None: not known."""
    is_exact: bool
    """Whether a broker told the seconds; else they are taken from what was seen of the end before."""
    rule: str
    """The rule that says how the group keeps up: ok, warn, stall, rewind, stop, or unknown."""


@dataclass(frozen=True)
class GroupState:
    """A consumer group."""

    id: str
    state: str
    kind: str
    assignor: str
    coordinator: int
    members: tuple[MemberState, ...]
    lags: Mapping[Place, GroupLag]

    @cached_property
    def lag(self) -> int:
        return sum(each.records or 0 for each in self.lags.values())

    @cached_property
    def seconds(self) -> float | None:
        known = [each.seconds for each in self.lags.values() if each.seconds is not None]
        return max(known) if known else None

    @cached_property
    def is_exact(self) -> bool:
        return all(each.is_exact for each in self.lags.values() if each.seconds)

    @cached_property
    def worst(self) -> str:
        """The worst rule of its partitions."""
        rules = {each.rule for each in self.lags.values()}
        return next((rule for rule in (*BAD_RULES, NOT_KNOWN_YET) if rule in rules), "ok")

    @cached_property
    def topics(self) -> tuple[str, ...]:
        assigned = {topic for member in self.members for topic, _ in member.assignment}
        return tuple(sorted(assigned | {topic for topic, _ in self.lags}))


class TopicUse(NamedTuple):
    """A client that writes or reads a topic."""

    topic: str
    client_id: str
    host: str


@dataclass(frozen=True, slots=True)
class Traffic:
    """Figures that brokers' metrics tell, summed over the brokers that answered."""

    brokers: tuple[str, ...] = ()
    """Addresses that answered."""
    bytes_in: Mapping[str, float] = field(default_factory=dict)
    """Counter by topic; the sum under the empty name."""
    bytes_out: Mapping[str, float] = field(default_factory=dict)
    lag_seconds: Mapping[tuple[str, str, int], float] = field(default_factory=dict)
    """Age of the record at a committed offset, by group, topic and partition."""
    rules: Mapping[tuple[str, str, int], str] = field(default_factory=dict)
    """Rules that fire, by group, topic and partition: a coordinator knows since when nothing was committed."""
    clients: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Connections by name and version of the clients' software."""
    busy: Mapping[str, float] = field(default_factory=dict)
    """Share of time in which a broker's event loop works, by address."""
    writers: frozenset[TopicUse] = frozenset()
    readers: frozenset[TopicUse] = frozenset()


@dataclass(frozen=True)
class Snapshot:
    """The cluster at one moment."""

    at_ms: int
    cluster_id: str
    controller: int
    brokers: Mapping[int, BrokerState]
    missing: tuple[int, ...]
    """Ids of brokers that have replicas and are not there."""
    topics: Mapping[str, TopicState]
    groups: Mapping[str, GroupState]
    traffic: Traffic
    took_s: float
    complaints: tuple[str, ...] = ()
    """Reasons why a part of this is missing."""

    @cached_property
    def readers(self) -> Mapping[str, tuple[str, ...]]:
        """Groups by the topic that they read."""
        found: dict[str, list[str]] = {}
        for group in self.groups.values():
            for topic in group.topics:
                found.setdefault(topic, []).append(group.id)
        return {topic: tuple(sorted(groups)) for topic, groups in found.items()}

    @cached_property
    def lags_by_topic(self) -> Mapping[str, int]:
        """The largest lag of any group, by topic."""
        by_pair: dict[tuple[str, str], int] = {}
        for group in self.groups.values():
            for (topic, _), each in group.lags.items():
                by_pair[topic, group.id] = by_pair.get((topic, group.id), 0) + (each.records or 0)
        found: dict[str, int] = {}
        for (topic, _), lag in by_pair.items():
            found[topic] = max(found.get(topic, 0), lag)
        return found


NOTHING = Snapshot(0, "", -1, {}, (), {}, {}, Traffic(), 0.0, ("the cluster has not answered yet",))
