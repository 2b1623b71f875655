"""The last resort against a process that was stopped inside a SQLite transaction.

Nobody else can write until it goes on or is gone: the lock is the kernel's, and no lease takes it away. Whoever finds
such a process's lease run out kills it, if it is certain that it holds that lock. SQLite then rolls its transaction
back as after any crash. Where the kernel does not list locks this does nothing, and the others wait.
"""

import logging
import os
import signal
from pathlib import Path

log = logging.getLogger(__name__)

_LOCKS = Path("/proc/locks")
_WAL_WRITE_LOCK_BYTE = 120
"""Of the `-shm` file: https://www.sqlite.org/walformat.html, "WAL locks"."""


def kill_if_it_holds_the_write_lock(database: str, pid: int) -> None:
    """Kill the process `pid`, if it holds the write lock of `database` and is not ourselves."""
    if pid == os.getpid() or not hasattr(os, "pidfd_open"):
        return
    try:
        process = os.pidfd_open(pid)  # from here on the number cannot come to mean another process
    except OSError:
        return
    try:
        if write_lock_holder(database) == pid:
            log.warning("process %d hangs and holds the metadata store's write lock: killing it", pid)
            signal.pidfd_send_signal(process, signal.SIGKILL)
    except OSError as error:
        log.warning("process %d hangs and holds the metadata store's write lock, but: %s", pid, error)
    finally:
        os.close(process)


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
