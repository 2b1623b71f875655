"""An answer that is not ready yet."""

import logging
from collections.abc import Callable

from moldau.protocol.errors import ProtocolError
from moldau.protocol.schema import RecordData

log = logging.getLogger(__name__)


class Later:
    """Whoever makes it calls `complete` once; whoever sends it asks to be told by `when_done` before that."""

    __slots__ = ("_then", "chunks", "failed")

    is_undecided = False
    """Whether what is asked for is still to be done, so that the connection's next request has to wait."""

    def __init__(self) -> None:
        self._then: Callable[[Later], None] | None = None
        self.chunks: list[RecordData] | None = None
        self.failed = False

    def when_done(self, then: Callable[["Later"], None]) -> None:
        self._then = then

    def complete(self, chunks: list[RecordData]) -> None:
        self.chunks = chunks
        if self._then is not None:
            self._then(self)

    def complete_with(self, make: Callable[[], list[RecordData]]) -> None:
        """Complete with what `make` gives; if it raises, that is logged, and there will be no answer."""
        try:
            chunks = make()
        except ProtocolError as error:
            log.warning("closing a connection: %s", error)
            self.fail()
        except Exception:
            log.exception("a request failed")
            self.fail()
        else:
            self.complete(chunks)

    def fail(self) -> None:
        """There will be no answer."""
        self.failed = True
        if self._then is not None:
            self._then(self)

    def cancel(self) -> None:
        """The client is gone: nobody wants the answer."""
        self._then = None
