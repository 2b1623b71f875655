"""Regular expressions over topic names, matched in linear time (KIP-848, `subscribed_topic_regex`).

Kafka's broker takes RE2's syntax, because a client's pattern must not be able to stall the broker. Python's `re`
backtracks: `(a+)+b` would. Here a pattern becomes an automaton whose ways of reading a character are numbered. Those
that are open are the bits of one integer, so that a character costs an AND and a look-up, or, where the same bits were
not seen before, one look-up for eight of them.

The law: a pattern has at most STATES_MAX states, and takes at most a megabyte when it is compiled and in use; what
matching costs is counted in `work`, so that whoever matches many names can stop in between.

Understood: literals, `.`, classes, `\\d \\w \\s` and their opposites, POSIX classes, groups of all kinds, `|`,
`* + ? {n,m}` (lazy ones too: for a whole match it is the same), `^ $ \\A \\z`, the flags i, s, m and U, `\\Q..\\E`.
As in RE2 there are no back references and no look-around. Gaps: `\\b`, `\\B`, `\\p{..}` and octal escapes.
"""

import string
from collections.abc import Callable, Iterable
from typing import NamedTuple

from moldau.protocol.errors import ApiError, ErrorCode

PATTERN_CHARACTERS_MAX = 10_000
NESTING_MAX = 100
REPETITIONS_MAX = 1_000
"""RE2's own bound on the numbers in `{n,m}`."""
STATES_MAX = 2_000
"""States of an automaton: a pattern may have some 900 characters that stand for themselves."""
MOVES_KEPT_MAX = 1_000
PARTS_KEPT_MAX = 2_000
CHARACTERS_KEPT_MAX = 200
"""Names of topics have 65 different ones."""

Accepts = Callable[[str], bool]
BEGIN, END = "begin", "end"

_DIGITS = frozenset(string.digits)
_WORD = frozenset(string.ascii_letters + string.digits + "_")
_SPACE = frozenset("\t\n\f\r ")
_CLASSES = {"d": _DIGITS, "w": _WORD, "s": _SPACE}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_POSIX = {
    "alnum": frozenset(string.ascii_letters + string.digits),
    "alpha": frozenset(string.ascii_letters),
    "ascii": frozenset(map(chr, range(128))),
    "blank": frozenset("\t "),
    "digit": _DIGITS,
    "lower": frozenset(string.ascii_lowercase),
    "punct": frozenset(string.punctuation),
    "space": frozenset("\t\n\v\f\r "),
    "upper": frozenset(string.ascii_uppercase),
    "word": _WORD,
    "xdigit": frozenset(string.hexdigits),
}


class TopicRegex:
    """A compiled pattern. A pattern that is none raises INVALID_REGULAR_EXPRESSION."""

    def __init__(self, pattern: str) -> None:
        automaton = _Automaton()
        start, final = _Parser(pattern).parse()(automaton)
        self._accepts = automaton.accepts
        self._open_after = automaton.open_after_each()
        self._first = automaton.open_at(start)
        self._last = automaton.last_ones(final)
        self._matches_nothing = final in automaton.closure(automaton.closure((start,), BEGIN), END)
        self._bytes = len(self._accepts) // 8 + 1
        self._readers: dict[str, int] = {}
        self._moves: dict[int, int] = {}
        self._parts: dict[tuple[int, int], int] = {}
        self.work = 0
        """Look-ups so far: some 0.1 us each."""

    def matches(self, name: str) -> bool:
        """Does the whole name match, as Kafka asks?"""
        self.work += len(name)
        if not name:
            return self._matches_nothing
        able, taken = self._first, 0
        for character in name:
            readers = self._readers.get(character)
            taken = able & (self._find_readers(character) if readers is None else readers)
            if not taken:
                return False
            moved = self._moves.get(taken)
            able = self._move(taken) if moved is None else moved
        return taken & self._last != 0

    def _find_readers(self, character: str) -> int:
        """Edges that take this character."""
        self.work += len(self._accepts)
        if len(self._readers) >= CHARACTERS_KEPT_MAX:
            self._readers.clear()
        readers, known = 0, dict[Accepts, bool]()  # `x{100}` asks a hundred times
        for number, accepts in enumerate(self._accepts):
            takes = known.get(accepts)
            if takes is None:
                takes = known[accepts] = accepts(character)
            readers |= takes << number
        self._readers[character] = readers
        return readers

    def _move(self, taken: int) -> int:
        """The ways that are open when these were taken."""
        self.work += self._bytes
        if len(self._moves) >= MOVES_KEPT_MAX:
            self._moves.clear()
        moved, parts = 0, self._parts
        for key in enumerate(taken.to_bytes(self._bytes, "little")):
            if key[1]:
                part = parts.get(key)
                moved |= self._find_part(key) if part is None else part
        self._moves[taken] = moved
        return moved

    def _find_part(self, key: tuple[int, int]) -> int:
        self.work += 8
        if len(self._parts) >= PARTS_KEPT_MAX:
            self._parts.clear()
        position, bits = key
        part = 0
        for bit in range(8):
            if bits >> bit & 1:
                part |= self._open_after[position * 8 + bit]
        self._parts[key] = part
        return part


class _Automaton:
    """States are numbers. An edge reads one character, or none: such a free edge may be there only at one end.

    The edges that read are numbered, too, and sets of them are integers: bit n stands for edge n.
    """

    def __init__(self) -> None:
        self.accepts: list[Accepts] = []
        self._targets: list[int] = []
        self._readable: list[int] = []
        self._free: list[list[tuple[str, int]]] = []

    def state(self) -> int:
        if len(self._free) >= STATES_MAX:
            raise _invalid("it is too large")
        self._readable.append(0)
        self._free.append([])
        return len(self._free) - 1

    def reads(self, source: int, accepts: Accepts, target: int) -> None:
        self._readable[source] |= 1 << len(self.accepts)
        self.accepts.append(accepts)
        self._targets.append(target)

    def is_free(self, source: int, target: int, only_at: str = "") -> None:
        self._free[source].append((only_at, target))

    def closure(self, states: Iterable[int], at: str = "") -> set[int]:
        """States, with all others that can be reached from them for free."""
        reached, left = set(states), list(states)
        while left:
            for only_at, target in self._free[left.pop()]:
                if target not in reached and (not only_at or only_at == at):
                    reached.add(target)
                    left.append(target)
        return reached

    def open_at(self, start: int) -> int:
        """The edges that can be taken at the beginning."""
        return self._edges_of(self.closure((start,), BEGIN))

    def open_after_each(self) -> list[int]:
        """Edges that can be taken after each edge."""
        known: dict[int, int] = {}
        for state in sorted(set(self._targets), reverse=True):  # most ways lead to states that were made later
            known[state] = self._open_from(state, known)
        return [known[target] for target in self._targets]

    def _open_from(self, state: int, known: dict[int, int]) -> int:
        edges, reached, left = 0, {state}, [state]
        while left:
            each = left.pop()
            if each in known:
                edges |= known[each]
                continue
            edges |= self._readable[each]
            for only_at, target in self._free[each]:
                if target not in reached and not only_at:
                    reached.add(target)
                    left.append(target)
        return edges

    def last_ones(self, final: int) -> int:
        """The edges after which the pattern may be over."""
        sources: list[list[int]] = [[] for _ in self._free]
        for source, targets in enumerate(self._free):
            for only_at, target in targets:
                if only_at != BEGIN:
                    sources[target].append(source)
        reached, left = {final}, [final]
        while left:
            for source in sources[left.pop()]:
                if source not in reached:
                    reached.add(source)
                    left.append(source)
        edges = 0
        for number, target in enumerate(self._targets):
            edges |= (target in reached) << number
        return edges

    def _edges_of(self, states: Iterable[int]) -> int:
        edges = 0
        for state in states:
            edges |= self._readable[state]
        return edges


Piece = tuple[int, int]
"""A part of an automaton: its way in and its way out."""
Node = Callable[[_Automaton], Piece]
"""A parsed expression: adds itself to an automaton, as often as it is asked (`x{3}` asks three times)."""


def _one(accepts: Accepts) -> Node:
    def build(automaton: _Automaton) -> Piece:
        start, end = automaton.state(), automaton.state()
        automaton.reads(start, accepts, end)
        return start, end

    return build


def _nothing(only_at: str = "") -> Node:
    def build(automaton: _Automaton) -> Piece:
        start, end = automaton.state(), automaton.state()
        automaton.is_free(start, end, only_at)
        return start, end

    return build


def _sequence(nodes: list[Node]) -> Node:
    def build(automaton: _Automaton) -> Piece:
        start = end = automaton.state()
        for node in nodes:
            piece = node(automaton)
            automaton.is_free(end, piece[0])
            end = piece[1]
        return start, end

    return build


def _either(nodes: list[Node]) -> Node:
    def build(automaton: _Automaton) -> Piece:
        start, end = automaton.state(), automaton.state()
        for node in nodes:
            piece = node(automaton)
            automaton.is_free(start, piece[0])
            automaton.is_free(piece[1], end)
        return start, end

    return build if len(nodes) > 1 else nodes[0]


def _repeated(node: Node, least: int, most: int | None) -> Node:
    def build(automaton: _Automaton) -> Piece:
        required = [node] * least
        optional = [_maybe(node)] * (most - least) if most is not None else [_any_number(node)]
        return _sequence(required + optional)(automaton)

    return build


def _maybe(node: Node) -> Node:
    def build(automaton: _Automaton) -> Piece:
        piece = node(automaton)
        automaton.is_free(*piece)
        return piece

    return _sequence([build])


def _any_number(node: Node) -> Node:
    def build(automaton: _Automaton) -> Piece:
        start, end = automaton.state(), automaton.state()
        piece = node(automaton)
        for source, target in ((start, piece[0]), (start, end), (piece[1], piece[0]), (piece[1], end)):
            automaton.is_free(source, target)
        return start, end

    return build


class _Flags(NamedTuple):
    ignore_case: bool = False
    dot_all: bool = False


class _Parser:
    def __init__(self, pattern: str) -> None:
        if len(pattern) > PATTERN_CHARACTERS_MAX:
            raise _invalid("it is too long")
        self._text = pattern
        self._position = 0
        self._flags = _Flags()
        self._depth = 0

    def parse(self) -> Node:
        node = self._alternatives()
        if self._position < len(self._text):
            raise _invalid("a closing parenthesis has no opening one")
        return node

    def _alternatives(self) -> Node:
        branches = [self._branch()]
        while self._take("|"):
            branches.append(self._branch())
        return _either(branches)

    def _branch(self) -> Node:
        nodes: list[Node] = []
        while self._position < len(self._text) and self._text[self._position] not in "|)":
            nodes.append(self._quantified())
        return _sequence(nodes)

    def _quantified(self) -> Node:
        if self._text[self._position] in "*+?":
            raise _invalid("there is nothing to repeat")
        node = self._atom()
        bounds = self._quantifier()
        if bounds is None:
            return node
        self._take("?")
        if self._quantifier() is not None:
            raise _invalid("a repetition is repeated")
        return _repeated(node, *bounds)

    def _quantifier(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(sign):
                return bounds
        return self._counted()

    def _counted(self) -> tuple[int, int | None] | None:
        """`{n}`, `{n,}` or `{n,m}`; anything else is just a brace."""
        if not self._text.startswith("{", self._position):
            return None
        close = self._text.find("}", self._position)
        if close < 0:
            return None
        low, comma, high = self._text[self._position + 1 : close].partition(",")
        if not _is_number(low) or (high and not _is_number(high)):
            return None
        self._position = close + 1
        least = int(low)
        most = least if not comma else int(high) if high else None
        if max(least, most or 0) > REPETITIONS_MAX or (most is not None and most < least):
            raise _invalid("it repeats too often")
        return least, most

    def _atom(self) -> Node:
        character = self._next()
        match character:
            case "(":
                return self._group()
            case "[":
                return _one(self._class())
            case ".":
                return _one(_anything if self._flags.dot_all else _not_newline)
            case "^":
                return _nothing(BEGIN)
            case "$":
                return _nothing(END)
            case "\\":
                return self._escape()
        return self._literal(character)

    def _literal(self, character: str) -> Node:
        return _one(self._cased(character.__eq__))

    def _cased(self, accepts: Callable[[str], bool]) -> Accepts:
        if not self._flags.ignore_case:
            return accepts
        return lambda character: accepts(character.lower()) or accepts(character.upper())

    def _group(self) -> Node:
        self._depth += 1
        if self._depth > NESTING_MAX:
            raise _invalid("it is nested too deeply")
        before = self._flags
        if self._take("?") and self._prefix():
            self._depth -= 1
            return _nothing()
        node = self._alternatives()
        if not self._take(")"):
            raise _invalid("a parenthesis is not closed")
        self._flags = before
        self._depth -= 1
        return node

    def _prefix(self) -> bool:
        """Read the part after `(?`. True if that was all: flags for the rest of the group around it."""
        if self._take("P<") or self._take("<"):
            name, _, _ = self._text[self._position :].partition(">")
            if not name.isidentifier():
                raise _invalid("a group has no proper name")
            self._position += len(name) + 1
            return False
        on = True
        while (character := self._next()) not in ":)":
            if character == "-":
                on = False
            elif character in "imsU":
                self._set_flag(character, on)
            else:
                raise _invalid("a group begins in a way that is not understood")
        return character == ")"

    def _set_flag(self, name: str, on: bool) -> None:
        if name == "i":
            self._flags = self._flags._replace(ignore_case=on)
        elif name == "s":
            self._flags = self._flags._replace(dot_all=on)

    def _escape(self) -> Node:
        character = self._next()
        if character in "Az":
            return _nothing(BEGIN if character == "A" else END)
        if character == "Q":
            quoted, _, _ = self._text[self._position :].partition("\\E")
            self._position += len(quoted) + 2
            return _sequence([self._literal(each) for each in quoted])
        named = _named_class(character)
        return _one(named) if named is not None else self._literal(self._escaped(character))

    def _escaped(self, character: str) -> str:
        """The character that an escape stands for; `character` follows the backslash."""
        if character in _CONTROLS:
            return _CONTROLS[character]
        if character == "x":
            return self._hexadecimal()
        if character.isalnum():
            raise _invalid(f"\\{character} is not understood")
        return character

    def _hexadecimal(self) -> str:
        if self._take("{"):
            digits, _, _ = self._text[self._position :].partition("}")
            self._position += len(digits) + 1
        else:
            digits = self._text[self._position : self._position + 2]
            self._position += 2
        if not digits or not set(digits) <= set(string.hexdigits) or int(digits, 16) > 0x10FFFF:
            raise _invalid("\\x needs hexadecimal digits")
        return chr(int(digits, 16))

    def _class(self) -> Accepts:
        negated = self._take("^")
        parts = [self._class_part()]
        while not self._take("]"):
            parts.append(self._class_part())
        single = frozenset(part for part in parts if isinstance(part, str))
        others = [part for part in parts if not isinstance(part, str)]
        accepts = self._cased(lambda character: character in single or any(part(character) for part in others))
        return (lambda character: not accepts(character)) if negated else accepts

    def _class_part(self) -> Accepts | str:
        """Test of a character, or the only character that is accepted."""
        if self._take("[:"):
            return self._posix()
        first = self._next()
        if first == "\\":
            first = self._next()
            named = _named_class(first)
            if named is not None:
                return named
            first = self._escaped(first)
        last = self._range_end()
        if last is None:
            return first
        if last < first:
            raise _invalid("a range is upside down")
        return lambda character: first <= character <= last

    def _range_end(self) -> str | None:
        rest = self._text[self._position : self._position + 2]
        if len(rest) < 2 or rest[0] != "-" or rest[1] == "]":
            return None
        self._position += 1
        character = self._next()
        return self._escaped(self._next()) if character == "\\" else character

    def _posix(self) -> Accepts:
        name, _, _ = self._text[self._position :].partition(":]")
        self._position += len(name) + 2
        known = _POSIX.get(name.removeprefix("^"))
        if known is None:
            raise _invalid(f"[:{name}:] is not understood")
        return known.__contains__ if not name.startswith("^") else (lambda character: character not in known)

    def _take(self, expected: str) -> bool:
        if not self._text.startswith(expected, self._position):
            return False
        self._position += len(expected)
        return True

    def _next(self) -> str:
        if self._position >= len(self._text):
            raise _invalid("it ends too early")
        self._position += 1
        return self._text[self._position - 1]


def _named_class(character: str) -> Accepts | None:
    members = _CLASSES.get(character.lower())
    if members is None:
        return None
    return members.__contains__ if character.islower() else (lambda each: each not in members)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 9


def _anything(_: str) -> bool:
    return True


def _not_newline(character: str) -> bool:
    return character != "\n"


def _invalid(reason: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REGULAR_EXPRESSION, f"the regular expression is not valid: {reason}")
