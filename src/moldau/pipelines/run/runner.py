"""Runner of a pipeline: one streaming query for each sink, one for the bad records of each source, until they end
together.

The law: a query that fails takes the others with it, as half a pipeline that goes on unseen is worse than none. A stop
waits for the batch at hand; after any other end, kill -9 included, the next run goes on from the checkpoints.
"""

import logging
import os
import shutil
import signal
import subprocess
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from inspect import signature
from itertools import chain
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from moldau.pipelines.file.check import check_frames, in_order
from moldau.pipelines.file.problems import PipelineError, Problem
from moldau.pipelines.file.spec import PipelineSpec, SinkSpec
from moldau.pipelines.formats.decoding import CANNOT_BE_DECODED
from moldau.pipelines.kinds import Context, sink_kind
from moldau.pipelines.run import dead_letters, graph, identity, joins, poison, replay, state, state_changes
from moldau.pipelines.run.display import Display
from moldau.pipelines.run.failures import MORE_MEMORY, explain
from moldau.pipelines.run.groups import Groups, Reader, readers, readers_of_sink
from moldau.pipelines.run.progress import Progress, listener
from moldau.pipelines.run.storage import RunLock, Storage
from moldau.pipelines.run.tables import Upkeep
from moldau.pipelines.secrets import without_secrets
from moldau.pipelines.sinks import patience
from moldau.pipelines.sinks.topic import EXACTLY_ONCE
from moldau.pipelines.sources.postgres import OTHER_COLUMNS
from moldau.pipelines.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from moldau.pipelines.run.graph import Shape

    Attach = Callable[[SinkSpec, "DataFrame", Context], "DataStreamWriter"]

ONCE, CONTINUOUS, REALTIME = "once", "continuous", "realtime"
REALTIME_BATCH = "5 seconds"
"""Time between two writes of the position, the least that Spark takes; the rows themselves are written as they come."""
RENEWED = "renewed"
"""End of queries that are started again to read a table from its new files."""
WORKER_LATE = ("Timed out while waiting for the Python worker to connect back", "Python worker failed to connect back")
"""Spark's words for a Python that did not start in ten seconds, which no setting changes; the latter over Connect."""
LATE_MAX = 5
"""Times in a row that a run begins again after that."""
LATE_APART_S = 300.0
"""Seconds of a run after which the next time is the first again."""
LOOK_S = 0.5
STATUS_S = 1.0
TOPICS_S = 10.0
"""Seconds between two looks whether the topics are still the same ones."""
NAMESAKES_S = 90.0
"""Seconds of a run in which another one of its name may turn up that has begun together with it."""
STOP_WAIT_S = 60.0
"""Seconds that a stop waits for the end of a batch."""
GONE_WAIT_S = 5.0
"""Seconds that Java has to end, after which it is there in spite of an error."""
LAST_WORDS_S = 10.0
"""Seconds that an ended run waits for Spark's last reports about it."""


class SparkGone(Exception):
    """Error: Spark's Java has ended while a run needed it."""

    def __init__(self) -> None:
        super().__init__("Spark's Java ended by itself, most likely for lack of memory; `spark.log` may say more")


class RunFailed(Exception):
    """Error: a query failed; the message is one line, the cause has the rest."""

    def __init__(self, query: str, error: BaseException, more: str = "") -> None:
        super().__init__(without_secrets(f"{query}: {explain(error)}{more}"))
        self.query = query
        self.error = error


class StoppedEarly(BaseException):
    """End of the start of a run that was asked to stop before its Spark was there."""


@dataclass(slots=True)
class Stop:
    """Stop by a signal: the first asks to end after the batch at hand, the second to end now."""

    number: int | None = None
    """Number of the signal."""
    now: bool = False

    @property
    def asked(self) -> bool:
        return self.number is not None

    def ask(self, number: int = signal.SIGTERM) -> None:
        self.now = self.asked
        self.number = number

    @contextmanager
    def before_spark(self) -> Iterator[None]:
        """Take SIGTERM inside the block, in which Spark starts: it is left at once, as nothing has begun."""

        def handle(number: int, _: FrameType | None) -> None:
            self.ask(number)
            raise StoppedEarly

        before = signal.signal(signal.SIGTERM, handle)
        try:
            with suppress(StoppedEarly):
                yield
        finally:
            signal.signal(signal.SIGTERM, before)

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Take signals inside the block. A handler only sets flags, as it may interrupt anything. Enter it after
        Spark's start, which sets its own handlers."""

        def handle(number: int, _: FrameType | None) -> None:
            self.ask(number)

        before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@dataclass(frozen=True, slots=True)
class Job:
    """A query to be started. `checkpoint` names its directory."""

    name: str
    checkpoint: str
    reads: list[Reader]
    writer: "Callable[[], DataStreamWriter]"
    """Maker of the writer, called when the query is started: some sinks touch their store."""
    mode: str
    realtime: bool


def run(
    spec: PipelineSpec, mode: str, master: str | None = None, remote: str | None = None, display: Display | None = None
) -> Stop:
    """Start Spark and run the pipeline, whose spec is checked; returns how it was stopped, if it was.

    Raises Busy, SessionFailed, PipelineError, RunFailed.
    """
    with Storage(spec.storage).lock() as lock:
        return launch(spec, mode, lock, display or Display(), master, remote)


def launch(
    spec: PipelineSpec,
    mode: str,
    lock: RunLock,
    display: Display,
    master: str | None = None,
    remote: str | None = None,
    shape: "Shape | None" = None,
    with_dead_letters: bool = True,
) -> Stop:
    lock.await_orphan(display.say)
    silence()
    stop, spark = Stop(), None
    with stop.before_spark():
        spark = session(spec, master, remote, realtime=mode == REALTIME)
    if spark is None:
        return stop
    try:
        lock.note(java_of(spark))
        with stop.on_signals():
            Run(spec, spark, mode, stop, display, shape, with_dead_letters).to_the_end()
    finally:
        with suppress(Exception):  # Java may be gone with what failed, and that has been told
            spark.stop()
    return stop


def analyse(
    spec: PipelineSpec, master: str | None = None, remote: str | None = None
) -> tuple[list[Problem], list[Problem]]:
    """Problems that Spark finds in the pipeline's data frames, and warnings; nothing is started, and its storage is
    left alone."""
    with tempfile.TemporaryDirectory(prefix="moldau-check-") as made:
        storage = Storage(Path(made))
        copy_schemas(spec, storage)
        silence()
        spark = session(replace(spec, storage=storage.path), master, remote)
        try:
            frames, _, problems = prepare(spec, Context(spark, spec, storage.path))
            return problems, in_order(state.kept_for_ever(spec, frames))
        finally:
            spark.stop()


def prepare(
    spec: PipelineSpec, context: Context, shape: "Shape | None" = None
) -> "tuple[graph.Frames, dict[str, DataFrame], list[Problem]]":
    """Frames of the sources and views, the rows of the sinks, and the problems of either."""
    frames = graph.build(spec, context, shape)
    rows, problems = graph.check_sinks(spec, frames)
    return frames, rows, in_order([*check_frames(spec, frames.found), *problems])


def copy_schemas(spec: PipelineSpec, storage: Storage) -> None:
    """Copy the pipeline's fixed schemas into a storage that must not fix them itself."""
    fixed = Storage(spec.storage).schemas
    if fixed.is_dir():
        shutil.copytree(fixed, storage.schemas, dirs_exist_ok=True)


def silence() -> None:
    """Silence PySpark, which prints each error as JSON, stack and all, besides raising it, and py4j, which does so with
    what a sink raises."""
    from pyspark.logger import PySparkLogger

    for name in ("py4j.clientserver", "py4j.java_gateway"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)
    logging.getLogger().addFilter(_is_not_of_py4j)
    warnings.filterwarnings("ignore", message="Delete operation did not match any records")  # pyiceberg's, of an upsert


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Whether a line is not py4j's, which tells the root logger of a Java that is gone, with its stack."""
    return record.msg != "Exception while sending command."


def java_of(spark: "SparkSession") -> int | None:
    """The process of Spark's Java, if it is a child of ours."""
    process = _process(spark)
    return None if process is None else int(process.pid)


def is_gone(spark: "SparkSession") -> bool:
    """Whether Spark's Java was a child of ours and has ended. One that is about to end has a moment for it."""
    process = _process(spark)
    if process is None:
        return False
    with suppress(subprocess.TimeoutExpired):
        process.wait(GONE_WAIT_S)
    return process.poll() is not None


def _process(spark: "SparkSession") -> "subprocess.Popen[bytes] | None":
    found = getattr(getattr(getattr(spark, "_sc", None), "_gateway", None), "proc", None)
    return found if isinstance(found, subprocess.Popen) else None


@dataclass(slots=True)
class Run:
    """The queries of one pipeline in a session."""

    spec: PipelineSpec
    spark: "SparkSession"
    mode: str
    stop: Stop = field(default_factory=Stop)
    display: Display = field(default_factory=Display)
    shape: "Shape | None" = None
    with_dead_letters: bool = True
    writers: "Mapping[str, Attach]" = field(default_factory=dict)
    """Writers in place of those that the sinks of these names have."""
    starting: "AbstractContextManager[Any]" = field(default_factory=nullcontext)
    """Held while queries are made and started, which PySpark does for one thread at a time."""
    _queries: "dict[str, StreamingQuery]" = field(default_factory=dict)
    _started: str = ""
    _status_at: float = 0.0
    _begun_at: float = field(default_factory=time.monotonic)
    _looked_at: float = field(default_factory=time.monotonic)
    _identity: identity.Identity | None = None
    _aside: Counter[tuple[str, int]] = field(default_factory=Counter)
    """Records that were set aside, by sink and batch."""
    _upkeep: Upkeep = field(default_factory=lambda: Upkeep((), print))

    def to_the_end(self) -> None:
        """Run until every query has ended by itself, or a stop is asked for. Begins again where records that made it
        fail could be set aside, where a table was laid down anew, where a captured one has other columns, and where
        the machine was too busy for Spark's patience. Raises PipelineError or RunFailed."""
        late = 0
        while True:
            begun = time.monotonic()
            try:
                if self._attempt() != RENEWED:
                    return
                self.display.say(f"{self.spec.name}: a table has new files: the queries begin again")
            except RunFailed as failure:
                late = late + 1 if time.monotonic() - begun < LATE_APART_S else 1
                too_late = any(words in str(failure) for words in WORKER_LATE) and late <= LATE_MAX
                again = too_late or OTHER_COLUMNS in str(failure)
                if again and not self.stop.asked:
                    self.display.say(f"{failure}: the queries begin again")
                else:
                    self._set_aside(failure)
            self._queries.clear()

    def _attempt(self) -> str:
        self._started = self._started or _now()
        progress = Progress(())
        state, error = "failed", None
        try:
            with ExitStack() as running:
                with self.starting:
                    jobs = self._jobs()
                    progress = Progress(tuple(job.name for job in jobs))
                    running.enter_context(self._upkeep)
                    running.enter_context(self._listening(jobs, progress))
                    running.enter_context(patience.told(self.display.say, self.spec.name))
                    self._start(jobs, progress)
                state = self._wait(progress)
                return state
        except (RunFailed, PipelineError) as failure:
            error = str(failure)
            raise
        except Exception as lost:
            if not is_gone(self.spark):
                raise
            gone = RunFailed(self.spec.name, SparkGone(), f" ({MORE_MEMORY})")
            error = str(gone)
            raise gone from lost
        finally:
            self._report(progress, "running" if state == RENEWED else state, error)

    @contextmanager
    def _listening(self, jobs: list[Job], progress: Progress) -> Iterator[None]:
        """Listen until all queries are over, and Spark has reported so."""
        claim = self._identity.claim if self._identity else ""
        groups = Groups({job.name: job.reads for job in jobs}, self.display.say, claim)
        progress.committed = groups.commit
        hearing = listener(progress)
        self.spark.streams.addListener(hearing)
        try:
            yield
        finally:
            self._stop_all()
            self._await_last_reports(progress)
            with suppress(Exception):  # Java may be gone
                self.spark.streams.removeListener(hearing)
            groups.close()

    def _set_aside(self, failure: RunFailed) -> None:
        """Set the records aside of which a view could make no rows. Raises the failure if it has another cause, or if
        they cannot be set aside; then it names them, or else the batch that they are in."""
        sink = self.spec.sinks.get(failure.query.removeprefix(f"{self.spec.name}."))
        named = CANNOT_BE_DECODED in str(failure)
        if sink is None or named or self.stop.asked or self.mode == REALTIME or not poison.of_values(failure.error):
            raise failure
        self.display.say(f"{failure}; looking for the record")
        batch = poison.last_batch(self.spec, sink, Storage(self.spec.storage).checkpoint(sink.name))
        context = Context(self.spark, self.spec, self.spec.storage, keeps_tables=True)
        found = poison.failing(sink, batch, context, lambda: self.stop.asked)
        self._aside[sink.name, batch.number] += len(found)
        able = self.with_dead_letters and self.spec.dead_letters is not None
        bounded = self._aside[sink.name, batch.number] < poison.AT_ONCE_MAX
        if self.stop.asked or not (found and able and bounded and all(each.alone for each in found)):
            raise RunFailed(failure.query, failure.error, poison.places(found, batch)) from failure.error
        poison.set_aside(self.spec, found, context)
        for each in found:
            self.display.say(f"{failure.query}: {each} is a dead letter now: {each.reason}")

    # --- what to start

    def _jobs(self) -> list[Job]:
        spec = graph.needed(_unbounded(self.spec) if self.mode == REALTIME else self.spec)
        context = Context(self.spark, self.spec, self.spec.storage, keeps_tables=True)
        frames, rows, problems = self._prepare(spec, context)
        if self.mode == REALTIME:
            problems.extend(_not_in_real_time(spec))
        if problems:
            raise PipelineError(problems) from next(iter(frames.errors()), None)
        tables = [reading.kept for reading in frames.readings.values() if reading.kept]
        self._upkeep = Upkeep(tables if self.mode == CONTINUOUS else (), self.display.say)
        own = spec if self.with_dead_letters else replace(spec, dead_letters=None)
        self._identity = identity.begin(own, self.display.say)
        for line in chain.from_iterable(reading.begun() for reading in frames.readings.values()):
            self.display.say(line)
        for line in state_changes.told(Storage(self.spec.storage), rows):
            self.display.say(line)
        jobs = [self._sink_job(spec, sink, rows[sink.name], context) for sink in spec.sinks.values()]
        if self.with_dead_letters:
            jobs.extend(self._dead_letter_jobs(spec, frames, context))
        return jobs

    def _prepare(
        self, spec: PipelineSpec, context: Context
    ) -> "tuple[graph.Frames, dict[str, DataFrame], list[Problem]]":
        """Frames and rows; of a run that goes on, with tables laid out for the joins that were found in them."""
        prepared = prepare(spec, context, self.shape)
        frames, rows, problems = prepared
        if self.mode != CONTINUOUS or problems:
            return prepared
        kept = {name for name, reading in frames.readings.items() if reading.kept and reading.kept.kept}
        joined_on = {name: on for name, on in joins.columns(frames, rows.values()).items() if name in kept}
        return prepare(spec, replace(context, joined_on=joined_on), self.shape) if joined_on else prepared

    def _sink_job(self, spec: PipelineSpec, sink: SinkSpec, rows: "DataFrame", context: Context) -> Job:
        kind = sink_kind(sink.kind)
        if self.shape is not None:
            rows = self._settled(spec, sink, rows, context, self.shape)
        hidden = graph.hidden_order(spec, sink, rows)
        if hidden is not None:
            self.display.say(f"{self.spec.name}.{sink.name}: {hidden}")
        rows = graph.guarded(spec, sink, rows) if self.mode != REALTIME else rows
        self.display.say(
            f"{self.spec.name}.{sink.name}: to {sink.kind}, {sink.options.get('delivery') or kind.guarantee}"
        )
        return Job(
            f"{self.spec.name}.{sink.name}",
            sink.name,
            readers_of_sink(self.spec, sink),
            partial(self.writers.get(sink.name, kind.attach), sink, rows, context),
            graph.output_mode(sink, rows) if self.mode != REALTIME else "update",
            self.mode == REALTIME,
        )

    def _settled(
        self, spec: PipelineSpec, sink: SinkSpec, rows: "DataFrame", context: Context, shape: "Shape"
    ) -> "DataFrame":
        try:
            return replay.settled(spec, sink, rows, context, shape, self.display.say)
        except Exception as error:  # whatever Spark raises when it computes them
            raise RunFailed(f"{self.spec.name}.{sink.name}", error) from error

    def _dead_letter_jobs(self, spec: PipelineSpec, frames: graph.Frames, context: Context) -> Iterator[Job]:
        """Jobs for dead letters, never in real time: nobody waits for them, and a real-time query keeps its slots for
        itself."""
        for name, reading in frames.readings.items():
            if reading.bad is None:
                continue
            if not reading.bad.isStreaming:
                self.display.say(f"{name}: a table; records that cannot be decoded are left out of it")
            else:
                source = spec.sources[name]
                yield Job(
                    f"{self.spec.name}.{name}.dead-letters",
                    f"{name}.dead-letters",
                    readers(self.spec, [source]),
                    partial(dead_letters.attach, source, reading.bad, context),
                    "append",
                    realtime=False,
                )

    # --- start, wait, stop

    def _start(self, jobs: list[Job], progress: Progress) -> None:
        for job in jobs:
            try:
                writer = job.writer().queryName(job.name).outputMode(job.mode).trigger(**self._trigger(job))
                checkpoint = Storage(self.spec.storage).checkpoint(job.checkpoint)
                self._queries[job.name] = writer.option("checkpointLocation", str(checkpoint)).start()
            except Exception as error:
                if isinstance(error, PipelineError):
                    raise
                raise RunFailed(job.name, error) from error
            self._report(progress, "running")

    def _trigger(self, job: Job) -> dict[str, Any]:
        if self.mode == ONCE:
            return {"availableNow": True}
        return {"realTime": REALTIME_BATCH} if job.realtime else {"processingTime": self.spec.trigger}

    def _wait(self, progress: Progress) -> str:
        """Wait for the end; returns `finished`, `stopped` or RENEWED."""
        while [name for name in self._queries if self._goes_on(name)]:
            if Storage(self.spec.storage).stop_asked():
                self.stop.ask()
            if self.stop.asked or self._upkeep.is_due:
                self._stop_between_batches(progress)
                return "stopped" if self.stop.asked else RENEWED
            with progress.changed:
                progress.changed.wait(LOOK_S)
            self._look_around()
            self._report(progress, "running")
        return "finished"

    def _look_around(self) -> None:
        """Raise PipelineError if a topic is another one than when the run began: Spark passes over its first records
        where it may skip what is lost. At first also if another pipeline commits to the same groups."""
        if self._identity is None or time.monotonic() - self._looked_at < TOPICS_S:
            return
        self._looked_at = time.monotonic()
        problems = identity.made_anew(self.spec, self._identity)
        if time.monotonic() - self._begun_at < NAMESAKES_S:
            problems += identity.namesakes(self.spec, self._identity)
        if problems:
            raise PipelineError(problems)

    def _goes_on(self, name: str) -> bool:
        query = self._queries[name]
        if query.isActive:
            return True
        error = query.exception()
        if error is not None:
            raise RunFailed(name, error) from error
        return False

    def _stop_between_batches(self, progress: Progress) -> None:
        """Stop each query right after a batch, as the next one has written nothing yet then; an idle query is stopped
        at once. The query itself is asked for its last batch: a listener may hear of it only when the next has long
        begun."""
        if self.stop.asked:
            patience.give_up(self.spec.name)
        before = {name: _last_batch(query) for name, query in self._queries.items()}
        self._report(progress, "stopping" if self.stop.asked else "running")
        deadline = time.monotonic() + STOP_WAIT_S
        waiting = set(self._queries)
        while waiting:
            for name in sorted(waiting):
                query = self._queries[name]
                if self._goes_on(name):
                    over = _last_batch(query) != before[name] or not query.status["isTriggerActive"]
                    if not (over or self.stop.now or time.monotonic() > deadline):
                        continue
                    query.stop()
                waiting.remove(name)
            with progress.changed:
                progress.changed.wait(LOOK_S if waiting else 0)

    def _stop_all(self) -> None:
        for query in self._queries.values():
            with suppress(Exception):  # what has failed is told; this one may be gone with it
                query.stop()

    def _await_last_reports(self, progress: Progress) -> None:
        """Wait for Spark's last reports, which come after a batch is over: they hold the position to leave in the
        groups."""
        deadline = time.monotonic() + LAST_WORDS_S
        with progress.changed:
            while not progress.ended >= set(self._queries) and time.monotonic() < deadline:
                progress.changed.wait(LOOK_S)

    def _report(self, progress: Progress, state: str, error: str | None = None) -> None:
        self.display.show(progress)
        if state == "running" and time.monotonic() - self._status_at < STATUS_S:
            return
        self._status_at = time.monotonic()
        Storage(self.spec.storage).write_status(self._status(progress, state, error))

    def _status(self, progress: Progress, state: str, error: str | None) -> Mapping[str, Any]:
        return {
            "pipeline": self.spec.name,
            "file": self.spec.place.file,
            "mode": self.mode,
            "pid": os.getpid(),
            "started": self._started,
            "updated": _now(),
            "state": state,
            "error": error,
            "queries": progress.as_status(),
        }


def _last_batch(query: "StreamingQuery") -> tuple[int, str] | None:
    """Number and time of the last batch; None before the first is over."""
    told = query.lastProgress
    return None if told is None else (told["batchId"], told["timestamp"])


def _unbounded(spec: PipelineSpec) -> PipelineSpec:
    """The spec without bounds on a batch: in real time a batch is a time, not a number of records, and Spark refuses a
    bound."""
    sources = {
        name: replace(source, options={**source.options, "max_per_batch": 0}) if source.kind == "topic" else source
        for name, source in spec.sources.items()
    }
    return replace(spec, sources=sources)


def _not_in_real_time(spec: PipelineSpec) -> Iterator[Problem]:
    """Problems in real-time mode, in which Spark writes updates only. For a query without state these are the same rows
    as in append mode."""
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    if "realTime" not in signature(DataStreamWriter.trigger).parameters:
        yield Problem(spec.place, "the installed PySpark has no real-time mode", "install a newer one, or --continuous")
    for sink in spec.sinks.values():
        if "mode" in sink.places and sink.options["mode"] != "update":
            words = f"sink {sink.name!r}: in real time there is no mode {sink.options['mode']!r}, only update"
            yield Problem(sink.places["mode"], words)
        if sink.options.get("newest_by"):
            words = f"sink {sink.name!r}: in real time there is no 'newest_by': each row is written as it comes"
            yield Problem(sink.places["newest_by"], words, "a run without --realtime")
        if sink.options.get("delivery") == EXACTLY_ONCE:
            words = f"sink {sink.name!r}: in real time there is no {EXACTLY_ONCE!r}: it is of batches"
            yield Problem(sink.places["delivery"], words, "`delivery: at least once`, or a run without --realtime")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
