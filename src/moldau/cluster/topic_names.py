"""Names that a topic can have."""

import re
from collections.abc import Iterable

from moldau.protocol.errors import ApiError, ErrorCode

TOPIC_NAME_LENGTH_MAX = 249  # a directory `<name>-<partition>.<uuid>-delete` must stay under 255 bytes
CLUSTER_METADATA_TOPIC = "__cluster_metadata"
"""KRaft's own log, which is no topic. A directory of this name is Apache Kafka's: our topics are not kept there."""

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def validate_topic_name(name: str) -> None:
    """Raise INVALID_TOPIC_EXCEPTION unless a topic can be called `name`."""
    problem = _problem(name)
    if problem:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name[: TOPIC_NAME_LENGTH_MAX + 1]!r} {problem}")


def _problem(name: str) -> str | None:
    if name in ("", ".", ".."):
        return "cannot be a topic's name"
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        return f"is longer than {TOPIC_NAME_LENGTH_MAX} characters"
    return None if _LEGAL.fullmatch(name) else "may only have ASCII letters, digits, '.', '_' and '-'"


def metric_name(name: str) -> str:
    """The topic's name in metrics, which cannot tell '.' from '_'."""
    return name.replace(".", "_")


def colliding_topic(name: str, existing: Iterable[str]) -> str | None:
    """The topic among `existing` that differs from `name` only in '.' and '_'."""
    if "." not in name and "_" not in name:
        return None
    wanted = metric_name(name)
    return next((other for other in existing if other != name and metric_name(other) == wanted), None)
