"""Writing the markers that end transactions into the partitions that this broker leads (WriteTxnMarkers).

Each partition stands for itself: what cannot be written here is told by its code, and the coordinator looks for the
partition's leader again. All markers of a request are appended at once and wait together until they are safe.
Partitions of `__consumer_offsets` belong to the group coordinator, which must know at once which offsets count now.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeVar

from moldau.coordinators.promise import Promise, all_of, mapped
from moldau.core.clock import Clock
from moldau.core.dynamic_config import DynamicConfig
from moldau.core.ids import TopicPartition
from moldau.core.internal_topics import OFFSETS_TOPIC
from moldau.core.scheduler import Scheduler
from moldau.log.log import Log
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from moldau.records.batch import EndTxnMarker
from moldau.replication.delayed import Failures, when_committed
from moldau.replication.durability import ACKS_ALL, Durability
from moldau.replication.partition import Partition
from moldau.replication.replicas import Replicas
from moldau.requests.context import Services
from moldau.requests.groups_access import GroupsAccess, TransactionMarker

T = TypeVar("T")

_ASK_WHO_LEADS = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE}
)
"""Codes of the group coordinator after which the sender, which knows leaders only, finds the leader and tries again."""


class MarkerWriter(Protocol):
    """The partitions of this broker, for a transaction coordinator that reaches them without a socket."""

    def write(self, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse | Promise[WriteTxnMarkersResponse]:
        """Append all markers now; the answer as WriteTxnMarkers gives it, when they are safe or known not to be."""
        ...


class LocalMarkers:
    """Implements `MarkerWriter`."""

    def __init__(
        self,
        *,
        replicas: Replicas,
        groups: GroupsAccess,
        durability: Durability,
        clock: Clock,
        scheduler: Scheduler,
        dynamic_config: DynamicConfig,
    ) -> None:
        self.replicas = replicas
        self.groups = groups
        self.durability = durability
        self.clock = clock
        self.scheduler = scheduler
        self.dynamic_config = dynamic_config

    @classmethod
    def of(cls, services: Services) -> "LocalMarkers":
        """The markers that a handler writes."""
        return cls(
            replicas=services.replicas,
            groups=services.groups,
            durability=services.durability,
            clock=services.clock,
            scheduler=services.scheduler,
            dynamic_config=services.dynamic_config,
        )

    def write(self, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse | Promise[WriteTxnMarkersResponse]:
        """Append all markers now."""
        writing = _Writing(self)
        codes = [
            writing.append(_marker(marker), TopicPartition(topic.name, index))
            for marker in request.markers
            for topic in marker.topics
            for index in topic.partition_indexes
        ]
        safe = writing.when_safe()
        appended = [mapped(safe, each.code) if isinstance(each, _Appended) else each for each in codes]
        return mapped(all_of(appended), lambda known: _response(request.markers, known))


class _Appended(NamedTuple):
    """A marker that is in the log of a partition."""

    partition: Partition

    def code(self, failures: Failures) -> int:
        return failures.get(self.partition, ErrorCode.NONE)


class _Writing:
    """The markers of one request."""

    def __init__(self, local: LocalMarkers) -> None:
        self._local = local
        self._ends: dict[Partition, int] = {}

    def append(self, marker: TransactionMarker, where: TopicPartition) -> _Appended | int | Promise[int]:
        """Append one; what it comes to."""
        if where.topic == OFFSETS_TOPIC:
            return mapped(self._local.groups.end_transaction(where.partition, marker), _as_of_a_leader)
        producer_id, epoch, committed, coordinator_epoch, version = marker
        try:
            partition = self._local.replicas.get(*where)
            end = EndTxnMarker(committed, coordinator_epoch)
            appended = partition.append_marker(end, producer_id, epoch, version, self._local.clock.now_ms())
        except ApiError as error:
            return int(error.code)
        self._ends[partition] = appended.last_offset + 1
        return _Appended(partition)

    def when_safe(self) -> Failures | Promise[Failures]:
        """Failures, once every in-sync replica has the markers, and this disk where the policy asks for it."""
        if not self._ends:
            return {}
        timeout_ms = self._local.dynamic_config.now.int("request.timeout.ms")
        committing = when_committed(self._local.scheduler, list(self._ends.items()), timeout_ms)
        syncing = self._local.durability.when_durable([each.log for each in self._ends], ACKS_ALL)
        committed: Failures | Promise[Failures] = {} if committing is None else _promise_of(committing)
        synced = {} if syncing is None else mapped(_promise_of(syncing), self._not_synced)
        return mapped(all_of([committed, synced]), lambda both: {**both[0], **both[1]})

    def _not_synced(self, failed: frozenset[Log]) -> Failures:
        return {each: ErrorCode.KAFKA_STORAGE_ERROR for each in self._ends if each.log in failed}


def _promise_of(future: "asyncio.Future[T]") -> Promise[T]:
    promise: Promise[T] = Promise()
    future.add_done_callback(lambda done: None if done.cancelled() else promise.complete(done.result()))
    return promise


def _as_of_a_leader(code: int) -> int:
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if code in _ASK_WHO_LEADS else code


def _marker(marker: WritableTxnMarker) -> TransactionMarker:
    return TransactionMarker(
        marker.producer_id,
        marker.producer_epoch,
        marker.transaction_result,
        marker.coordinator_epoch,
        marker.transaction_version,
    )


def refused(request: WriteTxnMarkersRequest, code: ErrorCode) -> WriteTxnMarkersResponse:
    """The answer to a request of which nothing is done."""
    count = sum(len(topic.partition_indexes) for marker in request.markers for topic in marker.topics)
    return _response(request.markers, [code] * count)


def _response(markers: Sequence[WritableTxnMarker], codes: Sequence[int]) -> WriteTxnMarkersResponse:
    left = iter(codes)
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=index, error_code=next(left))
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in markers
        ]
    )
