"""Fetches from one leader over one connection.

Usually one request is under way and waits at the leader until there is something. A second one is sent behind it when
there is something to name meanwhile: a new partition would otherwise wait for up to `replica.fetch.wait.max.ms` until
its leader hears of it, which is the greater part of a failover.

Everything runs in callbacks of the connection: an answer is received, appended and asked on for in one turn of the
loop, unless it is large, or has to be on disk first (`follower_syncs`).
"""

import asyncio
import heapq
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import cast

from moldau.broker.follower_syncs import FollowerSyncs
from moldau.broker.peer import PeerClient, answer_position, decode_answer
from moldau.cluster.image import ClusterImage, Endpoint, TopicImage
from moldau.core.broker_config import BrokerConfig
from moldau.core.config import parse_list
from moldau.core.ids import TopicPartition
from moldau.protocol import codec
from moldau.protocol.apis import FETCH
from moldau.protocol.errors import ApiError, ErrorCode, ProtocolError
from moldau.protocol.fetch_values import NO_SESSION
from moldau.protocol.follower_fetch import FETCH_VERSION, FetchLimits, encode_request
from moldau.protocol.messages.k01_fetch import FetchResponse, PartitionData
from moldau.protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from moldau.replication.fetch_plan import Fetch, FetchPlan
from moldau.replication.throttle import is_throttled
from moldau.requests.parts import Parts

log = logging.getLogger(__name__)

FETCH_ANSWER_POSITION = answer_position(FETCH, FETCH_VERSION)
LIST_OFFSETS = 2
LIST_OFFSETS_VERSION = 9
LATEST = -1
EARLIEST = -2
NO_EPOCH = -1

DELAY_MS_FIRST = 20
"""The first pause after a failure. A whole `replica.fetch.backoff.ms` at once would be the time of a failover."""

THROTTLED_MS = 250
"""Time for which a partition that may not be fetched now is left out."""

TIMER_TOLERANCE_S = 0.001
"""Timers have milliseconds: one that fires early by a fraction is on time."""

REQUESTS_MAX = 2
APPENDED_BYTES_MAX = 1024 * 1024
"""Bytes that are appended without letting the loop do something else."""

FOLLOWER_THROTTLED_REPLICAS = "follower.replication.throttled.replicas"

Answered = Sequence[tuple[bytes, PartitionData]]
"""Topic ids and what an answer says of their partitions."""

Offsets = dict[TopicPartition, int]


class LeaderFetcher:
    """Keeps fetching as long as there are partitions."""

    def __init__(self, loop: asyncio.AbstractEventLoop, parts: Parts, leader_id: int) -> None:
        self._loop = loop
        self._parts = parts
        self._leader_id = leader_id
        self._plan = FetchPlan()
        self._syncs = FollowerSyncs(
            loop, parts.durability, self._plan, go_on=self._go_on, on_failed=self._own_log_failed
        )
        self._config: BrokerConfig | None = None
        self._limits: FetchLimits
        self._timeout_ms: int
        self._client: PeerClient | None = None
        self._broker_epoch = -1  # of the leader that we are connected to
        self._under_way = 0
        self._generation = 0  # answers of before a session or connection was given up are ignored
        self._is_scheduled = False
        self._is_appending = False
        self._is_closed = False
        self._pauses: list[tuple[float, int, Fetch]] = []  # a heap: until when, which
        self._pause_number = 0
        self._pause_timer: asyncio.TimerHandle | None = None
        self._retry_timer: asyncio.TimerHandle | None = None
        self._delay_ms = 0
        self._out_of_sync: tuple[Fetch, ...] = ()  # as of `_topics_seen`
        self._topics_seen: Mapping[str, TopicImage] | None = None
        self._reminded_at = 0.0

    # What is fetched

    def add(self, fetch: Fetch) -> None:
        """Fetch for one more partition."""
        self._plan.add(fetch)
        self._topics_seen = None
        self._try_at_once()

    def remove(self, fetch: Fetch) -> None:
        """Fetch no more for a partition."""
        self._plan.remove(fetch)
        if not self._plan:
            self._schedule()  # and not at once: those of a new epoch come in the same turn

    def address_changed(self, image: ClusterImage) -> None:
        """Connect anew if the leader has another address, or was restarted."""
        broker = image.brokers.get(self._leader_id)
        if broker is None:
            return  # it may be fetched from as long as it answers
        endpoint = broker.endpoint(self._parts.config.inter_broker_listener)
        if self._client is None or self._client.endpoint != endpoint or self._broker_epoch != broker.epoch:
            self._disconnect()
            self._try_at_once()

    def start_over(self) -> None:
        """Name everything to the leader anew, which may have had no session for us until we were registered."""
        self._forget_session()
        self._try_at_once()

    def _try_at_once(self) -> None:
        self._delay_ms = 0
        if self._retry_timer is not None:
            self._retry_timer.cancel()
            self._retry_timer = None
        self._schedule()

    def _forget_session(self) -> None:
        self._generation += 1
        self._under_way = 0
        self._plan.start_over()

    def _disconnect(self) -> None:
        self._forget_session()
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def close(self) -> None:
        self._is_closed = True
        self._syncs.close()
        self._disconnect()
        for timer in (self._pause_timer, self._retry_timer):
            if timer is not None:
                timer.cancel()

    # Requests

    def _schedule(self) -> None:
        """Send at the end of this turn, so that all partitions of one change go into one request."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._run_scheduled)

    def _run_scheduled(self) -> None:
        self._is_scheduled = False
        self._go_on()

    def _go_on(self) -> None:
        """Send what is to be sent now."""
        plan = self._plan
        if self._is_closed or self._is_appending or self._retry_timer is not None:
            return
        self._syncs.begin()
        if not plan:
            self._disconnect()
        elif self._syncs.are_awaited:
            return
        elif self._under_way == 0 or (plan.has_due and plan.session_id and self._under_way < REQUESTS_MAX):
            client = self._connected()
            if client is not None:
                self._send(client)

    def _connected(self) -> PeerClient | None:
        if self._client is None:
            endpoint = self._endpoint()
            if endpoint is None:
                return None  # the image will change
            config = self._parts.config
            explicit = config.is_explicit("replica.socket.receive.buffer.bytes")
            self._client = PeerClient(
                self._loop,
                endpoint,
                f"broker-{self._parts.broker_id}-fetcher",
                frame_bytes_max=config.int("replica.fetch.response.max.bytes") + config.int("socket.request.max.bytes"),
                connect_timeout_ms=config.int("socket.connection.setup.timeout.ms"),
                receive_buffer_bytes=config.int("replica.socket.receive.buffer.bytes") if explicit else None,
            )
        return self._client

    def _endpoint(self) -> Endpoint | None:
        broker = self._parts.metadata.image.brokers.get(self._leader_id)
        if broker is None:
            return None
        self._broker_epoch = broker.epoch
        return broker.endpoint(self._parts.config.inter_broker_listener)

    def _send(self, client: PeerClient) -> None:
        parts = self._parts
        if parts.config is not self._config:
            self._configure(parts.config)
        self._remind()
        if parts.follower_throttle.is_exceeded():
            self._leave_out_throttled()
        number, session_id, epoch, named, forgotten = self._plan.next_request()
        own = parts.metadata.image.brokers.get(parts.broker_id)
        own_epoch = NO_EPOCH if own is None else own.epoch
        request = encode_request(parts.broker_id, own_epoch, self._limits, (session_id, epoch), named, forgotten)
        self._under_way += 1
        then = partial(self._answered, number, self._generation)
        client.send_encoded(FETCH, FETCH_VERSION, request, self._timeout_ms, then)

    def _configure(self, config: BrokerConfig) -> None:
        self._config = config
        self._timeout_ms = config.int("replica.socket.timeout.ms")
        self._limits = FetchLimits(
            max_wait_ms=config.int("replica.fetch.wait.max.ms"),
            min_bytes=config.int("replica.fetch.min.bytes"),
            max_bytes=config.int("replica.fetch.response.max.bytes"),
            partition_max_bytes=config.int("replica.fetch.max.bytes"),
        )

    def _remind(self) -> None:
        """Name again what is not in sync, once per wait: to let us in, a leader looks only when it hears of us."""
        now = self._loop.time()
        if (now - self._reminded_at) * 1000 < self._limits.max_wait_ms:
            return
        self._reminded_at = now
        topics = self._parts.metadata.image.topics
        if topics is not self._topics_seen:
            self._topics_seen = topics
            self._out_of_sync = tuple(fetch for fetch in self._plan.fetches() if not self._is_in_sync(fetch))
        for fetch in self._out_of_sync:
            if self._plan.rests(fetch):
                self._plan.name_again(fetch)

    def _leave_out_throttled(self) -> None:
        """KIP-73: throttled partitions wait while the rate is exceeded. In-sync ones go on, or they would fall out."""
        for fetch in self._plan.due:
            if self._is_throttled(fetch) and not self._is_in_sync(fetch):
                self._plan.leave_out(fetch)
                self._pause(fetch, THROTTLED_MS)

    def _is_throttled(self, fetch: Fetch) -> bool:
        name, index = fetch.partition.topic_partition
        topic = self._parts.metadata.image.topics.get(name)
        replicas = topic.configs.get(FOLLOWER_THROTTLED_REPLICAS) if topic is not None else None
        return bool(replicas) and is_throttled(parse_list(replicas or ""), index, self._parts.broker_id)

    def _is_in_sync(self, fetch: Fetch) -> bool:
        name, index = fetch.partition.topic_partition
        topic = self._parts.metadata.image.topics.get(name)
        return (
            topic is not None
            and index < len(topic.partitions)
            and (self._parts.broker_id in topic.partitions[index].isr)
        )

    # Answers

    def _answered(self, number: int, generation: int, frame: memoryview | None) -> None:
        if generation != self._generation or self._is_closed:
            return
        self._under_way -= 1
        if frame is None:
            self._lost("no answer")
            return
        try:
            answer = codec.decode(FetchResponse, FETCH_VERSION, frame, FETCH_ANSWER_POSITION)
        except ProtocolError as error:
            self._lost(str(error))
            return
        if answer.error_code or answer.session_id == NO_SESSION:
            # The leader has another session of ours, or none.
            log.info("the fetch session with broker %d ended with error %d", self._leader_id, answer.error_code)
            self._forget_session()
            self._retry_later()
            return
        self._recovered()
        self._plan.session_id = answer.session_id
        answered = [(topic.topic_id, data) for topic in answer.responses for data in topic.partitions]
        self._take(number, generation, answered, 0)

    def _lost(self, reason: str) -> None:
        if not self._delay_ms:
            log.info("broker %d cannot be fetched from: %s", self._leader_id, reason)
        self._disconnect()
        self._retry_later()

    def _recovered(self) -> None:
        if self._delay_ms:
            self._delay_ms = 0
            log.info("broker %d can be fetched from again", self._leader_id)

    def _retry_later(self) -> None:
        self._delay_ms = self._longer(self._delay_ms)
        self._retry_timer = self._loop.call_later(self._delay_ms / 1000, self._retry)

    def _retry(self) -> None:
        self._retry_timer = None
        self._go_on()

    def _longer(self, delay_ms: int) -> int:
        return min(max(2 * delay_ms, DELAY_MS_FIRST), self._parts.config.int("replica.fetch.backoff.ms"))

    def _take(self, number: int, generation: int, answered: Answered, position: int) -> None:
        """Take an answer in, from one of its partitions on; a large one in several turns of the loop."""
        if generation == self._generation:
            position = self._take_some(number, answered, position)
            if position < len(answered):
                self._pause_reading()
                self._loop.call_soon(self._take, number, generation, answered, position)
                return
        self._resume_reading()
        self._go_on()

    def _pause_reading(self) -> None:
        """The frame that is being taken in lies where the next one would be received."""
        if not self._is_appending and self._client is not None:
            self._client.pause()
        self._is_appending = True

    def _resume_reading(self) -> None:
        if self._is_appending:
            self._is_appending = False
            if self._client is not None:
                self._client.resume()

    def _take_some(self, number: int, answered: Answered, position: int) -> int:
        """Take in partitions until it is enough for one turn; the position of the next one."""
        plan = self._plan
        appended = 0
        now_ms = self._parts.clock.now_ms()
        beyond: list[Fetch] = []
        while position < len(answered) and appended < APPENDED_BYTES_MAX:
            topic_id, data = answered[position]
            position += 1
            fetch = plan.find((topic_id, data.partition_index), number)
            if fetch is None:
                self._take_news(topic_id, data, number, now_ms)
            elif not data.error_code:
                appended += self._take_partition(fetch, data, now_ms)
            elif data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                plan.refused(fetch)
                beyond.append(fetch)
            else:
                self._failed(fetch, data.error_code)
        if beyond:
            self._ask_for_offsets(beyond)
        return position

    def _take_news(self, topic_id: bytes, data: PartitionData, number: int, now_ms: int) -> None:
        """A high watermark for a position that we have left behind: the leader does not tell it twice."""
        fetch = self._plan.find_moved((topic_id, data.partition_index), number)
        if fetch is not None and not data.error_code and data.diverging_epoch.epoch == NO_EPOCH and not data.records:
            self._take_partition(fetch, data, now_ms)

    def _take_partition(self, fetch: Fetch, data: PartitionData, now_ms: int) -> int:
        """Append, or cut back; the bytes appended."""
        partition = fetch.partition
        try:
            if data.diverging_epoch.epoch != NO_EPOCH:
                self._plan.refused(fetch)
                partition.diverged(data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
                self._plan.name_again(fetch)
                return 0
            records = cast(memoryview, data.records or b"")  # what was received is never a region of a file
            size = partition.take(records, data.high_watermark, data.log_start_offset, now_ms)
        except ApiError as error:
            log.error("%s: append refused or truncation failed: %s", partition.topic_partition, error.message)
            self._own_log_failed(fetch)
            return 0
        except Exception:  # of one partition; the others must not end with it
            log.exception("%s: append refused or truncation failed", partition.topic_partition)
            self._leave_out(fetch)
            return 0
        fetch.delay_ms = 0
        if size:
            self._plan.name_again(fetch)
            if self._parts.follower_throttle.is_limited and self._is_throttled(fetch):
                self._parts.follower_throttle.record(size)
        return size

    def _own_log_failed(self, fetch: Fetch) -> None:
        """Leave out a partition whose log could not be appended to, truncated or synced."""
        if fetch.partition.log.failure is not None:
            self._plan.remove(fetch)  # its directory is given up, which others see to
        else:
            self._leave_out(fetch)

    def _leave_out(self, fetch: Fetch) -> None:
        self._plan.leave_out(fetch)
        self._pause_longer(fetch)

    def _failed(self, fetch: Fetch, error_code: int) -> None:
        """Try again later. Leaders and epochs are not known everywhere at the same moment."""
        self._plan.refused(fetch)
        self._pause_longer(fetch)
        topic_partition = fetch.partition.topic_partition
        log.debug("%s cannot be fetched from broker %d: error %d", topic_partition, self._leader_id, error_code)

    # Pauses of single partitions

    def _pause_longer(self, fetch: Fetch) -> None:
        fetch.delay_ms = self._longer(fetch.delay_ms)
        self._pause(fetch, fetch.delay_ms)

    def _pause(self, fetch: Fetch, delay_ms: int) -> None:
        until = self._loop.time() + delay_ms / 1000
        self._pause_number += 1
        heapq.heappush(self._pauses, (until, self._pause_number, fetch))
        if self._pauses[0][2] is fetch:
            self._set_pause_timer()

    def _set_pause_timer(self) -> None:
        if self._pause_timer is not None:
            self._pause_timer.cancel()
        self._pause_timer = self._loop.call_at(self._pauses[0][0], self._end_pauses) if self._pauses else None

    def _end_pauses(self) -> None:
        now = self._loop.time() + TIMER_TOLERANCE_S
        while self._pauses and self._pauses[0][0] <= now:
            _, _, fetch = heapq.heappop(self._pauses)
            if self._plan.holds(fetch):
                self._plan.name_again(fetch)
        self._set_pause_timer()
        self._go_on()

    # Offsets, for partitions whose leader has nothing at their end

    def _ask_for_offsets(self, fetches: Sequence[Fetch]) -> None:
        """Sent before the next fetch, as that may wait and answers come in order."""
        if self._client is None:
            return
        ends: Offsets = {}
        for target, then in (
            (LATEST, partial(self._ends_answered, ends)),
            (EARLIEST, partial(self._starts_answered, fetches, ends)),
        ):
            request = self._offsets_request(fetches, target)
            self._client.send(request, LIST_OFFSETS_VERSION, self._timeout_ms, then)

    def _offsets_request(self, fetches: Sequence[Fetch], target: int) -> ListOffsetsRequest:
        topics: dict[str, ListOffsetsTopic] = {}
        for fetch in fetches:
            name, index = fetch.partition.topic_partition
            topic = topics.setdefault(name, ListOffsetsTopic(name=name))
            topic.partitions.append(
                ListOffsetsPartition(
                    partition_index=index, current_leader_epoch=fetch.partition.leader_epoch, timestamp=target
                )
            )
        return ListOffsetsRequest(replica_id=self._parts.broker_id, topics=list(topics.values()))

    def _ends_answered(self, ends: Offsets, frame: memoryview | None) -> None:
        ends.update(_offsets(frame))

    def _starts_answered(self, fetches: Sequence[Fetch], ends: Offsets, frame: memoryview | None) -> None:
        starts = _offsets(frame)
        for fetch in fetches:
            if self._plan.holds(fetch):
                topic_partition = fetch.partition.topic_partition
                self._meet_leader(fetch, starts.get(topic_partition), ends.get(topic_partition))
        self._schedule()

    def _meet_leader(self, fetch: Fetch, start: int | None, end: int | None) -> None:
        if start is None or end is None:
            self._pause_longer(fetch)
            return
        try:
            fetch.partition.truncate_to_leader(start, end)
        except ApiError as error:
            log.error("%s cannot be truncated to its leader's log: %s", fetch.partition.topic_partition, error.message)
            self._own_log_failed(fetch)
        else:
            self._plan.name_again(fetch)


def _offsets(frame: memoryview | None) -> Offsets:
    """Offsets in a ListOffsets answer, of partitions without an error."""
    if frame is None:
        return {}
    try:
        answer = cast(ListOffsetsResponse, decode_answer(LIST_OFFSETS, LIST_OFFSETS_VERSION, frame))
    except ProtocolError as error:
        log.warning("an answer to ListOffsets cannot be read: %s", error)
        return {}
    return {
        TopicPartition(topic.name, found.partition_index): found.offset
        for topic in answer.topics
        for found in topic.partitions
        if found.error_code == ErrorCode.NONE
    }
