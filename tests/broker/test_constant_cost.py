"""The cost of an append and of a read does not grow with what is stored.

`python -m bench.constant_cost` shows it at 10 MB, 1 GB and 10 GB. Here small segments stand for large ones: 8 MB in 8
of them, then 512 MB in 512. CPU time is compared with CPU time of the same run, each the best of several repeats.
"""

import time
from pathlib import Path

import pytest

from bench.constant_cost import Batches, Costs, grow, measure, stored
from moldau.core.topic_config import TopicConfig

pytestmark = pytest.mark.alone

SMALL, LARGE = 8 << 20, 512 << 20
CONFIG = TopicConfig(segment_bytes=1 << 20)

RATIO_MAX = 4.0
"""A busy machine triples a cost now and then. What grows with the bytes or segments stored would be near 64."""

MEASURED_AGAIN_MAX = 4
"""Other work only adds to a cost, so the lowest of some counts."""

CLEAN_STARTS = 5


@pytest.fixture(scope="module")
def costs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Costs, Costs]:
    """Of the small log, and of the large one that it becomes."""
    batches = Batches()
    with stored(tmp_path_factory.mktemp("constant-cost"), CONFIG) as log:
        grow(log, batches, SMALL)
        small = measure(log, batches)
        grow(log, batches, LARGE)
        log.sync()  # no append pays for writing out what was there before
        large = measure(log, batches)
        for _ in range(MEASURED_AGAIN_MAX):
            if all(cost < RATIO_MAX * before for before, cost in zip(small, large, strict=True)):
                break
            large = Costs(*map(min, large, measure(log, batches)))
        return small, large


@pytest.mark.parametrize("operation", Costs._fields)
def test_an_operation_costs_the_same_in_a_log_64_times_as_large(costs: tuple[Costs, Costs], operation: str) -> None:
    small, large = (getattr(cost, operation) for cost in costs)
    assert large < RATIO_MAX * small, f"{operation}: {small:.1f} us in {SMALL} bytes, {large:.1f} us in {LARGE}"


def test_opening_after_a_clean_stop_does_not_read_what_is_stored(tmp_path: Path) -> None:
    """It costs something for each segment, nothing for each byte: as much for 64 times the bytes in as many files."""
    small, large = (
        opening_s(tmp_path / name, TopicConfig(segment_bytes=size // 4), size)
        for name, size in (("small", 4 << 20), ("large", 256 << 20))
    )
    assert large < RATIO_MAX * small


def opening_s(data: Path, config: TopicConfig, size: int) -> float:
    """CPU seconds to open a directory with `size` bytes."""
    with stored(data, config) as log:
        grow(log, Batches(), size)
        segments = len(log.segments)
    best = float("inf")
    for _ in range(CLEAN_STARTS):
        begun = time.process_time()
        with stored(data, config) as log:
            best = min(best, time.process_time() - begun)
            assert len(log.segments) == segments
    return best
