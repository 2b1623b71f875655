"""An answer that may come later, without an event loop: a join waits here for the others of its group."""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar, cast

T = TypeVar("T")
R = TypeVar("R")


class Promise(Generic[T]):
    """Completed once; whoever asked with `then` is told at once or later."""

    __slots__ = ("_callbacks", "_value", "done")

    def __init__(self) -> None:
        self.done = False
        self._value: T | None = None
        self._callbacks: list[Callable[[T], None]] = []

    @classmethod
    def of(cls, value: T) -> "Promise[T]":
        """A promise that is completed already."""
        promise = cls()
        promise.complete(value)
        return promise

    @property
    def value(self) -> T:
        """Value with which it was completed; asked only when `done`."""
        if not self.done:
            raise LookupError("the promise is not completed yet")
        return cast(T, self._value)

    def complete(self, value: T) -> None:
        """The first call counts, later ones are ignored."""
        if self.done:
            return
        self.done = True
        self._value = value
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(value)

    def mapped(self, change: Callable[[T], R]) -> "Promise[R]":
        """The promise of what `change` makes of the value."""
        promise: Promise[R] = Promise()
        self.then(lambda value: promise.complete(change(value)))
        return promise

    def then(self, callback: Callable[[T], None]) -> None:
        """Call back with the value: at once if it is there."""
        if self.done:
            callback(cast(T, self._value))
        else:
            self._callbacks.append(callback)


def mapped(answer: T | Promise[T], change: Callable[[T], R]) -> R | Promise[R]:
    """Answer changed by `change`, now or when it is there."""
    return answer.mapped(change) if isinstance(answer, Promise) else change(answer)


def all_of(answers: Sequence[T | Promise[T]]) -> list[T] | Promise[list[T]]:
    """The answers in their order, once the last of them is there."""
    waiting = [each for each in answers if isinstance(each, Promise) and not each.done]
    if not waiting:
        return _values(answers)
    together: Promise[list[T]] = Promise()
    left = len(waiting)

    def one_is_there(_: T) -> None:
        nonlocal left
        left -= 1
        if not left:
            together.complete(_values(answers))

    for each in waiting:
        each.then(one_is_there)
    return together


def _values(answers: Sequence[T | Promise[T]]) -> list[T]:
    return [each.value if isinstance(each, Promise) else each for each in answers]
