"""A small language for choosing records: `value.country == "CZ" and (value.amount > 100 or key ~ "^vip")`.

The law: a filter is parsed here and becomes closures over one record; nothing of it is ever run as Python. Its length,
depth and number of parts are bounded, it has no loops, and its regular expressions are matched in linear time by the
automaton that brokers use for clients' patterns. Linear is not short: a pattern with many ways open at a time takes
half a second for one long text, so the work on a record has a bound, too. A comparison of different types is false and
never an error.

    names       key  value  partition  offset  timestamp  size  headers.NAME  value.field.field[0]["odd name"]
    comparison  ==  !=  <  <=  >  >=  contains  in ["a", "b"]  ~ "regular expression"
    words       and  or  not  ( )  true  false  null

A name by itself is true if the record has it, and it is neither null nor false. `timestamp` is compared with
milliseconds or with a time such as "2026-11-18T12:00:00Z".
"""

import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from moldau.console.failures import ConsoleError
from moldau.coordinators.consumer.topic_regex import TopicRegex
from moldau.protocol.errors import ApiError

TEXT_MAX = 2000
PARTS_MAX = 200
DEPTH_MAX = 30
PATTERN_MAX = 200
MATCHED_MAX = 16_384
"""Characters of a text that a regular expression looks at."""
WORK_MAX = 2_000_000
"""Look-ups of all regular expressions on one record, behind which no further one begins: a second at worst."""

Value = Any
Term = Callable[["Subject"], Value]
Test = Callable[["Subject"], bool]


class Subject(NamedTuple):
    """A record as filters see it."""

    key: Value
    value: Value
    headers: dict[str, str]
    partition: int
    offset: int
    timestamp: int
    size: int


class _Work:
    """Work that the regular expressions of a filter may still do on the record at hand."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = WORK_MAX

    def matches(self, regex: TopicRegex, text: str) -> bool:
        """Whether the text matches. Raises ConsoleError where too much was done before."""
        if self.left <= 0:
            raise ConsoleError("the filter's regular expressions take too long: say less of them, or simpler ones")
        before = regex.work
        is_match = regex.matches(text[:MATCHED_MAX])
        self.left -= regex.work - before
        return is_match


class _Absent:
    """The value of a name that a record does not have."""


ABSENT = _Absent()
_NAMES = ("key", "value", "partition", "offset", "timestamp", "size", "headers")
_TOKEN = re.compile(
    r"""\s*(?:(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d{1,3})?)"""
    r"""|(?P<op>==|!=|<=|>=|!~|[<>~()\[\],.])|(?P<word>[^\W\d][\w-]*))""",
    re.DOTALL,
)


class Token(NamedTuple):
    """A word of a filter, and its place."""

    kind: str
    text: str
    place: int


def compiled(text: str) -> Test:
    """The test that a filter describes; an empty filter takes all. Raises ConsoleError with the place of a mistake."""
    if not text.strip():
        return lambda _: True
    if len(text) > TEXT_MAX:
        raise ConsoleError(f"a filter has at most {TEXT_MAX} characters")
    return _Parser(_tokens(text)).whole()


def _tokens(text: str) -> list[Token]:
    found, place = [], 0
    text = text.rstrip()
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise ConsoleError(f"the filter cannot be read at character {place + 1}: {text[place : place + 20]!r}")
        kind = match.lastgroup or ""
        found.append(Token(kind, match[kind], match.start(kind)))
        place = match.end()
    if len(found) > PARTS_MAX:
        raise ConsoleError(f"a filter has at most {PARTS_MAX} words")
    return found


class _Parser:
    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0
        self._work = _Work()

    def whole(self) -> Test:
        test, work = self._either(), self._work
        if self._at < len(self._tokens):
            raise self._mistake("`and`, `or` or the end")

        def bounded(subject: Subject) -> bool:
            work.left = WORK_MAX
            return test(subject)

        return bounded

    # --- words

    def _is(self, *texts: str) -> bool:
        token = self._tokens[self._at] if self._at < len(self._tokens) else None
        return token is not None and token.kind in ("op", "word") and token.text in texts

    def _take(self, *texts: str) -> bool:
        if self._is(*texts):
            self._at += 1
            return True
        return False

    def _next(self) -> Token:
        if self._at >= len(self._tokens):
            raise ConsoleError("the filter ends too early")
        self._at += 1
        return self._tokens[self._at - 1]

    def _mistake(self, wanted: str) -> ConsoleError:
        if self._at >= len(self._tokens):
            return ConsoleError(f"the filter ends too early: {wanted} is missing")
        token = self._tokens[self._at]
        return ConsoleError(f"the filter has {token.text[:20]!r} at character {token.place + 1} instead of {wanted}")

    # --- grammar

    def _either(self) -> Test:
        tests = [self._both()]
        while self._take("or"):
            tests.append(self._both())
        return tests[0] if len(tests) == 1 else lambda subject: any(test(subject) for test in tests)

    def _both(self) -> Test:
        tests = [self._opposite()]
        while self._take("and"):
            tests.append(self._opposite())
        return tests[0] if len(tests) == 1 else lambda subject: all(test(subject) for test in tests)

    def _opposite(self) -> Test:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise ConsoleError(f"a filter is at most {DEPTH_MAX} deep")
        if self._take("not"):
            inner = self._opposite()
            test: Test = lambda subject: not inner(subject)  # noqa: E731
        elif self._take("("):
            test = self._either()
            if not self._take(")"):
                raise self._mistake("`)`")
        else:
            test = self._comparison()
        self._depth -= 1
        return test

    def _comparison(self) -> Test:
        is_time = self._is("timestamp")
        left = self._term()
        if self._take("in"):
            return self._among(left)
        if self._take("~"):
            return self._matching(left, True)
        if self._take("!~"):
            return self._matching(left, False)
        for name, compare in _COMPARISONS.items():
            if self._take(name):
                right = self._time() if is_time and self._is_string() else self._term()
                return lambda subject: compare(left(subject), right(subject))
        return lambda subject: left(subject) not in (None, False) and left(subject) is not ABSENT

    def _is_string(self) -> bool:
        return self._at < len(self._tokens) and self._tokens[self._at].kind == "string"

    def _time(self) -> Term:
        words = _string(self._next())
        try:
            moment = datetime.fromisoformat(words)
        except ValueError as error:
            raise ConsoleError(f"{words[:40]!r} is no time: write 2026-11-18T12:00:00Z") from error
        milliseconds = int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
        return lambda _: milliseconds

    def _among(self, left: Term) -> Test:
        if not self._take("["):
            raise self._mistake("`[`")
        terms = [self._term()]
        while self._take(","):
            terms.append(self._term())
        if not self._take("]"):
            raise self._mistake("`]`")
        return lambda subject: any(_equal(left(subject), term(subject)) for term in terms)

    def _matching(self, left: Term, wanted: bool) -> Test:
        token = self._next()
        if token.kind != "string":
            self._at -= 1
            raise self._mistake("a regular expression in quotes")
        regex, work = _pattern(_string(token)), self._work
        return lambda subject: isinstance(left(subject), str) and work.matches(regex, left(subject)) == wanted

    def _term(self) -> Term:
        token = self._next()
        if token.kind == "string":
            constant: Value = _string(token)
        elif token.kind == "number":
            constant = float(token.text) if set(token.text) & set(".eE") else int(token.text)
        elif token.text in ("true", "false", "null"):
            constant = {"true": True, "false": False, "null": None}[token.text]
        elif token.text in _NAMES:
            return self._path(token.text)
        else:
            self._at -= 1
            raise self._mistake(f"a name ({', '.join(_NAMES)}), a number or a text in quotes")
        return lambda _: constant

    def _path(self, root: str) -> Term:
        steps: list[str | int] = []
        while self._is(".", "["):
            if self._take("."):
                token = self._next()
                if token.kind not in ("word", "number"):
                    self._at -= 1
                    raise self._mistake("a field's name")
                steps.append(token.text)
            else:
                self._take("[")
                token = self._next()
                if token.kind not in ("string", "number") or not self._take("]"):
                    raise self._mistake("a number or a name in quotes, and `]`")
                is_index = token.kind == "number" and token.text.lstrip("-").isdecimal()
                steps.append(int(token.text) if is_index else _string(token))
        return lambda subject: _walk(getattr(subject, root), steps)


def _string(token: Token) -> str:
    inner = token.text[1:-1]
    if token.kind != "string" or "\\" not in inner:
        return inner if token.kind == "string" else token.text
    return re.sub(r"\\(.)", lambda match: {"n": "\n", "t": "\t"}.get(match[1], match[1]), inner, flags=re.DOTALL)


def _pattern(pattern: str) -> TopicRegex:
    """A search for a pattern anywhere in a text, in linear time."""
    if len(pattern) > PATTERN_MAX:
        raise ConsoleError(f"a regular expression has at most {PATTERN_MAX} characters")
    begin = "" if pattern.startswith("^") else "(?s:.*)"
    end = "" if pattern.endswith("$") and not pattern.endswith("\\$") else "(?s:.*)"
    inner = pattern[1:] if begin == "" else pattern
    inner = inner[:-1] if end == "" else inner
    try:
        return TopicRegex(f"{begin}(?:{inner}){end}")
    except ApiError as error:
        raise ConsoleError(f"{pattern[:40]!r} is no regular expression of RE2: {error}") from error


def _walk(value: Value, steps: Sequence[str | int]) -> Value:
    for step in steps:
        is_index = isinstance(value, list) and isinstance(step, int) and -len(value) <= step < len(value)
        if not is_index and not (isinstance(value, dict) and step in value):
            return ABSENT
        value = value[step]
    return value


def _equal(left: Value, right: Value) -> bool:
    return _kind(left) == _kind(right) and bool(left == right)


def _kind(value: Value) -> str:
    if isinstance(value, bool):
        return "bool"
    return "number" if isinstance(value, int | float) else type(value).__name__


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Value, Value], bool]:
    def test(left: Value, right: Value) -> bool:
        return _kind(left) == _kind(right) and _kind(left) in ("number", "str") and compare(left, right)

    return test


def _contains(left: Value, right: Value) -> bool:
    if isinstance(left, str):
        return isinstance(right, str) and right in left
    if isinstance(left, list):
        return any(_equal(each, right) for each in left)
    if isinstance(left, dict):
        return isinstance(right, str) and (right in left or right in json.dumps(left, ensure_ascii=False))
    return False


_COMPARISONS: dict[str, Callable[[Value, Value], bool]] = {
    "==": _equal,
    "!=": lambda left, right: not _equal(left, right),
    "<=": _ordered(lambda left, right: left <= right),
    ">=": _ordered(lambda left, right: left >= right),
    "<": _ordered(lambda left, right: left < right),
    ">": _ordered(lambda left, right: left > right),
    "contains": _contains,
}
