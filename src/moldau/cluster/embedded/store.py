"""The metadata store of one machine: a SQLite file that any number of processes have open.

Law: a session is a row that only transactions add and remove. Every write finds out in its own transaction whether the
row is still there, every read before it whether it must be (`sessions.py` says how that is known without asking). Calls
are `async`. A read costs some ten microseconds on the loop; a write waits for its sync in a thread (`writer.py`), and
for another process that is writing, for a bounded time. So a slow disk holds up changes of the metadata, and nothing
else. Changes reach the listeners of other processes through a table and a byte on a socket; a process that died is
noticed by its socket's end, one that hangs by its lease. Nothing is polled but the lease.
"""

import asyncio
import logging
import os
import sqlite3
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple, TypeVar

from moldau.cluster.embedded.links import Callbacks
from moldau.cluster.embedded.membership import Membership
from moldau.cluster.embedded.sessions import PROCESS_GONE, Clock, SessionDirectory
from moldau.cluster.embedded.tree import IN_MEMORY, Tree, is_busy
from moldau.cluster.embedded.writer import Writer
from moldau.cluster.store import (
    Create,
    Delete,
    Listener,
    Node,
    Operation,
    Put,
    SessionListener,
    SessionLost,
    SessionState,
    StoreUnavailable,
    listen,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

SESSION_TIMEOUT_MS = 18_000
WAIT_NS_MAX = 5_000_000_000
"""Time that a call waits for another process's transaction to end."""
RETRY_SECONDS = 0.001
RETRY_SECONDS_MAX = 0.1
FAILED_RETRY_SECONDS = 1.0
LOOKS_PER_LEASE = 3
"""Looks at the other sessions in the time of one lease."""
SECOND_LOOKS = 7
"""Looks after the end of a socket, each after twice as long: a dying process's socket may end a moment before its lock
does."""
HUNG_WRITER_NS = 500_000_000


class _Beginning(NamedTuple):
    """A session that has just begun."""

    session: int
    membership: Membership | None
    last_change: int


class _Written(NamedTuple):
    """Outcome of a write."""

    results: list[str | int | None]
    changed: list[str]
    alone: bool
    """Whether there is no other session: then there is no entry in the change log to read the change from."""


class EmbeddedStore:
    """A session with the SQLite file at `path`; ":memory:" lives as long as the object."""

    def __init__(
        self,
        path: str,
        *,
        durable: bool = True,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        clock: Clock = time.monotonic_ns,
    ) -> None:
        """Begin a session; waits for others that start at the same time, raises StoreUnavailable. `durable=False`
        leaves writes in the page cache and makes them on the loop: quicker, for tests."""
        self._path = path
        self._timeout_ns = session_timeout_ms * 1_000_000
        self._clock = clock
        # Only a sync makes a write slow: without one a thread and a second connection would cost more than they save.
        in_thread = durable and path != IN_MEMORY
        self._writer = Writer(Tree(path, durable=durable), in_thread=in_thread)
        self._tree = Tree(path, durable=durable) if in_thread else self._writer.tree
        self._directory = None if path == IN_MEMORY else SessionDirectory(path)
        self._membership: Membership | None = None
        self._session = 0
        self._state = SessionState.LOST
        self._closed = False
        self._watches: list[tuple[str, Listener]] = []
        self._session_listeners: list[SessionListener] = []
        self._delivered_changes = 0
        self._lease_judgements_from = 0
        self._lock_awaited_since = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tick: asyncio.TimerHandle | None = None
        self._looking: asyncio.Task[None] | None = None
        self._must_look_again = False
        self._turn = asyncio.Lock()
        self._start()

    @property
    def session_id(self) -> int:
        return self._session

    @property
    def session_state(self) -> SessionState:
        return SessionState.SUSPENDED if self._may_be_lost() else self._state

    def on_session(self, listener: SessionListener) -> Callable[[], None]:
        return listen(self._session_listeners, listener)

    async def get(self, path: str) -> Node | None:
        return await self._read(path, lambda: self._tree.get(path))

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        def read() -> list[Node | None]:
            with self._tree.snapshot():  # or a commit of another process could fall between two of them
                return [self._tree.get(path) for path in paths]

        return await self._read("/", read)

    async def children(self, path: str) -> list[str]:
        def read() -> list[str]:
            with self._tree.snapshot():
                return self._tree.children(path)

        return await self._read(path, read)

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False) -> str:
        (made,) = await self.multi([Create(path, data, ephemeral, sequence)])
        return str(made)

    async def put(self, path: str, data: bytes, expected_version: int | None = None) -> int:
        (version,) = await self.multi([Put(path, data, expected_version)])
        return int(version or 0)

    async def delete(self, path: str, expected_version: int | None = None) -> None:
        await self.multi([Delete(path, expected_version)])

    async def multi(self, operations: Sequence[Operation]) -> list[str | int | None]:
        async def write() -> list[str | int | None]:
            await self._be_usable("/")  # in the attempt, not before it: waiting for others may outlast the lease
            work = partial(self._write, self._session, operations)
            return (await self._writer.do(work, self._committed)).results

        async with self._own_turn():
            return await self._when_free("/", write)

    def watch(self, path: str, listener: Listener) -> Callable[[], None]:
        return listen(self._watches, (path, listener))

    async def reconnect(self) -> None:
        async with self._own_turn():
            if self._closed:
                raise SessionLost("/")
            if self._state is not SessionState.LOST:  # another caller was quicker
                return
            self._begun(await self._when_free("/", lambda: self._writer.do(self._begin_session)))
            self._report(SessionState.CONNECTED)
            self._attach(asyncio.get_running_loop())
            self._notify_missed()  # between the sessions nobody followed the change log

    async def close(self) -> None:
        async with self._own_turn():
            if self._closed:
                return
            self._closed = True
            self._watches.clear()
            if self._state is not SessionState.LOST:
                end = partial(self._end_session, self._session)
                with suppress(StoreUnavailable):  # then the others find the lock free
                    await self._when_free("/", lambda: self._writer.do(end))
                self._let_go()
                self._state = SessionState.LOST
            await self._writer.do(self._close_trees)
            self._writer.close()
            if self._directory is not None:
                self._directory.close()

    def _close_trees(self, written: Tree) -> None:
        """Close both connections. The last one of a file to be closed takes its write-ahead log into it, and syncs
        that."""
        self._tree.close()
        written.close()

    # Waiting for others

    def _start(self) -> None:
        """Prepare the file and begin the session before there is a loop to wait in. One process switches a new file to
        its log; others wait."""
        deadline = self._clock() + WAIT_NS_MAX
        tree = self._writer.tree
        self._at_start(tree.prepare, deadline)
        self._begun(self._at_start(lambda: self._begin_session(tree), deadline))
        self._state = SessionState.CONNECTED
        with suppress(RuntimeError):  # no loop yet: the first call has one
            self._live_in(asyncio.get_running_loop())

    def _at_start(self, work: Callable[[], T], deadline: int) -> T:
        while True:
            try:
                return work()
            except sqlite3.OperationalError as error:
                if not is_busy(error) or self._clock() >= deadline:
                    raise StoreUnavailable("/") from error
            time.sleep(RETRY_SECONDS)

    def _own_turn(self) -> asyncio.Lock:
        """The lock by which writes of this process go first come, first served."""
        self._live_in(asyncio.get_running_loop())
        return self._turn

    async def _read(self, path: str, read: Callable[[], T]) -> T:
        async def checked() -> T:
            await self._be_usable(path)
            return read()

        return await self._when_free(path, checked)

    async def _when_free(self, path: str, work: Callable[[], Awaitable[T]]) -> T:
        """The result of `work`, tried until no other process is in its way."""
        deadline = 0
        while True:
            try:
                return await work()
            except SessionLost:
                self._lose()
                raise
            except sqlite3.OperationalError as error:
                deadline = deadline or self._clock() + WAIT_NS_MAX  # from the first obstacle on: a queue is no obstacle
                if not is_busy(error) or self._clock() > deadline:
                    raise StoreUnavailable(path) from error
            except OSError as error:  # no descriptor or no memory, for one: that passes
                raise StoreUnavailable(path) from error
            await asyncio.sleep(RETRY_SECONDS)

    @property
    def _is_alive(self) -> bool:
        return not self._closed and self._state is not SessionState.LOST and self._loop is not None

    def _in_loop(self, work: Callable[[], None], delay: float = RETRY_SECONDS) -> None:
        """Do `work` as a callback; an obstacle that passes only delays it."""
        if not self._is_alive or self._loop is None:
            return
        try:
            work()
        except SessionLost:
            self._lose()
        except (sqlite3.OperationalError, OSError) as error:
            self._loop.call_later(_pause(error, delay), self._in_loop, work, min(delay * 2, RETRY_SECONDS_MAX))

    # The session

    def _begin_session(self, tree: Tree) -> _Beginning:
        membership = None
        try:
            with tree.transaction():
                session = tree.next_session()
                others = tree.sessions()
                if self._directory is not None:
                    self._directory.keep_only(others)
                    # Inside the transaction: a row without its lock would look like a process that died.
                    membership = Membership(self._directory, session, self._timeout_ns, self._clock)
                # A broker that comes back must find its old session's ephemeral nodes gone, or it could not register.
                ended = self._overdue(others, membership)
                tree.log(tree.end_sessions(ended))
                tree.add_session(session, os.getpid())
                last_change = tree.changes()
        except BaseException:
            if membership is not None:
                membership.leave()
            raise
        if membership is not None:
            membership.forget(ended)
            membership.join(other for other in others if other not in ended)
        return _Beginning(session, membership, last_change)

    def _begun(self, beginning: _Beginning) -> None:
        self._session, self._membership, self._delivered_changes = beginning
        if self._membership is not None:
            self._membership.poke()

    def _end_session(self, session: int, tree: Tree) -> None:
        with tree.transaction():
            tree.log(tree.end_sessions([session]))

    def _live_in(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._loop is not loop:  # made before there was a loop, or used from another one, as tests do
            self._loop = loop
            self._turn = asyncio.Lock()
            self._looking = None
            self._attach(loop)

    def _attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to listen to the other sessions, and to keep our own alive."""
        if self._membership is not None:
            poked = partial(self._in_loop, self._catch_up)
            self._membership.attach(loop, Callbacks(poked, self._look, self._look_for_the_dead))
            self._look()

    async def _be_usable(self, path: str) -> None:
        """Return if the session is there, as far as can be known without a transaction; raises SessionLost."""
        self._live_in(asyncio.get_running_loop())
        while self._may_be_lost():  # again, if the new lease ran out while its transaction waited
            await self._make_sure()
        if self._state is SessionState.LOST or self._closed:
            raise SessionLost(path)

    def _may_be_lost(self) -> bool:
        """Whether this process has slept so long that others may have ended the session."""
        membership = self._membership
        return membership is not None and self._state is not SessionState.LOST and membership.has_run_out()

    async def _make_sure(self) -> None:
        """Begin a new lease if the session is still there; raises SessionLost."""
        self._report(SessionState.SUSPENDED)
        await self._writer.do(partial(self._restart_lease, self._session, self._membership))
        # Whatever stopped us may have stopped all: the others get the time to renew theirs.
        self._lease_judgements_from = self._clock() + self._timeout_ns // LOOKS_PER_LEASE
        if self._is_alive and not self._may_be_lost():
            self._report(SessionState.CONNECTED)

    def _restart_lease(self, session: int, membership: Membership | None, tree: Tree) -> None:
        with tree.transaction():
            _require(session, tree.sessions())
            if membership is not None:
                membership.restart()

    def _lose(self) -> None:
        if self._state is not SessionState.LOST and not self._closed:
            self._let_go()
            self._report(SessionState.LOST)

    def _let_go(self) -> None:
        if self._tick is not None:
            self._tick.cancel()
            self._tick = None
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        if self._membership is not None:
            self._membership.leave()
            self._membership = None

    def _report(self, state: SessionState) -> None:
        if state is not self._state:
            self._state = state
            for listener in tuple(self._session_listeners):
                listener(state)

    # The others

    def _look(self) -> None:
        """Look after our own session and the others, in a task of which there is one at most."""
        if not self._is_alive or self._loop is None:
            return
        if self._looking is not None:  # it may have passed by what there is to see now
            self._must_look_again = True
            return
        self._looking = self._loop.create_task(self._look_until_done())
        self._looking.add_done_callback(self._looked)

    def _looked(self, task: "asyncio.Task[None]") -> None:
        if self._looking is task:
            self._looking = None

    async def _look_until_done(self) -> None:
        """Look until nothing is left to do; an obstacle that passes only delays it."""
        delay = RETRY_SECONDS
        while self._is_alive:
            self._must_look_again = False
            try:
                await self._keep_alive()
            except SessionLost:
                self._lose()
            except (sqlite3.OperationalError, OSError) as error:
                await asyncio.sleep(_pause(error, delay))
                delay = min(delay * 2, RETRY_SECONDS_MAX)
                continue
            if not self._must_look_again:
                return

    async def _keep_alive(self) -> None:
        """Make sure of our lease, look after the leases of the others, come again in time."""
        membership = self._membership
        if membership is None:
            return
        try:
            if membership.has_run_out():
                await self._make_sure()
            await self._end_overdue()
            self._catch_up()
        finally:
            if self._membership is membership:
                self._come_again(membership)

    def _come_again(self, membership: Membership) -> None:
        """Plan the next look, also after an error: without it the lease would run out."""
        now = self._clock()
        due = now + self._timeout_ns // LOOKS_PER_LEASE
        with suppress(sqlite3.Error, OSError):
            leases = [membership.lease_until(other) for other in self._tree.sessions() if other != self._session]
            # One may have run out since `_end_overdue` looked: it is looked at again as soon as it may be judged.
            due = min([due, *(max(until, now, self._lease_judgements_from) for until in leases)])
        if self._tick is not None:
            self._tick.cancel()
        if self._loop is not None:
            self._tick = self._loop.call_later((due - now) / 1e9 + RETRY_SECONDS, self._look)

    def _look_for_the_dead(self, looks: int = 0) -> None:
        """Look several times, as a session has left, perhaps in the middle of a message to us."""
        self._look()
        if looks < SECOND_LOOKS and self._loop is not None:
            self._loop.call_later(RETRY_SECONDS * 2**looks, self._look_for_the_dead, looks + 1)

    async def _end_overdue(self) -> None:
        """End the sessions of processes that died or hang."""
        others = self._tree.sessions()
        if not self._overdue(others, self._membership):  # a read is enough nearly always: no write lock, no sync
            self._lock_awaited_since = 0
            return
        try:
            await self._writer.do(partial(self._end_others, self._session, self._membership), self._others_ended)
        except sqlite3.OperationalError:
            self._stop_hung_writer(others)
            raise
        self._lock_awaited_since = 0

    def _end_others(self, session: int, membership: Membership | None, tree: Tree) -> list[int]:
        with tree.transaction():
            _require(session, others := tree.sessions())
            ended = self._overdue(others, membership)  # again: a lease may have been renewed before we had the lock
            tree.log(tree.end_sessions(ended))
        return ended

    def _others_ended(self, ended: list[int]) -> None:
        if ended and self._membership is not None:
            log.info("sessions %s ended: their processes died or hang", ended)
            self._membership.forget(ended)
            self._announce()

    def _overdue(self, sessions: dict[int, int], membership: Membership | None) -> list[int]:
        """The sessions among `sessions` that nobody keeps alive any more."""
        if membership is None:
            return []
        now = self._clock()
        trusts_leases = now >= self._lease_judgements_from
        leases = {other: membership.lease_until(other) for other in sessions if other != membership.session}
        return [o for o, until in leases.items() if until == PROCESS_GONE or (trusts_leases and until < now)]

    def _stop_hung_writer(self, sessions: dict[int, int]) -> None:
        """Kill a process that was stopped inside a transaction, once its lease has run out: it keeps all others from
        writing. A process that waits for its disk is left alone."""
        from moldau.cluster.embedded.hung_writer import kill_if_it_is_stopped_with_the_write_lock  # hardly ever needed

        now = self._clock()
        self._lock_awaited_since = self._lock_awaited_since or now
        if now - self._lock_awaited_since > HUNG_WRITER_NS:
            for session in self._overdue(sessions, self._membership):
                kill_if_it_is_stopped_with_the_write_lock(self._path, sessions[session])

    # Changes

    def _write(self, session: int, operations: Sequence[Operation], tree: Tree) -> _Written:
        with tree.transaction():
            sessions = tree.sessions()
            _require(session, sessions)
            results, changed = tree.apply(operations, session)
            alone = len(sessions) == 1
            if not alone:  # the log is for others; with none of them a write costs a row less
                tree.log(changed)
        return _Written(results, changed, alone)

    def _committed(self, written: _Written) -> None:
        self._announce()
        if written.alone:
            self._notify(written.changed)

    def _announce(self) -> None:
        """Announce a commit to the other sessions and to our own listeners; an error here does not undo it."""
        if self._membership is not None:
            self._membership.poke()
        self._in_loop(self._deliver)

    def _catch_up(self) -> None:
        """Deliver the changes that others committed; raises SessionLost if one of them ended our session."""
        if not self._tree.has_session(self._session):
            raise SessionLost("/")
        self._deliver()

    def _deliver(self) -> None:
        logged = self._tree.changes_since(self._delivered_changes)
        self._delivered_changes = logged.number
        if logged.complete:
            self._notify(logged.paths)
        else:
            self._notify_missed()

    def _notify(self, changed: Sequence[str]) -> None:
        for path in changed:
            for watched, listener in tuple(self._watches):
                if path == watched or watched == "/" or path.startswith(f"{watched}/"):
                    listener(path)

    def _notify_missed(self) -> None:
        for watched, listener in tuple(self._watches):
            listener(watched)


def _require(session: int, sessions: dict[int, int]) -> None:
    if session not in sessions:
        raise SessionLost("/")


def _pause(error: Exception, delay: float) -> float:
    """Seconds to wait before the next attempt."""
    if is_busy(error):
        return delay
    log.warning("the metadata store cannot be read or written: %s", error)
    return FAILED_RETRY_SECONDS
