"""Plan of a follower's fetch session with one leader (KIP-227): what it has told the leader, and has to tell next.

A request names only partitions that are new, that have moved, or that are to be tried again; the leader keeps the
rest, so an idle partition costs nothing. The law: what an answer says of a partition counts only if the position that
the leader answered for is the partition's position still. So it must have been named, by the request that is answered
or by an earlier one, and must not be due to be named again, now or when it is no longer held back.
"""

from typing import NamedTuple

from moldau.protocol.fetch_values import FIRST_EPOCH, NO_SESSION, next_session_epoch
from moldau.protocol.follower_fetch import Position
from moldau.replication.follower import FollowedPartition

NEVER = -1

FetchKey = tuple[bytes, int]
"""Topic id and partition: how answers name a partition."""


class Fetch:
    """One followed partition and how far its leader knows of it."""

    __slots__ = ("asked", "delay_ms", "key", "partition", "since")

    def __init__(self, partition: FollowedPartition) -> None:
        self.partition = partition
        self.key: FetchKey = (partition.topic_id, partition.topic_partition.partition)
        self.asked = NEVER
        """The number of the request that named it last; NEVER: the leader's session does not have it."""
        self.since = NEVER
        """The request that first named it, as long as it has stayed in the leader's session."""
        self.delay_ms = 0

    def position(self) -> Position:
        """Position to ask for."""
        partition = self.partition
        log = partition.log
        return Position(
            self.key[1],
            partition.leader_epoch,
            log.log_end_offset,
            log.leader_epochs.latest,
            log.log_start_offset,
        )


class PlannedRequest(NamedTuple):
    """One request: its number among ours, the session it continues, and what it names, by topic id."""

    number: int
    session_id: int
    session_epoch: int
    named: dict[bytes, list[Position]]
    forgotten: dict[bytes, list[int]]


class FetchPlan:
    """The partitions that are fetched from one leader."""

    __slots__ = ("_due", "_epoch", "_fetches", "_forgotten", "_held", "_number", "session_id")

    def __init__(self) -> None:
        self._fetches: dict[FetchKey, Fetch] = {}
        self._due: dict[Fetch, None] = {}
        self._held: set[Fetch] = set()
        self._forgotten: dict[FetchKey, None] = {}
        self._number = 0
        self._epoch = FIRST_EPOCH
        self.session_id = NO_SESSION

    def __len__(self) -> int:
        return len(self._fetches)

    @property
    def due(self) -> tuple[Fetch, ...]:
        return tuple(self._due)

    @property
    def has_due(self) -> bool:
        return bool(self._due)

    def fetches(self) -> tuple[Fetch, ...]:
        return tuple(self._fetches.values())

    def holds(self, fetch: Fetch) -> bool:
        """Whether it is still this object that is fetched for."""
        return self._fetches.get(fetch.key) is fetch

    def add(self, fetch: Fetch) -> None:
        self._fetches[fetch.key] = fetch
        self.name_again(fetch)

    def remove(self, fetch: Fetch) -> None:
        if self.holds(fetch):
            del self._fetches[fetch.key]
            self.leave_out(fetch)

    def rests(self, fetch: Fetch) -> bool:
        """Whether the leader knows its position, and nothing has come of it yet."""
        return fetch.asked != NEVER and self.holds(fetch) and fetch not in self._due and fetch not in self._held

    def name_again(self, fetch: Fetch) -> None:
        """Name a partition in the next request: its position moved, or is to be tried again."""
        if fetch not in self._held:
            self._due[fetch] = None

    def hold_back(self, fetch: Fetch) -> None:
        """Name a partition later: it has moved, and the leader may not hear of that yet, and sends nothing for it
        meanwhile."""
        self._due.pop(fetch, None)
        self._held.add(fetch)

    def let_go(self, fetch: Fetch) -> None:
        """Name a partition that was held back."""
        if fetch in self._held:
            self._held.discard(fetch)
            self._due[fetch] = None

    def leave_out(self, fetch: Fetch) -> None:
        """Fetch nothing for it until it is named again."""
        self._due.pop(fetch, None)
        self._held.discard(fetch)
        if fetch.asked != NEVER:
            fetch.asked = NEVER
            self._forgotten[fetch.key] = None

    def refused(self, fetch: Fetch) -> None:
        """The leader does not send for the position that it was told, and so has left it out by itself."""
        self._due.pop(fetch, None)
        fetch.asked = NEVER

    def find(self, key: FetchKey, number: int) -> Fetch | None:
        """The partition that the answer to request `number` may be taken for."""
        fetch = self._fetches.get(key)
        if fetch is None or not NEVER < fetch.asked <= number or fetch in self._due or fetch in self._held:
            return None
        return fetch

    def find_moved(self, key: FetchKey, number: int) -> Fetch | None:
        """The partition that the answer is about, though it has moved on: what it says of the leader is true."""
        fetch = self._fetches.get(key)
        return fetch if fetch is not None and fetch.asked != NEVER and fetch.since <= number else None

    def next_request(self) -> PlannedRequest:
        """Name what is due."""
        self._number = number = self._number + 1
        named: dict[bytes, list[Position]] = {}
        for fetch in self._due:
            topic_id = fetch.key[0]
            positions = named.get(topic_id)
            if positions is None:
                positions = named[topic_id] = []
            positions.append(fetch.position())
            if fetch.asked == NEVER:
                fetch.since = number
            fetch.asked = number
            if self._forgotten:
                self._forgotten.pop(fetch.key, None)
        self._due.clear()
        epoch = self._epoch
        self._epoch = next_session_epoch(epoch)
        return PlannedRequest(number, self.session_id, epoch, named, self._take_forgotten())

    def _take_forgotten(self) -> dict[bytes, list[int]]:
        topics: dict[bytes, list[int]] = {}
        for topic_id, index in self._forgotten:
            topics.setdefault(topic_id, []).append(index)
        self._forgotten.clear()
        return topics

    def start_over(self) -> None:
        """The next request begins a new session; what was in the old one is named again."""
        self.session_id = NO_SESSION
        self._epoch = FIRST_EPOCH
        self._forgotten = {}
        for fetch in self._fetches.values():
            if fetch.asked != NEVER:
                fetch.asked = NEVER
                self.name_again(fetch)
