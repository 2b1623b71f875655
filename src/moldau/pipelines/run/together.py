"""Several pipelines in one Spark: one Java for all, and for each a session, a storage, a lock and queries of its own.

The law: a pipeline that fails does not take the others with it, as they have nothing in common but the Java. A signal
stops all of them, `moldau pipeline stop` one. Settings that Spark takes only at its start must not contradict each
other.
"""

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from moldau.pipelines.file.problems import PipelineError, Problem
from moldau.pipelines.file.spec import PipelineSpec
from moldau.pipelines.run.display import Display
from moldau.pipelines.run.runner import LOOK_S, REALTIME, Run, SparkGone, Stop, java_of, silence
from moldau.pipelines.run.storage import Storage
from moldau.pipelines.spark.session import beside, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OF_SESSION = "spark.sql."
AT_START = ("spark.sql.catalog", "spark.sql.extensions", "spark.sql.warehouse", "spark.sql.defaultCatalog")
"""Settings of SQL that Spark takes only at its start; the others are of a session."""


@dataclass(slots=True)
class Member:
    """One of the pipelines, its run and what it has ended with."""

    run: Run
    held: ExitStack
    """The lock, which is let go as soon as this pipeline has ended."""
    error: Exception | None = None

    def to_the_end(self, others: int) -> None:
        try:
            self.run.to_the_end()
        except Exception as error:  # told here and by the exit code; the others go on
            self.error = error
            more = "; the others go on" if others and not isinstance(getattr(error, "error", None), SparkGone) else ""
            self.run.display.say(f"{self.run.spec.name} has failed{more}: {' '.join(str(error).split())}")
        finally:
            self.held.close()


def run(
    specs: Sequence[PipelineSpec], mode: str, master: str | None = None, display: Display | None = None
) -> tuple[Stop, list[Exception]]:
    """Run pipelines, whose specs are checked, until all have ended; returns how they were stopped, if they were, and
    the errors of those that failed.

    Raises Busy, SessionFailed, PipelineError before any of them begins.
    """
    refuse_misfits(specs)
    display, stop = display or Display(), Stop()
    with ExitStack() as all_held:
        held = [all_held.enter_context(ExitStack()) for _ in specs]
        locks = [each.enter_context(Storage(spec.storage).lock()) for each, spec in zip(held, specs, strict=True)]
        for lock in locks:
            lock.note(None, shared=True)  # who stops one of them while Spark starts must not stop all
            lock.await_orphan(display.say)
        silence()
        spark = None
        with stop.before_spark():
            spark = session(_shared(specs), master, realtime=mode == REALTIME)
        if spark is None:
            return stop, []
        try:
            for lock in locks:
                lock.note(java_of(spark), shared=True)
            with stop.on_signals():
                return stop, run_in(spark, list(zip(specs, held, strict=True)), mode, display, stop)
        finally:
            with suppress(Exception):  # Java may be gone with what failed, and that has been told
                spark.stop()


def run_in(
    spark: "SparkSession", specs: Sequence[tuple[PipelineSpec, ExitStack]], mode: str, display: Display, stop: Stop
) -> list[Exception]:
    """Run pipelines in a Spark to the end, each with what it holds until then; returns the errors of those that
    failed."""
    starting = threading.Lock()
    members = [
        Member(Run(spec, beside(spark, spec), mode, display=display, starting=starting), held) for spec, held in specs
    ]
    _wait(members, stop)
    return [member.error for member in members if member.error is not None]


def _wait(members: Sequence[Member], stop: Stop) -> None:
    others = len(members) - 1
    threads = [
        threading.Thread(target=member.to_the_end, args=(others,), name=member.run.spec.name) for member in members
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        for thread in threads:
            thread.join(LOOK_S / len(threads))
        if stop.asked:
            for member in members:
                member.run.stop.number, member.run.stop.now = stop.number, stop.now


# --- what does not go together


def refuse_misfits(specs: Sequence[PipelineSpec]) -> None:
    """Raise PipelineError for pipelines that cannot share a Spark."""
    problems = [*_namesakes(specs), *_contradictions(specs), *_modules(specs)]
    if problems:
        raise PipelineError(problems)


def _namesakes(specs: Sequence[PipelineSpec]) -> Iterator[Problem]:
    names: dict[str, PipelineSpec] = {}
    storages: dict[Path, PipelineSpec] = {}
    for spec in specs:
        other = names.setdefault(spec.name, spec)
        if other is not spec:
            yield Problem(spec.place, f"{other.place.file} is a pipeline {spec.name!r}, too", "give one another `name`")
            continue
        other = storages.setdefault(spec.storage.resolve(), spec)
        if other is not spec:
            yield Problem(spec.place, f"{other.name!r} has the same storage {spec.storage}", "name another `storage`")


def _contradictions(specs: Sequence[PipelineSpec]) -> Iterator[Problem]:
    found: dict[str, tuple[str, PipelineSpec]] = {}
    for spec in specs:
        for name, value in spec.spark.items():
            if not _of_session(name):
                known, other = found.setdefault(name, (value, spec))
                if known != value:
                    words = f"{name} is {value} here and {known} in {other.place.file}, and one Spark has one of them"
                    yield Problem(spec.place, words, "write the same in both, or run them apart")


def _modules(specs: Sequence[PipelineSpec]) -> Iterator[Problem]:
    """Problems of Python files that import modules of one name from two directories: a process has one of them."""
    files = {Path(spec.place.file).resolve(): spec for spec in specs if spec.place.file.endswith(".py")}
    seen: dict[str, Path] = {}
    for file, spec in files.items():
        for module in sorted(file.parent.glob("*.py")):
            first = seen.setdefault(module.stem, module)
            if first != module and module not in files and module.stem in sys.modules:
                words = f"there are two modules {module.stem!r}, {first} and {module}"
                yield Problem(spec.place, words, "run the pipelines apart, or give one another name")


def _of_session(name: str) -> bool:
    return name.startswith(OF_SESSION) and not name.startswith(AT_START)


def _shared(specs: Sequence[PipelineSpec]) -> PipelineSpec:
    """The spec that Spark is started for: the first one's log, and the settings of all that only a start can make."""
    settings = {name: value for spec in specs for name, value in spec.spark.items() if not _of_session(name)}
    return replace(specs[0], name=" ".join(spec.name for spec in specs), spark=settings)
