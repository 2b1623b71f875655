"""Whatever a handler waits for becomes one kind of answer, which is encoded, awaited, failed and cancelled alike."""

import asyncio
import gc
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from moldau.coordinators.promise import Promise
from moldau.protocol.messages.k12_heartbeat import HeartbeatResponse
from moldau.protocol.schema import Message, RecordData
from moldau.replication.delayed import DelayedFetch
from moldau.requests import registry
from moldau.requests.pending import PendingAnswer, awaited, fetched, holds_order, promised, undecided

MESSAGE = HeartbeatResponse(error_code=7)
WAIT_MS = 60_000


class Waiting:
    """A pending answer of one kind, and how what it waits for comes about."""

    def __init__(self, pending: PendingAnswer, come_about: Callable[[], object]) -> None:
        self.pending = pending
        self.come_about = come_about


def _promise() -> Waiting:
    promise: Promise[Message] = Promise()
    pending = promised(promise)
    assert isinstance(pending, PendingAnswer)
    return Waiting(pending, lambda: promise.complete(MESSAGE))


def _future() -> Waiting:
    future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
    return Waiting(awaited(future), lambda: None if future.cancelled() else future.set_result(MESSAGE))


def _coroutine() -> Waiting:
    there = asyncio.Event()

    async def handle() -> Message:
        await there.wait()
        return MESSAGE

    return Waiting(undecided(handle()), there.set)


def _delayed_fetch() -> Waiting:
    loop = asyncio.get_running_loop()
    delayed = DelayedFetch[Message](loop, [], needed_bytes=1, max_wait_ms=WAIT_MS, answer=lambda: MESSAGE)
    return Waiting(fetched(delayed), lambda: delayed.advanced(1))


KINDS = [_promise, _future, _coroutine, _delayed_fetch]
of_every_kind = pytest.mark.parametrize("make", KINDS)


def encoded(message: Message) -> list[RecordData]:
    assert isinstance(message, HeartbeatResponse)
    return [b"%d" % message.error_code]


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@of_every_kind
def test_an_answer_of_any_kind_is_told_once_as_chunks(make: Callable[[], Waiting]) -> None:
    async def test() -> None:
        waiting, done = make(), list[PendingAnswer]()
        waiting.pending.encode_by(encoded)
        waiting.pending.when_done(done.append)
        await turns()
        assert not done
        waiting.come_about()
        await turns()
        assert done == [waiting.pending]
        assert waiting.pending.chunks == [b"7"]

    asyncio.run(test())


@of_every_kind
@pytest.mark.parametrize("is_cancelled", [False, True])
def test_an_answer_that_is_there_or_not_wanted_keeps_nothing_of_its_request(
    make: Callable[[], Waiting], is_cancelled: bool
) -> None:
    """What it would keep, it would keep in a circle, until the collector comes."""

    async def test() -> None:
        waiting = make()
        waiting.pending.encode_by(encoded)
        waiting.pending.when_done(lambda _: None)
        if is_cancelled:
            waiting.pending.cancel()
        else:
            waiting.come_about()
        await turns()
        assert [each for each in gc.get_referents(waiting.pending) if callable(each)] == [PendingAnswer]

    asyncio.run(test())


@of_every_kind
def test_an_answer_of_any_kind_can_be_awaited_as_a_message(make: Callable[[], Waiting]) -> None:
    async def test() -> None:
        waiting = make()
        waiting.come_about()
        await turns()
        assert await waiting.pending is MESSAGE

    asyncio.run(test())


@of_every_kind
def test_nobody_is_told_of_an_answer_that_was_cancelled(make: Callable[[], Waiting]) -> None:
    async def test() -> None:
        waiting, done = make(), list[PendingAnswer]()
        waiting.pending.encode_by(encoded)
        waiting.pending.when_done(done.append)
        waiting.pending.cancel()
        waiting.come_about()
        await turns()
        assert not done

    asyncio.run(test())


@of_every_kind
def test_only_what_is_not_decided_holds_the_order(make: Callable[[], Waiting]) -> None:
    async def test() -> None:
        waiting = make()
        assert waiting.pending.holds_order == (make is _coroutine)
        assert waiting.pending.throttle_ms == 0
        waiting.pending.cancel()

    asyncio.run(test())


def test_a_handler_that_is_a_coroutine_holds_the_order() -> None:
    @holds_order
    async def handle(_request: object, _context: object) -> Message:
        return MESSAGE

    async def test() -> None:
        pending = handle(None, None)
        assert pending.holds_order
        assert await pending is MESSAGE

    asyncio.run(test())


def test_no_handler_is_a_bare_coroutine() -> None:
    assert [key for key in registry.modules() if inspect.iscoroutinefunction(registry.handler(key))] == []


def test_a_promise_that_is_kept_already_is_a_message() -> None:
    assert promised(Promise.of(MESSAGE)) is MESSAGE
    assert promised(MESSAGE) is MESSAGE


def test_a_request_without_an_answer_is_done_with_nothing_to_send() -> None:
    pending = PendingAnswer()
    pending.encode_by(encoded)
    pending.tell(lambda: None)
    assert (pending.chunks, pending.failed) == ([], False)


@pytest.mark.parametrize("error", [ZeroDivisionError, RuntimeError])
def test_what_raises_is_logged_and_ends_without_an_answer(
    error: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    async def broken() -> Message:
        raise error

    async def test() -> None:
        pending, done = undecided(broken()), list[PendingAnswer]()
        pending.encode_by(encoded)
        pending.when_done(done.append)
        await turns()
        assert done == [pending]
        assert (pending.failed, pending.chunks) == (True, None)
        with pytest.raises(error):
            await undecided(broken())

    asyncio.run(test())
    assert "a request failed" in caplog.text


@pytest.mark.parametrize("is_wanted", [True, False])
def test_chunks_that_are_pending_themselves_are_waited_for_and_cancelled_along(is_wanted: bool) -> None:
    stopped = list[Any]()
    inner, pending = PendingAnswer(stop=lambda: stopped.append(True)), PendingAnswer()
    pending.encode_by(lambda _message: inner)
    pending.tell(lambda: MESSAGE)
    assert pending.chunks is None
    if is_wanted:
        inner.complete([b"long"])
        assert pending.chunks == [b"long"]
    else:
        pending.cancel()
        assert stopped


def test_who_stops_waiting_for_the_message_ends_what_it_waited_for() -> None:
    async def test() -> None:
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

        async def wait() -> None:
            await awaited(future)

        task = asyncio.ensure_future(wait())
        await turns()
        task.cancel()
        await turns()
        assert future.cancelled()

    asyncio.run(test())
