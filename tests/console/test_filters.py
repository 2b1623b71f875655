"""The filter language: what it says, and that nobody can make it run long or do anything else."""

import random
import time
from typing import Any

import pytest

from moldau.console.failures import ConsoleError
from moldau.console.records.filters import Subject, compiled

RECORD = Subject(
    key="user-7",
    value={"country": "CZ", "amount": 120.5, "tags": ["a", "b"], "deep": {"odd name": None}, "ok": True},
    headers={"trace": "abc", "content-type": "json"},
    partition=3,
    offset=41,
    timestamp=1_795_000_000_000,
    size=99,
)


@pytest.mark.parametrize(
    "words",
    [
        "",
        'key == "user-7"',
        'value.country == "CZ" and value.amount > 100',
        'value.country in ["DE", "CZ"]',
        'not value.country == "DE"',
        'value.country == "DE" or (partition == 3 and offset >= 41)',
        'value.tags contains "b" and value.tags[0] == "a" and value.tags[-1] == "b"',
        'value.deep["odd name"] == null',
        "value.ok",
        "not value.missing",
        'headers.content-type == "json"',
        'key ~ "^user-[0-9]+$" and key ~ "ser" and key !~ "admin"',
        'timestamp > "2026-01-01T00:00:00Z" and timestamp < "2030-01-01"',
        "size < 1e3 and value.amount != 3",
        'key contains "er-"',
        'value contains "CZ"',
        "value.amount == 120.5",
    ],
)
def test_a_filter_takes_the_record(words: str) -> None:
    assert compiled(words)(RECORD)


@pytest.mark.parametrize(
    "words",
    ['value.amount > "100"', "value.country > 1", "value.ok == 1", "value.missing == null", "value.missing", "key.x.y"],
)
def test_a_comparison_of_different_things_is_false_and_no_error(words: str) -> None:
    assert not compiled(words)(RECORD)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("value ==", "ends too early"),
        ("value = 1", "cannot be read at character"),
        ("values == 1", "a name"),
        ("(key == 1", "`)`"),
        ("key == 1 key", "`and`"),
        ("__import__('os')", "a name"),
        ("value.__class__.__mro__", None),
        ('key ~ "(a"', "no regular expression"),
        ('key ~ "(?=a)b"', "no regular expression"),
        ("key ~ 1", "in quotes"),
        ("(" * 40 + "key" + ")" * 40, "deep"),
        ("not " * 100 + "key", "deep"),
        ("key == 1 or " * 100 + "key", "words"),
        ("k" * 3000, "characters"),
        ('timestamp > "soon"', "is no time"),
    ],
)
def test_a_mistake_is_told_and_nothing_is_run(words: str, told: str | None) -> None:
    if told is None:
        assert not compiled(words)(RECORD), "fields are looked up in the record, never on objects"
        return
    with pytest.raises(ConsoleError, match=told.replace("(", r"\(").replace(")", r"\)")):
        compiled(words)


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", "(.*)*x", "(a*)*(a*)*(a*)*b"])
def test_a_pattern_that_explodes_elsewhere_is_matched_in_linear_time(pattern: str) -> None:
    subject: Any = RECORD._replace(key="a" * 10_000 + "!")
    begun = time.process_time()
    assert not compiled(f'key ~ "^{pattern.rstrip("$")}$"')(subject)
    assert time.process_time() - begun < 2.0


def test_many_patterns_that_take_long_each_are_stopped_at_the_first_record() -> None:
    """Each has a hundred ways open after each character: half a second for the longest text that is looked at."""
    words = " or ".join(f'key ~ "[ab]*a[ab]{{100}}{number}"' for number in range(40))
    subject: Any = RECORD._replace(key="".join(random.Random(7).choices("ab", k=20_000)))
    begun = time.process_time()
    with pytest.raises(ConsoleError, match="regular expressions take too long"):
        compiled(words)(subject)
    assert time.process_time() - begun < 5.0
    many = compiled(" or ".join(f'key ~ "x.*{number}"' for number in range(40)))
    assert not many(subject), "forty plain ones are not too many"
    assert not many(subject), "and each record has its own bound"
