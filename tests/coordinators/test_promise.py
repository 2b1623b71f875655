"""Answers that come later, one by one and together."""

from moldau.coordinators.promise import Promise, all_of, mapped


def test_answers_that_are_all_there_are_together_at_once() -> None:
    assert all_of([1, Promise.of(2), 3]) == [1, 2, 3]
    assert all_of([]) == []


def test_answers_together_keep_their_order_and_wait_for_the_last() -> None:
    first, second = Promise[int](), Promise[int]()
    together = all_of([first, 2, second])
    assert isinstance(together, Promise)
    second.complete(3)
    assert not together.done
    first.complete(1)
    assert together.value == [1, 2, 3]


def test_an_answer_is_changed_whether_it_is_there_or_not() -> None:
    later = Promise[int]()
    changed = mapped(later, str)
    assert mapped(1, str) == "1"
    later.complete(2)
    assert isinstance(changed, Promise)
    assert changed.value == "2"
