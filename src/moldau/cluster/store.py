"""The tree that the cluster's metadata lives in: ZooKeeper's shape, whatever is behind it.

Law of every implementation (tests/cluster/store_contract.py holds them to it):
- A node has bytes and a version that starts at 0 and grows by one with every `put`; a write may name the version it
  expects. A parent must exist before its child and cannot go before it.
- `multi` is all or nothing.
- An ephemeral node has no children and is gone when the session that made it is.
- A session that cannot be sure of itself says so: CONNECTED, SUSPENDED (it may be lost, nobody can tell yet), LOST.
  A lost session stays lost: every call raises SessionLost, until `reconnect` begins a new one. Watches outlive it.
- A listener is called after a change can be read, never before, with the path of the node that was created, changed
  or deleted. Several changes may come as one call, and a call may come without a change: who listens reads again.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from enum import Enum
from typing import NamedTuple, Protocol, TypeVar

T = TypeVar("T")

Listener = Callable[[str], None]


class SessionState(Enum):
    """State of a session, as far as it knows itself."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    """Mark of a session that has not heard of the store in time. The store may have given it up; no leader may rely on
    it."""
    LOST = "lost"
    """Mark of a session that the store has given up, so that its ephemeral nodes are gone; or that its owner has
    closed."""


SessionListener = Callable[[SessionState], None]


class Node(NamedTuple):
    """The content of a path. `created` is the number of the transaction that made it: larger means later."""

    data: bytes
    version: int
    created: int


class Create(NamedTuple):
    """Operation that makes a node. `sequence` appends the parent's next number, ten digits wide, to the name."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False


class Put(NamedTuple):
    """Operation that replaces a node's data; None expects no particular version."""

    path: str
    data: bytes
    expected_version: int | None = None


class Delete(NamedTuple):
    """Operation that removes a node without children."""

    path: str
    expected_version: int | None = None


class Check(NamedTuple):
    """Operation that changes nothing, but fails the whole `multi` unless the node is there in this version."""

    path: str
    expected_version: int | None = None


Operation = Create | Put | Delete | Check


class StoreError(Exception):
    """Error: an operation was refused; nothing of it, or of the `multi` around it, has happened, unless the subclass
    says otherwise."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class NodeExists(StoreError):
    """Error: there is a node at the path."""


class NoNode(StoreError):
    """Error: there is no node at the path, or no parent for it."""


class BadVersion(StoreError):
    """Error: somebody else has changed the node since."""


class NotEmpty(StoreError):
    """Error: the node has children."""


class NoChildrenForEphemerals(StoreError):
    """Error: the parent is ephemeral."""


class SessionLost(StoreError):
    """Error: the store has given this session up, and its ephemeral nodes with it. A write that was under way at that
    moment may have happened."""


class StoreUnavailable(StoreError):
    """Error: the store did not answer in time; the session may go on. A write may have happened: read, then try
    again."""


class MetadataStore(Protocol):
    """One session with a store, and after `reconnect` the next one. Calls other than `session_state` may raise
    SessionLost and StoreUnavailable."""

    @property
    def session_id(self) -> int:
        """The id of the present session, or of the last one: no two sessions of a tree share it."""
        ...

    @property
    def session_state(self) -> SessionState:
        """The state as far as it is known without asking the store; cheap enough for every request. When a process
        wakes up after a long stop this is right at once, before any listener was called."""
        ...

    def on_session(self, listener: SessionListener) -> Callable[[], None]:
        """Call `listener` with every new state from now on, in the loop's thread; it must not raise. It may be called
        from within a call that then raises SessionLost. `close` is not reported. Returns a function that ends this."""
        ...

    async def reconnect(self) -> None:
        """Begin a new session after LOST, which is reported as CONNECTED, then call every watch's listener with its own
        path. Ephemeral nodes of the old session are gone. Does nothing while the session lives; raises SessionLost
        after `close`."""
        ...

    async def get(self, path: str) -> Node | None:
        """The node at `path`."""
        ...

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """The nodes at `paths`; one round trip's time where the store is far away."""
        ...

    async def children(self, path: str) -> list[str]:
        """Names right below `path`, sorted; raises NoNode."""
        ...

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False) -> str:
        """Create a node; returns its path. Raises NodeExists, NoNode (no parent)."""
        ...

    async def put(self, path: str, data: bytes, expected_version: int | None = None) -> int:
        """Replace a node's data; returns the new version. Raises NoNode, BadVersion."""
        ...

    async def delete(self, path: str, expected_version: int | None = None) -> None:
        """Delete a node. Raises NoNode, BadVersion, NotEmpty."""
        ...

    async def multi(self, operations: Sequence[Operation]) -> list[str | int | None]:
        """Do all operations in order, or none; returns per operation the path made, the new version, or None."""
        ...

    def watch(self, path: str, listener: Listener) -> Callable[[], None]:
        """Call `listener` with every changed path at or below `path` from now on, own changes included; with `path`
        itself when changes may have been missed. Every change of another session is reported that a read begun after
        this call does not show: so watch first, then read. Returns a function that ends this."""
        ...

    async def close(self) -> None:
        """End the session and with it its ephemeral nodes."""
        ...


async def ensure_paths(store: MetadataStore, paths: Iterable[str]) -> None:
    """Make `paths` and their parents, where they are missing: all in one step."""
    wanted = sorted({part for path in paths for part in _with_parents(path)})
    while True:
        nodes = await store.get_many(wanted)
        missing = [path for path, node in zip(wanted, nodes, strict=True) if node is None]
        try:
            if missing:
                await store.multi([Create(path) for path in missing])
        except NodeExists:
            continue  # another broker was quicker with some of them
        return


async def ensure_path(store: MetadataStore, path: str) -> None:
    """Make `path` and its parents, where they are missing."""
    await ensure_paths(store, [path])


def listen(listeners: list[T], listener: T) -> Callable[[], None]:
    """Add a listener; the function that is returned takes it out again, once."""
    listeners.append(listener)

    def end() -> None:
        with suppress(ValueError):
            listeners.remove(listener)

    return end


def _with_parents(path: str) -> list[str]:
    return [path[:end] for end in range(1, len(path) + 1) if end == len(path) or path[end] == "/"]


async def subtree(store: MetadataStore, path: str) -> list[str]:
    """`path` and everything below it, children before parents: the order in which they can be deleted."""
    found: list[str] = []
    for name in await store.children(path):
        found += await subtree(store, f"{path}/{name}")
    return [*found, path]


def parent_of(path: str) -> str:
    """The path one level up; "/" for a path right below the root."""
    return path.rpartition("/")[0] or "/"
