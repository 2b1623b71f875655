"""One line leads to each broker, wherever it is, and carries one request at a time."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import cast

import pytest
import uvloop

from moldau.broker.peer_lines import PeerLine, PeerLines
from moldau.cluster.image import NO_LEADER, BrokerInfo, Endpoint
from moldau.core.broker_config import BrokerConfig
from moldau.core.invariants import InvariantError
from moldau.protocol.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.requests.parts import Parts
from tests.broker.fake_leader import FakeLeader

OTHER = 2
VERSION = 4


class ToyLine(PeerLine):
    """A line that remembers whether it was closed as a whole."""

    is_closed = False

    def ask(self) -> "asyncio.Future[HeartbeatResponse | None]":
        future: asyncio.Future[HeartbeatResponse | None] = self._loop.create_future()
        self._request(HeartbeatRequest(group_id="g"), VERSION, HeartbeatResponse, future.set_result)
        return future

    def close(self) -> None:
        self.is_closed = True
        super().close()


class Cluster:
    """One other broker, and the lines to it."""

    def __init__(self) -> None:
        config, _ = BrokerConfig.parse({})
        self._brokers: dict[int, BrokerInfo] = {}
        image = SimpleNamespace(brokers=self._brokers)
        parts = cast(Parts, SimpleNamespace(broker_id=1, config=config, metadata=SimpleNamespace(image=image)))
        loop = asyncio.get_running_loop()
        self.lines = PeerLines(parts, lambda: ToyLine(loop, parts, "toys"))

    def move(self, port: int) -> None:
        self._brokers[OTHER] = BrokerInfo(OTHER, None, (Endpoint("PLAINTEXT", "127.0.0.1", port, "PLAINTEXT"),))

    def line(self) -> ToyLine:
        line = self.lines.find(OTHER)
        assert line is not None
        return line


def story(tell: Callable[[Cluster, FakeLeader], Awaitable[None]]) -> None:
    async def run() -> None:
        cluster, peer = Cluster(), FakeLeader()
        cluster.move(await peer.start())
        try:
            await tell(cluster, peer)
        finally:
            cluster.lines.close()
            await peer.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def test_a_broker_that_has_moved_is_asked_where_it_is_over_the_same_line() -> None:
    async def tell(cluster: Cluster, peer: FakeLeader) -> None:
        line = cluster.line()
        for _ in range(2):
            waiting = line.ask()
            asked = await peer.asked()
            assert asked.header.client_id == "broker-1-toys"
            asked.answer(HeartbeatResponse(throttle_time_ms=3))
            assert await waiting == HeartbeatResponse(throttle_time_ms=3)
        assert peer.connections == 1
        elsewhere = FakeLeader()
        cluster.move(await elsewhere.start())
        assert cluster.line() is line
        waiting = line.ask()
        (await elsewhere.asked()).answer(HeartbeatResponse())
        assert await waiting == HeartbeatResponse()
        assert not line.is_closed, "what waits for the broker still does"
        await elsewhere.stop()

    story(tell)


def test_who_is_gone_or_talks_nonsense_has_not_answered() -> None:
    async def tell(cluster: Cluster, peer: FakeLeader) -> None:
        line = cluster.line()
        waiting = line.ask()
        asked = await peer.asked()
        asked.write((5).to_bytes(4, "big") + asked.header.correlation_id.to_bytes(4, "big") + b"?")
        assert await waiting is None
        waiting = line.ask()
        (await peer.asked()).hang_up()
        assert await waiting is None

    story(tell)


def test_to_send_a_second_request_before_the_first_is_answered_is_our_own_mistake() -> None:
    async def tell(cluster: Cluster, peer: FakeLeader) -> None:
        waiting = cluster.line().ask()
        with pytest.raises(InvariantError, match="before the first is answered"):
            cluster.line().ask()
        cluster.lines.close()
        assert await waiting is None
        assert peer.is_quiet

    story(tell)


def test_no_line_leads_to_nobody() -> None:
    async def tell(cluster: Cluster, _peer: FakeLeader) -> None:
        assert cluster.lines.find(NO_LEADER) is None
        assert cluster.lines.find(3) is None
        assert list(cluster.lines) == []

    story(tell)
