"""One session's place among the sessions of its database: its lock and lease, its links, and sight of the others."""

import asyncio
from collections.abc import Iterable

from moldau.cluster.embedded.links import Callbacks, Links
from moldau.cluster.embedded.sessions import Clock, Lease, LeaseKeeper, SessionDirectory


class Membership:
    """Membership of one session. It begins inside the transaction that begins the session: with the row, others find
    these files."""

    def __init__(self, directory: SessionDirectory, session: int, timeout_ns: int, clock: Clock) -> None:
        self._directory = directory
        self.session = session
        self._lease = Lease(directory.lock_path(session), timeout_ns, clock)
        self._keeper = LeaseKeeper(self._lease, timeout_ns, clock)
        self._sign_of_life: asyncio.TimerHandle | None = None
        self._links = Links(directory.socket_path(session))
        self.has_run_out = self._lease.has_run_out
        self.renew = self._lease.renew
        self.restart = self._lease.restart
        self.poke = self._links.poke
        self.lease_until = directory.lease_until

    def join(self, others: Iterable[int]) -> None:
        """Link with the sessions that were there before."""
        self._links.connect(self._directory.socket_path(other) for other in others)

    def attach(self, loop: asyncio.AbstractEventLoop, callbacks: Callbacks) -> None:
        """Listen to the others, and show that the loop turns."""
        self._links.attach(loop, callbacks)
        self._live(loop)

    def _live(self, loop: asyncio.AbstractEventLoop) -> None:
        self._keeper.note_life()
        self._stop_living()
        self._sign_of_life = loop.call_later(self._keeper.sign_of_life_seconds, self._live, loop)

    def _stop_living(self) -> None:
        if self._sign_of_life is not None:
            self._sign_of_life.cancel()
            self._sign_of_life = None

    def forget(self, sessions: Iterable[int]) -> None:
        """Remove the files of sessions that have ended."""
        for session in sessions:
            self._directory.remove(session)

    def leave(self) -> None:
        """Let go of everything; the others notice at once."""
        self._stop_living()
        self._keeper.end()
        self._directory.remove(self.session)
        self._lease.release()
        self._links.close()
