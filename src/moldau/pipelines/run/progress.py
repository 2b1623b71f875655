"""Progress of Spark's queries: kept as figures for `status` and the terminal, and as offsets of consumer groups.

The law: Spark calls the listener from threads of its own and goes on only when it returns, so nothing here waits for a
cluster, a disk or a terminal for long. The checkpoint is the truth; a group only shows the position, and is never read
back.
"""

import json
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryListener

Offsets = dict[str, dict[int, int]]
"""The offset that is read next, by topic and partition."""

KAFKA_SOURCE = "KafkaV2["


@dataclass(slots=True)
class Figures:
    """Figures of one query, as of its last batch."""

    name: str
    state: str = "starting"
    batch: int = -1
    rows: int = 0
    """Rows read since the run began."""
    rows_per_second: float = 0.0
    lag: int | None = None
    """Records that are in the topics and not read yet; None: the query reads no topics."""
    batch_ms: int = 0
    watermark: str | None = None
    delay_s: float | None = None
    """Seconds from the watermark to the time of the batch: how late a row may be that is still taken."""
    state_rows: int = 0
    state_bytes: int = 0
    late_rows: int = 0
    """Rows left out since the run began, as they came after the watermark."""
    at: str = ""
    error: str | None = None

    def take(self, progress: Mapping[str, Any]) -> None:
        """Take the progress of a batch that has ended."""
        self.state = "running"
        self.batch = progress["batchId"]
        self.rows += progress.get("numInputRows") or 0
        self.rows_per_second = _number(progress.get("processedRowsPerSecond"))
        self.lag = lag(progress["sources"])
        self.batch_ms = int(progress.get("batchDuration") or 0)
        self.watermark = _watermark(progress) or self.watermark
        operators = progress.get("stateOperators") or ()
        self.state_rows = sum(operator["numRowsTotal"] for operator in operators)
        self.state_bytes = sum(operator["memoryUsedBytes"] for operator in operators)
        self.late_rows += sum(operator.get("numRowsDroppedByWatermark") or 0 for operator in operators)
        self.at = progress["timestamp"]
        self.delay_s = _seconds(self.watermark, self.at) if self.watermark else None


def _number(value: Any) -> float:
    """A number of Spark's; 0 for the NaN of a batch that took no time."""
    number = float(value or 0)
    return number if number == number and number != float("inf") else 0.0


def _watermark(progress: Mapping[str, Any]) -> str | None:
    """The watermark; None until there is one, as Spark begins with 1970."""
    mark = (progress.get("eventTime") or {}).get("watermark")
    return None if mark is None or mark.startswith("1970-01-01T00:00:00") else str(mark)


def _seconds(begin: str, end: str) -> float:
    """The seconds between two times of Spark's."""
    return (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds()


def offsets(told: Any) -> Offsets:
    """The offsets of a Kafka source, from the JSON that Spark keeps."""
    parsed = json.loads(told) if isinstance(told, str) else told
    if not isinstance(parsed, Mapping):
        return {}
    return {
        topic: {int(partition): int(offset) for partition, offset in partitions.items()}
        for topic, partitions in parsed.items()
        if isinstance(partitions, Mapping)
    }


def reads_topics(source: Mapping[str, Any]) -> bool:
    return str(source["description"]).startswith(KAFKA_SOURCE)


def positions(sources: Iterable[Mapping[str, Any]]) -> Offsets:
    """The offsets of all Kafka sources of a query. A topic that a query reads twice counts where it is read slower."""
    found: Offsets = {}
    for source in sources:
        for topic, partitions in offsets(source["endOffset"]).items() if reads_topics(source) else ():
            known = found.setdefault(topic, {})
            for partition, offset in partitions.items():
                known[partition] = min(offset, known.get(partition, offset))
    return found


def lag(sources: Iterable[Mapping[str, Any]]) -> int | None:
    """The lag of a query. In real-time mode the end of a batch may be past the latest offset, which was asked before it
    began."""
    total = None
    for source in sources:
        if not reads_topics(source):
            continue
        total = total or 0
        ends = offsets(source["endOffset"])
        for topic, partitions in offsets(source.get("latestOffset")).items():
            behind = (latest - ends.get(topic, {}).get(partition, 0) for partition, latest in partitions.items())
            total += sum(max(0, count) for count in behind)
    return total


@dataclass(slots=True)
class Progress:
    """Progress of all queries of a run. `changed` is notified whenever Spark has reported something.

    `committed` gets the positions of a query after each of its batches.
    """

    names: tuple[str, ...]
    committed: Callable[[str, Offsets], None] | None = None
    figures: dict[str, Figures] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)
    _ids: dict[str, str] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.figures = {name: Figures(name) for name in self.names}

    def started(self, query_id: str, name: str | None) -> None:
        if name in self.figures:
            with self.changed:
                self._ids[query_id] = name
                self.figures[name].state = "running"
            self._notify()

    def progressed(self, progress: Mapping[str, Any]) -> None:
        name = progress["name"]
        if name not in self.figures:
            return  # another pipeline's, in the same session
        with self.changed:
            self.figures[name].take(progress)
        found = positions(progress["sources"])
        if found and self.committed is not None:
            self.committed(name, found)
        self._notify()

    def idle(self, query_id: str) -> None:
        if query_id in self._ids:
            with self.changed:
                figures = self.figures[self._ids[query_id]]
                figures.state, figures.rows_per_second = "idle", 0.0
            self._notify()

    def terminated(self, query_id: str, failed: bool) -> None:
        if query_id in self._ids:
            with self.changed:
                name = self._ids[query_id]
                self.figures[name].state = "failed" if failed else "ended"
                self.ended.add(name)
            self._notify()

    def _notify(self) -> None:
        with self.changed:
            self.changed.notify_all()

    def as_status(self) -> list[dict[str, Any]]:
        """The figures of all queries for `status.json`."""
        with self.changed:
            return [asdict(figures) for figures in self.figures.values()]


def listener(progress: Progress) -> "StreamingQueryListener":
    """Spark's listener, which fills `progress`."""
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:
            progress.started(str(event.id), event.name)

        def onQueryProgress(self, event: Any) -> None:
            progress.progressed(event.progress)

        def onQueryIdle(self, event: Any) -> None:
            progress.idle(str(event.id))

        def onQueryTerminated(self, event: Any) -> None:
            progress.terminated(str(event.id), event.exception is not None)

    return Listener()
