"""The seeds of the tests that draw by chance: the same each time, unless MOLDAU_SEED says something else.

`make test` decides whether a change is good, so it draws the same each time. MOLDAU_SEED=new draws afresh, to find what
nobody thought of; a failure names its seed, and MOLDAU_SEED=<number> draws that again.
"""

import os
from random import SystemRandom
from zlib import crc32

ENVIRONMENT = "MOLDAU_SEED"
AFRESH = "new"


def is_afresh() -> bool:
    return os.environ.get(ENVIRONMENT) == AFRESH


def seed_of(test: str) -> int:
    """The seed for `test`; printed, so that pytest shows it when the test fails."""
    told = os.environ.get(ENVIRONMENT, "")
    seed = SystemRandom().randrange(1 << 32) if is_afresh() else int(told) if told else crc32(test.encode())
    print(f"{ENVIRONMENT}={seed}")  # noqa: T201
    return seed
