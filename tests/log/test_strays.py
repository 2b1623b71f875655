"""Law: a log that was set aside goes when its time is over, and only with proof that the cluster has no use for it."""

import pytest

from moldau.core.ids import TopicPartition
from moldau.log.manager import LogManager
from tests.log.helpers import fill
from tests.log.test_manager import A0, TOPIC_ID, Disks

DAY_MS = 86_400_000
HEX = "0123456789abcdef" * 2


@pytest.fixture
def disks() -> Disks:
    return Disks()


def strays(disks: Disks) -> list[str]:
    return [name for name in disks.files.list("/one") if name.endswith("-stray")]


def with_a_stray(disks: Disks) -> LogManager:
    manager = disks.started()
    fill(manager.get_or_create(A0, TOPIC_ID), 3)
    manager.set_stray(A0)
    return manager


def is_stray(_: bytes | None, partition: TopicPartition) -> bool:
    return partition == A0


def is_needed(_: bytes | None, partition: TopicPartition) -> bool:
    return partition != A0


def test_a_stray_is_kept_for_its_time_and_then_removed(disks: Disks) -> None:
    manager = with_a_stray(disks)
    disks.clock.advance(DAY_MS - 1)
    manager.remove_strays(DAY_MS, is_stray)
    assert len(strays(disks)) == 1
    disks.clock.advance(1)
    manager.remove_strays(DAY_MS, is_stray)
    assert strays(disks) == []


def test_its_time_goes_on_over_restarts(disks: Disks) -> None:
    with_a_stray(disks).close()
    disks.clock.advance(DAY_MS)
    again = disks.started()
    again.strays.note(disks.clock.now_ms(), is_stray)
    again.remove_strays(DAY_MS, is_stray)
    assert strays(disks) == []


def test_a_stray_that_the_cluster_needs_again_stays(disks: Disks) -> None:
    manager = with_a_stray(disks)
    disks.clock.advance(DAY_MS)
    manager.remove_strays(DAY_MS, is_needed)
    assert len(strays(disks)) == 1


def test_the_time_of_an_earlier_versions_stray_begins_when_it_is_proved_to_be_one(
    disks: Disks, caplog: pytest.LogCaptureFixture
) -> None:
    with_a_stray(disks).close()
    (name,) = strays(disks)
    disks.files.remove(f"/one/{name}/stray.properties")
    disks.clock.advance(DAY_MS)
    again = disks.started()
    again.strays.note(disks.clock.now_ms(), is_stray)
    assert name in caplog.text
    again.remove_strays(DAY_MS, is_stray)
    assert strays(disks) == [name]
    disks.clock.advance(DAY_MS)
    again.remove_strays(DAY_MS, is_stray)
    assert strays(disks) == []


@pytest.mark.parametrize("inside", [("letter",), ("meta.properties", f"{0:020d}.log"), (f"{0:020d}.log",)])
def test_what_nobody_can_prove_to_be_a_stray_is_never_removed(disks: Disks, inside: tuple[str, ...]) -> None:
    path = f"/one/a-0.{HEX}-stray"
    disks.files.make_directory(path)
    for name in inside:
        disks.files.write_atomically(f"{path}/{name}", b"")
    manager = disks.started()
    manager.strays.note(disks.clock.now_ms(), is_stray)
    disks.clock.advance(10 * DAY_MS)
    manager.remove_strays(DAY_MS, is_stray)
    assert disks.files.exists(f"{path}/{inside[0]}")
