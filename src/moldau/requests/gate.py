"""The gate of the fast paths: whether what was learnt of earlier requests may still be used.

The law: a fast path asks nothing about who may, how fast, or who watches. All of that was asked when it was learnt, and
holds as long as the gate's version is the same: one comparison for each request. Whoever makes another answer possible
(other rights, a quota, somebody who watches) either turns the gate, so that everything is learnt anew, or closes it, so
that nothing is learnt, and every request goes by its handler until it is opened again.
"""


class Gate:
    """One broker's. Open at first."""

    __slots__ = ("_closed_by", "version")

    def __init__(self) -> None:
        self.version = 0
        self._closed_by: set[str] = set()

    @property
    def is_open(self) -> bool:
        """Whether fast paths may be learnt."""
        return not self._closed_by

    def turn(self) -> None:
        """Forget what was learnt."""
        self.version += 1

    def close(self, reason: str) -> None:
        """Let every request go by its handler, until whoever gave this reason takes it back."""
        self._closed_by.add(reason)
        self.turn()

    def open(self, reason: str) -> None:
        """Take a reason back; one that was not given is no error."""
        self._closed_by.discard(reason)
        self.turn()
