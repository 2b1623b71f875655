"""Consumer groups of Moldau and of Apache Kafka, side by side: how long a group takes to settle, and at which CPU.

A group of 100 librdkafka consumers joins a topic of 200 partitions, and is settled when everybody has two of them.
Then 1,000 groups with one member each (plain connections that speak the protocol) join, and are held by heartbeats.
Both protocols, the same load on both brokers in turn, medians of the rounds; a first round warms the JVM up and is
thrown away. `python -m bench.groups` prints the table.
"""

import argparse
import asyncio
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from struct import Struct
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import Consumer, TopicPartition

from bench import kafka
from bench.process import Server, start
from bench.report import KAFKA, MOLDAU, Row
from moldau.protocol import codec
from moldau.protocol.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from moldau.protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from moldau.protocol.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.protocol.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from moldau.protocol.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from moldau.protocol.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from moldau.protocol.schema import Message

CONSUMERS, PARTITIONS = 100, 200
GROUPS = 1_000
HOLD_S = 10.0
HEARTBEAT_S = 1.0
TIMEOUT_S = 120.0
TOPIC, SMALL_TOPIC = "shared", "small"
SETTLE_RATIO_MAX = 1.0
MEMBER_ID_REQUIRED = 79
LEAVE_EPOCH = -1
RETRIABLE = (14, 15, 16)  # the coordinator is loading, not there yet, elsewhere
PROTOCOLS = ("classic", "consumer")


class Measured(NamedTuple):
    """One piece of work on one broker; of groups that are held, the slowest heartbeat."""

    seconds: float
    cpu_s: float


# --- one group of many consumers


class Member:
    """A librdkafka consumer and what it owns."""

    def __init__(self, bootstrap: str, group: str, protocol: str) -> None:
        classic = {"session.timeout.ms": 30_000, "heartbeat.interval.ms": int(HEARTBEAT_S * 1000)}
        self.owned: set[int] = set()
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.protocol": protocol,
                "auto.offset.reset": "latest",
                "enable.auto.commit": False,
                "log_level": 0,
                **(classic if protocol == "classic" else {}),
            }
        )
        self.consumer.subscribe([TOPIC], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.owned |= {each.partition for each in partitions}

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.owned -= {each.partition for each in partitions}


def settle(server: Server, protocol: str) -> Measured:
    """Seconds from the first subscription until every consumer has its share."""
    group = f"settling-{uuid.uuid4().hex[:8]}"
    cpu_s, begun = server.cpu_s(), time.monotonic()
    members = [Member(server.bootstrap, group, protocol) for _ in range(CONSUMERS)]
    try:
        while not _is_settled(members):
            if time.monotonic() > begun + TIMEOUT_S:
                raise SystemExit(f"{server.name}: the group did not settle in {TIMEOUT_S:.0f} s")
            for member in members:
                member.consumer.poll(0)
            time.sleep(0.005)
        return Measured(time.monotonic() - begun, server.cpu_s() - cpu_s)
    finally:
        for member in members:
            member.consumer.close()


def _is_settled(members: Sequence[Member]) -> bool:
    share = PARTITIONS // CONSUMERS
    if any(len(member.owned) != share for member in members):
        return False
    return len(set().union(*(member.owned for member in members))) == PARTITIONS


# --- many groups of one member

R = TypeVar("R", bound=Message)
_REQUEST = Struct(">ihhih")


class Connection:
    """A plain client: one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def ask(self, key: int, version: int, request: Message, answer: type[R]) -> R:
        body = codec.encode(request, version)
        self._writer.write(_REQUEST.pack(11 + len(body), key, version, 1, 0) + b"\0" + body)
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        return codec.decode(answer, version, await self._reader.readexactly(size), 5)

    def close(self) -> None:
        self._writer.close()


class ClassicMember:
    """JoinGroup twice (KIP-394), SyncGroup, then heartbeats."""

    def __init__(self, connection: Connection, group: str) -> None:
        self._connection = connection
        self._group = group
        self._member_id = ""
        self._generation = -1

    async def join(self) -> None:
        joined = await self._join()
        while joined.error_code in (MEMBER_ID_REQUIRED, *RETRIABLE):
            self._member_id = joined.member_id or self._member_id
            joined = await self._join()
        _check(joined.error_code)
        self._generation = joined.generation_id
        share = [SyncGroupRequestAssignment(member_id=self._member_id, assignment=b"all")]
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=self._generation,
            member_id=self._member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=share,
        )
        _check((await self._connection.ask(14, 5, request, SyncGroupResponse)).error_code)

    async def _join(self) -> JoinGroupResponse:
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id=self._member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=_SUBSCRIPTION)],
        )
        return await self._connection.ask(11, 9, request, JoinGroupResponse)

    async def beat(self) -> None:
        request = HeartbeatRequest(group_id=self._group, generation_id=self._generation, member_id=self._member_id)
        _check((await self._connection.ask(12, 4, request, HeartbeatResponse)).error_code)

    async def leave(self) -> None:
        request = LeaveGroupRequest(group_id=self._group, members=[MemberIdentity(member_id=self._member_id)])
        _check((await self._connection.ask(13, 5, request, LeaveGroupResponse)).error_code)


# Metadata of the consumer protocol, version 0: the topics, and no user data.
_SUBSCRIPTION = b"\0\0\0\0\0\1" + len(SMALL_TOPIC).to_bytes(2, "big") + SMALL_TOPIC.encode() + b"\xff\xff\xff\xff"


class ConsumerMember:
    """ConsumerGroupHeartbeat until the partitions are there, then on and on (KIP-848)."""

    def __init__(self, connection: Connection, group: str) -> None:
        self._connection = connection
        self._group = group
        self._member_id = uuid.uuid4().hex
        self._epoch = 0
        self._owned: list[TopicPartitions] = []

    async def join(self) -> None:
        while not self._owned:
            first: dict[str, Any] = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": [SMALL_TOPIC]}
            await self._beat(**(first if self._epoch == 0 else {}))

    async def beat(self) -> None:
        await self._beat()

    async def leave(self) -> None:
        self._epoch = LEAVE_EPOCH
        await self._beat()

    async def _beat(self, **fields: Any) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self._member_id,
            member_epoch=self._epoch,
            topic_partitions=self._owned,
            **fields,
        )
        answer = await self._connection.ask(68, 1, request, ConsumerGroupHeartbeatResponse)
        if answer.error_code in RETRIABLE:
            return
        _check(answer.error_code)
        self._epoch = answer.member_epoch
        if answer.assignment is not None:
            self._owned = answer.assignment.topic_partitions


MEMBERS: dict[str, type[ClassicMember] | type[ConsumerMember]] = {
    "classic": ClassicMember,
    "consumer": ConsumerMember,
}


def _check(error_code: int) -> None:
    if error_code:
        raise SystemExit(f"the coordinator answered with error {error_code}")


def hold(server: Server, protocol: str) -> tuple[Measured, Measured]:
    """All join at once; then each sends heartbeats for a while."""
    return asyncio.run(_hold(server, MEMBERS[protocol]))


async def _hold(server: Server, kind: type[ClassicMember] | type[ConsumerMember]) -> tuple[Measured, Measured]:
    run = uuid.uuid4().hex[:8]
    connections = [await _connect(server) for _ in range(GROUPS)]
    members = [kind(connection, f"held-{run}-{number}") for number, connection in enumerate(connections)]
    try:
        cpu_s, begun = server.cpu_s(), time.monotonic()
        await asyncio.wait_for(asyncio.gather(*(member.join() for member in members)), TIMEOUT_S)
        joined = Measured(time.monotonic() - begun, server.cpu_s() - cpu_s)
        cpu_s, begun = server.cpu_s(), time.monotonic()
        slowest_s = max(await asyncio.gather(*(_stay(member, number) for number, member in enumerate(members))))
        return joined, Measured(slowest_s, server.cpu_s() - cpu_s)
    finally:
        # Sessions that end by themselves would do so in the middle of the next measurement.
        await asyncio.gather(*(member.leave() for member in members))
        for connection in connections:
            connection.close()


async def _connect(server: Server) -> Connection:
    """Connected, having asked for the coordinator as clients do: the first one makes the topic of the offsets."""
    connection = Connection(*await asyncio.open_connection("127.0.0.1", server.port))
    while (await connection.ask(10, 3, FindCoordinatorRequest(key="held"), FindCoordinatorResponse)).error_code:
        await asyncio.sleep(0.01)
    return connection


async def _stay(member: ClassicMember | ConsumerMember, number: int) -> float:
    """The slowest heartbeat, in seconds. Members are spread over the interval."""
    await asyncio.sleep(HEARTBEAT_S * number / GROUPS)
    slowest_s = 0.0
    for _ in range(int(HOLD_S / HEARTBEAT_S)):
        begun = time.monotonic()
        await member.beat()
        slowest_s = max(slowest_s, time.monotonic() - begun)
        await asyncio.sleep(HEARTBEAT_S)
    return slowest_s


# --- the run


Samples = dict[str, dict[str, list[Measured]]]


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code: with --check, 1 if a target was missed."""
    parser = argparse.ArgumentParser("python -m bench.groups", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--check", action="store_true", help="exit with 1 if a target is missed")
    options = parser.parse_args(argv)
    samples: Samples = {}
    with ExitStack() as running:
        servers = [running.enter_context(starter()) for starter in (_start_moldau, kafka.start_kafka)]
        for server in servers:
            kafka.create_topic(server.bootstrap, TOPIC, PARTITIONS)
            kafka.create_topic(server.bootstrap, SMALL_TOPIC, 1)
        _round(servers, {})
        for number in range(options.rounds):
            _round(servers if number % 2 == 0 else servers[::-1], samples)
    rows = _rows(samples)
    sys.stdout.write("| | Moldau | Kafka | ratio | target | |\n|---|---:|---:|---:|---|---|\n")
    sys.stdout.write("".join(f"{row}\n" for row in rows))
    return 1 if options.check and not all(row.is_met for row in rows) else 0


def _start_moldau() -> Server:
    settings = ("group.initial.rebalance.delay.ms=0", "log.flush.policy=os")  # what the Kafka beside it has

    def command(directory: Path, port: int) -> list[str]:
        where = ["--host", "127.0.0.1", "--port", str(port), "--data", str(directory / "data")]
        overrides = [word for setting in settings for word in ("--override", setting)]
        return [sys.executable, "-m", "moldau", "serve", *where, *overrides]

    return start(MOLDAU, command)


def _round(servers: Sequence[Server], samples: Samples) -> None:
    for protocol in PROTOCOLS:
        for server in servers:
            _add(samples, f"{CONSUMERS} consumers settle, {protocol}", server, settle(server, protocol))
        for server in servers:
            joined, held = hold(server, protocol)
            _add(samples, f"{GROUPS:,} groups join, {protocol}", server, joined)
            _add(samples, f"{GROUPS:,} groups held {HOLD_S:.0f} s, {protocol}", server, held)


def _add(samples: Samples, work: str, server: Server, measured: Measured) -> None:
    sys.stderr.write(f"  {work:42} {server.name:8} {measured.seconds:7.3f} s {measured.cpu_s:6.2f} CPU s\n")
    samples.setdefault(work, {}).setdefault(server.name, []).append(measured)


def _rows(samples: Samples) -> list[Row]:
    rows = []
    for work, servers in samples.items():
        if "held" not in work:
            rows.append(_row(f"{work}: s", servers, lambda each: each.seconds))
        rows.append(_row(f"{work}: broker CPU s", servers, lambda each: each.cpu_s))
    return rows


def _row(name: str, servers: dict[str, list[Measured]], value: Callable[[Measured], float]) -> Row:
    ours, theirs = (max(median(map(value, servers[each])), 0.001) for each in (MOLDAU, KAFKA))
    return Row(name, ours, theirs, f"ratio <= {SETTLE_RATIO_MAX}", ours / theirs <= SETTLE_RATIO_MAX)


if __name__ == "__main__":
    sys.exit(main())
