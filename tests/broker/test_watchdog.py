"""Whoever holds the event loop is named; an idle loop, and one that only waits for a processor, is not accused."""

import asyncio
import logging
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from moldau.broker.tasks import Periodic
from moldau.broker.watchdog import STALL_MS_MAX, Stall, Watchdog
from moldau.handlers import k16_list_groups
from moldau.protocol.messages.k16_list_groups import ListGroupsRequest, ListGroupsResponse
from moldau.requests.context import RequestContext
from moldau.testing import broker
from tests.broker.raw import RawClient

LIST_GROUPS = 16
ROUNDS_MAX = 5000
ASKED_MAX = 50


def work(duration_ms: float) -> None:
    """Keep this thread at work, however little of a processor it gets."""
    end = time.thread_time() + duration_ms / 1000
    while time.thread_time() < end:
        sum(range(1000))


async def until(happened: Callable[[], object]) -> None:
    for _ in range(ROUNDS_MAX):
        if happened():
            return
        await asyncio.sleep(0.002)
    raise TimeoutError


def named(watchdog: Watchdog) -> list[Stall]:
    """Stalls of the request that the test makes slow; a busy machine may have others."""
    return [stall for stall in watchdog.stalls if stall.cause.startswith("ListGroups v2 of client ")]


def test_the_request_that_held_the_loop_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def handle(_request: ListGroupsRequest, _context: RequestContext) -> ListGroupsResponse:
        work(3 * STALL_MS_MAX)
        return ListGroupsResponse()

    monkeypatch.setattr(k16_list_groups, "handle", handle)
    with caplog.at_level(logging.WARNING, logger="moldau"), broker() as kafka, RawClient(kafka.bootstrap) as client:
        watchdog = kafka.watchdog
        assert watchdog is not None
        for _ in range(ASKED_MAX):  # where the watchdog's thread gets no processor in time it sees too little of one
            client.ask(LIST_GROUPS, 2, ListGroupsRequest(), ListGroupsResponse)
            if named(watchdog):
                break
    stall = named(watchdog)[0]
    assert stall.worked_ms > STALL_MS_MAX
    assert "127.0.0.1" in stall.cause
    assert "the event loop stood still" in caplog.text


def test_the_task_that_held_the_loop_is_named() -> None:
    async def main() -> Watchdog:
        loop = asyncio.get_running_loop()
        watchdog = Watchdog(loop)
        watchdog.start()
        task = Periodic(loop, lambda: 1, lambda: work(3 * STALL_MS_MAX))
        await until(lambda: any("tasks.Periodic._run" in stall.cause for stall in watchdog.stalls))
        task.stop()
        watchdog.stop()
        return watchdog

    assert any("tasks.Periodic._run" in stall.cause for stall in asyncio.run(main()).stalls)


def test_a_loop_that_waits_without_working_is_not_accused(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> Watchdog:
        loop = asyncio.get_running_loop()
        watchdog = Watchdog(loop)
        watchdog.start()
        task = Periodic(loop, lambda: 1, lambda: time.sleep(3 * STALL_MS_MAX / 1000))
        await until(lambda: "the event loop waited" in caplog.text)
        task.stop()
        watchdog.stop()
        return watchdog

    with caplog.at_level(logging.INFO, logger="moldau"):
        assert asyncio.run(main()).stalls == []


def test_looking_at_a_busy_thread_does_no_harm() -> None:
    command = [sys.executable, "-m", "tests.broker.watchdog_stress", "2"]
    assert subprocess.run(command, timeout=60, check=False).returncode == 0


def test_the_watchdog_can_be_switched_off() -> None:
    with broker({"loop.watchdog.enable": "false"}) as kafka:
        assert kafka.watchdog is None
