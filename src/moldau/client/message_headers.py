"""Headers, read and written in ways by which neither the record of a stranger nor a name can end the process.

A header's name ought to be UTF-8, and no broker looks. Where it is not, `Message.headers()` returns a list in which the
name is missing, a null pointer, and an exception at once. CPython notices that at the first calls of a place in a
program; later, when the call has been specialised, it does not, and whoever looks at the name is ended by a
segmentation fault. Here the call is one that is never specialised, and a list is looked at from outside first, as the
second call for a message returns it without an exception.
"""

import gc
from operator import methodcaller
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confluent_kafka import Message

NO_UTF8 = "the name of a header is no UTF-8"
_called = methodcaller("headers")


def header_name(name: object) -> str:
    """The name of a header that is to be written. Raises TypeError, or ValueError: confluent-kafka ends the process
    where it is no UTF-8, and cuts it off at a NUL."""
    if not isinstance(name, str):
        raise TypeError(f"the name of a header is text, and not {name!r:.40}")
    if "\0" in name:
        raise ValueError(f"the name of a header has a NUL in it: {name!r:.40}")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ValueError(f"the name of a header is no text in UTF-8: {name!r:.40}") from None
    return name


def read_headers(message: "Message") -> list[tuple[str, bytes | None]] | None:
    """Names and values in their order; None where a name is no UTF-8, so that none of them can be told."""
    try:
        found: list[tuple[str, Any]] | None = _called(message)
    except SystemError:
        return None
    if not found:
        return []
    if len(gc.get_referents(*found)) < 2 * len(found):  # null pointers are no referents
        return None
    return [(name, data.encode() if isinstance(data, str) else data) for name, data in found]
