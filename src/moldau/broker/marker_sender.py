"""Sends the markers that end transactions to the leaders of their partitions (WriteTxnMarkers), until all have them.

Each leader is sent one request at a time. What comes up meanwhile goes together in the next one (`peer_lines`).
Partitions that are led here take no socket where there is a `local` writer.

The law: a partition is done when its leader says so, or when it is gone from the image; or when it knows a newer epoch
of the producer, which is given out only after the end of this transaction. Everything else is tried again, with
whoever leads by then. Only a leader that knows a newer coordinator ends a delivery before that.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from moldau.broker.peer_lines import PeerLine, PeerLines
from moldau.coordinators.promise import Promise
from moldau.coordinators.transactions.markers import Marker
from moldau.core.ids import TopicPartition
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from moldau.requests.markers import MarkerWriter
from moldau.requests.parts import Parts

log = logging.getLogger(__name__)

VERSION = 2
PARTITIONS_MAX = 200
"""Partitions in one request at most, of all its markers; the others wait for the next. A marker is some 50 us of work
for the one who writes it, who may be this broker."""
ROUTED_AT_ONCE = 1_000
"""Partitions whose leaders are looked for in one turn of the loop."""
AGAIN_MS = 50
"""Pause before a partition is tried again that has no leader, or whose leader did not take the marker."""

DROPPED = frozenset(
    (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION)
)
"""The partition has gone on without the marker, or cannot have one: nobody waits for it there."""
RETRIED = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    )
)
"""Usual while leaders change. Other codes are tried again, too, and said in the log."""


class MarkerDelivery:
    """The marker of one transaction on its way: `left` are the partitions that do not have it yet."""

    __slots__ = ("_done", "coordinator_epoch", "left", "marker", "transactional_id")

    def __init__(
        self, transactional_id: str, marker: Marker, coordinator_epoch: int, done: Callable[[bool], None]
    ) -> None:
        self.transactional_id = transactional_id
        self.marker = marker
        self.coordinator_epoch = coordinator_epoch
        self.left = set(marker.partitions)
        self._done: Callable[[bool], None] | None = done

    @property
    def is_over(self) -> bool:
        return self._done is None

    def cancel(self) -> None:
        """Send no more, and tell nobody."""
        self._done = None

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Take out partitions that have the marker, or need none."""
        self.left.difference_update(partitions)
        if not self.left:
            self.end(is_complete=True)

    def end(self, *, is_complete: bool) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(is_complete)

    def part(self, partitions: Iterable[TopicPartition]) -> WritableTxnMarker:
        """The marker, for some of its partitions."""
        topics: dict[str, list[int]] = {}
        for topic, number in partitions:
            topics.setdefault(topic, []).append(number)
        return WritableTxnMarker(
            producer_id=self.marker.producer_id,
            producer_epoch=self.marker.producer_epoch,
            transaction_result=self.marker.committed,
            topics=[WritableTxnMarkerTopic(name=name, partition_indexes=found) for name, found in topics.items()],
            coordinator_epoch=self.coordinator_epoch,
            transaction_version=self.marker.transaction_version,
        )


class MarkerSender:
    """Implements `coordinators.transactions.markers.Markers`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, parts: Parts, coordinator_epoch: Callable[[str], int]) -> None:
        """`coordinator_epoch`: the epoch in which this broker coordinates a transactional id."""
        self._loop = loop
        self._parts = parts
        self._coordinator_epoch = coordinator_epoch
        self._leaders = PeerLines(parts, lambda: _Leader(loop, parts, self))
        self._new: deque[tuple[MarkerDelivery, Sequence[TopicPartition]]] = deque()
        """Markers to be routed at the end of this turn of the loop, with ROUTED_AT_ONCE partitions at most."""
        self._again: list[tuple[MarkerDelivery, Sequence[TopicPartition]]] = []
        """Markers to be routed when their pause is over."""
        self._timer: asyncio.TimerHandle | None = None
        self.local: MarkerWriter | None = None
        """Writer of markers on this broker; without it the broker asks itself as it asks others."""

    def send(self, transactional_id: str, marker: Marker, done: Callable[[bool], None]) -> MarkerDelivery:
        delivery = MarkerDelivery(transactional_id, marker, self._coordinator_epoch(transactional_id), done)
        if not self._new:
            self._loop.call_soon(self._route_new)
        partitions = tuple(marker.partitions)
        for start in range(0, len(partitions), ROUTED_AT_ONCE):
            self._new.append((delivery, partitions[start : start + ROUTED_AT_ONCE]))
        return delivery

    def _route_new(self) -> None:
        room = ROUTED_AT_ONCE
        while self._new and room > 0:
            delivery, partitions = self._new.popleft()
            self._route(delivery, partitions)
            room -= len(partitions)
        if self._new:
            self._loop.call_soon(self._route_new)
        for leader in self._leaders:
            leader.send()

    def _route(self, delivery: MarkerDelivery, partitions: Iterable[TopicPartition]) -> None:
        """Give each partition to its leader; one that is gone is done with."""
        if delivery.is_over:
            return
        image = self._parts.metadata.image
        gone, leaderless = [], []
        for each in partitions:
            topic = image.topics.get(each.topic)
            if topic is None or each.partition >= len(topic.partitions):
                gone.append(each)
                continue
            leader = self._leader(topic.partitions[each.partition].leader)
            if leader is None:
                leaderless.append(each)
            else:
                leader.waiting.setdefault(delivery, []).append(each)
        if leaderless:
            self.try_again(delivery, leaderless)
        if gone:
            log.info("%s: no marker for %s, which are deleted", delivery.transactional_id, ", ".join(map(str, gone)))
            delivery.drop(gone)

    def _leader(self, broker_id: int) -> "_Leader | None":
        leader = self._leaders.find(broker_id)
        if leader is not None:
            leader.local = self.local if broker_id == self._parts.broker_id else None
        return leader

    def try_again(self, delivery: MarkerDelivery, partitions: Sequence[TopicPartition]) -> None:
        """Find the leaders of these anew after a pause."""
        if delivery.is_over:
            return
        self._again.append((delivery, partitions))
        if self._timer is None:
            self._timer = self._loop.call_later(AGAIN_MS / 1000, self._route_again)

    def _route_again(self) -> None:
        self._timer = None
        again, self._again = self._again, []
        if not self._new:
            self._loop.call_soon(self._route_new)
        self._new += again

    def answered(
        self,
        sent: Sequence[tuple[MarkerDelivery, Sequence[TopicPartition]]],
        results: Sequence[WritableTxnMarkerResult] | None,
    ) -> None:
        """Go on with what a leader said of each marker; None: it said nothing."""
        by_producer = {each.producer_id: each for each in results or ()}
        for delivery, partitions in sent:
            if not delivery.is_over:
                result = by_producer.get(delivery.marker.producer_id)
                self._take(delivery, partitions, {} if result is None else _codes(result))

    def _take(
        self, delivery: MarkerDelivery, partitions: Sequence[TopicPartition], codes: dict[TopicPartition, int]
    ) -> None:
        done, again = [], []
        for each in partitions:
            code = codes.get(each, ErrorCode.REQUEST_TIMED_OUT)
            if code == ErrorCode.NONE:
                done.append(each)
            elif code == ErrorCode.TRANSACTION_COORDINATOR_FENCED:
                log.warning(
                    "%s: the leader of %s knows a newer coordinator than epoch %d",
                    delivery.transactional_id,
                    each,
                    delivery.coordinator_epoch,
                )
                delivery.end(is_complete=False)
                return
            elif code in DROPPED:
                log.warning("%s: %s takes no marker: %s", delivery.transactional_id, each, ErrorCode(code).name)
                done.append(each)
            else:
                if code not in RETRIED:
                    log.warning("%s: marker refused by %s: code %d", delivery.transactional_id, each, code)
                again.append(each)
        if again:
            self.try_again(delivery, again)
        delivery.drop(done)

    def close(self) -> None:
        """Send no more."""
        if self._timer is not None:
            self._timer.cancel()
        self._leaders.close()


class _Leader(PeerLine):
    """One broker: what waits for it, and the request under way."""

    def __init__(self, loop: asyncio.AbstractEventLoop, parts: Parts, sender: MarkerSender) -> None:
        super().__init__(loop, parts, "markers")
        self._sender = sender
        self._is_asking = False
        self.waiting: dict[MarkerDelivery, list[TopicPartition]] = {}
        self.local: MarkerWriter | None = None

    def send(self) -> None:
        """Send what waits, unless an answer is waited for. Of one producer there is one marker in a request: an answer
        names markers by it."""
        if self._is_asking:
            return
        sent: dict[int, tuple[MarkerDelivery, list[TopicPartition]]] = {}
        room = PARTITIONS_MAX
        for delivery in list(self.waiting):
            if delivery.is_over:
                del self.waiting[delivery]
            elif room and delivery.marker.producer_id not in sent:
                partitions = self.waiting.pop(delivery)
                if len(partitions) > room:
                    self.waiting[delivery] = partitions[room:]
                sent[delivery.marker.producer_id] = (delivery, partitions[:room])
                room -= min(len(partitions), room)
        if sent:
            self._is_asking = True
            self._ask(list(sent.values()))

    def _ask(self, sent: Sequence[tuple[MarkerDelivery, list[TopicPartition]]]) -> None:
        request = WriteTxnMarkersRequest(markers=[delivery.part(partitions) for delivery, partitions in sent])
        if self.local is not None:
            self._write_here(self.local, request, sent)
            return
        self._request(
            request,
            VERSION,
            WriteTxnMarkersResponse,
            lambda answer: self._answered(sent, None if answer is None else answer.markers),
        )

    def _write_here(
        self,
        writer: MarkerWriter,
        request: WriteTxnMarkersRequest,
        sent: Sequence[tuple[MarkerDelivery, list[TopicPartition]]],
    ) -> None:
        try:
            answer = writer.write(request)
        except Exception:
            log.exception("markers cannot be written here")
            self._loop.call_soon(self._answered, sent, None)
            return
        if isinstance(answer, Promise):
            answer.then(lambda response: self._answered(sent, response.markers))
        else:
            self._loop.call_soon(self._answered, sent, answer.markers)

    def _answered(
        self,
        sent: Sequence[tuple[MarkerDelivery, list[TopicPartition]]],
        results: Sequence[WritableTxnMarkerResult] | None,
    ) -> None:
        self._is_asking = False
        self._sender.answered(sent, results)
        self.send()

    def close(self) -> None:
        self.waiting.clear()
        super().close()


def _codes(result: WritableTxnMarkerResult) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic.name, each.partition_index): each.error_code
        for topic in result.topics
        for each in topic.partitions
    }
