"""One partition on a disk that stops or fails at any operation, and what must be true of it afterwards.

The laws, whatever was being done when it happened:

- What a sync has vouched for, and a clean stop, is there, unless somebody asked for it to go.
- What was cut off is not back once a sync has vouched for the log after the cut; after the death of the process alone
  it is not back as soon as the cut has returned.
- There is no gap, no offset twice, and nothing that was never written. Epochs and times fit the batches.
- To recover again changes nothing, and a recovery that is interrupted can be repeated.
- An error that leaves the log in service leaves it as it was, or as it should be.
"""

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from moldau.core.faulty_files import LOOKS, Stopped
from moldau.core.files import Files
from moldau.core.memory_files import MemoryFiles
from moldau.core.topic_config import TopicConfig
from moldau.log.log import Log
from moldau.protocol.errors import ApiError
from tests.log.crash_world import World

# After the worst


class PowerLoss(NamedTuple):
    """Work that a disk had done without being waited for."""

    torn_bytes: int
    names_kept: bool
    cuts_undone: bool


POWER_LOSSES = [
    PowerLoss(torn_bytes, names_kept, cuts_undone)
    for torn_bytes, names_kept, cuts_undone in (
        (0, False, False),
        (0, False, True),
        (0, True, False),
        (0, True, True),
        (50, True, False),
        (1 << 20, True, False),
    )
]


Seen = set[tuple[object, ...]]
"""Disks that were recovered already. Most operations make no difference after a power cut."""


def after(disk: Files, loss: PowerLoss | None) -> Files:
    """The disk as it is when the power is back, or when the process has ended."""
    if not isinstance(disk, MemoryFiles):
        return disk
    if loss is None:
        ended = copy.deepcopy(disk)
        ended.process_death()
        return ended
    survivor = copy.copy(disk)
    survivor.power_loss(loss.torn_bytes, names_kept=loss.names_kept, cuts_undone=loss.cuts_undone)
    return survivor


def content_of(disk: Files, directory: str) -> frozenset[tuple[str, bytes]]:
    """All files below a directory."""
    paths = [f"{directory}/{name}" for name in disk.list(directory)]
    below = [content_of(disk, path) for path in paths if disk.is_directory(path)]
    files = frozenset((path, disk.read(path)) for path in paths if not disk.is_directory(path))
    return files.union(*below)


def recover_after(world: World, loss: PowerLoss | None, seen: Seen, *, is_later: bool = False) -> None:
    """Cut the power, or end the process where `loss` is None; recover, look, recover again, go on, recover.

    `is_later`: the power was cut before this already.
    """
    is_power_loss = is_later or loss is not None
    world.release()
    disk = after(world.disk, loss)
    if isinstance(disk, MemoryFiles):
        key = (is_power_loss, hash(world.promises), content_of(disk, world.data))
        if key in seen:
            return
        seen.add(key)
    first = World(disk, world.data, world.config, world.promises.copy())
    first.start()
    found = first.check(is_power_loss=is_power_loss)
    before = first.state()
    first.release()
    second = World(disk, world.data, world.config, first.promises.copy())
    second.start()
    assert second.check(is_power_loss=is_power_loss) == found, "recovery does not come to an end"
    assert second.state() == before
    second.promises.adopt(found)
    go_on(second)


def go_on(world: World) -> None:
    """Use a log that was recovered, then lose the power once more."""
    epoch = max(world.log.leader_epochs.latest, 0) + 1
    world.append(10, epoch=epoch)
    world.append(300, epoch=epoch)
    world.sync()
    world.append(10, epoch=epoch)
    world.release()
    disk = world.disk
    if isinstance(disk, MemoryFiles):
        disk.power_loss()
    last = World(disk, world.data, world.config, world.promises)
    last.start()
    last.check(is_power_loss=isinstance(disk, MemoryFiles))
    last.release()


def recover_interrupted(world: World, number: int, seen: Seen) -> None:
    """Recover as `recover_after` does, but stop the recovery itself once, at a step that `number` chooses."""
    disk = after(world.disk, POWER_LOSSES[number % 2 * 2])
    trial = World(copy.deepcopy(disk), world.data, world.config, world.promises.copy())
    trial.start()
    steps = [each for each, operation in enumerate(trial.files.operations, 1) if operation.what not in LOOKS]
    stopped = World(disk, world.data, world.config, world.promises.copy())
    stopped.files.stop_at(steps[number % len(steps)])
    with contextlib.suppress(Stopped):
        stopped.start()
    recover_after(stopped, POWER_LOSSES[number // 2 % 2], seen)
    recover_after(stopped, None, seen, is_later=True)


# Walking through a scenario


class Scenario(NamedTuple):
    """Start of a scenario, and the steps in which a fault may come."""

    config: TopicConfig
    before: Callable[[World], None]
    steps: Sequence[Callable[[World], None]]


MakeWorld = Callable[[TopicConfig], World]


def prepare(scenario: Scenario, make_world: MakeWorld) -> World:
    world = make_world(scenario.config)
    world.start()
    scenario.before(world)
    world.files.count_from_here()
    return world


def run(scenario: Scenario, world: World) -> None:
    """Take the steps, as long as the log takes them."""
    for step in scenario.steps:
        try:
            step(world)
        except ApiError:
            if not world.is_offline:
                world.check_in_service()
        if world.is_offline or world.is_over:
            return
        world.manager.look_for_room()  # a disk that was full for a moment is so no more


def operations_of(scenario: Scenario, make_world: MakeWorld) -> list[str]:
    """Operations of the steps on the disk, if nothing happens."""
    world = prepare(scenario, make_world)
    run(scenario, world)
    world.release()
    return [operation.what for operation in world.files.operations]


def stop_everywhere(scenario: Scenario, make_world: MakeWorld, every: int = 1) -> int:
    """Stop after each operation that changes the disk, and at the end; returns the number of stops."""
    operations = operations_of(scenario, make_world)
    numbers = [number for number, what in enumerate(operations, 1) if what not in LOOKS] + [len(operations) + 1]
    seen: Seen = set()
    for number in numbers[::every]:
        with saying(f"stopped before operation {number}: {(*operations, 'the end')[number - 1]}"):
            world = prepare(scenario, make_world)
            world.files.stop_at(number)
            with contextlib.suppress(Stopped):
                run(scenario, world)
            if isinstance(world.disk, MemoryFiles):
                for loss in POWER_LOSSES:
                    with saying(str(loss)):
                        recover_after(world, loss, seen)
                with saying("a recovery was stopped"):
                    recover_interrupted(world, number, seen)
            recover_after(world, None, seen)
    return len(numbers)


def fail_everywhere(scenario: Scenario, make_world: MakeWorld, errors: Sequence[int], every: int = 1) -> int:
    """Let each operation fail once, with one error or another; go on if the log does; then the process ends."""
    operations = operations_of(scenario, make_world)
    seen: Seen = set()
    for number, what in list(enumerate(operations, 1))[::every]:
        with saying(f"operation {number} failed: {what}"):
            world = prepare(scenario, make_world)
            world.files.fail_at(number, errors[number % len(errors)])
            run(scenario, world)
            if not world.is_offline and not world.is_over:
                world.check_in_service()
                world.append(10, epoch=9)
                world.append(400, epoch=9)
                world.sync()
                world.check_in_service()
            if isinstance(world.disk, MemoryFiles):
                recover_after(world, POWER_LOSSES[number % 2], seen)
            recover_after(world, None, seen)
    return len(operations)


def sync_everywhere(scenario: Scenario, make_world: MakeWorld) -> int:
    """Let a sync come between any two operations, as a thread's may; then lose the power."""
    operations = operations_of(scenario, make_world)
    seen: Seen = set()
    for number, what in enumerate(operations, 1):
        with saying(f"a sync before operation {number}: {what}"):
            world = prepare(scenario, make_world)
            world.files.call_at(number, partial(sync_meanwhile, world.log))
            run(scenario, world)
            assert not world.is_offline
            for loss in POWER_LOSSES[:2]:
                recover_after(world, loss, seen)
    return len(operations)


def sync_meanwhile(log: Log) -> None:
    """Sync as a thread might do it now, unless a sync is under way."""
    if log.failure is None and not log._durability._one_sync.locked():
        log.sync()


@contextlib.contextmanager
def saying(where: str) -> Iterator[None]:
    """Add the place of the fault to an error."""
    try:
        yield
    except Exception as error:
        error.add_note(where)
        raise
