"""The states of a classic group, and which may follow which; the diagram is printed from the table."""

from enum import Enum

from moldau.core.invariants import invariant


class ClassicState(Enum):
    """Named as Kafka's tools print them."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"

    __hash__ = object.__hash__  # every state is one object; Enum's own is a Python function that hashes the name


TRANSITIONS: dict[ClassicState, dict[ClassicState, str]] = {
    ClassicState.EMPTY: {
        ClassicState.PREPARING_REBALANCE: "a member joins",
        ClassicState.DEAD: "deleted, or moved to another broker",
    },
    ClassicState.PREPARING_REBALANCE: {
        ClassicState.COMPLETING_REBALANCE: "all have joined, or time is up",
        ClassicState.EMPTY: "all have left",
        ClassicState.DEAD: "moved to another broker",
    },
    ClassicState.COMPLETING_REBALANCE: {
        ClassicState.STABLE: "the leader's assignment is committed",
        ClassicState.PREPARING_REBALANCE: "a member joins, changes, leaves or does not sync",
        ClassicState.DEAD: "moved to another broker",
    },
    ClassicState.STABLE: {
        ClassicState.PREPARING_REBALANCE: "a member joins, changes, leaves or falls silent",
        ClassicState.DEAD: "moved to another broker",
    },
    ClassicState.DEAD: {},
}


def check_transition(old: ClassicState, new: ClassicState) -> None:
    """Stop rather than go where no arrow leads."""
    if new not in TRANSITIONS[old]:
        invariant(False, f"a group cannot go from {old.value} to {new.value}")


def diagram() -> str:
    """The table as a Mermaid state diagram."""
    arrows = [
        f"    {old.value} --> {new.value}: {why}" for old, rows in TRANSITIONS.items() for new, why in rows.items()
    ]
    return "\n".join(["stateDiagram-v2", f"    [*] --> {ClassicState.EMPTY.value}", *arrows])
