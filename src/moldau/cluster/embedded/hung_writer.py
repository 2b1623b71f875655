"""The last resort against a process that was stopped inside a SQLite transaction.

Nobody else can write until it goes on or is gone: the lock is the kernel's, and no lease takes it away. Whoever finds
such a process's lease run out kills it, if it is certain that it holds that lock and that it is stopped (by SIGSTOP, or
in a debugger) with all its threads. SQLite then rolls its transaction back as after any crash.

Law: nobody is killed for a slow disk. A thread that waits for one, or runs, is left alone: it will let go of the lock,
and its successor would meet the same disk. Where the kernel does not tell, nothing happens, and the others wait.
"""

import logging
import os
import signal
from pathlib import Path

log = logging.getLogger(__name__)

_LOCKS = Path("/proc/locks")
_STOPPED = frozenset("Tt")
"""https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html"""
_WAL_WRITE_LOCK_BYTE = 120
"""Byte of the `-shm` file that is the write lock: https://www.sqlite.org/walformat.html, "WAL locks"."""


def kill_if_it_is_stopped_with_the_write_lock(database: str, pid: int) -> None:
    """Kill the process `pid`, if it is stopped, holds the write lock of `database` and is not ourselves."""
    if pid == os.getpid() or not hasattr(os, "pidfd_open"):
        return
    try:
        process = os.pidfd_open(pid)  # from here on the number cannot come to mean another process
    except OSError:
        return
    try:
        if write_lock_holder(database) == pid and is_stopped(pid):
            log.warning("process %d is stopped and holds the metadata store's write lock: killing it", pid)
            signal.pidfd_send_signal(process, signal.SIGKILL)
    except OSError as error:
        log.warning("process %d is stopped and holds the metadata store's write lock, but: %s", pid, error)
    finally:
        os.close(process)


def is_stopped(pid: int) -> bool:
    """Whether every thread of a process is stopped by a signal or a debugger, where that can be found out."""
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        states = {_state((thread / "stat").read_text()) for thread in threads}
    except OSError:
        return False
    return bool(states) and states <= _STOPPED


def _state(stat: str) -> str:
    """The third field of a stat line; the second one, in brackets, is a name that may have any character."""
    return stat.rpartition(")")[2].split()[0]


def write_lock_holder(database: str) -> int | None:
    """The process that is inside a write transaction, where that can be found out."""
    try:
        inode = os.stat(f"{database}-shm").st_ino
        lines = _LOCKS.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        match line.split():
            case [_, "POSIX", "ADVISORY", "WRITE", pid, place, first, last] if (
                place.endswith(f":{inode}") and last.isdigit() and int(first) <= _WAL_WRITE_LOCK_BYTE <= int(last)
            ):
                return int(pid)
    return None
