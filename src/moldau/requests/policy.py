"""What holds for every request before its handler is asked: who may do what, and who watches.

The law: what was decided under one version of the policy holds only under it. Fast paths are tried when the version is
the one under which they were learnt; that is the only question they ask. So whatever changes the policy (rights,
quotas, somebody who watches) makes a new version.
"""

from typing import TYPE_CHECKING, Protocol

from moldau.requests.authorization import AllowEverything, Authorizer

if TYPE_CHECKING:
    from moldau.requests.context import RequestContext


class Observer(Protocol):
    """Sees every request: none goes by a fast path while there is one."""

    def request_begins(self, api_key: int, context: "RequestContext") -> None: ...

    def request_ends(self, api_key: int, context: "RequestContext") -> None:
        """Its answer is there, or there will be none: it has failed, its client is gone, or nobody wants one. Every
        request that begins ends once."""
        ...


class RequestPolicy:
    """One broker's."""

    __slots__ = ("authorizer", "observer", "version")

    def __init__(self) -> None:
        self.version = 0
        self.authorizer: Authorizer = AllowEverything()
        self.observer: Observer | None = None

    def authorize_by(self, authorizer: Authorizer) -> None:
        self.authorizer = authorizer
        self.changed()

    def observe_by(self, observer: Observer | None) -> None:
        self.observer = observer
        self.changed()

    def changed(self) -> None:
        """Forget what was learnt: the authorizer may say something else from now on."""
        self.version += 1
