"""Faults of a cluster, each with its end: a schedule is a list of these, made from a seed."""

import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from moldau.protocol.messages.k43_elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from moldau.protocol.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from moldau.protocol.schema import Message
from moldau.testing.processes import ClusterOfProcesses
from moldau.testing.proxy import Links
from tests.broker.raw import RawClient

STORE = "store"
"""Name of the ensemble among the links."""


class Trouble(NamedTuple):
    """A fault that begins, holds for a while, and is repaired."""

    name: str
    begin: Callable[[], None]
    hold_s: float
    mend: Callable[[], None]
    is_alone: bool = False
    """Whether the fault needs a cluster without any other."""


class Troublemaker:
    """Makes trouble for a cluster whose brokers reach each other, and the ensemble if there is one, by `links`."""

    def __init__(
        self,
        cluster: ClusterOfProcesses,
        links: Links,
        chance: random.Random,
        *,
        leader_of: Callable[[], int],
        is_whole: Callable[[], bool],
        wait_until: Callable[[Callable[[], bool], str], None],
        moving: tuple[str, int],
        has_ensemble: bool,
    ) -> None:
        self._cluster = cluster
        self._links = links
        self._chance = chance
        self._leader_of = leader_of
        self._is_whole = is_whole
        self._wait_until = wait_until
        self._moving = moving
        kinds = [
            (self._kill, 4),
            (self._kill_two, 1),
            (self._restart, 2),
            (self._rolling_restart, 1),
            (self._hang, 4),
            (self._cut_leader_from_followers, 3),
            (self._cut_and_kill_leader, 4),
            (self._cut_and_hang_leader, 3),
            (self._cut_follower, 2),
            (self._isolate, 2),
            (self._slow, 1),
            (self._break, 1),
            (self._reassign, 3),
            (self._elect, 1),
            *([(self._cut_from_store, 4)] if has_ensemble else []),
        ]
        self._kinds = [kind for kind, _ in kinds]
        self._weights = [weight for _, weight in kinds]

    def next(self) -> Trouble:
        [kind] = self._chance.choices(self._kinds, self._weights)
        return kind()

    # --- processes

    def _kill(self) -> Trouble:
        number = self._one()
        return Trouble(f"kill -9 {number}", self._cluster[number].kill9, self._some_s(3), lambda: self._start(number))

    def _kill_two(self) -> Trouble:
        one, other = self._chance.sample(sorted(self._cluster.brokers), 2)

        def begin() -> None:
            self._cluster[one].kill9()
            self._cluster[other].kill9()

        def mend() -> None:
            self._start(one)
            self._start(other)

        return Trouble(f"kill -9 {one} and {other}", begin, self._some_s(2), mend)

    def _restart(self) -> Trouble:
        number = self._one()
        return Trouble(f"stop {number}", lambda: self._stop(number), self._some_s(2), lambda: self._start(number))

    def _rolling_restart(self) -> Trouble:
        def roll() -> None:
            for number in sorted(self._cluster.brokers):
                self._stop(number)
                self._start(number)
                self._wait_until(self._is_whole, f"the ISRs after the restart of {number}")

        return Trouble("rolling restart", roll, 0.0, _nothing, is_alone=True)

    def _hang(self) -> Trouble:
        """A broker that hangs, shorter or longer than a session."""
        number = self._one()

        return Trouble(f"SIGSTOP {number}", self._cluster[number].sigstop, self._some_s(6), lambda: self._wake(number))

    # --- links

    def _cut_leader_from_followers(self) -> Trouble:
        leader = self._leader_of()
        return self._cutting(f"cut followers off {leader}", [(other, leader) for other in self._others(leader)])

    def _cut_and_kill_leader(self) -> Trouble:
        """The leader's death with records that no follower has: none of them may have been acknowledged."""
        leader, cut = self._leader_without_followers()

        def begin() -> None:
            cut.begin()
            time.sleep(cut.hold_s)
            self._cluster[leader].kill9()
            cut.mend()

        return Trouble(f"{cut.name}, then kill -9 it", begin, self._some_s(3), lambda: self._start(leader))

    def _cut_and_hang_leader(self) -> Trouble:
        """A hang of the leader, which wakes up as the leader that it no longer is, with records that no follower
        has."""
        leader, cut = self._leader_without_followers()

        def begin() -> None:
            cut.begin()
            time.sleep(cut.hold_s)
            self._cluster[leader].sigstop()
            cut.mend()

        return Trouble(f"{cut.name}, then SIGSTOP it", begin, self._some_s(6), lambda: self._wake(leader))

    def _leader_without_followers(self) -> tuple[int, Trouble]:
        """A leader cut off from one follower, so that this one lags behind and may be elected all the same; or from
        all. For less than the time after which they are out of the ISR, or for more, so that the leader goes on alone
        where it may."""
        leader = self._leader_of()
        followers = self._others(leader)
        cut_off = followers if self._chance.random() < 0.4 else [self._chance.choice(followers)]
        hold_s = self._some_s(1.5) if self._chance.random() < 0.6 else round(self._chance.uniform(3.0, 5.0), 2)
        cut = self._cutting(f"cut {cut_off} off {leader} for {hold_s:g} s", [(each, leader) for each in cut_off])
        return leader, cut._replace(hold_s=hold_s)

    def _cut_follower(self) -> Trouble:
        follower = self._one()
        return self._cutting(f"cut {follower} off its leaders", [(follower, other) for other in self._others(follower)])

    def _isolate(self) -> Trouble:
        number = self._one()
        pairs = [pair for other in self._others(number) for pair in ((number, other), (other, number))]
        return self._cutting(f"isolate {number}", pairs)

    def _cut_from_store(self) -> Trouble:
        number = str(self._one())
        return Trouble(
            f"cut {number} off the store",
            lambda: self._links.cut(number, STORE),
            self._some_s(8),
            lambda: self._links.heal(number, STORE),
        )

    def _cutting(self, name: str, pairs: Sequence[tuple[int, int]]) -> Trouble:
        links = [(str(source), str(to)) for source, to in pairs]

        def begin() -> None:
            for pair in links:
                self._links.cut(*pair)

        def mend() -> None:
            for pair in links:
                self._links.heal(*pair)

        return Trouble(name, begin, self._some_s(5), mend)

    def _slow(self) -> Trouble:
        number = str(self._one())
        others = [str(other) for other in self._others(int(number))]
        milliseconds = self._chance.choice([5, 50, 200])

        def begin() -> None:
            for other in others:
                self._links.delay(other, number, milliseconds)

        def mend() -> None:
            for other in others:
                self._links.heal(other, number)

        return Trouble(f"{milliseconds} ms to {number}", begin, self._some_s(3), mend)

    def _break(self) -> Trouble:
        number = str(self._one())

        def begin() -> None:
            for other in self._others(int(number)):
                self._links.break_(str(other), number)

        return Trouble(f"break links to {number}", begin, 0.0, _nothing)

    # --- administration

    def _reassign(self) -> Trouble:
        topic, partitions = self._moving
        brokers = sorted(self._cluster.brokers)
        targets = [self._chance.sample(brokers, 2) for _ in range(partitions)]
        parts = [ReassignablePartition(partition_index=at, replicas=target) for at, target in enumerate(targets)]
        request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=topic, partitions=parts)])

        def begin() -> None:
            self._ask(45, 0, request, AlterPartitionReassignmentsResponse)

        return Trouble(f"reassign {topic} to {targets}", begin, self._some_s(2), _nothing)

    def _elect(self) -> Trouble:
        request = ElectLeadersRequest(election_type=0, topic_partitions=None)

        def begin() -> None:
            self._ask(43, 2, request, ElectLeadersResponse)

        return Trouble("elect preferred leaders", begin, 0.0, _nothing)

    # --- helpers

    def _one(self) -> int:
        """A broker to hurt; a leader more often than others."""
        return self._leader_of() if self._chance.random() < 0.5 else self._chance.choice(sorted(self._cluster.brokers))

    def _others(self, number: int) -> list[int]:
        return [other for other in sorted(self._cluster.brokers) if other != number]

    def _some_s(self, most: float) -> float:
        return round(self._chance.uniform(0.1, most), 2)

    def _ask(self, key: int, version: int, request: Message, answer: type[Message]) -> None:
        """Ask any broker; if it hangs or dies, the request may have been done or not."""
        number = self._chance.choice(sorted(self._cluster.brokers))
        with suppress(OSError), RawClient(self._cluster[number].bootstrap) as client:
            client.ask(key, version, request, answer)

    def _start(self, number: int) -> None:
        if not self._cluster[number].is_running:
            self._cluster[number].start()

    def _wake(self, number: int) -> None:
        self._cluster[number].sigcont()
        self._start(number)  # if it held the store's lock while it hung, it was killed for that

    def _stop(self, number: int) -> None:
        if self._cluster[number].is_running:
            self._cluster[number].sigcont()  # one that hangs hears nothing
            self._cluster[number].terminate()


def _nothing() -> None:
    """Repair nothing: this fault ends by itself."""
