"""The metadata store of several machines: a ZooKeeper ensemble, 3.6 or newer.

Law of the file:
- A read is repeated until it is answered or the session is lost. A write that was sent and not answered raises
  StoreUnavailable: it may have happened, and only its caller can tell, by reading. One that was not sent yet is sent.
- A session is lost when the ensemble says so, or when our own clock says that the ensemble may have given it up: who is
  cut off hears nothing. What is left of such a session is closed when the next one begins, so its ephemeral nodes do
  not stand in the way.
- A watched subtree is one persistent recursive watch, made anew with every connection; changes in between may have
  been missed, so every listener is called then.
Nodes are open to everybody who reaches the ensemble (`zookeeper.set.acl` has no effect yet), and so is the connection.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kazoo import exceptions as kazoo_errors  # type: ignore[import-untyped]  # the package has no type information
from kazoo.hosts import collect_hosts  # type: ignore[import-untyped]  # as above
from kazoo.protocol import serialization as requests  # type: ignore[import-untyped]  # as above
from kazoo.protocol.states import KazooState  # type: ignore[import-untyped]  # as above
from kazoo.security import OPEN_ACL_UNSAFE  # type: ignore[import-untyped]  # as above

from moldau.cluster.store import (
    BadVersion,
    Check,
    Create,
    Delete,
    Listener,
    NoChildrenForEphemerals,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Put,
    SessionListener,
    SessionLost,
    SessionState,
    StoreError,
    StoreUnavailable,
    listen,
    parent_of,
)
from moldau.cluster.zookeeper.session import (
    REQUEST_BYTES_MAX,
    Call,
    Credentials,
    Prepared,
    Request,
    WatchRequest,
    ZooKeeperSession,
    add_watch,
    remove_watch,
)

_log = logging.getLogger(__name__)

_ANY_VERSION = -1
_EPHEMERAL, _SEQUENCE = 1, 2
_STATES = {KazooState.CONNECTED: SessionState.CONNECTED, KazooState.SUSPENDED: SessionState.SUSPENDED}
_ERRORS: dict[type[Exception], type[StoreError]] = {
    kazoo_errors.NodeExistsError: NodeExists,
    kazoo_errors.NoNodeError: NoNode,
    kazoo_errors.BadVersionError: BadVersion,
    kazoo_errors.NotEmptyError: NotEmpty,
    kazoo_errors.NoChildrenForEphemeralsError: NoChildrenForEphemerals,
    kazoo_errors.SessionExpiredError: SessionLost,
    kazoo_errors.ConnectionClosedError: SessionLost,
    kazoo_errors.ConnectionLoss: StoreUnavailable,
    kazoo_errors.OperationTimeoutError: StoreUnavailable,
    kazoo_errors.RequestTimeoutError: StoreUnavailable,
    kazoo_errors.SessionMovedError: StoreUnavailable,
    kazoo_errors.ThrottledOpError: StoreUnavailable,
}
_ABOUT_THE_PARENT = (NoNode, NoChildrenForEphemerals)
_NOT_THE_CAUSE = (kazoo_errors.RolledBackError, kazoo_errors.RuntimeInconsistency)


class RequestTooLarge(StoreError):
    """Error: more than an ensemble reads as one request. Split the `multi`; nothing of it was sent."""


class ZooKeeperStore:
    """Sessions with the ensemble of `connect`: `host:port,host:port/chroot`, Kafka's `zookeeper.connect`.

    The first call connects; `connect` does it by itself. A `multi`, like any request, must stay below
    `REQUEST_BYTES_MAX`: that is room for some 4,000 partition states.
    """

    def __init__(
        self, connect: str, session_timeout_ms: int = 18_000, connection_timeout_ms: int | None = None
    ) -> None:
        hosts, chroot = collect_hosts(connect)
        self._hosts = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in hosts)
        self._chroot = (chroot or "").rstrip("/")
        self._session_timeout_s = session_timeout_ms / 1000
        self._connection_timeout_s = (connection_timeout_ms or session_timeout_ms) / 1000
        self._session: ZooKeeperSession | None = None
        self._beginning: ZooKeeperSession | None = None
        self._session_id = 0
        self._state = SessionState.LOST
        self._left_behind: Credentials | None = None
        self._closed = False
        self._connecting = asyncio.Lock()
        self._session_listeners: list[SessionListener] = []
        self._watches: list[tuple[str, Listener]] = []

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def session_state(self) -> SessionState:
        if self._session is None or self._session.lost:
            return SessionState.LOST
        return self._state

    def on_session(self, listener: SessionListener) -> Callable[[], None]:
        return listen(self._session_listeners, listener)

    async def connect(self) -> None:
        """Begin the first session; raises StoreUnavailable if no member answers within the connection timeout."""
        await self.reconnect()

    async def reconnect(self) -> None:
        async with self._connecting:
            if self._closed:
                raise SessionLost("/")
            if self.session_state is not SessionState.LOST:
                return
            if self._session is not None:
                self._session.give_up()  # where only the clock has said so yet
            session = await self._begin_session()
            if session.lost:
                raise SessionLost("/")
            is_first = self._session is None
            self._session, self._session_id = session, session.session_id
            self._take_state(session, session.state)
            await self._watch_again(session, is_first)

    async def get(self, path: str) -> Node | None:
        (node,) = await self.get_many([path])
        return node

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        answers = await self._read([requests.GetData(self._full(path), None) for path in paths])
        return [_node(path, answer) for path, answer in zip(paths, answers, strict=True)]

    async def children(self, path: str) -> list[str]:
        (answer,) = await self._read([requests.GetChildren(self._full(path), None)])
        return sorted(_or_raise(path, answer))

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False) -> str:
        return str(await self._write_one(Create(path, data, ephemeral, sequence)))

    async def put(self, path: str, data: bytes, expected_version: int | None = None) -> int:
        return int(await self._write_one(Put(path, data, expected_version)) or 0)

    async def delete(self, path: str, expected_version: int | None = None) -> None:
        await self._write_one(Delete(path, expected_version))

    async def multi(self, operations: Sequence[Operation]) -> list[str | int | None]:
        await self._live("/")
        if not operations:
            return []
        try:
            answers = await self._write("/", requests.Transaction([self._request(each) for each in operations]))
        except kazoo_errors.ZookeeperError as error:
            raise _store_error(Check("/"), error) from None
        for operation, answer in zip(operations, answers, strict=True):
            if isinstance(answer, Exception) and not isinstance(answer, _NOT_THE_CAUSE):
                raise _store_error(operation, answer)
        return [self._result(operation, answer) for operation, answer in zip(operations, answers, strict=True)]

    def watch(self, path: str, listener: Listener) -> Callable[[], None]:
        watch = (path, listener)
        if not self._is_watched(path):
            self._send_watch(add_watch(self._full(path)))
        self._watches.append(watch)

        def end() -> None:
            if watch in self._watches:
                self._watches.remove(watch)
                if not self._is_watched(path):
                    self._send_watch(remove_watch(self._full(path)))

        return end

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._watches.clear()
        self._session_listeners.clear()
        if self._beginning is not None:
            self._beginning.give_up()
        async with self._connecting:
            if self._session is not None:
                session, self._session = self._session, None
                await session.close()

    # --- requests ---

    async def _live(self, path: str) -> ZooKeeperSession:
        """The session to ask. The first call begins one; after a loss only `reconnect` does."""
        if self._session is None and not self._closed:
            await self.reconnect()
        session = self._session
        if session is None:
            raise SessionLost(path)
        if session.lost:
            session.give_up()
            raise SessionLost(path)
        return session

    async def _read(self, wanted: Sequence[Request]) -> list[Any]:
        """Answers or the ensemble's errors. All requests are on the way at once."""
        path = wanted[0].path if wanted else "/"
        while True:
            answers = await _outcomes((await self._live(path)).start(wanted))
            if not any(isinstance(answer, kazoo_errors.ConnectionLoss) for answer in answers):
                return answers

    async def _write(self, path: str, request: Request) -> Any:
        prepared = Prepared(request, bytes(request.serialize()))
        if len(prepared.body) > REQUEST_BYTES_MAX:
            raise RequestTooLarge(f"{path}: {len(prepared.body)} bytes, and {REQUEST_BYTES_MAX} is the most")
        while True:
            (call,) = (await self._live(path)).start([prepared])
            try:
                return await call.future
            except kazoo_errors.ConnectionLoss:
                if call.sent_at is not None:
                    raise

    async def _write_one(self, operation: Operation) -> str | int | None:
        try:
            return self._result(operation, await self._write(operation.path, self._request(operation)))
        except kazoo_errors.ZookeeperError as error:
            raise _store_error(operation, error) from None

    def _request(self, operation: Operation) -> Request:
        path = self._full(operation.path)
        match operation:
            case Create():
                flags = _EPHEMERAL * operation.ephemeral | _SEQUENCE * operation.sequence
                return requests.Create(path, operation.data, OPEN_ACL_UNSAFE, flags)
            case Put():
                return requests.SetData(path, operation.data, _version(operation.expected_version))
            case Delete():
                return requests.Delete(path, _version(operation.expected_version))
            case Check():
                return requests.CheckVersion(path, _version(operation.expected_version))

    def _result(self, operation: Operation, answer: Any) -> str | int | None:
        match operation:
            case Create():
                return self._short(answer)
            case Put():
                return int(answer.version)
        return None

    def _full(self, path: str) -> str:
        return (self._chroot + path).rstrip("/") or "/"

    def _short(self, path: str) -> str:
        return path[len(self._chroot) :] or "/"

    # --- sessions ---

    async def _begin_session(self) -> ZooKeeperSession:
        deadline = time.monotonic() + self._connection_timeout_s
        if self._session is not None and self._left_behind is not None:
            await self._close_left_behind(self._session, deadline)
        session = await self._connected_session(deadline)
        try:
            await self._make_chroot(session)
        except BaseException:
            session.give_up()
            raise
        return session

    async def _close_left_behind(self, lost: ZooKeeperSession, deadline: float) -> None:
        """End a session at the ensemble that our clock has given up, and its ephemeral nodes with it."""
        await lost.ended()  # two connections would take the session from each other
        session = await self._connected_session(deadline, self._left_behind)
        await session.close()
        self._left_behind = None

    async def _connected_session(self, deadline: float, resumed: Credentials | None = None) -> ZooKeeperSession:
        def on_state(state: str) -> None:
            self._note_state(session, state)

        session = ZooKeeperSession(self._hosts, self._session_timeout_s, on_state, self._note_change, resumed)
        self._beginning = session
        try:
            if not await session.connected(deadline - time.monotonic()):
                raise StoreUnavailable(self._hosts)
        except BaseException:
            session.give_up()
            raise
        finally:
            self._beginning = None
        return session

    async def _make_chroot(self, session: ZooKeeperSession) -> None:
        for path in _with_parents(self._chroot):
            answer: Any = kazoo_errors.ConnectionLoss()
            while isinstance(answer, kazoo_errors.ConnectionLoss):
                (answer,) = await _outcomes(session.start([requests.Create(path, b"", OPEN_ACL_UNSAFE, 0)]))
            if isinstance(answer, Exception) and not isinstance(answer, kazoo_errors.NodeExistsError):
                raise _store_error(Create(path), answer)

    def _note_state(self, session: ZooKeeperSession, state: str) -> None:
        if session is self._session:  # not one that is only being begun
            self._take_state(session, state)
            if state == KazooState.CONNECTED:
                self._watch_again(session)

    def _take_state(self, session: ZooKeeperSession, state: str) -> None:
        new = _STATES.get(state, SessionState.LOST)
        if new is self._state:
            return
        self._state = new
        if new is SessionState.LOST:
            self._left_behind = session.left_behind
        for listener in tuple(self._session_listeners):
            listener(new)

    # --- watches ---

    def _is_watched(self, path: str) -> bool:
        return any(watched == path for watched, _listener in self._watches)

    def _send_watch(self, request: WatchRequest) -> None:
        """Send a watch without waiting for the answer: should the connection end first, the next one begins with all
        watches."""
        if self._session is not None:
            (call,) = self._session.start([request])
            call.future.add_done_callback(_log_refusal)

    def _watch_again(self, session: ZooKeeperSession, is_first: bool = False) -> "asyncio.Future[list[Any]]":
        """A future that is done when all watches are there and the listeners have been called, or when the connection
        is gone again. Before the first session nothing was read, so there is nothing to read again."""
        paths = dict.fromkeys(path for path, _listener in self._watches)
        calls = session.start([add_watch(self._full(path)) for path in paths])
        for call in calls:
            call.future.add_done_callback(_log_refusal)
        watching = _outcomes(calls)
        if not is_first:
            watching.add_done_callback(self._changes_may_be_missed)
        return watching

    def _changes_may_be_missed(self, watching: "asyncio.Future[list[Any]]") -> None:
        if watching.cancelled() or any(isinstance(answer, Exception) for answer in watching.result()):
            return
        for path, listener in tuple(self._watches):
            listener(path)

    def _note_change(self, full_path: str) -> None:
        path = self._short(full_path)
        for watched, listener in tuple(self._watches):
            if path == watched or watched == "/" or path.startswith(f"{watched}/"):
                listener(path)


def _outcomes(calls: Iterable[Call]) -> "asyncio.Future[list[Any]]":
    """Answers, or the errors in their place."""
    return asyncio.gather(*(call.future for call in calls), return_exceptions=True)


def _log_refusal(watching: "asyncio.Future[Any]") -> None:
    """Log a watch that the ensemble refuses; one that fails with its connection is reported elsewhere."""
    error = None if watching.cancelled() else watching.exception()
    if error is not None and type(error) not in _ERRORS and not isinstance(error, kazoo_errors.NoWatcherError):
        _log.error("the ensemble refuses to watch (it must be ZooKeeper 3.6 or newer): %r", error)


def _store_error(operation: Operation, error: Exception) -> StoreError:
    kind = _ERRORS.get(type(error))
    if kind is None:
        return StoreError(f"{operation.path}: {error!r}")
    if isinstance(operation, Create) and kind in _ABOUT_THE_PARENT:
        return kind(parent_of(operation.path))
    return kind(operation.path)


def _or_raise(path: str, answer: Any) -> Any:
    if isinstance(answer, Exception):
        raise _store_error(Check(path), answer)
    return answer


def _node(path: str, answer: Any) -> Node | None:
    if isinstance(answer, kazoo_errors.NoNodeError):
        return None
    data, stat = _or_raise(path, answer)
    return Node(data or b"", stat.version, stat.czxid)


def _version(expected: int | None) -> int:
    return _ANY_VERSION if expected is None else expected


def _with_parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(2, len(parts) + 1)]
