"""Patterns over topic names: the same answers as Python's `re`, in linear time."""

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.coordinators.topic_regex import TopicRegex
from moldau.protocol.errors import ApiError, ErrorCode

PATTERNS = [
    "",
    "foo.*",
    "^a(b|c)+$",
    "a{2,3}",
    "a{2}|b{1,}",
    "[a-c_.-]+",
    "[^ab]*",
    "(?i)FOO|b",
    "(?i:A)b",
    "x?y*?z+",
    "(a+)+b",
    r"a\d{1,2}\w",
    r"a\.b|\x61\x{62}",
    "a|",
    "(|a)b",
    "(?:ab){2}",
    "(?P<name>a)b*",
    "(^a|b)c$",
    "a{b}",
]


@pytest.mark.parametrize("pattern", PATTERNS)
@given(name=st.text("abcxyz.1fFoO_-{}", max_size=6))
def test_agrees_with_pythons_re(pattern: str, name: str) -> None:
    python = re.sub(r"\\x\{(..)\}", r"\\x\1", pattern)
    assert TopicRegex(pattern).matches(name) == (re.fullmatch(python, name) is not None)


def test_quoting_and_posix_classes() -> None:
    assert TopicRegex(r"\Qa.b\E.").matches("a.bX")
    assert not TopicRegex(r"\Qa.b\E.").matches("axbX")
    assert TopicRegex("[[:alpha:]]+[[:^alpha:]]").matches("abc1")


def test_a_pattern_that_backtracking_cannot_do_takes_no_time() -> None:
    regex = TopicRegex("(a|aa)+(a+)+b")
    assert not regex.matches("a" * 249)
    assert regex.matches("a" * 248 + "b")


@pytest.mark.parametrize(
    "pattern",
    [
        *("(", "a)", "*a", "a**", "a*+", "[a", "[b-a]", "(?=a)", r"\1", r"\p{L}", "(?<n", "a{2000}", "a{2,1}"),
        *("((a{100}){100}){100}", "(" * 500 + ")" * 500, "a" * 10_001, "[[:nope:]]", "\\", r"\xZZ"),
    ],
)
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(ApiError) as refused:
        TopicRegex(pattern)
    assert refused.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION


@given(st.text(max_size=30))
def test_any_text_is_a_pattern_or_refused(pattern: str) -> None:
    with contextlib.suppress(ApiError):
        TopicRegex(pattern).matches("some.topic")
