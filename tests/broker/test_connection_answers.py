"""In how many writes the answers of a connection leave, and in which order."""

import asyncio
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import pytest

from moldau.broker import connection
from moldau.broker.connection import REQUESTS_IN_FLIGHT_MAX, Connection
from moldau.broker.dispatch import Answer, Dispatcher
from moldau.broker.receive_buffers import KEPT_MAX, ReceiveBuffers
from moldau.protocol.errors import ProtocolError
from moldau.requests.pending import PendingAnswer
from tests.broker.transports import Owner, Transport

LATER, UNDECIDED, REFUSED, UNANSWERED = b"later", b"undecided", b"refused", b"unanswered"
ENDING = b"ends the oldest that waits"


class Later(PendingAnswer):
    """One of which a test can see whether somebody keeps it."""

    __slots__ = ("__weakref__",)


class Echo:
    """Answers each request with itself, but for some."""

    def __init__(self) -> None:
        self.waiting: list[Later] = []
        self.taken_up: list[bytes] = []

    def dispatch(self, frame: bytes | memoryview, _: object, is_lent: bool = False) -> Answer:  # noqa: ARG002  as that of a dispatcher
        request = bytes(frame)
        self.taken_up.append(request)
        if request == REFUSED:
            raise ProtocolError("no such request")
        if request == ENDING:
            self.waiting[0].complete([b"ended,"])
        if request == UNANSWERED:
            return None
        if request in (LATER, UNDECIDED):
            self.waiting.append(Later(holds_order=request == UNDECIDED))
            return self.waiting[-1]
        return request


class Client:
    """What came of what was read."""

    def __init__(self, loop: asyncio.AbstractEventLoop, cold_reads: ThreadPoolExecutor) -> None:
        self.loop, self.echo, self.transport = loop, Echo(), Transport()
        self.inputs = ReceiveBuffers()
        dispatcher = cast(Dispatcher, self.echo)
        self._connection = Connection(loop, Owner(), dispatcher, cold_reads, self.inputs, "PLAINTEXT", 100_000)
        self._connection.connection_made(cast(asyncio.Transport, self.transport))

    def break_dispatcher(self, dispatch: Callable[..., Answer]) -> None:
        self._connection._dispatch = dispatch

    def read(self, *requests: bytes) -> list[bytes]:
        """All of them in one piece; what was written since."""
        data = b"".join(len(request).to_bytes(4, "big") + request for request in requests)
        before = len(self.transport.writes)
        self._arrived(data)
        return self.transport.writes[before:]

    def read_in_pieces(self, request: bytes, size: int) -> None:
        data = len(request).to_bytes(4, "big") + request
        for start in range(0, len(data), size):
            self._arrived(data[start : start + size])

    def _arrived(self, data: bytes) -> None:
        self._connection.get_buffer(-1)[: len(data)] = data
        self._connection.buffer_updated(len(data))


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setattr(connection, "AT_ONCE_S", 60)  # no turn ends here, however busy the machine is
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


@pytest.mark.parametrize("behind", [(), (b"1",), (LATER,)])
def test_a_client_that_rests_keeps_no_answer_in_memory(client: Client, behind: tuple[bytes, ...]) -> None:
    """The last one may be of megabytes, or hold the file of a segment that is deleted."""
    client.read(LATER, *behind)
    answers = [weakref.ref(each) for each in client.echo.waiting]
    while client.echo.waiting:
        client.echo.waiting.pop(0).complete([b"!"])
    assert [answer() for answer in answers] == [None] * len(answers)


def test_requests_before_a_bad_one_are_answered(client: Client) -> None:
    assert client.read(b"1", b"2", REFUSED, b"3") == [b"12"]
    assert client.transport.is_aborted


def test_any_number_of_requests_is_answered_in_their_order(client: Client) -> None:
    requests = [b"%d," % number for number in range(5 * REQUESTS_IN_FLIGHT_MAX)]
    written = client.read(*requests)
    assert b"".join(written) == b"".join(requests)
    assert len(written) <= 5


def test_nothing_is_taken_up_before_the_request_ahead_of_it_is_decided(client: Client) -> None:
    client.read(LATER, UNDECIDED, b"1", UNDECIDED, b"2")
    client.read(b"3")
    later, undecided = client.echo.waiting
    assert client.echo.taken_up == [LATER, UNDECIDED]
    undecided.complete([b"b"])  # its answer has to wait, those behind it need not
    assert client.echo.taken_up == [LATER, UNDECIDED, b"1", UNDECIDED]
    later.complete([b"a"])
    assert client.transport.writes == [b"ab1"]
    client.echo.waiting[-1].complete([b"c"])
    assert b"".join(client.transport.writes) == b"ab1c23"
    assert client.read(b"4") == [b"4"]


@pytest.mark.parametrize("behind", [(), (b"1", b"2"), (LATER, b"1"), (UNDECIDED, b"1")])
def test_a_request_that_ends_an_earlier_one_is_answered_before_those_behind_it(
    client: Client, behind: tuple[bytes, ...]
) -> None:
    """A follower's fetch ends the one before it, while it is being dispatched; others may wait behind it by then."""
    client.read(LATER, UNDECIDED, ENDING, *behind)
    client.echo.waiting[1].complete([b"decided,"])
    assert client.echo.taken_up[:3] == [LATER, UNDECIDED, ENDING]
    for pending in client.echo.waiting[2:]:
        pending.complete([b"waited,"])
    told = [b"waited," if each in (LATER, UNDECIDED) else each for each in behind]
    assert b"".join(client.transport.writes) == b"ended,decided," + ENDING + b"".join(told)
    assert client.read(b"3") == [b"3"]


def test_a_request_may_end_an_earlier_one_where_nothing_waits_to_be_taken_up(client: Client) -> None:
    assert client.read(LATER, b"1") == []
    client.read(ENDING, b"2")
    assert b"".join(client.transport.writes) == b"ended,1" + ENDING + b"2"


def test_a_large_frame_behind_one_that_is_not_decided_waits_as_well(client: Client) -> None:
    large = b"x" * 50_000
    client.read(UNDECIDED)
    client.read_in_pieces(large, 20_000)
    assert client.echo.taken_up == [UNDECIDED]
    client.echo.waiting[0].complete([b"!"])
    assert b"".join(client.transport.writes) == b"!" + large


def test_an_input_that_was_kept_is_given_back_whatever_happens(client: Client) -> None:
    def broken(*_: object, **__: object) -> Answer:
        raise ZeroDivisionError

    client.break_dispatcher(broken)
    for _ in range(KEPT_MAX + 1):
        with pytest.raises(ZeroDivisionError):
            client.read_in_pieces(b"x" * 50_000, 20_000)
        assert client.inputs.can_be_kept


def test_a_pending_answer_knows_when_its_request_was_read(client: Client) -> None:
    before = client.loop.time()
    client.read(LATER)
    (pending,) = client.echo.waiting
    assert before <= pending.began <= client.loop.time()
