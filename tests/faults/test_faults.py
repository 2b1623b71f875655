"""A short schedule of faults; `make faults` runs half an hour of them."""

from pathlib import Path

from tests.faults.schedule import run_schedule
from tests.seeds import seed_of

SECONDS = 30.0


def test_nothing_is_lost_doubled_or_reordered_whatever_happens_to_the_brokers(tmp_path: Path) -> None:
    assert run_schedule(seed_of(__name__), SECONDS, keep=tmp_path) == []
