"""Every fast path against the handler it stands for, whatever happens: the same answers, the same logs."""

from random import Random

import pytest

from tests.fastpath.course import TRANSACTIONAL, Course
from tests.fastpath.sides import BothSides

STEPS = 400


@pytest.mark.parametrize("replicas", [(1,), (1, 2, 3)], ids=["one replica", "three replicas"])
@pytest.mark.parametrize("lends", [False, True], ids=["kept frames", "lent frames"])
def test_any_course_of_things(replicas: tuple[int, ...], lends: bool, seeded: Random) -> None:
    both = BothSides(partitions=3, replicas=replicas, lends=lends)
    try:
        course = Course(both, seeded)
        course.run(STEPS)
        assert course.repeats.total() > STEPS // 10, "the fast paths are hardly taken"
        if replicas == (1,):  # with others an answer often waits until its time is up, and nothing is learnt
            assert any(course.repeats[f"copier {each}"] for each in TRANSACTIONAL), "no transaction takes its fast path"
        course.lose_disk()
        course.run(STEPS // 8)
    finally:
        both.close()
