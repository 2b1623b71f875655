"""What a client gets when a handler of ours is broken, or what serves its repeated requests."""

import struct
from collections.abc import Iterator
from typing import NoReturn

import pytest

from moldau.broker import dispatch
from moldau.broker.dispatch import Dispatcher, Peer
from moldau.protocol import codec
from moldau.protocol.errors import ErrorCode, ProtocolError
from moldau.protocol.framing import Frame
from moldau.protocol.messages.k02_list_offsets import ListOffsetsRequest
from moldau.protocol.messages.k16_list_groups import ListGroupsRequest, ListGroupsResponse
from moldau.protocol.schema import Message
from moldau.requests import registry
from tests.broker.raw import request_frame
from tests.handlers.conftest import World
from tests.handlers.replicated import joined

SIZE_BYTES, CORRELATION_ID_BYTES = 4, 4
VERSION = 1


@pytest.fixture
def dispatcher(monkeypatch: pytest.MonkeyPatch) -> Iterator[Dispatcher]:
    """None of its handlers works."""

    def broken(_request: Message, _context: object) -> NoReturn:
        raise ZeroDivisionError

    monkeypatch.setattr(registry, "handler", lambda _key: broken)
    world = World({})
    try:
        yield Dispatcher(world.services)
    finally:
        world.close()


def ask(dispatcher: Dispatcher, request: Message) -> bytes:
    frame = request_frame(request.api_key, VERSION, codec.encode(request, VERSION))
    return joined(dispatcher.dispatch(memoryview(frame)[SIZE_BYTES:], Peer("PLAINTEXT")))


def test_an_answer_with_room_for_an_error_says_that_the_server_failed(dispatcher: Dispatcher) -> None:
    answer = ask(dispatcher, ListGroupsRequest())
    (size,) = struct.unpack_from(">i", answer)
    assert size == len(answer) - SIZE_BYTES
    response = codec.decode(ListGroupsResponse, VERSION, answer, SIZE_BYTES + CORRELATION_ID_BYTES)
    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_an_answer_without_room_for_an_error_closes_the_connection(dispatcher: Dispatcher) -> None:
    with pytest.raises(ProtocolError, match="an error of ours"):
        ask(dispatcher, ListOffsetsRequest())


class BrokenRepeats:
    """Knows every request, and fails."""

    def serve(self, _frame: Frame) -> NoReturn:
        raise ZeroDivisionError

    def may_repeat(self, _request: Message) -> bool:
        return False

    def learn(self, _frame: Frame, _request: Message, _response: Message) -> None: ...


@pytest.mark.parametrize("is_lent", [False, True])
def test_a_quick_way_that_fails_is_told_like_a_handler_that_does(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_lent: bool
) -> None:
    world, peer = World({}), Peer("PLAINTEXT")
    try:
        monkeypatch.setattr(dispatch, "repeats", lambda *_: BrokenRepeats())
        dispatcher = Dispatcher(world.services)
        listing = request_frame(16, VERSION, codec.encode(ListGroupsRequest(), VERSION), 9)[SIZE_BYTES:]
        joined(dispatcher.dispatch(memoryview(listing), peer))
        answer = joined(dispatcher.dispatch(memoryview(bytearray(listing)), peer, is_lent=is_lent))
        response = codec.decode(ListGroupsResponse, VERSION, answer, SIZE_BYTES + CORRELATION_ID_BYTES)
        assert (response.error_code, answer[4:8]) == (ErrorCode.UNKNOWN_SERVER_ERROR, b"\0\0\0\x09")
        assert "ListGroups of" in caplog.text
        offsets = request_frame(2, VERSION, codec.encode(ListOffsetsRequest(), VERSION))[SIZE_BYTES:]
        joined(dispatcher.dispatch(memoryview(offsets), peer))
        with pytest.raises(ProtocolError, match="an error of ours"):
            dispatcher.dispatch(memoryview(bytearray(offsets)), peer, is_lent=is_lent)
    finally:
        world.close()
