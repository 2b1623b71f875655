"""A topic as a table that is kept: laid down in the pipeline's storage once, then only what has changed is read.

    tables/SOURCE/kept.json     what the files were made of: the source's options, topics' ids, offsets, the time
    tables/SOURCE/KEPT/         the newest row of each key up to these offsets, decoded, as Parquet files

The rows of a batch are those files without the keys that the topic has records of past these offsets, and the newest of
these records: the table as it stands when the batch is planned, as if the whole topic had been read. A topic of few
records is read as it is. Where too many have come since, the table is laid down anew (`run/tables.py`).

The order of writing: the files, synced; then `kept.json`, which names them, as a whole. Files that it does not name are
removed when the table is opened, by the one run that holds the storage.

The enemy is compaction, which removes a tombstone some time after it was written (`delete.retention.ms`): older files
might have the key for ever. So files are brought up to date, or known to be so, in half of that time, and older ones
are not used.
"""

import json
import os
import shutil
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moldau.pipelines.file.spec import SourceSpec
from moldau.pipelines.formats.decoding import decode
from moldau.pipelines.kinds import Context, Reading
from moldau.pipelines.sinks.batches import sync
from moldau.pipelines.sources import topic
from moldau.pipelines.topics import EARLIEST, Cluster, ClusterError, Offsets, cluster_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

TAIL_MAX = 20_000
"""Records that are read anew for each batch; if there are more, the table is laid down."""
RETENTION_MS_MAX = 24 * 3600 * 1000
RETENTION_MS_MIN = 10 * 60 * 1000
"""Time in which a tombstone must be there to be seen; a topic with less is read as a whole."""
OF_NO_ROW = frozenset({"client", "registry_client", "max_per_batch", "lost", "watermark", "as"})
"""Options that change no row of the table; some hold passwords."""
NOTE = "kept.json"


@dataclass(frozen=True, slots=True)
class Kept:
    """Files of a table: what they were made of, up to which offsets, and when that was known to be all."""

    made_of: Mapping[str, Any]
    offsets: Offsets
    directory: str
    files: int
    as_of_ms: int

    @classmethod
    def load(cls, directory: Path) -> "Kept | None":
        """The note of a table; None if there is none, or its files are not all there."""
        try:
            noted = json.loads((directory / NOTE).read_text("utf-8"))
            kept = cls(**{**noted, "offsets": _numbered(noted["offsets"])})
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
        return kept if len(list((directory / kept.directory).glob("*.parquet"))) == kept.files else None

    def save(self, directory: Path) -> None:
        new = directory / f"{NOTE}.new"
        noted = {name: getattr(self, name) for name in self.__slots__}
        new.write_text(json.dumps(noted, indent=1), encoding="utf-8")
        sync(new)
        os.replace(new, directory / NOTE)
        sync(directory)


def read(source: SourceSpec, context: Context) -> Reading:
    """Open the table: laid down first if much has come since the last time."""
    table = KeptTable(source, context)
    table.open()
    return table.reading()


def look(source: SourceSpec, context: Context) -> Reading:
    """The table as it is now, by the kept files if there are some; nothing is written, so it may be another's."""
    table = KeptTable(source, context)
    table.find()
    return table.reading()


@dataclass(slots=True)
class KeptTable:
    """A topic that a run reads as a table."""

    source: SourceSpec
    context: Context
    kept: Kept | None = None
    partitions: dict[str, list[int]] = field(default_factory=dict)
    """The partitions that the opened table reads."""
    begins: Offsets = field(default_factory=dict)
    """The first offsets that were there when it was opened: rows of earlier records are no more in it."""
    _retention_ms: int = RETENTION_MS_MAX
    _cached: "DataFrame | None" = None

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def directory(self) -> Path:
        return self.context.storage / "tables" / self.source.name

    @property
    def cluster(self) -> Cluster:
        return cluster_of(self.context.pipeline, self.source.options)

    # --- opening

    def open(self) -> None:
        """Find the table, and lay it down if much has come since. Only for the run that holds the storage."""
        from pyspark.errors import AnalysisException

        begins, ends = self.find()
        self._remove_others()
        if self._behind(begins, ends) > TAIL_MAX:
            with suppress(AnalysisException):  # a type that Parquet does not have: the topic is read as a whole
                self.lay_down(ends)
            self._remove_others()

    def find(self) -> tuple[Offsets, Offsets]:
        """Find files that can be used; returns the first and the next offsets of the partitions."""
        self.partitions = topic.partitions_of(self.source, self.cluster.topics())
        self._retention_ms = self._retention()
        begins, ends = self.cluster.bounds(self.partitions)
        self.begins = begins
        found = Kept.load(self.directory)
        self.kept = found if found and self._usable(found, begins, ends) else None
        return begins, ends

    def reading(self) -> Reading:
        whole = self._whole({})
        if self.kept is None:
            return replace(whole, kept=self)
        return Reading(self._rows(self.kept, whole.rows, {}), whole.bad, self)

    def _retention(self) -> int:
        """The shortest time in ms after which a tombstone may be gone; Kafka's default where we may not ask."""
        try:
            told = [self.cluster.config(name, "delete.retention.ms") for name in self.partitions]
        except ClusterError:
            return RETENTION_MS_MAX
        return min((int(each) for each in told if each.isdigit()), default=RETENTION_MS_MAX)

    def _usable(self, kept: Kept, begins: Offsets, ends: Offsets) -> bool:
        """Whether files hold the table up to their offsets, and all that has come since is still in the topic."""
        if self._retention_ms < RETENTION_MS_MIN or kept.made_of != self._made_of():
            return False
        places = [(name, number, offset) for name, found in kept.offsets.items() for number, offset in found.items()]
        there = all(
            begins.get(name, {}).get(number, offset + 1) <= offset <= ends[name][number]
            for name, number, offset in places
        )
        return there and (kept.offsets == ends or _now_ms() - kept.as_of_ms < self._retention_ms / 2)

    def _made_of(self) -> dict[str, Any]:
        """Facts that the files depend on: if one changes, they are of another table."""
        options = {name: str(value) for name, value in self.source.options.items() if name not in OF_NO_ROW}
        ids = self.cluster.topic_ids(list(self.partitions))
        made = {
            "options": options,
            "topics": ids,
            "cluster": self.cluster.bootstrap,
            "schema": self._whole({}).rows.schema.json(),
        }
        return json.loads(json.dumps(made))  # type: ignore[no-any-return]

    def _behind(self, begins: Offsets, ends: Offsets) -> int:
        """Records past the kept offsets, or all of them; none if the table is not to be kept."""
        known = self.kept.offsets if self.kept else {}
        if self._retention_ms < RETENTION_MS_MIN:
            return 0
        return sum(
            max(0, end - known.get(name, {}).get(number, begins[name][number]))
            for name, found in ends.items()
            for number, end in found.items()
        )

    # --- rows

    def _whole(self, ends: Offsets) -> Reading:
        """The table read from the topic, up to offsets if some are given."""
        raw = self._records(topic.spark_options(self.source, self.cluster), ends)
        return decode(topic.newest(raw), self.source, self.context)

    def _rows(self, kept: Kept, like: "DataFrame", ends: Offsets) -> "DataFrame":
        """The kept rows but for keys with newer records, and the rows of these."""
        from pyspark.sql import functions as F

        raw = self._tail(kept, ends)
        changed = F.broadcast(raw.where(F.col("key").isNotNull()).select(F.col("key").alias("__changed")))
        base = self.context.spark.read.schema(like.schema).parquet(str(self.directory / kept.directory))
        base = base.where(self._is_there())
        on = self.context.joined_on.get(self.name) if not ends else None
        if on is not None:
            base = self._in_memory(base, on)
        old = base.join(changed, F.col("_key").cast("binary") == F.col("__changed"), "left_anti")
        # Few records: one task, without a shuffle.
        new = decode(topic.newest(raw.coalesce(1)), self.source, self.context).rows
        return old.unionByName(new if on is None else self._divided(new, on))

    def _in_memory(self, base: "DataFrame", on: str) -> "DataFrame":
        """The kept rows in Spark's memory (and on its disk), where a join by the column needs no shuffle."""
        self.release()
        self._cached = self._divided(base, on).sortWithinPartitions(_quoted(on)).persist()
        return self._cached

    def _divided(self, rows: "DataFrame", on: str) -> "DataFrame":
        parts = int(self.context.spark.conf.get("spark.sql.shuffle.partitions") or 1)
        return rows.repartition(parts, _quoted(on))

    def release(self) -> None:
        """Give back the memory."""
        if self._cached is not None:
            self._cached.unpersist()
            self._cached = None

    def _is_there(self) -> "Column":
        """Whether the record of a kept row was still in the topic when the table was opened."""
        from pyspark.sql import functions as F

        begins = [(name, number, at) for name, found in self.begins.items() for number, at in found.items() if at > 0]
        found = F.lit(True)
        for name, number, begin in begins:
            gone = (F.col("_topic") == name) & (F.col("_partition") == number) & (F.col("_offset") < begin)
            found = found & ~gone
        return found

    def _tail(self, kept: Kept, ends: Offsets) -> "DataFrame":
        """The records past the kept offsets. New partitions are read from their beginning."""
        begins = {
            name: {number: kept.offsets.get(name, {}).get(number, EARLIEST) for number in numbers}
            for name, numbers in self.partitions.items()
        }
        options = topic.spark_options(self.source, self.cluster)
        for other in ("subscribe", "subscribePattern", "startingTimestamp", "startingOffsetsByTimestampStrategy"):
            options.pop(other, None)
        options |= {"assign": json.dumps(self.partitions), "startingOffsets": json.dumps(begins)}
        return self._records(options, ends)

    def _records(self, options: dict[str, str], ends: Offsets) -> "DataFrame":
        options.setdefault("kafka.fetch.max.wait.ms", topic.FETCH_WAIT_MS)
        if ends:
            options["endingOffsets"] = json.dumps(ends)
        return self.context.spark.read.format("kafka").options(**options).load()

    # --- laying down

    def lay_down(self, ends: Offsets) -> None:
        """Write the table as it is at the offsets, and use it from the next opening on."""
        made = f"rows-{uuid.uuid4().hex[:12]}"
        path = self.directory / made
        path.mkdir(parents=True)
        whole = self._whole(ends).rows
        rows = self._rows(self.kept, whole, ends) if self.kept else whole
        as_of_ms = _now_ms()
        rows.write.mode("overwrite").parquet(str(path))
        files = sorted(path.glob("*.parquet"))
        for file in files:
            sync(file)
        sync(path)
        sync(self.directory)
        self.kept = Kept(self._made_of(), ends, made, len(files), as_of_ms)
        self.kept.save(self.directory)

    def _remove_others(self) -> None:
        used = self.kept.directory if self.kept else None
        for path in self.directory.glob("rows-*"):
            if path.name != used:
                shutil.rmtree(path)

    # --- while a run goes on

    def renew(self) -> bool:
        """Lay the table down anew if it is time to; whether it must be opened again. Raises ClusterError."""
        partitions = topic.partitions_of(self.source, self.cluster.topics())
        if partitions != self.partitions:
            return True
        begins, ends = self.cluster.bounds(partitions)
        behind = self._behind(begins, ends)
        age_ms = _now_ms() - self.kept.as_of_ms if self.kept else 0
        if self.kept and behind == 0 and age_ms > self._retention_ms / 4:
            self.kept = replace(self.kept, as_of_ms=_now_ms())
            self.kept.save(self.directory)
        elif behind > TAIL_MAX or (behind and age_ms > self._retention_ms / 4):
            if age_ms > self._retention_ms / 2:
                self.kept = None
            self.lay_down(ends)
            return True
        return False


def _numbered(offsets: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Offsets as JSON has them, with numbers for partitions."""
    return {name: {int(number): offset for number, offset in found.items()} for name, found in offsets.items()}


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
