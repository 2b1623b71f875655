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
from enum import Enum
from typing import NamedTuple, Protocol

Listener = Callable[[str], None]


class SessionState(Enum):
    """What a session knows about itself."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    """The store has not been heard of in time. It may have given the session up; no leader may rely on it."""
    LOST = "lost"
    """Given up by the store: the session's ephemeral nodes are gone. Or closed by its owner."""


SessionListener = Callable[[SessionState], None]


class Node(NamedTuple):
    """What a path holds. `created` is the number of the transaction that made it: larger means later."""

    data: bytes
    version: int
    created: int


class Create(NamedTuple):
    """Make a node. `sequence` appends the parent's next number, ten digits wide, to the name."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False


class Put(NamedTuple):
    """Replace a node's data; None expects no particular version."""

    path: str
    data: bytes
    expected_version: int | None = None


class Delete(NamedTuple):
    """Remove a node without children."""

    path: str
    expected_version: int | None = None


class Check(NamedTuple):
    """Change nothing, but fail the whole `multi` unless the node is there in this version."""

    path: str
    expected_version: int | None = None


Operation = Create | Put | Delete | Check


class StoreError(Exception):
    """An operation that was refused; nothing of it, or of the `multi` around it, has happened, unless the subclass
    says otherwise."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class NodeExists(StoreError):
    """There is a node at the path."""


class NoNode(StoreError):
    """There is no node at the path, or no parent for it."""


class BadVersion(StoreError):
    """Somebody else has changed the node since."""


class NotEmpty(StoreError):
    """The node has children."""


class NoChildrenForEphemerals(StoreError):
    """The parent is ephemeral."""


class SessionLost(StoreError):
    """The store has given this session up, and its ephemeral nodes with it. A write that was under way at that moment
    may have happened."""


class StoreUnavailable(StoreError):
    """The store did not answer in time; the session may go on. A write may have happened: read, then try again."""


class MetadataStore(Protocol):
    """One session with a store, and after `reconnect` the next one. Calls other than `session_state` may raise
    SessionLost and StoreUnavailable."""

    @property
    def session_id(self) -> int:
        """Of the present session, or of the last one: no two sessions of a tree share it."""
        ...

    @property
    def session_state(self) -> SessionState:
        """As far as can be said without asking the store; cheap enough for every request. Where a process wakes up
        after a long stop this is right at once, before any listener was called."""
        ...

    def on_session(self, listener: SessionListener) -> Callable[[], None]:
        """Call `listener` with every new state from now on, in the loop's thread; it must not raise. It may be called
        from within a call that then raises SessionLost. `close` is not reported. Returns what ends it."""
        ...

    async def reconnect(self) -> None:
        """After LOST: begin a new session, which is reported as CONNECTED, then call every watch's listener with its
        own path. Ephemeral nodes of the old session are gone. Does nothing while the session lives; raises SessionLost
        after `close`."""
        ...

    async def get(self, path: str) -> Node | None:
        """What is at `path`."""
        ...

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """`get` of each; one round trip's time where the store is far away."""
        ...

    async def children(self, path: str) -> list[str]:
        """Names right below `path`, sorted; raises NoNode."""
        ...

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False) -> str:
        """The path that was made; raises NodeExists, NoNode (no parent)."""
        ...

    async def put(self, path: str, data: bytes, expected_version: int | None = None) -> int:
        """The new version; raises NoNode, BadVersion."""
        ...

    async def delete(self, path: str, expected_version: int | None = None) -> None:
        """Raises NoNode, BadVersion, NotEmpty."""
        ...

    async def multi(self, operations: Sequence[Operation]) -> list[str | int | None]:
        """All of them in order, or none: per operation the path made, the new version, or None."""
        ...

    def watch(self, path: str, listener: Listener) -> Callable[[], None]:
        """Call `listener` with every changed path at or below `path` from now on, own changes included; with `path`
        itself when changes may have been missed. Of what other sessions change, all is told that a read begun after
        this call does not show: so watch first, then read. Returns what ends it."""
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


def _with_parents(path: str) -> list[str]:
    return [path[:end] for end in range(1, len(path) + 1) if end == len(path) or path[end] == "/"]


async def subtree(store: MetadataStore, path: str) -> list[str]:
    """`path` and everything below it, children before parents: the order in which they can be deleted."""
    found: list[str] = []
    for name in await store.children(path):
        found += await subtree(store, f"{path}/{name}")
    return [*found, path]


def parent_of(path: str) -> str:
    """The path one level up; "/" for what is right below the root."""
    return path.rpartition("/")[0] or "/"
