"""Requests with very many elements, each of which is answered by itself: they are served piece by piece.

A handler whose file has `PIECES` gets a long request as several short ones, and their answers are put together again.
So the handler need not know how long a request may be, and the loop serves others between two pieces.
"""

import copy
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from moldau.protocol.schema import Message

PIECE_ELEMENTS: Final = 100


class Pieces(NamedTuple):
    """The arrays of a request that may be cut and those of its answer that are joined: of elements, or of groups of
    elements, where the first field of a group in an answer says which it is."""

    asked: str
    answered: str
    asked_inner: str = ""
    answered_inner: str = ""
    elements_max: int = PIECE_ELEMENTS
    """Elements in one piece: some milliseconds of work."""
    distinct: Callable[[Any], Hashable] | None = None
    """Subject of an element. Elements with the same subject are answered once, where an answer may be large."""

    def is_long(self, request: Any) -> bool:
        """Whether a request should be cut."""
        outer = getattr(request, self.asked)
        if not outer:
            return False
        if len(outer) > self.elements_max:
            return True
        inner = self.asked_inner
        return bool(inner) and sum(len(getattr(each, inner)) for each in outer) > self.elements_max

    def cut(self, request: Any) -> Iterator[Any]:
        """The request as several, in order; None now and then where there is only work so far."""
        piece: list[Any] = []
        room = self.elements_max
        for each, size in self._short(self._distinct(getattr(request, self.asked))):
            if each is None:
                yield None
                continue
            if size > room:
                yield _with(request, self.asked, piece)
                piece, room = [], self.elements_max
            piece.append(each)
            room -= size
        yield _with(request, self.asked, piece)

    def _distinct(self, outer: list[Any]) -> Iterable[Any]:
        if self.distinct is None:
            return outer
        return _first_of_each(outer, self.distinct)

    def _short(self, outer: Iterable[Any]) -> Iterator[tuple[Any, int]]:
        """The groups, long ones in parts, and what each counts for."""
        for each in outer:
            if each is None or not self.asked_inner:
                yield each, 1
                continue
            elements = getattr(each, self.asked_inner)
            if len(elements) < self.elements_max:
                yield each, len(elements) + 1
                continue
            for start in range(0, len(elements), self.elements_max - 1):
                part = elements[start : start + self.elements_max - 1]
                yield _with(each, self.asked_inner, part), len(part) + 1

    def join(self, answer: Any, more: Any) -> None:
        """Put what the next piece's answer has to what the others had. A group that was cut becomes one again."""
        known, added = getattr(answer, self.answered), getattr(more, self.answered)
        if self.answered_inner and known and added and _first(known[-1]) == _first(added[0]):
            getattr(known[-1], self.answered_inner).extend(getattr(added[0], self.answered_inner))
            added = added[1:]
        known.extend(added)


def _first_of_each(elements: list[Any], key_of: Callable[[Any], Hashable]) -> Iterator[Any]:
    """Elements that ask for something else than all before them, and now and then None for the many that do not."""
    seen: set[Hashable] = set()
    for number, each in enumerate(elements):
        key = key_of(each)
        if key not in seen:
            seen.add(key)
            yield each
        elif number % PIECE_ELEMENTS == 0:
            yield None


def refused(answer: Message) -> bool:
    """Whether an answer is an error as a whole."""
    return bool(getattr(answer, "error_code", 0))


def _first(group: Any) -> Any:
    """A group's name, or its id where the first field is empty."""
    names = [getattr(group, name) for name in list(group.__fields__)[:2]]
    return [name for name in names if not isinstance(name, list)]


def _with(struct: Any, field: str, value: list[Any]) -> Any:
    changed = copy.copy(struct)
    setattr(changed, field, value)
    return changed
