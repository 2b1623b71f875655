"""Compaction as the broker runs it: chooses the dirtiest log, has it cleaned elsewhere, swaps the result in.

The loop only chooses and renames. Records are read in a child process, what waits for the disk is done in a thread.
Appends, reads, retention and even deletion of the topic go on meanwhile: a result is used only if the segments it
was made of are still all there and as they were, otherwise it is thrown away and the log is cleaned another time.
"""

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Protocol

from moldau.core.broker_config import BrokerConfig
from moldau.core.files import Files
from moldau.log.compaction.job import (
    ENTRY_BYTES,
    CleaningError,
    CleanJob,
    CleanResult,
    CorruptLogError,
    decode_result,
    discard,
    encode_job,
    remove_strays,
)
from moldau.log.compaction.policy import Cleanable, clean_job, cleanable
from moldau.log.log import Log
from moldau.log.segment import CLEANED_SUFFIX
from moldau.protocol.errors import ApiError
from moldau.requests.parts import Parts

log = logging.getLogger(__name__)

ANSWER_BYTES_MAX = 64 * 1024 * 1024
"""A line for every segment of a log."""


class Worker(Protocol):
    """Cleans one log after the other."""

    worker_id: int

    async def run(self, job: CleanJob, bytes_per_second: float) -> CleanResult:
        """Raises CleaningError."""
        ...

    def kill(self) -> None: ...

    async def close(self) -> None: ...


class ChildProcess:
    """A `Worker` that does not share our GIL."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.worker_id = process.pid

    @classmethod
    async def start(cls) -> "ChildProcess":
        return cls(
            await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "moldau.log.compaction.process",
                str(os.getpid()),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=ANSWER_BYTES_MAX,
            )
        )

    async def run(self, job: CleanJob, bytes_per_second: float) -> CleanResult:
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise CleaningError("the process has no pipes")
        try:
            stdin.write(encode_job(job, bytes_per_second))
            await stdin.drain()
            line = await stdout.readline()
        except (OSError, ValueError) as error:
            raise CleaningError(f"the process does not answer: {error}") from error
        if not line.endswith(b"\n"):
            raise CleaningError(f"the process has ended with {await self._process.wait()}")
        return decode_result(line)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        await self._process.wait()


class Cleaner:
    """The cleaner of one broker. `look` is called at the interval `log.cleaner.backoff.ms`."""

    def __init__(
        self,
        parts: Parts,
        files: Files,
        threads: Executor,
        start_worker: Callable[[], Awaitable[Worker]] = ChildProcess.start,
    ) -> None:
        self._parts = parts
        self._files = files
        self._threads = threads
        self._start_worker = start_worker
        self._tasks: set[asyncio.Task[None]] = set()
        self._workers: set[Worker] = set()
        self._in_progress: set[Log] = set()
        self._uncleanable: set[Log] = set()
        self._one_checkpoint = asyncio.Lock()
        self._is_stopping = False

    @property
    def _config(self) -> BrokerConfig:
        return self._parts.config

    def look(self) -> None:
        """Start cleaning if something is due."""
        if self._is_stopping or not self._config.bool("log.cleaner.enable"):
            return
        missing = self._config.int("log.cleaner.threads") - len(self._tasks)
        if missing > 0:
            for _ in self._due()[:missing]:
                task = asyncio.get_running_loop().create_task(self._work())
                self._tasks.add(task)
                task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """Give up what is being cleaned; a swap that has begun is finished."""
        self._is_stopping = True
        for worker in self._workers:
            worker.kill()
        await self.idle()

    async def idle(self) -> None:
        """Returns when nothing is being cleaned."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("cleaning failed; it is tried again at the next interval", exc_info=task.exception())

    # Choosing

    def _due(self) -> list[Cleanable]:
        """Logs that are worth cleaning, the dirtiest first."""
        now_ms = self._parts.clock.now_ms()
        self._uncleanable = {each for each in self._uncleanable if each.failure is None}
        candidates = [each for each in self._parts.logs if each.config.is_compacted and self._is_free(each)]
        states = [cleanable(each, self._last_stable_offset(each), now_ms) for each in candidates]
        return sorted((each for each in states if each.is_due), key=lambda each: each.dirty_ratio, reverse=True)

    def _is_free(self, each: Log) -> bool:
        return each.failure is None and each not in self._in_progress and each not in self._uncleanable

    def _last_stable_offset(self, each: Log) -> int:
        partition = self._parts.replicas.replica(*each.topic_partition)
        return 0 if partition is None else partition.last_stable_offset

    def _next(self, tried: set[Log]) -> Cleanable | None:
        if self._is_stopping:
            return None
        return next((each for each in self._due() if each.log not in tried), None)

    # Cleaning

    async def _work(self) -> None:
        """Clean until nothing is left to do."""
        worker = await self._start_worker()
        self._workers.add(worker)
        tried: set[Log] = set()
        try:
            while (due := self._next(tried)) is not None:
                if not await self._clean(worker, due):
                    tried.add(due.log)
        finally:
            self._workers.discard(worker)
            await worker.close()

    async def _clean(self, worker: Worker, due: Cleanable) -> bool:
        """Whether a log was cleaned and may be looked at again: there may have been too many keys for one go."""
        now_ms = self._parts.clock.now_ms()
        job = clean_job(due, now_ms=now_ms, keys_max=self._keys_max(), suffix=f".{worker.worker_id}{CLEANED_SUFFIX}")
        self._in_progress.add(due.log)
        try:
            result = await worker.run(job, self._config.double("log.cleaner.io.max.bytes.per.second"))
            is_swapped = await self._swap(due.log, job, result)
            if is_swapped:
                self._report(due.log, result, self._parts.clock.now_ms() - now_ms)
            return is_swapped and due.first_dirty_offset < result.clean_offset < due.end_offset
        except CorruptLogError as error:
            self._uncleanable.add(due.log)
            log.error("%s is not cleaned any more: %s", due.log.topic_partition, error)
            return False
        except CleaningError as error:
            if not self._is_stopping:
                log.warning("%s is cleaned at the next interval: %s", due.log.topic_partition, error)
            return False
        except OSError as error:
            refusal = due.log.io_error(error)
            log.warning("%s is not cleaned: %s", due.log.topic_partition, refusal.message)
            return False
        finally:
            self._in_progress.discard(due.log)
            if due.log.failure is None:  # else a swap may be half done, and recovery needs these files to finish it
                with contextlib.suppress(OSError):  # what is left otherwise goes at the next start
                    await self._in_thread(discard, self._files, job)

    async def _swap(self, cleaned: Log, job: CleanJob, result: CleanResult) -> bool:
        if cleaned.failure is not None:
            return False
        await self._in_thread(remove_strays, self._files, job)
        for group in result.groups:
            if cleaned.failure is not None:
                return False
            if cleaned.stage_segment(job, group):
                await self._in_thread(self._files.sync_directory, job.directory)
                with contextlib.suppress(ApiError):  # it has taken itself offline, and said so
                    if cleaned.replace_segments(job, group):
                        continue
            log.info("%s has changed while it was cleaned", cleaned.topic_partition)
            return False
        cleaned.clean_offset = result.clean_offset
        async with self._one_checkpoint:
            await self._in_thread(self._files.sync_directory, cleaned.directory)
            await self._in_thread(self._parts.logs.checkpoint_cleaned, cleaned.topic_partition)
        return True

    def _keys_max(self) -> int:
        """Number of keys that fit into `log.cleaner.dedupe.buffer.size`, which all threads share."""
        share = self._config.long("log.cleaner.dedupe.buffer.size") / max(1, self._config.int("log.cleaner.threads"))
        return max(1, int(share * self._config.double("log.cleaner.io.buffer.load.factor") / ENTRY_BYTES))

    def _report(self, cleaned: Log, result: CleanResult, took_ms: int) -> None:
        before = sum(source.size for group in result.groups for source in group.sources)
        log.info(
            "%s: cleaned up to %d, %d segments of %.1f MB became %d of %.1f MB in %d ms",
            cleaned.topic_partition,
            result.clean_offset,
            sum(len(group.sources) for group in result.groups),
            before / 1e6,
            len(result.groups),
            result.bytes_written / 1e6,
            took_ms,
        )

    async def _in_thread(self, work: Callable[..., None], *arguments: object) -> None:
        await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)
