"""A harness that finds nothing proves nothing: each of these mistakes is found by it."""

from random import Random

import pytest

from moldau.core.invariants import InvariantError
from tests.fastpath.course import Course
from tests.fastpath.mistakes import MISTAKES
from tests.fastpath.sides import BothSides

COURSES_MAX = 12
STEPS = 400


def is_found(seed: int) -> bool:
    replicas = (1, 2, 3) if seed % 2 else (1,)
    both = BothSides(partitions=3, replicas=replicas, lends=seed % 4 < 2)
    try:
        Course(both, Random(seed)).run(STEPS)
    except (AssertionError, InvariantError):
        return True
    finally:
        both.close()
    return False


@pytest.mark.parametrize("name", MISTAKES)
def test_a_planted_mistake_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MISTAKES[name].plant(monkeypatch)
    assert any(is_found(seed) for seed in range(COURSES_MAX))


def test_without_a_mistake_nothing_is_found() -> None:
    assert not any(is_found(seed) for seed in range(4))
