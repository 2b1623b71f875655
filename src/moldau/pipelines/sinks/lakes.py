"""Errors of the libraries that write lakes: which of them may pass, so that the batch is tried again.

The libraries are many (a catalog's database or web server, an object store), are not all installed, and share no class
of errors: so errors are known by the names of their classes.
"""

import re

MAY_PASS = frozenset(
    {
        "CommitFailedError",
        "CommitFailedException",
        "CommitStateUnknownException",
        "OperationalError",
        "ServerError",
        "ServiceUnavailableError",
    }
)
"""Another writer was first; a catalog that does not answer, is locked, or did not say whether it has the commit."""
PAINT = re.compile(r"\x1b\[\d*m|↳")
"""Colours and arrows in errors of object stores."""
LASTING = (FileNotFoundError, PermissionError, NotADirectoryError, IsADirectoryError, ValueError)


def may_pass(error: Exception) -> bool:
    """Whether the same may work later. Object stores that cannot be reached are an OSError without a number."""
    if isinstance(error, LASTING):
        return False
    return isinstance(error, OSError) or any(kind.__name__ in MAY_PASS for kind in type(error).__mro__)


def words(error: Exception) -> str:
    """The first line that says something, and the last cause of an object store's."""
    lines = [line.strip() for line in PAINT.sub("", str(error)).splitlines()]
    said = [line for line in lines if line and not line.startswith(("[SQL:", "(Background on"))]
    return ": ".join(dict.fromkeys((said[0], said[-1]))) if said else type(error).__name__
