"""Moments that options name."""

import argparse

import pytest

from moldau.cli.moments import moment

NOW_MS = 1_770_000_000_000


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("now", NOW_MS),
        ("1700000000000", 1_700_000_000_000),
        ("15m", NOW_MS - 900_000),
        ("2h", NOW_MS - 7_200_000),
        ("1d", NOW_MS - 86_400_000),
        ("999999999999d", 0),
        ("2026-02-02", 1_769_990_400_000),
        ("2026-02-02T02:40:00", NOW_MS),
        ("2026-02-02T02:40:00.005Z", NOW_MS + 5),
        ("2026-02-02T03:40+01:00", NOW_MS),
    ],
)
def test_a_moment_is_read(text: str, found: int) -> None:
    assert moment(text, NOW_MS) == found


@pytest.mark.parametrize("text", ["", "yesterday", "5 minutes", "2026-13-01", "-", "9" * 30])
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is no time: write"):
        moment(text, NOW_MS)
