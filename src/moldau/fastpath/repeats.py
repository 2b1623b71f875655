"""List of the fast paths, and what the dispatcher knows of one.

The law: a fast path serves a request as its handler would, or leaves it untouched to its handler. It serves the
versions whose layout was looked at (`protocol/layouts.py`), and is asked only while the gate is as it was when it was
made (`requests/gate.py`).
"""

from collections.abc import Callable
from typing import Any, Protocol

from moldau.protocol.apis import FETCH, PRODUCE
from moldau.protocol.framing import Frame
from moldau.protocol.layouts import CONSUMER_FETCH_VERSIONS, FOLLOWER_FETCH_VERSIONS, PRODUCE_VERSIONS
from moldau.protocol.schema import Message, RecordData
from moldau.requests.context import RequestContext
from moldau.requests.pending import LastAnswer, PendingAnswer

Respond = Callable[[int, Message], list[RecordData]]
"""Makes a whole answer of a correlation id and a message."""


class Repeats(Protocol):
    """Serves requests that are like earlier ones of the same connection and version, and learns which are."""

    def serve(self, frame: Frame) -> bytes | list[RecordData] | PendingAnswer | None:
        """The answer, be it to come; None: this is for the handler. Nothing of a frame that is lent is kept."""
        ...

    def may_repeat(self, request: Any) -> bool:
        """Whether requests like this one can be served here."""
        ...

    def learn(self, frame: Frame, request: Any, response: Any) -> None:
        """A request that may repeat, which the handler has served."""
        ...


VERSIONS = {
    PRODUCE: frozenset(PRODUCE_VERSIONS),
    FETCH: frozenset((*CONSUMER_FETCH_VERSIONS, *FOLLOWER_FETCH_VERSIONS)),
}
"""Fast paths by API key."""


def repeats(key: int, context: RequestContext, respond: Respond, last_answer: LastAnswer) -> Repeats | None:
    """The fast path of a connection's requests of one key and version, where they have one."""
    if context.api_version not in VERSIONS.get(key, ()):
        return None
    if key == PRODUCE:  # imported when it is needed, as handlers are
        from moldau.fastpath.produce import ProduceRepeats

        return ProduceRepeats(context, respond, last_answer)
    from moldau.fastpath.fetch import FetchRepeats

    return FetchRepeats(context, respond)
