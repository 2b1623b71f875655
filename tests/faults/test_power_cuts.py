"""A few power cuts; `make power-cuts` makes a hundred of them."""

import os

import pytest

from tests.faults.power_cuts import run
from tests.seeds import seed_of

CUTS = int(os.environ.get("MOLDAU_POWER_CUTS", "4"))


@pytest.mark.parametrize("engine", ["thread", "aio"])
def test_what_was_acknowledged_survives_a_power_cut_of_all_brokers(engine: str) -> None:
    assert run(seed_of(f"cuts {engine}"), cuts=CUTS, wiped=0, engine=engine) == []


@pytest.mark.parametrize("engine", ["thread", "aio"])
def test_what_was_acknowledged_survives_a_power_cut_and_the_loss_of_any_one_disk(engine: str) -> None:
    assert run(seed_of(f"disks {engine}"), cuts=0, wiped=CUTS, engine=engine) == []
