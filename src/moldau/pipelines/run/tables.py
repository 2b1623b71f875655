"""Upkeep of the tables that a run keeps: a thread looks now and then how much has changed, and lays a table down anew.

A query reads the files that it was started with, so the run starts its queries again, between two batches, once there
are new ones.
"""

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import TracebackType

from moldau.pipelines.run.failures import explain
from moldau.pipelines.sources.kept_table import KeptTable
from moldau.pipelines.topics import ClusterError

LOOK_S = 5.0
CLOSE_S = 60.0
"""Seconds that an ended run waits for a table that is being laid down."""


class Upkeep:
    """Upkeep of tables, inside a `with` block."""

    def __init__(self, tables: Iterable[KeptTable], say: Callable[[str], None]) -> None:
        self._tables = list(tables)
        self._say = say
        self._closed = threading.Event()
        self._renewed = threading.Event()
        self._thread = threading.Thread(target=self._work, name="moldau-tables", daemon=True)

    @property
    def is_due(self) -> bool:
        """Whether the queries are to be started again, to read a table from its new files."""
        return self._renewed.is_set()

    def __enter__(self) -> "Upkeep":
        if self._tables:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()
        if self._tables:
            self._thread.join(CLOSE_S)
        for table in self._tables:
            with suppress(Exception):  # Java may be gone
                table.release()

    def _work(self) -> None:
        waiting = list(self._tables)
        while waiting and not self._renewed.is_set() and not self._closed.wait(LOOK_S):
            for table in list(waiting):
                try:
                    if table.renew():
                        self._renewed.set()
                except ClusterError:
                    continue  # Spark waits for a cluster that is away, and so does this
                except Exception as error:  # whatever Spark raises: the run itself goes on as it is
                    waiting.remove(table)
                    if not self._closed.is_set():
                        self._say(f"{table.name}: could not be laid down anew, and is read as it is: {explain(error)}")
