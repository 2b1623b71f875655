"""A program that logs a lot, from four threads in each of three processes, and measures what that costs it.

python -m tests.client.log_storm BOOTSTRAP TOPIC LINES [null]

Two of the processes are forked while the first one logs. There are three phases; the end of each is a line on stdout
for each process, and the next one begins with a line on stdin. At the end each process prints what it counted. With
`null` lines are formatted and thrown away: what that costs is not the handler's.

A call is blocked while its thread neither runs nor waits for a core: the kernel knows how long that was
(`schedstat`), so that a busy machine is not taken for a handler that blocks. Nor is it blocked while another thread of
Python's waits for a core, who may have the interpreter's lock: that counts from the beginning of the burst. Threads
that do nothing but log wait for each other, for the interpreter's lock: with `null`, twelve on two cores wait for up to
25 ms. Therefore each logs a burst and rests until it is time for the next, 24,000 lines a second in all.
"""

import json
import logging
import os
import sys
import threading
import time
from contextlib import suppress
from typing import Any

from moldau.logging import KafkaHandler

THREADS = 4
PROCESSES = 3
PHASES = 3
BURST_LINES = 20
BURST_EVERY_S = 0.01
TURN_S = 0.001
"""Time after which a thread gives way to another; Python's own 5 ms for each of the others would hide the handler."""
QUEUE_BYTES = 8 * 2**20
CLOSE_TIMEOUT_S = 60.0


class Discard(logging.Handler):
    """Handler that formats, and nothing more."""

    def createLock(self) -> None:
        self.lock = None

    def handle(self, record: logging.LogRecord) -> bool:
        self.format(record).encode()
        return True


class Gates:
    """Gates between the phases, for all processes: the end of a pipe opens one."""

    def __init__(self) -> None:
        self._pipes = [os.pipe() for _ in range(PHASES)]

    def become_child(self) -> None:
        for _, end in self._pipes:
            os.close(end)

    def open(self, phase: int) -> None:
        os.close(self._pipes[phase][1])

    def wait(self, phase: int) -> None:
        os.read(self._pipes[phase][0], 1)


class Others:
    """The other threads of this process that may have the interpreter's lock."""

    def __init__(self) -> None:
        self._schedules: dict[int, int] = {}

    def waited_ns(self) -> int:
        """How long they have waited for a core, since each was looked at first."""
        own = threading.get_native_id()
        for each in threading.enumerate():
            if each.native_id is not None and each.native_id not in (own, *self._schedules):
                self._open(each.native_id)
        return sum(map(self._waited_ns, list(self._schedules)))

    def _open(self, thread: int) -> None:
        with suppress(OSError):  # it has ended
            self._schedules[thread] = os.open(f"/proc/self/task/{thread}/schedstat", os.O_RDONLY)

    def _waited_ns(self, thread: int) -> int:
        try:
            return int(os.pread(self._schedules[thread], 100, 0).split()[1])
        except OSError:  # it has ended
            os.close(self._schedules.pop(thread))
            return 0


class Storm:
    """The threads of one process."""

    def __init__(self, lines_per_phase: int, gates: Gates) -> None:
        self._lines = lines_per_phase
        self._gates = gates
        self._phase_done = [threading.Barrier(THREADS + 1) for _ in range(PHASES)]
        self.blocked_ms: list[float] = []
        self.wall_ms: list[float] = []
        self._threads = [threading.Thread(target=self._log, args=(number,)) for number in range(THREADS)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def join_phase(self, phase: int) -> None:
        self._phase_done[phase].wait()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()

    def _log(self, number: int) -> None:
        logger = logging.getLogger("storm")
        name = f"{os.getpid()}-{number}"
        schedule = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        others = Others()
        blocked_max = wall_max = others_waited_ns = 0
        next_burst_s = time.monotonic()
        for phase in range(PHASES):
            for line in range(phase * self._lines, (phase + 1) * self._lines):
                if line % BURST_LINES == 0:
                    next_burst_s = max(next_burst_s + BURST_EVERY_S, time.monotonic())
                    time.sleep(next_burst_s - time.monotonic() if next_burst_s > time.monotonic() else 0)
                    others_waited_ns = others.waited_ns()
                before_ns, served_ns = time.perf_counter_ns(), _served_ns(schedule)
                logger.info("%s %d and some words that make it as long as lines are", name, line)
                wall_ns = time.perf_counter_ns() - before_ns
                if wall_ns > wall_max or wall_ns - blocked_max > 0:
                    wall_max = max(wall_max, wall_ns)
                    served_ns = _served_ns(schedule) - served_ns + max(0, others.waited_ns() - others_waited_ns)
                    blocked_max = max(blocked_max, wall_ns - served_ns)
            self._phase_done[phase].wait()
            self._gates.wait(phase)
        os.close(schedule)
        self.blocked_ms.append(blocked_max / 1e6)
        self.wall_ms.append(wall_max / 1e6)


def _served_ns(schedule: int) -> int:
    """How long this thread has run or waited for a core."""
    run, waited, _ = os.pread(schedule, 100, 0).split()
    return int(run) + int(waited)


def main() -> None:
    bootstrap, topic, lines = sys.argv[1], sys.argv[2], int(sys.argv[3])
    sys.setswitchinterval(TURN_S)
    handler: Any = Discard()
    if "null" not in sys.argv:
        handler = KafkaHandler(
            bootstrap, topic, format="text", queue_bytes=QUEUE_BYTES, close_timeout_s=CLOSE_TIMEOUT_S
        )
    handler.setFormatter(logging.Formatter("%(message)s"))
    logging.getLogger("storm").addHandler(handler)
    logging.getLogger("storm").setLevel(logging.INFO)
    logging.getLogger("storm").propagate = False
    gates = Gates()
    per_thread = lines // (PROCESSES * THREADS * PHASES)
    storm = Storm(per_thread, gates)
    storm.start()
    children = []
    for _ in range(PROCESSES - 1):  # while the threads log
        child = os.fork()
        if child == 0:
            gates.become_child()
            storm = Storm(per_thread, gates)
            storm.start()
            _run(storm, handler)
            os._exit(0)
        children.append(child)
    _run(storm, handler, gates)
    for child in children:
        os.waitpid(child, 0)


def _run(storm: Storm, handler: Any, gates: Gates | None = None) -> None:
    memory_mb = []
    for phase in range(PHASES):
        storm.join_phase(phase)
        memory_mb.append(_memory_mb())
        _say({"phase": phase})
        if gates is not None:
            sys.stdin.readline()
            gates.open(phase)
    storm.join()
    handler.close()
    counts = handler.counts._asdict() if isinstance(handler, KafkaHandler) else {}
    _say(
        {
            "process": os.getpid(),
            "blocked_ms": max(storm.blocked_ms),
            "wall_ms": max(storm.wall_ms),
            "memory_mb": [*memory_mb, _peak_memory_mb()],
            **counts,
        }
    )


def _memory_mb() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def _peak_memory_mb() -> float:
    """The most that this program had. (`ru_maxrss` is also what its parent had before it started this one.)"""
    with open("/proc/self/status") as file:
        peak = next(line for line in file if line.startswith("VmHWM:"))
    return int(peak.split()[1]) / 1024


def _say(words: dict[str, Any]) -> None:
    os.write(1, json.dumps(words).encode() + b"\n")


if __name__ == "__main__":
    main()
