"""The states of a transactional id, and which may follow which; the diagram is printed from the table."""

from enum import Enum

from moldau.core.invariants import invariant


class TransactionState(Enum):
    """Named as Kafka's tools print them."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"

    __hash__ = object.__hash__  # every state is one object; Enum's own is a Python function that hashes the name


STATES = tuple(TransactionState)
"""A state's place here is its number in a record."""
STATE_IDS = {state: number for number, state in enumerate(STATES)}
BY_NAME = {state.value: state for state in STATES}

(
    EMPTY,
    ONGOING,
    PREPARE_COMMIT,
    PREPARE_ABORT,
    COMPLETE_COMMIT,
    COMPLETE_ABORT,
    DEAD,
    PREPARE_EPOCH_FENCE,
) = STATES

PREPARED = frozenset((PREPARE_COMMIT, PREPARE_ABORT))
"""States in which the end is decided, and not all markers are known to be written."""
AT_REST = frozenset((EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT))
"""No transaction is open: the id may expire."""

_AFTER_THE_END = {
    EMPTY: "a producer begins anew",
    ONGOING: "a partition is added",
    PREPARE_ABORT: "aborted with nothing added (version 2)",
    DEAD: "not used for long",
}

TRANSITIONS: dict[TransactionState, dict[TransactionState, str]] = {
    EMPTY: _AFTER_THE_END,
    ONGOING: {
        ONGOING: "another partition is added",
        PREPARE_COMMIT: "the producer commits",
        PREPARE_ABORT: "the producer aborts, is fenced or takes too long",
    },
    PREPARE_COMMIT: {COMPLETE_COMMIT: "all markers are written"},
    PREPARE_ABORT: {COMPLETE_ABORT: "all markers are written"},
    COMPLETE_COMMIT: _AFTER_THE_END,
    COMPLETE_ABORT: _AFTER_THE_END,
    DEAD: {},
    PREPARE_EPOCH_FENCE: {},
}
"""Kafka passes through PrepareEpochFence in memory and never writes it. Here fencing is one decision, from Ongoing to
PrepareAbort: the name is there because tools may ask for it."""


def check_transition(old: TransactionState, new: TransactionState) -> None:
    """Stop rather than go where no arrow leads."""
    if new not in TRANSITIONS[old]:
        invariant(False, f"a transaction cannot go from {old.value} to {new.value}")


def diagram() -> str:
    """The table as a Mermaid state diagram."""
    arrows = [
        f"    {old.value} --> {new.value}: {why}" for old, rows in TRANSITIONS.items() for new, why in rows.items()
    ]
    return "\n".join(["stateDiagram-v2", f"    [*] --> {EMPTY.value}", *arrows])
