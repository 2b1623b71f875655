"""Patterns over topic names: the same answers as Python's `re`, in linear time."""

import contextlib
import re
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.coordinators.consumer.topic_regex import TopicRegex
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


@pytest.mark.parametrize("pattern", ["(.?){199}(.?){190}", "(.*a?){150}", "([a-z]|[a-y.]|.){120}", "(x{0,9}){30}.*"])
def test_the_worst_patterns_take_little_work_and_memory(pattern: str) -> None:
    """A unit of work is a tenth of a microsecond: 40 long names took 37 s and 3.7 GB once."""
    regex = TopicRegex(pattern)
    tracemalloc.start()
    for number in range(40):
        regex.matches(f"{number:03}-" + "ab.c" * 61)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert regex.work < 40 * 249 * 64
    assert peak < 1 << 20


def test_a_list_of_topics_is_a_pattern() -> None:
    names = [f"orders.region-{number:02}" for number in range(50)]
    regex = TopicRegex("|".join(name.replace(".", r"\.") for name in names))
    assert [name for name in [*names, "orders.region-5", "ordersXregion-05"] if regex.matches(name)] == names


@pytest.mark.parametrize(
    "pattern",
    [
        *("(.?){999}(.?){900}", "(){1000}" * 5, "(((){1000}){1000}){1000}", "a" * 2_001),
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
