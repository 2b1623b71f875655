"""A log survives whatever happens between any two file operations: see `crash_harness` for what that means."""

import errno
import itertools
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from moldau.core.memory_files import MemoryFiles
from moldau.core.real_files import RealFiles
from moldau.core.topic_config import TopicConfig
from tests.log.crash_harness import (
    MakeWorld,
    Scenario,
    fail_everywhere,
    stop_everywhere,
    sync_everywhere,
)
from tests.log.crash_world import World
from tests.log.helpers import small_segments

SMALL = small_segments(500)
COMPACTED = replace(SMALL, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0)
BY_SIZE = replace(SMALL, retention_bytes=700)
BY_AGE = replace(SMALL, retention_ms=1000)


def four_segments(world: World) -> None:
    """Offsets 0 to 9 of two leaders, all synced and checkpointed."""
    world.append(60, count=5)
    world.append(60, count=5, epoch=1)
    world.sync()
    world.checkpoint()


def fifty(world: World) -> None:
    """Offsets 50 to 59."""
    world.start_over(50)
    four_segments(world)


def not_synced(world: World) -> None:
    world.append(60, count=10)


def keys(world: World) -> None:
    """Three sealed segments, in which most keys are there twice."""
    for number in range(10):
        world.append(60, key=b"%d" % (number % 4))
    world.log.segments.release_sealed()  # as when nobody has read for a while: a sync must open them by name


def keys_synced(world: World) -> None:
    keys(world)
    world.sync()
    world.checkpoint()


def old(world: World) -> None:
    four_segments(world)
    world.clock.advance(10_000)


def more(world: World) -> None:
    """Another leader's records, over two segments."""
    world.append(60, count=6, epoch=7)


def append(size: int) -> Callable[[World], None]:
    return lambda world: world.append(size, epoch=1)


def truncate(offset: int) -> list[Callable[[World], None]]:
    """Cut, and go on as the follower of another leader."""
    return [lambda world: world.truncate(offset), more, World.sync, append_later, World.checkpoint, append_later]


def start_over(offset: int) -> list[Callable[[World], None]]:
    return [lambda world: world.start_over(offset), more, World.sync, append_later, World.checkpoint]


def cut(world: World) -> None:
    """Cut, and go on; a compaction that is under way is of no use then, and takes nothing away."""
    world.truncate(4)
    world.promises.leaving.clear()
    more(world)


def expire(world: World) -> None:
    """Let the first segment go."""
    world.delete_records(3)
    world.delete_expired()


def compact_while(work: Callable[[World], None], *, is_staged: bool = True) -> list[Callable[[World], None]]:
    def step(world: World) -> None:
        world.compact_while(partial(work, world), is_staged=is_staged)

    return [step, World.sync, append_later, World.checkpoint, append_later]


def append_later(world: World) -> None:
    world.append(60, epoch=7)


SCENARIOS = {
    "append": Scenario(SMALL, World.sync, [append(20), append(20), World.sync, append(20), World.sync]),
    "roll": Scenario(
        SMALL,
        four_segments,
        [append(20), append(300), append(20), append(300), World.sync, append(20), append(400), append(20), World.sync],
    ),
    "retention by size": Scenario(
        BY_SIZE, four_segments, [World.delete_expired, append(60), World.sync, World.checkpoint]
    ),
    "retention of everything": Scenario(
        BY_AGE, old, [World.delete_expired, append(60), World.sync, World.remove_doomed, World.checkpoint, append(60)]
    ),
    "deletion of records": Scenario(
        SMALL,
        four_segments,
        [lambda world: world.delete_records(5), World.checkpoint, World.delete_expired, append(60), World.sync],
    ),
    "compaction": Scenario(COMPACTED, keys_synced, [World.compact, append(60), World.sync, World.checkpoint]),
    "compaction of what is not synced": Scenario(COMPACTED, keys, [World.compact, append(60), World.sync]),
    "deletion of records before a swap": Scenario(COMPACTED, keys_synced, compact_while(expire)),
    "truncation during a compaction": Scenario(COMPACTED, keys_synced, compact_while(cut, is_staged=False)),
    "truncation before a swap": Scenario(COMPACTED, keys_synced, compact_while(cut)),
    "truncation before a swap of what is not synced": Scenario(COMPACTED, keys, compact_while(cut)),
    "truncation inside the last segment": Scenario(SMALL, four_segments, truncate(9)),
    "truncation over segments": Scenario(SMALL, four_segments, truncate(4)),
    "truncation to the start of a segment": Scenario(SMALL, four_segments, truncate(3)),
    "truncation of what is not synced": Scenario(SMALL, not_synced, truncate(4)),
    "truncation that nothing follows": Scenario(
        SMALL, four_segments, [lambda world: world.truncate(4), World.sync, World.close]
    ),
    "truncation below the log start": Scenario(
        SMALL,
        four_segments,
        [lambda world: world.delete_records(8), World.checkpoint, *truncate(7)],
    ),
    "starting over further on": Scenario(SMALL, four_segments, start_over(100)),
    "starting over further back": Scenario(
        SMALL,
        fifty,
        start_over(52),
    ),
    "checkpoint": Scenario(
        SMALL, not_synced, [World.sync_sealed, World.checkpoint, append(60), append(300), World.sync, World.checkpoint]
    ),
    "deletion of the topic": Scenario(
        SMALL,
        four_segments,
        [World.delete_topic, World.create, append(20), World.sync, World.checkpoint, append(20), World.sync],
    ),
    "clean stop": Scenario(SMALL, four_segments, [append(60), World.close]),
    "clean stop of what is not synced": Scenario(SMALL, not_synced, [World.close]),
}

each_scenario = pytest.mark.parametrize("name", SCENARIOS)

ERRORS = (errno.ENOSPC, errno.EIO, errno.EMFILE)
ROUNDS = int(os.environ.get("MOLDAU_CRASH_ROUNDS", "1"))
"""In each round every operation fails once, in the next one with another error: three rounds have them all."""

EVERY = 1 if ROUNDS > 1 else 5
"""Real files take their time: in a single round only some operations."""


def in_memory(config: TopicConfig) -> World:
    return World(MemoryFiles(), "/data", config)


class WithoutBallast(RealFiles):
    """Thousands of data directories that each keep some megabytes back would fill the disk."""

    def allocate(self, path: str, size: int) -> None:
        super().allocate(path, min(size, 1))


@pytest.fixture
def on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeWorld:
    """Real files. What the process wrote stays when it dies, so there is nothing to wait for in a sync."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(os, "fdatasync", lambda _: None)
    numbers = itertools.count()
    return lambda config: World(WithoutBallast(), f"{tmp_path}/{next(numbers)}", config)


def errors_of(name: str, number: int) -> tuple[int, ...]:
    first = list(SCENARIOS).index(name) + number
    return tuple(ERRORS[(first + turn) % len(ERRORS)] for turn in range(len(ERRORS)))


@each_scenario
def test_a_log_survives_a_power_cut_after_any_operation(name: str) -> None:
    assert stop_everywhere(SCENARIOS[name], in_memory) > 3


@each_scenario
def test_a_log_survives_an_error_of_any_operation(name: str) -> None:
    for turn in range(ROUNDS):
        assert fail_everywhere(SCENARIOS[name], in_memory, errors_of(name, turn)) > 3


@each_scenario
def test_a_sync_may_come_between_any_two_operations(name: str) -> None:
    assert sync_everywhere(SCENARIOS[name], in_memory) > 3


@each_scenario
def test_a_log_in_real_files_survives_death_after_any_operation(name: str, on_disk: MakeWorld) -> None:
    assert stop_everywhere(SCENARIOS[name], on_disk, EVERY) > 3


@each_scenario
def test_a_log_in_real_files_survives_an_error_of_any_operation(name: str, on_disk: MakeWorld) -> None:
    for turn in range(ROUNDS):
        assert fail_everywhere(SCENARIOS[name], on_disk, errors_of(name, turn), EVERY) > 3
