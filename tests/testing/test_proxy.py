"""Links between a client and an echo server: cut, healed, delayed, broken."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from struct import Struct

import pytest

from moldau.testing.proxy import Links

TIMEOUT_S = 10.0
SILENCE_S = 0.2
"""How long nothing has to come for us to believe that nothing comes."""


@pytest.fixture
def echo_port() -> Iterator[int]:
    """A server that answers each byte with itself."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(65536):
                    connection.sendall(data)
            except OSError:
                return

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


@pytest.fixture
def links(echo_port: int) -> Iterator[Links]:
    """With broker 1 behind a proxy; its real address is the echo server's."""
    made = Links()
    made.point("1", echo_port)
    yield made
    made.close()


def request(client_id: bytes) -> bytes:
    """The start of any request of this client."""
    return Struct(">ihhih").pack(10 + len(client_id), 18, 0, 7, len(client_id)) + client_id


@contextmanager
def connected(port: int, broker: int) -> Iterator[socket.socket]:
    """As this broker's fetcher, having sent a request."""
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as connection:
        connection.sendall(request(b"broker-%d-fetcher" % broker))
        yield connection


def receive(connection: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count:
        piece = connection.recv(count - len(received))
        if not piece:
            raise EOFError(received)
        received += piece
    return received


def is_silent(connection: socket.socket) -> bool:
    connection.settimeout(SILENCE_S)
    try:
        connection.recv(1)
    except TimeoutError:
        return True
    finally:
        connection.settimeout(TIMEOUT_S)
    return False


FIRST = request(b"broker-2-fetcher")


def test_everything_passes_a_whole_link(links: Links) -> None:
    with connected(links.open("1"), 2) as connection:
        connection.sendall(bytes(300_000))
        assert receive(connection, len(FIRST) + 300_000) == FIRST + bytes(300_000)


def test_what_was_sent_over_a_cut_link_arrives_when_it_is_healed(links: Links) -> None:
    with connected(links.open("1"), 2) as connection:
        receive(connection, len(FIRST))
        links.cut("2", "1")
        connection.sendall(b"late")
        assert is_silent(connection)
        links.heal("2", "1")
        assert receive(connection, 4) == b"late"


def test_a_cut_link_accepts_connections_and_lets_them_wait(links: Links) -> None:
    links.cut("2", "1")
    with connected(links.open("1"), 2) as connection:
        assert is_silent(connection)
        links.heal_all()
        assert receive(connection, len(FIRST)) == FIRST


def test_only_the_link_that_was_cut_is_cut(links: Links) -> None:
    port = links.open("1")
    links.cut("2", "1")
    with connected(port, 3) as connection:
        assert receive(connection, len(FIRST)) == request(b"broker-3-fetcher")


def test_a_proxy_of_ones_own_needs_no_client_id(links: Links) -> None:
    port = links.open("1", source="2")
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as connection:
        connection.sendall(b"x")
        assert receive(connection, 1) == b"x"
        links.cut("2", "1")
        connection.sendall(b"y")
        assert is_silent(connection)


def test_a_delayed_link_takes_its_time_each_way(links: Links) -> None:
    with connected(links.open("1"), 2) as connection:
        receive(connection, len(FIRST))
        links.delay("2", "1", 100)
        begun = time.monotonic()
        connection.sendall(b"x")
        assert receive(connection, 1) == b"x"
        assert time.monotonic() - begun >= 0.2


def test_a_broken_link_ends_its_connections_and_takes_new_ones(links: Links) -> None:
    port = links.open("1")
    with connected(port, 2) as connection:
        receive(connection, len(FIRST))
        links.break_("2", "1")
        with pytest.raises((EOFError, ConnectionResetError)):
            receive(connection, 1)
    with connected(port, 2) as connection:
        assert receive(connection, len(FIRST)) == FIRST


def test_nobody_behind_the_proxy_ends_the_connection(links: Links) -> None:
    links.point("1", 1)
    with connected(links.open("1"), 2) as connection, pytest.raises((EOFError, ConnectionResetError)):
        receive(connection, 1)
