"""Every example runs as its first lines say. The pipelines' are in `tests/pipelines`, as they need Spark."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 120


def run(*arguments: str) -> list[str]:
    """The lines that Python prints when it is started with these arguments in the checkout."""
    ended = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout.splitlines()


def test_a_test_with_a_broker_of_its_own_passes() -> None:
    assert run("-m", "pytest", "-q", "-p", "no:cacheprovider", "examples/test_shop.py")[-1].startswith("1 passed")


def test_a_listener_hears_every_tick() -> None:
    assert run("-m", "examples.asyncio_client") == [f"offset {number}: tick {number}" for number in range(5)]


def test_waiters_share_the_tables_until_one_goes_home() -> None:
    shared, alone = run("-m", "examples.group")
    assert sorted(character for character in shared if character.isdigit()) == list("012345")
    assert shared.count("[") == 2
    assert alone.split(":")[1].strip() == "[0, 1, 2, 3, 4, 5]"
