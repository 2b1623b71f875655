"""A short schedule of faults; `make faults` runs half an hour of them."""

import random
from pathlib import Path

from tests.faults.schedule import run_schedule

SECONDS = 30.0


def test_nothing_is_lost_doubled_or_reordered_whatever_happens_to_the_brokers(tmp_path: Path) -> None:
    assert run_schedule(random.SystemRandom().randrange(10**6), SECONDS, keep=tmp_path) == []
