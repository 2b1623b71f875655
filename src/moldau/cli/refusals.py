"""Refusals of brokers, in words; and patience with those that pass by themselves."""

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from moldau.cli.common import REQUEST_TIMEOUT_S
from moldau.cli.failures import ToolError
from moldau.protocol.errors import ErrorCode

T = TypeVar("T")

RETRY_S = 0.1

_PASSING = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
}
_ADVICE = {
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "you need the right to describe or alter the cluster",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "you need the right to read or describe the topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "you need the right to read, describe or delete the group",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "you need the right to describe the transactional id",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "`moldau transactions list` shows the ids that there are",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "`moldau topics --describe` shows the partitions that there are",
    ErrorCode.INVALID_PRODUCER_EPOCH: "the producer has gone on since: look again with `moldau transactions producers`",
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: "a later coordinator has written there: give its --coordinator-epoch",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "the pattern is no regular expression of RE2",
    ErrorCode.GROUP_ID_NOT_FOUND: "`moldau groups list` shows the groups that there are",
    ErrorCode.NON_EMPTY_GROUP: "stop its consumers first",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "consumers of the group read this topic: stop them first",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group is active: stop its consumers first",
}


class Refused(ToolError):
    """A broker's error code, in words; in the broker's own where it has sent some."""

    def __init__(self, what: str, code: int, message: str | None = None) -> None:
        known = ErrorCode(code) if code in (*ErrorCode,) else None
        words = message or (_ADVICE.get(known) if known is not None else None)
        super().__init__(f"{what}: {error_name(code)}" + (f" ({words})" if words else ""))
        self.code = code


def error_name(code: int) -> str:
    """Kafka's name of an error code."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def patiently(ask: Callable[[], T], timeout_s: float = REQUEST_TIMEOUT_S) -> T:
    """The answer, once what passes by itself has passed: a coordinator that loads, a leader that moves."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return ask()
        except Refused as error:
            if error.code not in _PASSING or time.monotonic() > deadline:
                raise
        time.sleep(RETRY_S)


def check(what: str, code: int, message: str | None = None) -> None:
    """Raise Refused where a broker's answer has an error."""
    if code != ErrorCode.NONE:
        raise Refused(what, code, message)


def raise_first(refused: Sequence[Refused]) -> None:
    """Raise the first of these refusals, if there are any, and say how many there are."""
    if refused:
        raise ToolError(f"{refused[0]}" + (f" ... and {len(refused) - 1} more" if len(refused) > 1 else ""))
