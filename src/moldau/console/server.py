"""The console's process: an address, uvicorn, and the end."""

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from moldau.console.app import application
from moldau.console.failures import ConsoleError
from moldau.console.security.users import read_users
from moldau.console.settings import Settings, is_loopback

BACKLOG = 128
HEADER_BYTES_MAX = 32 * 1024
CONNECTIONS_MAX = 200
KEEP_ALIVE_S = 30
END_S = 2


def check(settings: Settings) -> None:
    """Refuse settings that would let strangers in. Raises ConsoleError."""
    if settings.users is None and not is_loopback(settings.host):
        raise ConsoleError(
            f"{settings.host} can be reached from other machines: make users with `moldau console add-user NAME "
            "--users FILE`, and start with --users FILE"
        )
    if settings.users is not None and not read_users(settings.users):
        raise ConsoleError(f"{settings.users} has no users: `moldau console add-user` adds one")


def serve(settings: Settings) -> None:
    """Serve until SIGINT or SIGTERM. Raises ConsoleError where it cannot begin."""
    check(settings)
    bound = _bound(settings)
    host, port = bound.getsockname()[:2]
    app = application(settings)
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=HEADER_BYTES_MAX,
        limit_concurrency=CONNECTIONS_MAX,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=END_S,
        ws="none",
    )
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    shown = "localhost" if is_loopback(host) else f"[{host}]" if ":" in host else host
    asyncio.run(_run(_Server(config), bound, f"moldau: the console is ready at http://{shown}:{port}/\n"))


class _Server(uvicorn.Server):
    """A server that ends on a signal like any other end: its own would send itself the signal once more."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(each, self.handle_exit, each, None)
        yield


async def _run(server: uvicorn.Server, bound: socket.socket, ready: str) -> None:
    serving = asyncio.ensure_future(server.serve(sockets=[bound]))
    while not server.started and not serving.done():
        await asyncio.sleep(0.01)
    if not serving.done():
        sys.stdout.write(ready)
        sys.stdout.flush()
    await serving


def _bound(settings: Settings) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(BACKLOG)
        return bound
    except OSError as error:
        raise ConsoleError(
            f"cannot listen at {settings.host}:{settings.port} ({error.strerror}): choose another with --port"
        ) from error
