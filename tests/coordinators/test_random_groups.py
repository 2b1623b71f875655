"""Groups of both protocols under random schedules: the invariants of `random_groups`, from a printed seed.

A failure names its seed: `MOLDAU_SEED=123 pytest tests/coordinators/test_random_groups.py` runs that one again.
"""

import os
from collections.abc import Callable

import pytest

from moldau.coordinators.consumer.group import ConsumerGroup
from moldau.coordinators.groups.group import Caller
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from moldau.protocol.messages.k12_heartbeat import HeartbeatRequest
from moldau.protocol.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from moldau.protocol.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from moldau.protocol.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from tests.coordinators.random_groups import (
    GROUP,
    REBALANCE_TIMEOUT_MS,
    SESSION_TIMEOUT_MS,
    TOPIC,
    TOPIC_ID,
    Call,
    Client,
    Simulation,
)
from tests.seeds import AFRESH, ENVIRONMENT, seed_of

SCHEDULES = 100
STEPS = 150
# Metadata of the consumer protocol, version 0: the topics, and no user data.
SUBSCRIPTION = b"\0\0" + b"\0\0\0\1" + len(TOPIC).to_bytes(2, "big") + TOPIC.encode() + b"\xff\xff\xff\xff"
LOST_MEMBERSHIP = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.GROUP_ID_NOT_FOUND)


class ClassicClient(Client):
    """Eager rebalances: it gives up everything before it joins. The assignment is a list of partitions as bytes."""

    sim: "ClassicSimulation"
    joined: JoinGroupResponse | None = None
    partitions_seen = 0

    @property
    def caller(self) -> Caller:
        return Caller(9, self.name, "/host")

    def act(self) -> None:
        if self.joined is not None:
            self._sync(self.joined)
        elif self.generation < 0:
            self._join()
        elif self.is_leader and self.partitions_seen != self.sim.broker.partitions:
            self._rejoin()  # it saw new partitions
        else:
            self._beat()

    is_leader = False

    def _join(self) -> None:
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
        )
        self.send(lambda shard: shard.groups.join(request, self.caller), self._on_join, self._joined)

    def _on_join(self, call: Call) -> None:
        if call.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = call.value.member_id
        elif call.error in LOST_MEMBERSHIP:
            self._forget()
        elif call.error is ErrorCode.NONE:
            self.member_id = call.value.member_id
            self.joined = call.value

    def _joined(self, answer: JoinGroupResponse) -> None:
        self.sim.on_joined(self, answer)

    def _sync(self, joined: JoinGroupResponse) -> None:
        self.joined = None
        self.is_leader = joined.leader == self.member_id
        assignments = []
        if self.is_leader and not joined.skip_assignment:
            assignments = self._assign([each.member_id for each in joined.members])
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=joined.generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=assignments,
        )
        self.send(lambda shard: shard.groups.sync(request), lambda call: self._on_sync(call, joined))

    def _assign(self, member_ids: list[str]) -> list[SyncGroupRequestAssignment]:
        self.partitions_seen = self.sim.broker.partitions
        shares: dict[str, list[int]] = {member_id: [] for member_id in member_ids}
        for partition in range(self.partitions_seen):
            shares[member_ids[partition % len(member_ids)]].append(partition)
        return [
            SyncGroupRequestAssignment(member_id=member_id, assignment=bytes(share))
            for member_id, share in shares.items()
        ]

    def _on_sync(self, call: Call, joined: JoinGroupResponse) -> None:
        if call.error is ErrorCode.NONE:
            self.generation = joined.generation_id
            self.take(set(call.value.assignment))
            self.sim.on_owned(self)
        elif call.error in LOST_MEMBERSHIP:
            self._forget()
        # otherwise it joins again

    def _beat(self) -> None:
        request = HeartbeatRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        self.send(lambda shard: shard.groups.heartbeat(request), self._on_trouble)

    def committed(self, call: Call) -> None:
        self._on_trouble(call)

    def _on_trouble(self, call: Call) -> None:
        if call.error in LOST_MEMBERSHIP:
            self._forget()
        elif call.error in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION):
            self._rejoin()

    def _rejoin(self) -> None:
        self.generation = -1
        self.owns_nothing()

    def _forget(self) -> None:
        self._rejoin()
        self.member_id = ""
        self.joined = None

    def leave(self) -> None:
        if self.member_id:
            member = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
            request = LeaveGroupRequest(group_id=GROUP, members=[member])
            self.sim.on_left(self, self.sim.broker.write(lambda shard: shard.groups.leave(request)))


class ClassicSimulation(Simulation):
    """Knows who is in the newest generation, from what the clients are told."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, ClassicClient)
        self._owners: dict[tuple[int, int], str] = {}
        self._generation = 0
        self._members: set[str] = set()
        self._statics: dict[str, str] = {}

    def on_joined(self, client: Client, answer: JoinGroupResponse) -> None:
        if answer.generation_id > self._generation:
            self._generation, self._members = answer.generation_id, set()
        if answer.generation_id == self._generation:
            # answers of one generation arrive in any order, and only the leader's names everybody
            self._members |= {answer.member_id, *(each.member_id for each in answer.members)}
        if client.instance_id is not None:
            replaced = self._statics.get(client.instance_id)
            if replaced not in (None, answer.member_id):
                self._members.discard(str(replaced))
            self._statics[client.instance_id] = answer.member_id

    def on_owned(self, client: Client) -> None:
        who = client.instance_id or client.member_id
        for partition in client.owned:
            owner = self._owners.setdefault((client.generation, partition), who)
            assert owner == who, f"generation {client.generation}: {owner} and {who} own partition {partition}"

    def on_left(self, client: Client, call: Call) -> None:
        if call.error is ErrorCode.NONE:
            self._members.discard(client.member_id)

    def restart(self) -> None:
        super().restart()
        group = self.broker.shard.groups.find(GROUP)  # None: it had not come as far as a record that was synced
        self._members = set() if group is None else {each.member_id for each in group.describe().members}
        self._generation = getattr(group, "generation", 0)

    def assert_may_commit(self, client: Client, partition: int) -> None:
        told = f"{client.name} committed partition {partition}"
        assert client.generation == self._generation, f"{told} in generation {client.generation}"
        assert client.member_id in self._members, f"{told} and is no member"


class ConsumerClient(Client):
    """KIP-848: it says in each heartbeat what it owns, and gives up at once what it is told to."""

    sim: "ConsumerSimulation"

    def __init__(self, sim: "ConsumerSimulation", name: str, instance_id: str | None) -> None:
        super().__init__(sim, name, instance_id)
        self.member_id = f"{name}-id"
        self.tells_all = True

    def act(self) -> None:
        """After an error it tells everything about itself: an answer may have got lost."""
        epoch = max(self.generation, 0)
        if self.tells_all:
            self._beat(epoch, rebalance_timeout_ms=REBALANCE_TIMEOUT_MS, subscribed_topic_names=[TOPIC])
        else:
            self._beat(epoch)

    def _beat(self, epoch: int, **fields: object) -> None:
        owned = [TopicPartitions(topic_id=TOPIC_ID, partitions=sorted(self.owned))] if self.owned else []
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self.instance_id,
            topic_partitions=owned,
            **fields,  # type: ignore[arg-type]  # fields of the request
        )
        self.send(lambda shard: shard.groups.consumer_heartbeat(request, Caller(1, self.name, "/host")), self._on_beat)
        if self.call is not None and self.call.error is ErrorCode.NONE:
            self.sim.on_heartbeat(self)

    def _on_beat(self, call: Call) -> None:
        self.tells_all = call.error is not ErrorCode.NONE
        if call.error in (*LOST_MEMBERSHIP, ErrorCode.FENCED_MEMBER_EPOCH):
            self._start_over()
        elif call.error is ErrorCode.NONE:
            self.generation = call.value.member_epoch
            if call.value.assignment is not None:
                given = call.value.assignment.topic_partitions
                self.take({partition for each in given for partition in each.partitions})
                self.sim.on_owned(self)

    def _start_over(self) -> None:
        self.generation = -1
        self.tells_all = True
        self.owns_nothing()

    def committed(self, call: Call) -> None:
        if call.error in LOST_MEMBERSHIP:
            self._start_over()

    def leave(self) -> None:
        if self.generation < 0:
            return
        is_back_soon = self.instance_id is not None and self.sim.rng.random() < 0.5
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=-2 if is_back_soon else -1,
            instance_id=self.instance_id,
        )
        call = self.sim.broker.write(
            lambda shard: shard.groups.consumer_heartbeat(request, Caller(1, self.name, "/host"))
        )
        self.sim.on_left(self, call)


class ConsumerSimulation(Simulation):
    """Knows how long each member may live, from its heartbeats."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, ConsumerClient)  # type: ignore[arg-type]  # clients of this protocol get this simulation
        self._owners: dict[tuple[int, int], str] = {}
        self._deadline_ms: dict[str, int] = {}
        self._refusals = 0

    def on_heartbeat(self, client: Client) -> None:
        self._deadline_ms[client.member_id] = self.broker.clock.now_ms() + SESSION_TIMEOUT_MS

    def on_left(self, client: Client, call: Call) -> None:
        if call.error is ErrorCode.NONE:
            self._deadline_ms.pop(client.member_id, None)

    def on_owned(self, client: Client) -> None:
        who = client.instance_id or client.member_id
        for partition in client.owned:
            owner = self._owners.setdefault((client.generation, partition), who)
            assert owner == who, f"epoch {client.generation}: {owner} and {who} own partition {partition}"
        self._assert_nobody_else_owns(client)

    def _assert_nobody_else_owns(self, client: Client) -> None:
        """Whoever is still a member has let go of what another one is given."""
        group = self.broker.shard.groups.find(GROUP)
        members = group.state.members if isinstance(group, ConsumerGroup) else {}
        if client.member_id not in members:
            return  # the answer comes too late
        for other in self.clients:
            if other is not client and other.member_id in members:
                assert not client.owned & other.owned, f"{client.name} and {other.name} own {client.owned}"

    def restart(self) -> None:
        super().restart()
        now_ms = self.broker.clock.now_ms()
        group = self.broker.shard.groups.find(GROUP)
        if isinstance(group, ConsumerGroup):
            self._deadline_ms = dict.fromkeys(group.state.members, now_ms + SESSION_TIMEOUT_MS)

    def check(self) -> None:
        super().check()
        if self._refusals != self.broker.refusals:  # it may have been the end of a session that was not taken
            self._refusals = self.broker.refusals
            deadline_ms = self.broker.clock.now_ms() + SESSION_TIMEOUT_MS
            self._deadline_ms = dict.fromkeys(self._deadline_ms, deadline_ms)
        group = self.broker.shard.groups.find(GROUP)
        if not isinstance(group, ConsumerGroup):
            return
        held = [each for member in group.state.members.values() for each in member.holds]
        assert len(held) == len(set(held)), "a partition is held twice"

    def assert_may_commit(self, client: Client, partition: int) -> None:
        told = f"{client.name} committed partition {partition}"
        assert self.broker.clock.now_ms() <= self._deadline_ms.get(client.member_id, -1), f"{told} after its session"
        group = self.broker.shard.groups.find(GROUP)
        assert isinstance(group, ConsumerGroup)
        assert (TOPIC_ID, partition) in group.state.members[client.member_id].holds, f"{told} and does not hold it"


SIMULATIONS = {"classic": ClassicSimulation, "consumer": ConsumerSimulation}


def _seeds() -> list[int]:
    first = seed_of(__name__)
    return [first] if os.environ.get(ENVIRONMENT, AFRESH) != AFRESH else list(range(first, first + SCHEDULES))


def _run(make: Callable[[int], Simulation], refuse_appends: float = 0.0) -> None:
    for seed in _seeds():
        try:
            simulation = make(seed)
            simulation.broker.refuse_appends = refuse_appends
            simulation.run(STEPS)
            simulation.broker.refuse_appends = 0.0
            simulation.settle()
        except Exception as error:
            raise AssertionError(f"MOLDAU_SEED={seed}: {error}") from error


@pytest.mark.parametrize("protocol", SIMULATIONS)
def test_the_invariants_hold_whatever_happens(protocol: str) -> None:
    _run(SIMULATIONS[protocol])


@pytest.mark.parametrize("protocol", SIMULATIONS)
def test_the_invariants_hold_when_the_log_refuses_writes(protocol: str) -> None:
    _run(SIMULATIONS[protocol], refuse_appends=0.05)
