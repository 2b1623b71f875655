"""A look at the cluster: metadata, offsets, groups, sizes and metrics, read with ordinary requests.

A part that cannot be read leaves a complaint, and the rest is told: a console is needed most while something is broken.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotInTime
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition

from moldau.cli.common import describe
from moldau.cli.failures import ToolError
from moldau.console.cluster import scrapes
from moldau.console.cluster.clients import Clients
from moldau.console.cluster.groups import GroupFacts, Groups
from moldau.console.cluster.offset_specs import EARLIEST, LATEST, gathered
from moldau.console.cluster.state import BrokerState, PartitionState, Place, Traffic
from moldau.core.internal_topics import INTERNAL_TOPICS
from moldau.protocol.messages.k35_describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

T = TypeVar("T")

ASK_S = 3.0
SLOW_EVERY = 6
"""Start offsets, sizes and addresses of metrics are read in one look of so many: they change slowly."""
PARTS = 5
KEPT_S = 60.0
"""Time for which groups of a coordinator that went away are shown as they were; others take them over by then."""


class Look(NamedTuple):
    """Facts of one look, before anything is computed of them."""

    cluster_id: str
    controller: int
    brokers: Mapping[int, BrokerState]
    topics: Mapping[str, Sequence[PartitionState]]
    groups: Mapping[str, GroupFacts]
    traffic: Traffic
    complaints: tuple[str, ...]


class Collector:
    """Looks at the cluster; remembers what changes slowly."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._looks = 0
        self._starts: dict[Place, int] = {}
        self._sizes: dict[Place, int] = {}
        self._metrics: dict[int, str] = {}
        self._ends: Mapping[Place, int] = {}
        self._stable: Mapping[Place, int] = {}
        self._brokers: dict[int, float] = {}
        """Brokers, and when each was seen last."""
        self._groups_seen: dict[str, tuple[GroupFacts, float]] = {}
        self._complaints: list[str] = []
        for number, address in enumerate(clients.settings.metrics):
            self._metrics[-1 - number] = address

    def look(self) -> Look:
        """Facts of now. Raises KafkaException where no broker answers at all."""
        self._complaints = []
        metadata = self._clients.admin.list_topics(timeout=ASK_S)
        brokers = {each.id: BrokerState(each.id, str(each.host), each.port) for each in metadata.brokers.values()}
        self._clients.known_brokers = tuple(each.address for each in brokers.values())
        places = [
            (name, number)
            for name, topic in metadata.topics.items()
            for number, partition in topic.partitions.items()
            if partition.leader >= 0
        ]
        is_slow = self._looks % SLOW_EVERY == 0
        self._looks += 1
        # side by side: while a broker is away each of them may take all the time that it has
        nothing: dict[Place, int] = {}
        no_groups: dict[str, GroupFacts] = {}
        with ThreadPoolExecutor(PARTS) as threads:
            ending = threads.submit(self._part, "offsets", lambda: self._offsets(places, LATEST), nothing)
            stopping = threads.submit(
                self._part, "stable offsets", lambda: self._offsets(places, LATEST, True), nothing
            )
            grouping = threads.submit(self._part, "groups", self._groups, no_groups)
            slowly = threads.submit(self._slow_parts, places, brokers, is_slow)
            scraping = threads.submit(self._part, "metrics", lambda: scrapes.scrape(self._metrics, brokers), Traffic())
            slowly.result()
        known = set(places)
        ends = self._ends = _newer(self._ends, ending.result(), known)
        stable = self._stable = _newer(self._stable, stopping.result(), known)
        groups = self._with_kept_groups(grouping.result(), brokers)
        topics = {
            name: [
                PartitionState(
                    number,
                    partition.leader,
                    tuple(partition.replicas),
                    tuple(partition.isrs),
                    self._starts.get((name, number)),
                    ends.get((name, number)),
                    stable.get((name, number)),
                    self._sizes.get((name, number)),
                )
                for number, partition in sorted(topic.partitions.items())
            ]
            for name, topic in metadata.topics.items()
        }
        return Look(
            metadata.cluster_id or "",
            metadata.controller_id,
            brokers,
            topics,
            groups,
            scraping.result(),
            tuple(self._complaints),
        )

    def _with_kept_groups(
        self, found: Mapping[str, GroupFacts], brokers: Mapping[int, BrokerState]
    ) -> Mapping[str, GroupFacts]:
        """Groups that were found; and for a while those from before, where a coordinator went away or refused."""
        now_s = time.monotonic()
        self._brokers |= dict.fromkeys(brokers, now_s)
        is_partial = bool(self._complaints) or any(
            now_s - at_s < KEPT_S for at_s in self._brokers.values() if at_s < now_s
        )
        kept = {
            name: (facts, at_s)
            for name, (facts, at_s) in self._groups_seen.items()
            if is_partial and name not in found and now_s - at_s < KEPT_S
        }
        self._groups_seen = {**kept, **{name: (facts, now_s) for name, facts in found.items()}}
        return {name: facts for name, (facts, _) in self._groups_seen.items()}

    def _part(self, what: str, ask: Callable[[], T], otherwise: T) -> T:
        try:
            return ask()
        except KafkaException as error:
            self._complaints.append(f"{what} were not read: {describe(error.args[0])}")
        except ToolError as error:
            self._complaints.append(f"{what} were not read: {error}")
        except NotInTime:
            self._complaints.append(f"{what} were not read within {ASK_S:g} s")
        return otherwise

    def _slow_parts(self, places: Sequence[Place], brokers: Mapping[int, BrokerState], is_slow: bool) -> None:
        new = [place for place in places if place not in self._starts]
        if is_slow:
            self._starts = self._part("start offsets", lambda: self._offsets(places, EARLIEST), {})
        elif new:
            unknown: dict[Place, int] = {}
            self._starts |= self._part("start offsets", lambda: self._offsets(new, EARLIEST), unknown)
        if is_slow or new:
            self._sizes = self._part("sizes", lambda: self._log_sizes(brokers), {})
        if is_slow and not self._clients.settings.metrics:
            self._metrics = self._part(
                "addresses of metrics",
                lambda: scrapes.addresses(self._clients.admin, brokers.values(), ASK_S),
                self._metrics,
            )

    def _offsets(self, places: Iterable[Place], spec: Any, is_committed: bool = False) -> dict[Place, int]:
        wanted = {TopicPartition(*place): spec for place in places}
        if not wanted:
            return {}
        level = IsolationLevel.READ_COMMITTED if is_committed else IsolationLevel.READ_UNCOMMITTED
        asked = self._clients.admin.list_offsets(wanted, isolation_level=level, request_timeout=ASK_S)
        offsets, refused = gathered(asked, ASK_S + 1)
        if refused:
            self._complaints.append(
                f"offsets of {len(refused)} partitions were not read: {describe(next(iter(refused.values())))}"
            )
        return {(place.topic, place.partition): offset for place, offset in offsets.items()}

    def _log_sizes(self, brokers: Mapping[int, BrokerState]) -> dict[Place, int]:
        """Bytes of the largest copy of each partition."""
        sizes: dict[Place, int] = {}
        with self._clients.wire() as wire:
            for number in brokers:
                try:
                    answer = wire.broker(number).request(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
                except ToolError as error:
                    self._complaints.append(f"sizes on broker {number} were not read: {error}")
                    continue
                for topic in (topic for result in answer.results for topic in result.topics):
                    for each in topic.partitions:
                        place = (topic.name, each.partition_index)
                        sizes[place] = max(sizes.get(place, 0), each.partition_size)
        return sizes

    def _groups(self) -> dict[str, GroupFacts]:
        with self._clients.wire(ASK_S) as wire:
            groups = Groups(wire)
            groups.look()
        if groups.refused:
            name, why = next(iter(groups.refused.items()))
            self._complaints.append(f"{len(groups.refused)} groups were not read: {why} ({name})")
        return groups.found


def _newer(before: Mapping[Place, int], now: Mapping[Place, int], known: set[Place]) -> Mapping[Place, int]:
    """Offsets of now, and those of before where a leader has not answered: an unknown end would look like no lag."""
    return {place: offset for place, offset in {**before, **now}.items() if place in known}


def is_internal(topic: str) -> bool:
    """Whether a topic is the cluster's own."""
    return topic in INTERNAL_TOPICS or topic.startswith("__")
