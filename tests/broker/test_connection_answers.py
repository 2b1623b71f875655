"""In how many writes the answers of a connection leave, and in which order."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import pytest

from moldau.broker.connection import REQUESTS_IN_FLIGHT_MAX, Connection
from moldau.broker.dispatch import Answer, Dispatcher
from moldau.broker.inputs import Inputs
from moldau.handlers.later import Later
from moldau.protocol.errors import ProtocolError

LATER, REFUSED, UNANSWERED = b"later", b"refused", b"unanswered"


class Echo:
    """Answers each request with itself, but for some."""

    def __init__(self) -> None:
        self.waiting: list[Later] = []

    def dispatch(self, frame: bytes | memoryview, _: object, *, is_lent: bool = False) -> Answer:  # noqa: ARG002  as that of a dispatcher
        request = bytes(frame)
        if request == REFUSED:
            raise ProtocolError("no such request")
        if request == UNANSWERED:
            return None
        if request == LATER:
            self.waiting.append(Later())
            return self.waiting[-1]
        return request


class Transport:
    """Takes all at once."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.is_aborted = False

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def writelines(self, chunks: list[bytes]) -> None:
        self.writes.append(b"".join(chunks))

    def abort(self) -> None:
        self.is_aborted = True

    def is_closing(self) -> bool:
        return self.is_aborted

    def get_extra_info(self, _: str) -> None:
        return None

    def set_write_buffer_limits(self, high: int) -> None:
        assert high == 0

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Owner:
    def opened(self, _: Connection) -> bool:
        return True

    def closed(self, _: Connection) -> None: ...


class Client:
    """What came of what was read."""

    def __init__(self, loop: asyncio.AbstractEventLoop, cold_reads: ThreadPoolExecutor) -> None:
        self.echo, self.transport = Echo(), Transport()
        dispatcher = cast(Dispatcher, self.echo)
        self._connection = Connection(loop, Owner(), dispatcher, cold_reads, Inputs(), "PLAINTEXT", 1000)
        self._connection.connection_made(cast(asyncio.Transport, self.transport))

    def read(self, *requests: bytes) -> list[bytes]:
        """All of them in one piece; what was written since."""
        data = b"".join(len(request).to_bytes(4, "big") + request for request in requests)
        before = len(self.transport.writes)
        self._connection.get_buffer(-1)[: len(data)] = data
        self._connection.buffer_updated(len(data))
        return self.transport.writes[before:]


@pytest.fixture
def client() -> Iterator[Client]:
    loop = asyncio.new_event_loop()
    with ThreadPoolExecutor(1) as cold_reads:
        yield Client(loop, cold_reads)
    loop.close()


def test_what_was_read_together_is_answered_together(client: Client) -> None:
    assert client.read(b"1") == [b"1"]
    assert client.read(b"2", b"3", UNANSWERED, b"4") == [b"234"]
    assert client.read(UNANSWERED) == []


def test_what_is_ready_does_not_wait_for_what_is_not(client: Client) -> None:
    assert client.read(b"1", b"2", LATER, b"3", b"4") == [b"12"]
    assert client.read(b"5") == []
    client.echo.waiting[0].complete([b"!"])
    assert b"".join(client.transport.writes) == b"12!345"
    assert client.read(b"6", b"7") == [b"67"]


def test_requests_before_a_bad_one_are_answered(client: Client) -> None:
    assert client.read(b"1", b"2", REFUSED, b"3") == [b"12"]
    assert client.transport.is_aborted


def test_any_number_of_requests_is_answered_in_their_order(client: Client) -> None:
    requests = [b"%d," % number for number in range(5 * REQUESTS_IN_FLIGHT_MAX)]
    written = client.read(*requests)
    assert b"".join(written) == b"".join(requests)
    assert len(written) <= 5
