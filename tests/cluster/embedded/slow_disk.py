"""A disk under the metadata store that stands still when it is told to."""

import threading

import pytest

from moldau.cluster.embedded.tree import _Transaction


class Disk:
    """Disk on which the commits of this process wait until they may go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._may_go_on = threading.Event()
        self._may_go_on.set()
        self.is_syncing = threading.Event()
        commit = _Transaction._commit

        def slow(transaction: _Transaction) -> None:
            if transaction._begin == "BEGIN IMMEDIATE" and not self._may_go_on.is_set():
                self.is_syncing.set()
                self._may_go_on.wait()
            commit(transaction)

        monkeypatch.setattr(_Transaction, "_commit", slow)

    def stand_still(self) -> None:
        self.is_syncing.clear()
        self._may_go_on.clear()

    def go_on(self) -> None:
        self._may_go_on.set()
