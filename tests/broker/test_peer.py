"""The client by which brokers speak to brokers."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import pytest
import uvloop

from moldau.broker.peer import BUFFER_BYTES_MIN, SMALL_ANSWERS_MAX, PeerClient, PeerGone
from moldau.cluster.image import Endpoint
from moldau.protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.broker.fake_leader import PATIENCE_S, Asked, FakeLeader
from tests.broker.fetchers_stage import turns, until

TIMEOUT_MS = 1000 * PATIENCE_S
SHORT_MS = 500
"""To be over, and yet enough to connect and to ask."""


def client_story(story: Callable[[PeerClient, FakeLeader], Awaitable[None]], frame_bytes_max: int = 1 << 20) -> None:
    async def run() -> None:
        peer = FakeLeader()
        endpoint = Endpoint("PLAINTEXT", "127.0.0.1", await peer.start(), "PLAINTEXT")
        client = PeerClient(asyncio.get_running_loop(), endpoint, "test", frame_bytes_max=frame_bytes_max)
        try:
            await story(client, peer)
        finally:
            client.close()
            await peer.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def test_answers_find_their_requests() -> None:
    async def story(client: PeerClient, peer: FakeLeader) -> None:
        first = asyncio.ensure_future(client.request(ApiVersionsRequest(), 0, TIMEOUT_MS))
        second = asyncio.ensure_future(client.request(ApiVersionsRequest(), 3, TIMEOUT_MS))
        asked = [await peer.asked(), await peer.asked()]
        asked[0].answer(ApiVersionsResponse(error_code=1))
        asked[1].answer(ApiVersionsResponse(error_code=2))
        assert [cast(ApiVersionsResponse, await each).error_code for each in (first, second)] == [1, 2]
        assert peer.connections == 1

    client_story(story)


def test_who_does_not_answer_is_gone_and_the_next_request_connects_anew() -> None:
    async def story(client: PeerClient, peer: FakeLeader) -> None:
        with pytest.raises(PeerGone):
            await client.request(ApiVersionsRequest(), 0, SHORT_MS)
        await peer.asked()
        waiting = asyncio.ensure_future(client.request(ApiVersionsRequest(), 0, TIMEOUT_MS))
        asked = await peer.asked()
        asked.answer(ApiVersionsResponse(error_code=3))
        assert cast(ApiVersionsResponse, await waiting).error_code == 3
        assert peer.connections == 2

    client_story(story)


def test_nobody_listening_is_told_to_every_request() -> None:
    async def story(client: PeerClient, peer: FakeLeader) -> None:
        await peer.stop()
        both = asyncio.gather(
            client.request(ApiVersionsRequest(), 0, TIMEOUT_MS),
            client.request(ApiVersionsRequest(), 0, TIMEOUT_MS),
            return_exceptions=True,
        )
        assert [type(each) for each in await both] == [PeerGone, PeerGone]

    client_story(story)


def test_closing_tells_those_who_wait() -> None:
    async def story(client: PeerClient, peer: FakeLeader) -> None:
        waiting = asyncio.ensure_future(client.request(ApiVersionsRequest(), 0, TIMEOUT_MS))
        await peer.asked()
        client.close()
        with pytest.raises(PeerGone):
            await waiting

    client_story(story)


def test_answers_of_any_size_and_in_any_pieces_arrive_whole() -> None:
    async def story(client: PeerClient, peer: FakeLeader) -> None:
        loop = asyncio.get_running_loop()
        sizes = [0, 1, 70_000, 3, BUFFER_BYTES_MIN, 500_000, 10]
        frames: list[bytes | None] = []
        done = loop.create_future()

        def take(frame: memoryview | None) -> None:
            frames.append(None if frame is None else bytes(frame))
            if len(frames) == len(sizes):
                done.set_result(None)

        for _ in sizes:
            client.send(ApiVersionsRequest(), 0, TIMEOUT_MS, take)
        asked = [await peer.asked() for _ in sizes]
        ids = [each.header.correlation_id.to_bytes(4, "big") for each in asked]
        sent = [ids[number] + bytes([number + 1]) * size for number, size in enumerate(sizes)]
        stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in sent)
        for position in range(0, len(stream), 9973):
            asked[0].write(stream[position : position + 9973])
            await asyncio.sleep(0)
        await asyncio.wait_for(done, PATIENCE_S)
        assert frames == sent

    client_story(story)


def test_a_large_buffer_is_given_back_after_many_small_answers() -> None:
    async def story(client: PeerClient, peer: FakeLeader) -> None:
        async def ask(size: int) -> int:
            done = asyncio.get_running_loop().create_future()
            client.send(
                ApiVersionsRequest(), 0, TIMEOUT_MS, lambda frame: done.set_result(frame is not None and len(frame))
            )
            asked = await peer.asked()
            frame = asked.header.correlation_id.to_bytes(4, "big") + bytes(size)
            asked.write(len(frame).to_bytes(4, "big") + frame)
            return cast(int, await done)

        assert await ask(500_000) == 500_004
        assert client.buffer_bytes > 500_000
        for _ in range(SMALL_ANSWERS_MAX + 2):
            await ask(10)
        assert client.buffer_bytes == BUFFER_BYTES_MIN
        assert await ask(500_000) == 500_004

    client_story(story)


def test_a_paused_client_delivers_nothing_until_it_is_resumed() -> None:
    async def story(client: PeerClient, peer: FakeLeader) -> None:
        taken: list[bytes] = []
        kept: list[memoryview] = []

        def first(frame: memoryview | None) -> None:
            assert frame is not None
            kept.append(frame)
            client.pause()

        client.send(ApiVersionsRequest(), 0, TIMEOUT_MS, first)
        client.send(ApiVersionsRequest(), 0, TIMEOUT_MS, lambda frame: taken.append(bytes(frame or b"")))
        asked: list[Asked] = [await peer.asked(), await peer.asked()]
        for each in asked:
            each.answer(ApiVersionsResponse(error_code=4))
        await until(lambda: kept)
        before = bytes(kept[0])
        await turns()
        assert (taken, bytes(kept[0])) == ([], before)
        client.resume()
        await until(lambda: taken)

    client_story(story)
