"""`moldau serve --brokers N`: N brokers on one machine, each a process of its own, over one metadata store.

Law: a broker that ends is started again, ever more slowly if it keeps ending. Only one that does not understand its
own options is not: then all stop. Brokers stop one after the other, so that each finds others to hand over to.
"""

import asyncio
import ctypes
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

from moldau.broker.ownership import brokers_in, check_cluster_directories, lock_cluster_directory
from moldau.broker.store_choice import METADATA_FILE
from moldau.core.broker_config import BrokerConfig, Listener
from moldau.core.files import DirectoryLock, Files

log = logging.getLogger("moldau")

USAGE_ERROR = 2
FIRST_PAUSE_S = 0.5
PAUSE_S_MAX = 30.0
STEADY_S = 60.0
"""A broker that lived this long has recovered: its next pause is the first again."""
STOP_S_MAX = 30.0
OFFSETS_REPLICAS_MAX = 3
READY_TEXT = b" is ready at "
LINE_BYTES_MAX = 1 << 20
PR_SET_PDEATHSIG = 1


class Ending(Protocol):
    """A process that is ended with the brokers."""

    def terminate(self) -> None: ...


ConsoleStarter = Callable[[str], Ending | None]
"""Starts the console, given the brokers' addresses; None where none is asked for."""


class BrokerPlan(NamedTuple):
    """Arguments and address with which one of the brokers is started."""

    number: int
    arguments: tuple[str, ...]
    address: str


async def supervise(plans: Sequence[BrokerPlan], start_console: ConsoleStarter) -> int:
    """Run the brokers of `plans` until SIGINT or SIGTERM; the exit code."""
    addresses = ",".join(plan.address for plan in plans)
    consoles: list[Ending] = []

    def ready() -> None:
        sys.stdout.write(f"moldau: {len(plans)} brokers are ready at {addresses}\n")
        sys.stdout.flush()
        console = start_console(addresses)
        consoles.extend([] if console is None else [console])

    supervisor = Supervisor(plans, on_ready=ready)
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signal_number, supervisor.stop)
    try:
        return await supervisor.run()
    finally:
        for console in consoles:
            console.terminate()


class Supervisor:
    """Runs the brokers of `plans` until `stop`."""

    def __init__(self, plans: Sequence[BrokerPlan], *, on_ready: Callable[[], None]) -> None:
        """`on_ready` is called when every broker has been ready for the first time."""
        self._children = [_Child(plan, self._child_is_ready, self._child_gave_up) for plan in plans]
        self._on_ready = on_ready
        self._not_yet_ready = {plan.number for plan in plans}
        self._end = asyncio.Event()
        self._at_once = asyncio.Event()
        self._code = os.EX_OK

    async def run(self) -> int:
        """Run until `stop`, or until a broker cannot be run; the exit code."""
        runs = [asyncio.ensure_future(child.run()) for child in self._children]
        await self._end.wait()
        for child in self._children:
            child.is_wanted = False
        for child in reversed(self._children):
            await child.stop(self._at_once)
        await asyncio.wait(runs, timeout=STOP_S_MAX)
        for child in self._children:
            child.kill()
        await asyncio.gather(*runs)
        return self._code

    def stop(self) -> None:
        """The first time one broker after the other, the second time all at once."""
        if self._end.is_set():
            self._at_once.set()
        self._end.set()

    def _child_is_ready(self, number: int) -> None:
        if number in self._not_yet_ready:
            self._not_yet_ready.remove(number)
            if not self._not_yet_ready:
                self._on_ready()

    def _child_gave_up(self, code: int) -> None:
        self._code = code
        self._end.set()


class _Child:
    """One broker's process, and the next one after it."""

    def __init__(self, plan: BrokerPlan, on_ready: Callable[[int], None], on_giving_up: Callable[[int], None]) -> None:
        self._plan = plan
        self._on_ready = on_ready
        self._on_giving_up = on_giving_up
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = asyncio.Event()
        self.is_wanted = True

    async def run(self) -> None:
        pause_s = FIRST_PAUSE_S
        loop = asyncio.get_running_loop()
        while self.is_wanted:
            began = loop.time()
            code = await self._run_once()
            if not self.is_wanted:
                return
            if code == USAGE_ERROR:
                self._on_giving_up(code)
                return
            if loop.time() - began > STEADY_S:
                pause_s = FIRST_PAUSE_S
            log.warning("broker %d ended with %s; restarting in %g s", self._plan.number, _how(code), pause_s)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    async def _run_once(self) -> int:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "moldau",
            "serve",
            *self._plan.arguments,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_BYTES_MAX,
            start_new_session=True,  # Ctrl-C of a terminal reaches us alone: we stop them in order
            preexec_fn=die_with_parent,
        )
        if not self.is_wanted:
            self._process.terminate()
        await self._watch_output(self._process)
        return await self._process.wait()

    async def _watch_output(self, process: asyncio.subprocess.Process) -> None:
        while process.stdout is not None and (line := await process.stdout.readline()):
            sys.stdout.write(line.decode(errors="replace"))
            sys.stdout.flush()
            if READY_TEXT in line:
                self._on_ready(self._plan.number)

    async def stop(self, at_once: asyncio.Event) -> None:
        """SIGTERM; returns when the process has ended, or has had its time, or when there is no time."""
        self._stopping.set()
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        ended, hurry = asyncio.ensure_future(process.wait()), asyncio.ensure_future(at_once.wait())
        await asyncio.wait([ended, hurry], timeout=STOP_S_MAX, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        if not ended.done() and not at_once.is_set():
            self.kill()
        ended.cancel()

    def kill(self) -> None:
        """SIGKILL, if the process is still there."""
        if self._process is not None and self._process.returncode is None:
            log.warning("broker %d did not stop within %g s", self._plan.number, STOP_S_MAX)
            self._process.kill()


def _how(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def die_with_parent() -> None:
    """Let the child end with its supervisor, if that is killed (Linux); called in the child."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def plan_brokers(count: int, properties: Mapping[str, str], shared: Sequence[str], files: Files) -> list[BrokerPlan]:
    """Brokers 1 to `count` on neighbouring ports, each with a directory of its own below those that `properties` name.

    `shared` is handed to each: the properties' file and what was set beside it. Raises ConfigError, and DirectoryError
    where a directory is not one for several brokers.
    """
    config = BrokerConfig(properties)
    data = config.data_directories[0]
    check_cluster_directories(config.data_directories, files)
    own = {"metadata.store.path": f"{data}/{METADATA_FILE}", **_offsets_topic(count, config)}
    ports = _FreePorts()
    return [
        _plan(number, config, {**own, **_addresses(config, number, ports)}, shared) for number in range(1, count + 1)
    ]


def take_directories(count: int, properties: Mapping[str, str], files: Files) -> list[DirectoryLock]:
    """Lock and mark the directories above those of the brokers, until this process ends. Raises DirectoryError."""
    directories = BrokerConfig(properties).data_directories
    for path in directories:
        before = brokers_in(path, files)
        if before > count:
            log.warning(
                "%s has %d brokers: what only the last %d of them have is not served", path, before, before - count
            )
    return [lock_cluster_directory(path, count, files) for path in directories]


def _plan(number: int, config: BrokerConfig, own: Mapping[str, str], shared: Sequence[str]) -> BrokerPlan:
    mine = {
        **own,
        "broker.id": str(number),
        "log.dirs": ",".join(f"{directory}/broker-{number}" for directory in config.data_directories),
    }
    overrides = [part for name, value in mine.items() for part in ("--override", f"{name}={value}")]
    return BrokerPlan(number, (*shared, *overrides), own["listeners"].partition(",")[0].partition("://")[2])


def _offsets_topic(count: int, config: BrokerConfig) -> dict[str, str]:
    name = "offsets.topic.replication.factor"
    return {} if config.is_explicit(name) else {name: str(min(OFFSETS_REPLICAS_MAX, count))}


def _addresses(config: BrokerConfig, number: int, ports: "_FreePorts") -> dict[str, str]:
    """The listeners of this broker: each port is the configured one plus as many as there are brokers before it."""

    def moved(listener: Listener) -> str:
        host = listener.host or "localhost"
        port = listener.port + number - 1 if listener.port else ports.next(host)
        return str(listener._replace(host=host, port=port))

    addresses = {"listeners": ",".join(map(moved, config.listeners))}
    if config.is_explicit("advertised.listeners"):
        addresses["advertised.listeners"] = ",".join(map(moved, config.advertised_listeners))
    metrics = config.metrics_listener
    if metrics is not None:
        port = metrics.port + number - 1 if metrics.port else ports.next(metrics.host)
        addresses["metrics.listener"] = str(metrics._replace(port=port))
    return addresses


class _FreePorts:
    """Ports that nobody has now, each a different one; a broker keeps its own over restarts."""

    def __init__(self) -> None:
        self._given: set[int] = set()

    def next(self, host: str) -> int:
        while True:
            with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as opened:
                opened.bind((host, 0))
                port = int(opened.getsockname()[1])
            if port not in self._given:
                self._given.add(port)
                return port
