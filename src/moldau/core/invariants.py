"""Invariants: checks that hold, or stop the part that broke them. Not `assert`: `python -O` removes that."""


class InvariantError(Exception):
    """Error: a promise of our own is broken. The partition or the broker must stop rather than go on."""


def invariant(holds: bool, message: str) -> None:
    """Raise `InvariantError(message)` unless `holds`."""
    if not holds:
        raise InvariantError(message)
