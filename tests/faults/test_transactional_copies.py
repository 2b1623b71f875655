"""A short schedule of faults against transactional copiers; `make faults` runs half an hour of them."""

from pathlib import Path

from tests.faults.transactions.schedule import run_schedule

SEED, SECONDS = 2, 8.0


def test_each_record_is_copied_once_whatever_happens_to_brokers_and_copiers(tmp_path: Path) -> None:
    assert run_schedule(SEED, SECONDS, keep=tmp_path) == []
