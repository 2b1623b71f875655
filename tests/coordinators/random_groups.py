"""A shard under a random schedule in virtual time: its log, its clients, and the invariants that hold throughout.

The log is what a broker has on disk. A write is replayed at once and durable later; a restart keeps everything that
is durable and any part of the rest, and may find the log compacted. Clients do what real ones do; some stall until
their session is over, some die, and what they sent last may arrive when they are long gone.
"""

from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NamedTuple

from moldau.cluster.image import ClusterImage, PartitionImage, TopicImage
from moldau.coordinators.consumer.group import ConsumerGroup
from moldau.coordinators.consumer.matching_allowance import MatchingAllowance
from moldau.coordinators.consumer.state import ConsumerState
from moldau.coordinators.groups.offsets import Committing, OffsetToCommit, WantedOffset
from moldau.coordinators.groups.record_tables import GROUP_RECORDS
from moldau.coordinators.groups.shard import GroupShard
from moldau.coordinators.groups.world import World
from moldau.coordinators.outcome import Decision, Outcome
from moldau.coordinators.records import CoordinatorRecord, encode_record
from moldau.coordinators.timers import ManualTimers
from moldau.core.broker_config import BrokerConfig
from moldau.core.clock import ManualClock
from moldau.protocol.errors import ApiError, ErrorCode

GROUP, TOPIC = "group", "topic"
TOPIC_ID = b"t" * 16
SESSION_TIMEOUT_MS = 10_000
REBALANCE_TIMEOUT_MS = 20_000
HEARTBEAT_INTERVAL_MS = 1_000
PROPERTIES = {
    "group.initial.rebalance.delay.ms": "500",
    "group.consumer.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "group.consumer.min.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_INTERVAL_MS),
    "group.consumer.min.heartbeat.interval.ms": str(HEARTBEAT_INTERVAL_MS),
}
CONFIG, _ = BrokerConfig.parse(PROPERTIES)


class Call:
    """A request on its way."""

    def __init__(self) -> None:
        self.done = False
        self.value: Any = None
        self.error = ErrorCode.NONE
        self.on_success: Callable[[Any], None] | None = None
        """Told at the moment of the answer, which the client may look at much later."""

    def complete(self, value: object) -> None:
        if not self.done:
            self.done, self.value = True, value
            self.error = ErrorCode(getattr(value, "error_code", 0))
            self.tell()

    def tell(self) -> None:
        if self.on_success is not None and self.error is ErrorCode.NONE:
            self.on_success(self.value)

    def fail(self, code: int) -> None:
        if not self.done:
            self.done, self.error = True, ErrorCode(code)


class _InFlight(NamedTuple):
    outcome: Outcome
    log_end: int


class Broker:
    """What `broker.shard_runtime.ShardRuntime` does around a shard, with a disk that can lose what is not synced."""

    def __init__(self, rng: Random, partitions: int) -> None:
        self.rng = rng
        self.clock = ManualClock()
        self.partitions = 0
        self.image = ClusterImage()
        self.grow(partitions)
        self._log: list[tuple[bytes, bytes | None]] = []
        self._durable = 0
        self._in_flight: deque[_InFlight] = deque()
        self._calls: list[Call] = []
        self.refuse_appends = 0.0
        """How likely the log takes no records."""
        self.refusals = 0
        self._load()

    def grow(self, more: int) -> None:
        self.partitions += more
        states = (PartitionImage(1, 0, (1,), (1,)),) * self.partitions
        self.image = self.image.with_topic(TopicImage(TOPIC, TOPIC_ID, states, {}))

    def write(self, decide: Callable[[GroupShard], Decision[Any]]) -> Call:
        call = Call()
        try:
            outcome, promise = decide(self.shard)
        except ApiError as error:
            call.fail(error.code)
            return call
        promise.then(call.complete)

        def committed(error_code: int) -> None:
            outcome.committed(error_code)
            if error_code:
                call.fail(error_code)

        self._calls.append(call)
        self._apply(Outcome(outcome.records, committed))
        return call

    def _apply(self, outcome: Outcome) -> None:
        if outcome.records:
            if self.rng.random() < self.refuse_appends:
                self.refusals += 1
                outcome.committed(ErrorCode.COORDINATOR_NOT_AVAILABLE)
                return
            self._log += map(encode_record, outcome.records)
            if outcome.adopt is not None and self.rng.random() < 0.5:
                self._adopt(outcome.records, outcome.adopt)
            else:
                for record in outcome.records:
                    self.shard.replay(record)
        elif not self._in_flight:
            outcome.committed(0)
            return
        self._in_flight.append(_InFlight(outcome, len(self._log)))

    def _adopt(self, records: Sequence[CoordinatorRecord], adopt: Callable[[], None]) -> None:
        """What a group adopts is what the records come to."""
        group = self.shard.groups.find(GROUP)
        assert isinstance(group, ConsumerGroup)
        replayed = group.state.copy()
        for record in records:
            replayed.replay(record)
        adopt()
        for name in ConsumerState.__slots__:
            assert getattr(group.state, name) == getattr(replayed, name), name

    def sync(self) -> None:
        """All that was written is durable, or some of it: always from the front."""
        for _ in range(self.rng.randint(1, 1 + len(self._in_flight))):
            if self._in_flight:
                outcome, self._durable = self._in_flight.popleft()
                outcome.committed(0)

    def sync_all(self) -> None:
        while self._in_flight:
            self.sync()

    def pass_time(self, ms: int) -> None:
        """In small steps, so that the clock and the timers agree."""
        while ms > 0:
            step = min(ms, 250)
            self.clock.advance(step)
            self._timers.advance(step)
            ms -= step

    def restart(self) -> None:
        """Sometimes the coordinator only moves, and those who wait are told; sometimes the power fails.

        What was not synced may be lost, but only in whole batches: a torn one has a wrong checksum and is cut off.
        """
        ends = [self._durable, *(each.log_end for each in self._in_flight)]
        if self.rng.random() < 0.5:
            self.shard.on_unloaded()
            while self._in_flight:
                self._in_flight.popleft().outcome.committed(ErrorCode.NOT_COORDINATOR)
        self._in_flight.clear()
        del self._log[self.rng.choice(ends) :]
        self._durable = len(self._log)
        if self.rng.random() < 0.5:
            self._compact()
        calls, self._calls = self._calls, []
        for call in calls:
            call.fail(ErrorCode.NOT_COORDINATOR)
        self._load()

    def _compact(self) -> None:
        """The last record of each key; a tombstone may have gone too."""
        last = {key: offset for offset, (key, _) in enumerate(self._log)}
        without_tombstones = self.rng.random() < 0.5
        self._log = [
            (key, value)
            for offset, (key, value) in enumerate(self._log)
            if last[key] == offset and not (value is None and without_tombstones)
        ]
        self._durable = len(self._log)

    def _load(self) -> None:
        self._timers = ManualTimers(self._apply, self.clock.now_ms())
        world = World(
            self.clock,
            self._timers,
            lambda: CONFIG,
            lambda: self.image,
            lambda: self.rng.randbytes(16),
            MatchingAllowance(),
        )
        self.shard = GroupShard(world)
        for key, value in self._log:
            record = GROUP_RECORDS.decode(key, value)
            assert record is not None
            self.shard.replay(record)
        for outcome in self.shard.on_loaded():
            self._apply(outcome)

    def committed_offset(self, partition: int) -> int:
        [found] = self.shard.offsets.fetch(GROUP, [WantedOffset(TOPIC, TOPIC_ID, partition)])
        return found.offset


class Client:
    """A consumer. Subclasses speak a protocol; here is what it reads and commits."""

    def __init__(self, sim: "Simulation", name: str, instance_id: str | None) -> None:
        self.sim = sim
        self.name = name
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        self.owned: set[int] = set()
        self.positions: dict[int, int] = {}
        self.stalled_until_ms = 0
        self.acted_ms = 0
        self.call: Call | None = None
        self.on_answer: Callable[[Call], None] = self.ignore

    def ignore(self, call: Call) -> None:
        """Nobody waits for this answer."""

    def send(
        self,
        decide: Callable[[GroupShard], Decision[Any]],
        on_answer: Callable[[Call], None],
        on_success: Callable[[Any], None] | None = None,
    ) -> None:
        self.call = self.sim.broker.write(decide)
        self.on_answer = on_answer
        self.call.on_success = on_success
        if self.call.done:
            self.call.tell()

    def step(self) -> None:
        """Take in an answer, or send what is next."""
        if self.call is not None:
            if self.call.done:
                call, self.call = self.call, None
                self.on_answer(call)
            return
        now_ms = self.sim.broker.clock.now_ms()
        is_due = now_ms >= self.acted_ms + 2 * HEARTBEAT_INTERVAL_MS  # commits do not keep a client from its heartbeat
        if self.owned and not is_due and self.sim.rng.random() < 0.4:
            self.commit()
        else:
            self.acted_ms = now_ms
            self.act()

    def act(self) -> None:
        """The next request of the protocol."""
        raise NotImplementedError

    def leave(self) -> None:
        raise NotImplementedError

    def owns_nothing(self) -> None:
        self.owned, self.positions = set(), {}

    def take(self, partitions: set[int]) -> None:
        """Own exactly these; new ones are read from where the group is."""
        broker = self.sim.broker
        self.positions = {each: at for each, at in self.positions.items() if each in partitions}
        for each in partitions - self.positions.keys():
            self.positions[each] = max(broker.committed_offset(each), 0)
        self.owned = set(partitions)

    def commit(self) -> None:
        """Read a little further and commit it."""
        partition = self.sim.rng.choice(sorted(self.owned))
        self.positions[partition] += self.sim.rng.randint(1, 5)
        call = self.sim.commit(self, partition, self.positions[partition])
        self.call, self.on_answer = call, self.committed

    def committed(self, call: Call) -> None:
        """What a refusal means depends on the protocol; the next heartbeat will tell as well."""


class Simulation:
    """One schedule. `client` makes a client of the protocol under test."""

    def __init__(self, seed: int, client: "Callable[[Simulation, str, str | None], Client]") -> None:
        self.rng = Random(seed)
        self.broker = Broker(self.rng, self.rng.randint(1, 8))
        self._make_client = client
        self.clients: list[Client] = []
        self.acknowledged: dict[int, int] = {}
        self._ghosts: list[Client] = []
        self._names = 0
        self._commits: list[tuple[int, int, Call]] = []

    # --- what happens

    def run(self, steps: int) -> None:
        actions: list[tuple[int, Callable[[], None]]] = [
            (60, self._client_steps),
            (15, lambda: self.pass_time(self.rng.randint(50, 1500))),
            (12, self.broker.sync),
            (4, self._client_joins),
            (2, self._client_leaves),
            (2, self._client_dies),
            (2, self._client_stalls),
            (2, self._ghost_commits),
            (2, self.restart),
            (1, lambda: self.broker.grow(1)),
            (1, self._reset),
        ]
        weights = [weight for weight, _ in actions]
        for _ in range(steps):
            [(_, act)] = self.rng.choices(actions, weights)
            act()
            self.check()

    def pass_time(self, ms: int) -> None:
        self.broker.pass_time(ms)

    def restart(self) -> None:
        self.broker.restart()
        for partition, offset in self.acknowledged.items():
            found = self.broker.committed_offset(partition)
            assert found >= offset, f"acknowledged {offset} of partition {partition}, after the restart it is {found}"

    def _client_steps(self) -> None:
        awake = [each for each in self.clients if each.stalled_until_ms <= self.broker.clock.now_ms()]
        if awake:
            self.rng.choice(awake).step()

    def _client_joins(self) -> None:
        if len(self.clients) >= 6:
            return
        self._names += 1
        free = {"a", "b", "c"} - {each.instance_id for each in self.clients}
        instance_id = self.rng.choice(sorted(free)) if free and self.rng.random() < 0.4 else None
        self.clients.append(self._make_client(self, f"client-{self._names}", instance_id))

    def _client_leaves(self) -> None:
        if self.clients:
            leaving = self.clients.pop(self.rng.randrange(len(self.clients)))
            self._ghosts.append(leaving)
            leaving.leave()

    def _client_dies(self) -> None:
        if self.clients:
            self._ghosts.append(self.clients.pop(self.rng.randrange(len(self.clients))))

    def _client_stalls(self) -> None:
        if self.clients:
            pause_ms = self.rng.randint(1_000, 2 * SESSION_TIMEOUT_MS)
            self.rng.choice(self.clients).stalled_until_ms = self.broker.clock.now_ms() + pause_ms

    def _ghost_commits(self) -> None:
        """The last commit of one who has gone arrives late."""
        if self._ghosts:
            ghost = self.rng.choice(self._ghosts)
            for partition in sorted(ghost.owned):
                self.commit(ghost, partition, ghost.positions[partition])

    def _reset(self) -> None:
        """An administrator sets an offset back: allowed only while nobody is in the group."""
        partition = self.rng.randrange(self.broker.partitions)
        call = self._commit(Committing(GROUP), partition, 0)
        if call.error is ErrorCode.NONE:
            group = self.broker.shard.groups.find(GROUP)
            assert group is None or group.is_empty, "offsets were reset under the members' feet"
            self.acknowledged.pop(partition, None)
            self._commits = [each for each in self._commits if each[0] != partition]
            for ghost in self._ghosts:
                ghost.owned.discard(partition)

    # --- what must hold

    def commit(self, client: Client, partition: int, offset: int) -> Call:
        who = Committing(GROUP, client.member_id, client.instance_id, client.generation)
        call = self._commit(who, partition, offset)
        if call.error is ErrorCode.NONE:
            self.assert_may_commit(client, partition)
            self._commits.append((partition, offset, call))
        return call

    def _commit(self, who: Committing, partition: int, offset: int) -> Call:
        commit = OffsetToCommit(TOPIC, TOPIC_ID, partition, offset)
        return self.broker.write(lambda shard: shard.offsets.commit(who, [commit]))

    def assert_may_commit(self, client: Client, partition: int) -> None:
        """A commit of this client was just accepted."""
        raise NotImplementedError

    def check(self) -> None:
        """After every step."""
        waiting = []
        for partition, offset, call in self._commits:
            if not call.done:
                waiting.append((partition, offset, call))
            elif call.error is ErrorCode.NONE:
                before = self.acknowledged.get(partition, -1)
                assert offset >= before, f"partition {partition} went back from {before} to {offset}"
                self.acknowledged[partition] = offset
        self._commits = waiting

    def settle(self) -> None:
        """Nothing happens any more but heartbeats: in the end every partition has one owner."""
        if not self.clients:
            self._client_joins()
        for client in self.clients:
            client.stalled_until_ms = 0
        quiet_ms = 2 * (SESSION_TIMEOUT_MS + REBALANCE_TIMEOUT_MS)
        for _ in range(quiet_ms // HEARTBEAT_INTERVAL_MS):
            for client in self.clients:
                for _ in range(3):
                    client.step()
                    self.broker.sync_all()
                    self.check()
            self.pass_time(HEARTBEAT_INTERVAL_MS)
        owned = sorted(partition for client in self.clients for partition in client.owned)
        assert owned == list(range(self.broker.partitions)), {each.name: each.owned for each in self.clients}
        group = self.broker.shard.groups.find(GROUP)
        assert group is not None
        assert group.state_name == "Stable"
        for partition, offset in self.acknowledged.items():
            assert self.broker.committed_offset(partition) >= offset
