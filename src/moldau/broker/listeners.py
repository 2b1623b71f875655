"""Open ports and the connections behind them, within the limits of the configuration."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor

from moldau.broker.connection import Connection
from moldau.broker.dispatch import Dispatcher, Peer
from moldau.broker.receive_buffers import ReceiveBuffers
from moldau.core.broker_config import BrokerConfig, Listener
from moldau.core.descriptors import shares

log = logging.getLogger(__name__)

LISTEN_BACKLOG_MIN = 1024
"""Kafka's socket.listen.backlog.size of 50 drops clients when thousands come at once."""


REFUSALS_TOLD_S = 10.0


class Listeners:
    """Accepts connections, counts them, closes idle ones. `config` is asked each time: it may change (KIP-226)."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        config: Callable[[], BrokerConfig],
        cold_reads: Executor,
    ) -> None:
        self._loop = loop
        self._config = config
        self._dispatcher: Dispatcher
        self._cold_reads = cold_reads
        self._inputs = ReceiveBuffers()
        self._servers: list[asyncio.Server] = []
        self._connections: set[Connection] = set()
        self._per_host: Counter[str] = Counter()
        self._descriptor_max = shares().connection_max
        self._told_at = -REFUSALS_TOLD_S
        self._refused = 0

    def __len__(self) -> int:
        return len(self._connections)

    def peers(self) -> list[Peer]:
        """Clients that are connected."""
        return [connection.peer for connection in self._connections]

    async def bind(self, listener: Listener) -> int:
        """Take a port, without accepting yet; returns it, as the system chose it if the listener asked for port 0."""
        limit = self._config().int("socket.request.max.bytes")
        server = await self._loop.create_server(
            lambda: Connection(
                self._loop, self, self._dispatcher, self._cold_reads, self._inputs, listener.name, limit
            ),
            listener.host or None,
            listener.port,
            backlog=max(LISTEN_BACKLOG_MIN, self._config().int("socket.listen.backlog.size")),
            start_serving=False,
        )
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def accept(self, dispatcher: Dispatcher) -> None:
        """Let clients in, whose requests go to `dispatcher`."""
        self._dispatcher = dispatcher
        for server in self._servers:
            await server.start_serving()

    def opened(self, connection: Connection) -> bool:
        """Count a connection; False if it is one too many."""
        host = connection.peer.host
        self._connections.add(connection)
        self._per_host[host] += 1
        for name, count, limit in (
            ("max.connections", len(self._connections), self._config().int("max.connections")),
            ("max.connections.per.ip", self._per_host[host], self._limit_of(host)),
        ):
            if count > limit:
                self._tell_refusal(connection, f"{name}={limit} is reached")
                return False
        if connection.fileno() >= self._descriptor_max:
            self._tell_refusal(connection, f"the descriptors from {self._descriptor_max} on are kept for files")
            return False
        return True

    def _tell_refusal(self, connection: Connection, reason: str) -> None:
        """A crowd is one line, and one more every REFUSALS_TOLD_S."""
        self._refused += 1
        now = self._loop.time()
        if now >= self._told_at + REFUSALS_TOLD_S:
            also = f", and {self._refused - 1} before" if self._refused > 1 else ""
            log.warning("refusing %s%s: %s", connection.peer, also, reason)
            self._told_at, self._refused = now, 0

    def closed(self, connection: Connection) -> None:
        if connection in self._connections:
            self._connections.remove(connection)
            self._per_host[connection.peer.host] -= 1
            if not self._per_host[connection.peer.host]:
                del self._per_host[connection.peer.host]

    def _limit_of(self, host: str) -> int:
        for override in self._config().string("max.connections.per.ip.overrides").split(","):
            name, _, limit = override.strip().rpartition(":")
            if name == host:
                return int(limit)
        return self._config().int("max.connections.per.ip")

    def close_idle(self) -> None:
        """Close connections without a request for `connections.max.idle.ms`. The time in which one is answered does not
        count: who has waited for long is not closed just after its answer, before it can ask again."""
        limit_ms = self._config().long("connections.max.idle.ms")
        if limit_ms < 0:
            return
        now = self._loop.time()
        for connection in tuple(self._connections):
            if connection.busy:
                connection.last_active = now
            elif connection.last_active < now - limit_ms / 1000:
                connection.close()

    def stop_accepting(self) -> None:
        for server in self._servers:
            server.close()

    def close(self) -> None:
        """Close everything at once."""
        self.stop_accepting()
        for connection in tuple(self._connections):
            connection.abort()
