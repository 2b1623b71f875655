"""What a client gets when a handler of ours is broken."""

import struct
from collections.abc import Iterator
from typing import NoReturn

import pytest

from moldau.broker.dispatch import Dispatcher, Peer
from moldau.handlers import registry
from moldau.protocol import codec
from moldau.protocol.errors import ErrorCode, ProtocolError
from moldau.protocol.messages.k02_list_offsets import ListOffsetsRequest
from moldau.protocol.messages.k16_list_groups import ListGroupsRequest, ListGroupsResponse
from moldau.protocol.schema import Message
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
