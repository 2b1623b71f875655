"""Specs of offsets that a cluster is asked for."""

from collections.abc import Iterable

from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs hide some of them
    AdminClient,
    ListOffsetsResultInfo,
    OffsetSpec,
)

from moldau.console.cluster.state import Place

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
