"""Sessions that are alive, shown by files: `<database>-sessions/<session>.lock`, and a socket beside it.

Law: a session lives while its process holds the lock on its file (the kernel lets go of it however the process ends)
and the time written into the file, on the clock that all processes of the machine share, has not passed. That time is
the lease. Renewing it is a write of eight bytes that nobody has to sync: after a power loss no lock is held either.
A renewal counts only if it was done before the lease ran out. After that, only a transaction that still finds the
session's row may renew, and only a transaction that finds the lease run out may remove that row: so the two never
both happen.

A thread renews the lease, which shows that the process runs, however slow the disk is. The lease is for a broker that
serves, though: it lasts the session's timeout from the last sign of life of the event loop on, and not from the
renewal. So a process whose loop stands still longer than that loses its session as one does that was stopped.
"""

import fcntl
import os
import struct
import threading
import weakref
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress

Clock = Callable[[], int]
"""Nanoseconds on a clock that never goes back and is the same for all processes."""

PROCESS_GONE = -1

RENEWALS_PER_TIMEOUT = 6
SIGNS_OF_LIFE_PER_TIMEOUT = 18

_LEASE = struct.Struct("<q")
_SOCKET_PATH_BYTES_MAX = 100  # Linux takes 107, others fewer


class SessionDirectory:
    """The files of all sessions of one database."""

    def __init__(self, database: str) -> None:
        self._path = f"{database}-sessions"
        with suppress(FileExistsError):
            os.mkdir(self._path, 0o700)
        self._descriptor = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY)

    def close(self) -> None:
        os.close(self._descriptor)

    def lock_path(self, session: int) -> str:
        return f"{self._path}/{session}.lock"

    def socket_path(self, session: int) -> str:
        """The socket's path, short enough for the kernel, however deep the directory lies."""
        path = f"{self._path}/{session}.socket"
        if len(os.fsencode(path)) <= _SOCKET_PATH_BYTES_MAX:
            return path
        return f"/proc/self/fd/{self._descriptor}/{session}.socket"

    def lease_until(self, session: int) -> int:
        """The time at which the session's lease runs out; PROCESS_GONE if nobody holds its lock."""
        try:
            descriptor = os.open(self.lock_path(session), os.O_RDWR)
        except FileNotFoundError:
            return PROCESS_GONE
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: those who look do not disturb each other
        except BlockingIOError:
            (until,) = _LEASE.unpack(os.pread(descriptor, _LEASE.size, 0))
            return int(until)
        finally:
            os.close(descriptor)
        return PROCESS_GONE

    def remove(self, session: int) -> None:
        """Remove the files of a session that has ended; its process, if it is there, finds that out from the
        database."""
        for name in (f"{session}.lock", f"{session}.socket"):
            with suppress(FileNotFoundError):
                os.unlink(f"{self._path}/{name}")

    def keep_only(self, sessions: Collection[int]) -> None:
        """Remove files of processes that died before their session had begun, or just after it had ended. Inside a
        transaction."""
        for name in os.listdir(self._path):
            session, _, _ = name.partition(".")
            if session.isdigit() and int(session) not in sessions:
                with suppress(FileNotFoundError):
                    os.unlink(f"{self._path}/{name}")


class Lease:
    """Lock and lease of our own session. Any thread may renew it; `has_run_out` never waits."""

    def __init__(self, path: str, timeout_ns: int, clock: Clock) -> None:
        self._clock = clock
        self._timeout_ns = timeout_ns
        self._until = clock() + timeout_ns
        self._writing = threading.Lock()
        self._is_released = False
        self._file = open(path, "xb", buffering=0)  # noqa: SIM115  open as long as the lease
        os.chmod(path, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._write(self._until)

    @property
    def until(self) -> int:
        return self._until

    def has_run_out(self) -> bool:
        """Whether others may have ended the session; they have not if its row is still there."""
        return self._clock() > self._until

    def renew(self, begins: int | None = None) -> bool:
        """Begin the lease anew, now or at `begins`; False if it has run out already, or may have while this was
        done."""
        with self._lent():
            if self.has_run_out():
                return False
            before, until = self._until, (self._clock() if begins is None else begins) + self._timeout_ns
            if until <= before:
                return True
            self._write(until)
            if self._clock() > before:
                return False
            self._until = until  # not before it is certain: the loop trusts it
            return True

    def restart(self) -> None:
        """Renew inside a transaction that has seen the session's row."""
        with self._lent():
            until = self._clock() + self._timeout_ns
            self._write(until)
            self._until = until

    def release(self) -> None:
        """Let go of the lock; if a thread is writing just now, that thread does it afterwards."""
        self._is_released = True
        self._close_if_released()

    @contextmanager
    def _lent(self) -> Iterator[None]:
        try:
            with self._writing:
                yield
        finally:
            self._close_if_released()

    def _close_if_released(self) -> None:
        if self._is_released and self._writing.acquire(blocking=False):
            self._file.close()
            self._writing.release()

    def _write(self, until: int) -> None:
        os.pwrite(self._file.fileno(), _LEASE.pack(until), 0)


class LeaseKeeper:
    """A thread that renews a lease as long as the event loop gives signs of life."""

    def __init__(self, lease: Lease, timeout_ns: int, clock: Clock) -> None:
        self._clock = clock
        self._renewal_s = timeout_ns / RENEWALS_PER_TIMEOUT / 1e9
        self._allowance_ns = timeout_ns // RENEWALS_PER_TIMEOUT
        self.sign_of_life_seconds = timeout_ns / SIGNS_OF_LIFE_PER_TIMEOUT / 1e9
        self._seen = clock()
        self._end = threading.Event()
        # A store that nobody closed, and nobody has any more, must not be kept alive by its thread.
        lease_now = weakref.ref(lease)
        threading.Thread(target=self._run, args=(lease_now,), name="metadata-lease", daemon=True).start()

    def note_life(self) -> None:
        """Note that the loop turns."""
        self._seen = self._clock()

    def end(self) -> None:
        """Renew no more; does not wait for a renewal that is under way."""
        self._end.set()

    def _run(self, lease_now: "weakref.ref[Lease]") -> None:
        while not self._end.wait(self._renewal_s):
            lease = lease_now()
            if lease is None:
                return
            # What it says is the loop's to find out. The allowance makes up for what passes between two renewals.
            with suppress(OSError, ValueError):  # no room for eight bytes, or released in this moment
                lease.renew(self._seen + self._allowance_ns)
            del lease
