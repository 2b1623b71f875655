"""Clients in forked processes. librdkafka's threads stay in the parent: a child that waits for them waits for ever.

The law: a child neither uses nor ends a client of its parent. It is told so when it tries, and it can end.
"""

import ctypes
import os
import weakref

from moldau.client.errors import ClientError

_made: "weakref.WeakSet[OneProcess]" = weakref.WeakSet()


class OneProcess:
    """Knows whether this process is the one that made a client of librdkafka."""

    def __init__(self, kafka: object, noun: str) -> None:
        self._kafka = kafka
        self._noun = noun
        self.is_forked = False
        _made.add(self)

    def check(self) -> None:
        """Raise ClientError in a forked child."""
        if self.is_forked:
            raise ClientError(f"a forked process cannot use the {self._noun} of its parent: make one there")

    def after_fork(self) -> None:
        """Keep the client: it would wait for its threads if it were freed. A reference that nobody holds does that."""
        self.is_forked = True
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._kafka))


def _after_fork_in_child() -> None:
    for each in list(_made):
        each.after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)
