"""Policy for every request, asked before its handler: who may do what, and who watches.

Whatever changes here turns or closes the gate of the fast paths, which ask for nothing else (`requests/gate.py`).
"""

from typing import TYPE_CHECKING, Protocol

from moldau.requests.authorization import AllowEverything, Authorizer
from moldau.requests.gate import Gate

if TYPE_CHECKING:
    from moldau.requests.context import RequestContext

WATCHED = "somebody watches"


class Observer(Protocol):
    """Sees every request: none goes by a fast path while there is one."""

    def request_begins(self, api_key: int, context: "RequestContext") -> None: ...

    def request_ends(self, api_key: int, context: "RequestContext") -> None:
        """Called when the answer is there, or when there will be none: the request has failed, its client is gone, or
        nobody wants one. Every request that begins ends once."""
        ...


class RequestPolicy:
    """One broker's."""

    __slots__ = ("authorizer", "gate", "observer")

    def __init__(self) -> None:
        self.gate = Gate()
        self.authorizer: Authorizer = AllowEverything()
        self.observer: Observer | None = None

    def authorize_by(self, authorizer: Authorizer) -> None:
        self.authorizer = authorizer
        self.changed()

    def observe_by(self, observer: Observer | None) -> None:
        self.observer = observer
        if observer is None:
            self.gate.open(WATCHED)
        else:
            self.gate.close(WATCHED)

    def changed(self) -> None:
        """The authorizer may say something else from now on."""
        self.gate.turn()
