"""Batches of a streaming query into a topic, exactly once: what the driver does (ADR 27).

One task writes a whole batch in one transaction: readers see it as a whole, and whatever the plan gives when the batch
is done again does not matter, for it is done again only if nothing of it was committed. Several tasks need several
transactions, of which some may be committed when the run dies. What remains must then be exactly the rest, so the rows
are first laid down beside the checkpoint, divided into slots, and written from there, now and after a crash.
"""

import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moldau.pipelines.sinks.batches import Batch, Owner, checkpoint_id, sync, sync_plan
from moldau.pipelines.sinks.order import tasks_in_order
from moldau.pipelines.sinks.topic_transactions import Target, Token, fence, open_ledger, write

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # no type information
    from pyspark.sql import DataFrame, SparkSession

DIRECTORY = "transactions"
TOPICS = "topics.json"
"""The file that lists the topics with tokens of this checkpoint: a topic in it once had some."""
MANIFEST = "manifest.json"
REPORT = "slot INT, file STRING"


@dataclass(frozen=True, slots=True)
class Standing:
    """The slots in which a batch was begun (0: it was not), and those of them that are done."""

    slots: int
    done: frozenset[int]

    @property
    def complete(self) -> bool:
        return self.slots > 0 and len(self.done) == self.slots


def standing(tokens: Mapping[int, Token], number: int, again: bool, sink: Owner) -> Standing:
    """The standing of a batch by its tokens. `again`: Spark may have begun it in an earlier run."""
    last = max((token.next_batch for token in tokens.values()), default=-1)
    if last > number + 1:
        raise sink.error(
            f"its topic has batch {last - 1}, but the checkpoint is back at batch {number}: it is an older copy",
            "bring the newer checkpoint back, or begin anew with `moldau pipeline reset`",
        )
    if again and last < number:
        raise sink.error(
            f"nobody can say whether batch {number} is in its topic: the cluster has forgotten which batches are",
            "offsets.retention.minutes have passed, or the group or the topic was deleted; see docs/pipelines.md",
        )
    written = {slot: token for slot, token in tokens.items() if token.next_batch == number + 1}
    slots = max((token.slots or slot + 1 for slot, token in written.items()), default=0)
    if any(token.slots == 0 for token in written.values()):  # set by hand
        return Standing(slots, frozenset(range(slots)))
    return Standing(slots, frozenset(written))


def unfinished(checkpoint: Path) -> int | None:
    """The batch that an earlier run planned and did not get to the end of, by Spark's own notes."""
    planned, committed = (_numbers(checkpoint / name) for name in ("offsets", "commits"))
    return max(planned) if planned and max(planned) not in committed else None


def _numbers(directory: Path) -> set[int]:
    return {int(path.name) for path in directory.iterdir() if path.name.isdigit()} if directory.is_dir() else set()


@dataclass(slots=True)
class EachBatch:
    """The function for `foreachBatch`. `again`: the batch that this run may be doing for a second time."""

    target: Target
    checkpoint: Path
    tasks: int
    again: int | None
    _ours: bool = field(default=False)
    """True once the writers of earlier runs are fenced."""

    def __call__(self, rows: "DataFrame", number: int) -> None:
        sync_plan(self.checkpoint, number)
        batch = Batch(self.target.name, checkpoint_id(self.checkpoint), number)
        laid_down = LaidDown.find(self._directory(number))
        found = self._take_over(batch, laid_down) if not self._ours else Standing(0, frozenset())
        self._ours = True
        self._forget_others(number)
        if found.complete:
            return
        if found.slots and laid_down is None:
            words = f"batch {number} is in its topic in part, and the rest of it is gone from {self.checkpoint}"
            raise self.target.sink.error(words, "bring the directory back, or begin anew with `moldau pipeline reset`")
        if laid_down is None and self.tasks == 1:
            write_whole(self.target, batch, rows)
            return
        laid_down = laid_down or lay_down(rows, self.tasks, self._directory(number))
        write_laid_down(self.target, batch, laid_down, found.done, rows.sparkSession)

    def _take_over(self, batch: Batch, laid_down: "LaidDown | None") -> Standing:
        """Fence earlier writers, then ask for tokens: a share that is not committed now never will be."""
        note = self.checkpoint / DIRECTORY / TOPICS
        topics = json.loads(note.read_text("utf-8")) if note.exists() else []
        everywhere = list(dict.fromkeys([*topics, self.target.topic]))
        known = self.target.tokens(batch.checkpoint, everywhere, stable=False)
        slots = [self.tasks, len(laid_down.files) if laid_down else 0]
        fence(self.target, range(max(*slots, *(max(slot + 1, token.slots) for slot, token in known.items()))))
        tokens = self.target.tokens(batch.checkpoint, everywhere)
        if not tokens and not topics:  # whatever wrote batches before this one, it was not exactly once
            open_ledger(self.target, batch)
            tokens = {0: Token(batch.number, 1)}
        if everywhere != topics:
            keep(note, json.dumps(everywhere))
        return standing(tokens, batch.number, self.again == batch.number, self.target.sink)

    def _directory(self, number: int) -> Path:
        return self.checkpoint / DIRECTORY / f"batch-{number}"

    def _forget_others(self, number: int) -> None:
        """Remove the rows of batches that are over; Spark has noted that they are before it began this one."""
        for path in (self.checkpoint / DIRECTORY).glob("batch-*"):
            if path.name != f"batch-{number}":
                shutil.rmtree(path, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class InOrder:
    """The function for `foreachBatch` that writes the records of a key in their order, at least once, by Spark's
    connector: those of one key by one task."""

    topic: str
    options: dict[str, str]

    def __call__(self, rows: "DataFrame", number: int) -> None:  # noqa: ARG002 - Spark's
        writer = tasks_in_order(rows.repartition("key")).write.format("kafka").options(**self.options)
        writer.option("topic", self.topic).save()


# --- one task ---


def write_whole(target: Target, batch: Batch, rows: "DataFrame") -> None:
    """Write a batch by one task, in one transaction."""
    told = tasks_in_order(rows.repartition(1)).mapInArrow(partial(_write_whole, target, batch), REPORT).collect()
    if not told:  # without rows Spark may start no task, and the batch is to be noted all the same
        write(target, batch, 0, 1, ())


def _write_whole(target: Target, batch: Batch, rows: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    _slot(1)
    write(target, batch, 0, 1, rows)
    yield _report(0, "")


# --- several tasks ---


@dataclass(frozen=True, slots=True)
class LaidDown:
    """The rows of a batch in files, one for each slot; the name is empty where a slot has no rows."""

    directory: Path
    files: tuple[str, ...]

    @classmethod
    def find(cls, directory: Path) -> "LaidDown | None":
        """The rows laid down in a directory; None if they are not there as a whole."""
        try:
            told = json.loads((directory / MANIFEST).read_text("utf-8"))
        except FileNotFoundError:
            return None
        return cls(directory, tuple(told["files"]))


def lay_down(rows: "DataFrame", slots: int, directory: Path) -> LaidDown:
    """Lay the rows down in files, those of one key in one slot and in their order.

    The file of each task is synced before the manifest names it.
    """
    shutil.rmtree(directory, ignore_errors=True)  # files without a manifest
    directory.mkdir(parents=True)
    divided = tasks_in_order(rows.repartition(slots, _share(rows)))
    told = divided.mapInArrow(partial(_lay_down, str(directory), slots), REPORT).collect()
    files = {row["slot"]: row["file"] for row in told}
    made = LaidDown(directory, tuple(files.get(slot, "") for slot in range(slots)))
    keep(directory / MANIFEST, json.dumps({"files": made.files}))
    sync(directory.parent)
    return made


def _share(rows: "DataFrame") -> Any:
    from pyspark.sql import functions as F

    return F.coalesce("key", "value") if "key" in rows.columns else F.col("value")


def _lay_down(directory: str, slots: int, rows: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    """Write a task's rows to a file of its own name: of two attempts at one task Spark tells the driver of one."""
    import pyarrow as pa

    slot, name, written = _slot(slots), "", None
    path = Path(directory) / f"{uuid.uuid4().hex}.arrow"
    with path.open("wb") as file:
        for part in rows:
            written = written or pa.ipc.new_stream(file, part.schema)
            written.write_batch(part)
        if written:
            written.close()
            name = path.name
        file.flush()
        os.fsync(file.fileno())
    yield _report(slot, name)


def write_laid_down(target: Target, batch: Batch, rows: LaidDown, done: frozenset[int], spark: "SparkSession") -> None:
    left = [slot for slot in range(len(rows.files)) if slot not in done]
    work = partial(_write_laid_down, target, batch, rows, left)
    told = spark.range(0, len(left), 1, len(left)).mapInArrow(work, REPORT).collect()
    if sorted(row["slot"] for row in told) != left:
        raise target.sink.error(f"of the tasks {left} that batch {batch.number} needs, Spark ran {told}")


def _write_laid_down(
    target: Target, batch: Batch, rows: LaidDown, left: list[int], numbers: "Iterator[pa.RecordBatch]"
) -> "Iterator[pa.RecordBatch]":
    for part in numbers:
        for number in part.column("id").to_pylist():
            slot = left[number]
            write(target, batch, slot, len(rows.files), _read(rows.directory, rows.files[slot]))
            yield _report(slot, rows.files[slot])


def _read(directory: Path, name: str) -> "Iterator[pa.RecordBatch]":
    import pyarrow as pa

    if name:
        with pa.memory_map(str(directory / name)) as file, pa.ipc.open_stream(file) as stream:
            yield from stream


# --- in a task


def _slot(slots: int) -> int:
    """The number of this task. Were there more of them than slots, two would take each other's place."""
    from pyspark import TaskContext

    context = TaskContext.get()
    number = 0 if context is None else context.partitionId()
    if number >= slots:
        raise RuntimeError(f"task {number} of a batch in {slots} slots")
    return number


def _report(slot: int, file: str) -> "pa.RecordBatch":
    import pyarrow as pa

    return pa.RecordBatch.from_pydict({"slot": pa.array([slot], pa.int32()), "file": pa.array([file], pa.string())})


def keep(path: Path, text: str) -> None:
    """Write a file that is there as a whole, or not at all, and stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}")
    with aside.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
    sync(path.parent)
