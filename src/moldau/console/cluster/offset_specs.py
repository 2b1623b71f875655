"""Specs of offsets that a cluster is asked for."""

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTime
from typing import Any, TypeVar

from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs hide some of them
    AdminClient,
    ListOffsetsResultInfo,
    OffsetSpec,
)

from moldau.console.cluster.state import Place

K = TypeVar("K")

EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]  # it has no types
LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # it has no types


def offsets_at(
    admin: AdminClient, places: Iterable[Place], spec: OffsetSpec, timeout_s: float, *, is_committed: bool = False
) -> dict[Place, int]:
    """Offsets of many partitions with one request to each leader; the end of committed records is the last stable
    offset. Raises KafkaException for the first that is refused or not told in time."""
    level = IsolationLevel.READ_COMMITTED if is_committed else IsolationLevel.READ_UNCOMMITTED
    wanted = {TopicPartition(*place): spec for place in places}
    asked = admin.list_offsets(wanted, isolation_level=level, request_timeout=timeout_s) if wanted else {}
    return {(place.topic, place.partition): told(future.result(timeout_s + 1)) for place, future in asked.items()}


def gathered(asked: Mapping[K, "Future[Any]"], timeout_s: float) -> tuple[dict[K, int], dict[K, KafkaError]]:
    """Offsets, and the errors of those that were refused or not told in time."""
    answers: dict[K, int] = {}
    refused: dict[K, KafkaError] = {}
    deadline = time.monotonic() + timeout_s
    for name, future in asked.items():
        try:
            answers[name] = told(future.result(max(0.0, deadline - time.monotonic())))
        except KafkaException as error:
            refused[name] = error.args[0]
        except NotInTime:
            refused[name] = KafkaError(KafkaError._TIMED_OUT)
    return answers, refused


def told(answer: ListOffsetsResultInfo) -> int:
    """The offset in an answer. Raises KafkaException where there is none: librdkafka gives -1001 and no error for a
    leader that has not answered in time, and that would be taken for an end without any lag."""
    offset: int = answer.offset
    if offset == OFFSET_INVALID:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
    return offset


def at_time(time_ms: int) -> OffsetSpec:
    """The first offset at or after a time."""
    spec: OffsetSpec = OffsetSpec.for_timestamp(time_ms)
    return spec
