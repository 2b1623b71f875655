"""A course of things, drawn from a seed: what producers, consumers and followers send, and what happens in between."""

import contextlib
import errno
import os
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, NamedTuple

from moldau.core.topic_config import TopicConfig
from moldau.log.log import Log
from moldau.protocol.apis import FETCH
from moldau.protocol.errors import ApiError
from moldau.protocol.layouts import CONSUMER_FETCH_VERSIONS, FOLLOWER_FETCH_VERSIONS, PRODUCE_VERSIONS
from moldau.protocol.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from moldau.records.batch import (
    BATCH_HEADER_BYTES,
    CRC_START,
    EndTxnMarker,
    Record,
    build_batch,
    build_end_txn_marker,
)
from moldau.records.crc import crc32c
from moldau.records.validate import COMPRESSED_RECORDS_MAX, RECORD_BYTES_MIN
from moldau.requests.authorization import CLUSTER, CLUSTER_ACTION, READ, TRANSACTIONAL_ID, WRITE
from moldau.requests.authorization import TOPIC as TOPICS
from tests.fastpath.sides import CLOSED, TOPIC, BothSides, Side, decoded
from tests.handlers.denying import Deny

TIMEOUT_MS = 1000
FOLLOWER_VERSION = FOLLOWER_FETCH_VERSIONS[-1]
LAST_OFFSET_DELTA_POSITION = 23
RECORD_COUNT_POSITION = 57
NEW_SESSION = (0, 0)
WITHOUT_SESSION = (0, -1)
SMALL_BYTES = 500
IDEMPOTENT = (7, 8)
TRANSACTIONAL = (9, 10)
"""Producer ids."""


class Sequence(NamedTuple):
    epoch: int
    next: int


class Course:
    """Steps that are the same for both sides."""

    def __init__(self, both: BothSides, dice: Random) -> None:
        self.both = both
        self._dice = dice
        self._sequences = {
            (producer_id, index): Sequence(0, first)
            for producer_id, first in ((7, 0), (8, (1 << 31) - 8), *((each, 0) for each in TRANSACTIONAL))
            for index in range(both.partitions)
        }
        self._before: dict[int, dict[tuple[int, int], Sequence]] = {}  # by partition, what a request has changed
        self._last_batch = b""
        self._consumer = NEW_SESSION
        self._followers = dict.fromkeys((each for each in both.replicas if each != 1), NEW_SESSION)
        indexes = range(both.partitions)
        self._logs = {side: [side.world.log_of(TOPIC, index) for index in indexes] for side in both.sides}
        self._open: dict[int, int] = {}  # partition to the producer of its transaction
        self.repeats: Counter[str] = Counter()
        """Requests that took their fast path, by connection."""
        self.steps: list[tuple[float, Callable[[], None]]] = [
            (30, self.produce), (8, self.produce_in_transaction), (4, self.end_transaction),
            (14, self.consume), (14 if self._followers else 0, self.follow),
            (4, self.pass_time), (2, self.change_config), (1, self.change_leader), (0.7, self.change_policy),
            (0.7, self.fill_disk), (1, self.delete_records), (1, self.transact), (0.5, self.hang_up),
        ]  # fmt: skip

    def run(self, count: int) -> None:
        weights = [weight for weight, _ in self.steps]
        for number in range(count):
            (_, step) = self._dice.choices(self.steps, weights)[0]
            step()
            if number % 5 == 4:
                self.both.check_state()
        self.both.pass_ms(10 * TIMEOUT_MS)
        self.both.check_state()

    # Clients

    def produce(self) -> None:
        data = [
            PartitionProduceData(index=index, records=self._batch(index, self._dice.choice((None, *IDEMPOTENT, 9))))
            for index in self._some_partitions()
        ]
        self._produce(data, acks=self._dice.choice((1, 1, 1, 1, -1, -1, -1, -1, 0)))

    def produce_in_transaction(self) -> None:
        """Some requests of a producer whose coordinator takes every partition into its transaction."""
        dice, producer_id, indexes = self._dice, self._dice.choice(TRANSACTIONAL), self._some_partitions()
        acks, transactional_id = dice.choice((-1, 1)), f"copier {producer_id}" if dice.random() < 0.98 else None
        for _ in range(dice.randint(1, 6)):
            data = [
                PartitionProduceData(index=index, records=self._batch_in_transaction(index, producer_id))
                for index in indexes
            ]
            self._produce(data, acks=acks, transactional_id=transactional_id)

    def _batch_in_transaction(self, index: int, producer_id: int) -> bytes:
        """A batch of the transaction; now and then it is of somebody else, or of no transaction."""
        dice = self._dice
        writer = producer_id if dice.random() < 0.97 else dice.choice((*TRANSACTIONAL, *IDEMPOTENT))
        return self._batch(index, writer, is_transactional=dice.random() < 0.97, wrong=0.03)

    def _some_partitions(self) -> list[int]:
        partitions = self.both.partitions
        return self._dice.sample(range(partitions), self._dice.randint(1, partitions))

    def _produce(self, data: list[PartitionProduceData], *, acks: int, transactional_id: str | None = None) -> None:
        dice = self._dice
        version = PRODUCE_VERSIONS[-1] if dice.random() < 0.9 else dice.choice(PRODUCE_VERSIONS)
        topic = TopicProduceData(name=TOPIC, topic_id=self.both.topic_ids[TOPIC], partition_data=data)
        request = ProduceRequest(
            transactional_id=transactional_id, acks=acks, timeout_ms=TIMEOUT_MS, topic_data=[topic]
        )
        ends = self._ends()
        answer = self._send(self.both.frame(request, version), transactional_id or "producer")
        after = self._ends()
        for index in (each.index for each in data):
            if ends[index] == after[index]:  # it was not taken: what comes next has its sequence
                self._sequences.update(self._before.get(index, {}))
        self._before = {}
        assert answer is not None or self.both.last[0].waits or acks == 0 or answer == CLOSED or self._mutated

    def _batch(
        self, index: int, producer_id: int | None, *, is_transactional: bool = False, wrong: float = 0.12
    ) -> bytes:
        dice, count, now_ms = self._dice, self._dice.randrange(1, 6), self.both.fast.world.clock.now_ms()
        if self._last_batch and dice.random() < 0.04:
            return self._last_batch
        size = dice.choice((8, 8, 60, 200, 1500))
        records = [Record(each, now_ms + each, dice.choice((None, b"k")), b"v" * size) for each in range(count)]
        codec = dice.choice((0, 0, 0, 0, 1, 4))
        batch = build_batch(records, codec=codec)
        if producer_id is not None:
            epoch, sequence = self._sequences[producer_id, index]
            if dice.random() < wrong:
                epoch, sequence = dice.choice(
                    ((epoch + 1, 0), (epoch, sequence ^ 1), (max(epoch - 1, 0), sequence), (epoch, 0))
                )
            self._before[index] = {(producer_id, index): self._sequences[producer_id, index]}
            self._sequences[producer_id, index] = Sequence(epoch, (sequence + count) & 0x7FFFFFFF)
            batch = build_batch(
                records,
                codec=codec,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                is_transactional=is_transactional,
            )
        self._last_batch = batch
        if dice.random() < 0.06:
            return self._lying(batch)
        return batch

    def _lying(self, batch: bytes) -> bytes:
        """Says more or fewer records than it has, with the right checksum."""
        changed, fit = bytearray(batch), (len(batch) - BATCH_HEADER_BYTES) // RECORD_BYTES_MIN
        count = self._dice.choice((1, fit, fit + 1, COMPRESSED_RECORDS_MAX, COMPRESSED_RECORDS_MAX + 1, (1 << 31) - 1))
        struct.pack_into(">i", changed, LAST_OFFSET_DELTA_POSITION, count - 1)
        struct.pack_into(">i", changed, RECORD_COUNT_POSITION, count)
        struct.pack_into(">I", changed, CRC_START - 4, crc32c(bytes(changed[CRC_START:])))
        return bytes(changed)

    def consume(self) -> None:
        dice, (session_id, epoch) = self._dice, self._consumer
        version = CONSUMER_FETCH_VERSIONS[-1] if dice.random() < 0.9 else dice.choice(CONSUMER_FETCH_VERSIONS)
        topics = [self._asked(0, is_follower=False)] if epoch <= 0 or dice.random() < 0.7 else []
        request = FetchRequest(
            max_wait_ms=dice.choice((0, 0, TIMEOUT_MS)),
            min_bytes=dice.choice((0, 1, 1, 200)),
            max_bytes=dice.choice((100, 1 << 20, 1 << 20)),
            isolation_level=dice.choice((0, 1)),
            session_id=session_id,
            session_epoch=epoch,
            topics=topics,
            rack_id=dice.choice(("", "", "", "", "", "r")),
        )
        answer = self._send(self.both.frame(request, version), "consumer")
        self._consumer = self._next_session(self._consumer, version, answer)

    def follow(self) -> None:
        dice = self._dice
        replica_id = dice.choice(tuple(self._followers))
        session_id, epoch = session = self._followers[replica_id]
        broker_epoch = self.both.fast.world.image.brokers[replica_id].epoch
        named = dice.sample(range(self.both.partitions), dice.randint(0, self.both.partitions))
        if epoch <= 0:
            named = list(range(self.both.partitions))
        partitions = [each for index in named for each in self._asked(index, is_follower=True).partitions]
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=replica_id, replica_epoch=broker_epoch - (dice.random() < 0.03)),
            max_wait_ms=dice.choice((0, 0, TIMEOUT_MS)),
            min_bytes=1,
            max_bytes=dice.choice((100, 1 << 20, 1 << 20)),
            session_id=session_id,
            session_epoch=epoch,
            topics=[FetchTopic(topic_id=self.both.topic_ids[TOPIC], partitions=partitions)] if partitions else [],
        )
        answer = self._send(self.both.frame(request, FOLLOWER_VERSION), f"follower {replica_id}")
        self._followers[replica_id] = self._next_session(session, FOLLOWER_VERSION, answer)

    def _asked(self, index: int, *, is_follower: bool) -> FetchTopic:
        dice, log = self._dice, self._log(index)
        start, end = log.log_start_offset, log.log_end_offset
        epoch = max(log.leader_epochs.latest, 0)
        last_epochs = (-1, -1, epoch, epoch, max(epoch - 1, 0)) if is_follower else (-1, -1, -1, -1, epoch)
        near = (end, end, end, start, dice.randint(0, end + 1), max(end - 1, 0))
        partition = FetchPartition(
            partition=index,
            current_leader_epoch=dice.choice((epoch,) * 12 + (-1, epoch + 1, max(epoch - 1, 0))),
            fetch_offset=dice.choice(near),
            last_fetched_epoch=dice.choice(last_epochs),
            log_start_offset=0,
            partition_max_bytes=dice.choice((1, 1 << 20, 1 << 20)),
        )
        return FetchTopic(topic_id=self.both.topic_ids[TOPIC], partitions=[partition])

    def _next_session(self, session: tuple[int, int], version: int, answer: bytes | None) -> tuple[int, int]:
        session_id, epoch = session
        if self._mutated or answer == CLOSED or self._dice.random() < 0.03:
            return NEW_SESSION
        if answer is None:
            return (session_id, epoch + 1) if epoch > 0 else WITHOUT_SESSION if epoch < 0 else NEW_SESSION
        told = decoded(FETCH, version, answer)
        if told.error_code or not told.session_id:
            return self._dice.choice((NEW_SESSION, NEW_SESSION, WITHOUT_SESSION))
        return told.session_id, max(epoch, 0) + 1

    def _send(self, frame: bytes, connection: str) -> bytes | None:
        dice, changed = self._dice, bytearray(frame)
        self._mutated = dice.random() < 0.08
        if self._mutated:
            for _ in range(dice.randint(1, 2)):
                value = dice.choice((0, 1, 2, 0x7F, 0x80, 0xFF, dice.randrange(256)))
                changed[dice.randrange(8, len(changed))] = value
            if dice.random() < 0.2:
                del changed[dice.randrange(8, len(changed)) :]
            if dice.random() < 0.2:
                changed += dice.randbytes(dice.randrange(5))
        answer = self.both.send(bytes(changed), connection)
        self.repeats[connection] += self.both.is_repeat
        if answer == CLOSED:
            self.both.each(lambda side: side.reconnect(connection))
        return answer

    # The world

    def pass_time(self) -> None:
        self.both.pass_ms(self._dice.choice((1, 10, TIMEOUT_MS // 2, 2 * TIMEOUT_MS)))

    def change_config(self) -> None:
        """Other settings of the topic, and after some requests those that it had."""
        change: dict[str, Any] = self._dice.choice(
            (
                {"max_message_bytes": SMALL_BYTES},
                {"max_message_bytes": SMALL_BYTES, "min_insync_replicas": 1},
                {"segment_bytes": 3000},
                {"message_timestamp_type": "LogAppendTime"},
                {"message_timestamp_before_max_ms": 0, "message_timestamp_after_max_ms": 0},
                {"min_insync_replicas": 4},
                {"cleanup_policy": frozenset({"compact"})},
                {"compression_type": "lz4"},
            )
        )
        before = self._log(0).config
        self.both.do(lambda side: _configure(side, replace(before, **change)))
        self._some_requests()
        self.both.do(lambda side: _configure(side, before))

    def _some_requests(self) -> None:
        steps = (
            *[self.produce] * 3,
            self.produce_in_transaction,
            self.consume,
            self.follow if self._followers else self.consume,
        )
        for _ in range(self._dice.randrange(16)):
            self._dice.choice(steps)()

    def change_leader(self) -> None:
        """A partition goes to another broker, or comes back with a new epoch."""
        index = self._dice.randrange(self.both.partitions)
        if self.both.fast.services.replicas.find(TOPIC, index) is not None and self._dice.random() < 0.3:
            self.both.do(lambda side: side.services.replicas.remove(TOPIC, index))
            self._some_requests()
        for side in self.both.sides:
            log = self._logs[side][index]
            if log.failure is None:
                side.lead_anew(log)
        self.both.check()

    def change_policy(self) -> None:
        """Somebody may do less, and after some requests may do it again."""
        rights = ((WRITE, TOPICS), (READ, TOPICS), (WRITE, TRANSACTIONAL_ID), (CLUSTER_ACTION, CLUSTER))
        denied = self._dice.choice(rights)
        self.both.do(lambda side: side.services.policy.authorize_by(Deny(denied)))
        self._some_requests()
        self.both.do(lambda side: side.services.policy.authorize_by(Deny()))

    def fill_disk(self) -> None:
        """The disk of one partition is full, and has room again some requests later."""
        name = f"/{TOPIC}-{self._dice.randrange(self.both.partitions)}/"
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.both.each(lambda side: side.break_disk(lambda path: full if name in path else None))
        self._some_requests()
        self.both.each(lambda side: side.break_disk(None))
        self.both.do(lambda side: side.services.logs.look_for_room())

    def lose_disk(self) -> None:
        """Nothing can be written any more."""
        lost = OSError(errno.EIO, os.strerror(errno.EIO))
        self.both.each(lambda side: side.break_disk(lambda _: lost))

    def delete_records(self) -> None:
        index, dice = self._dice.randrange(self.both.partitions), self._dice.random()

        def delete(side: Side) -> None:
            partition = side.services.replicas.find(TOPIC, index)
            if partition is not None and partition.log.failure is None:
                start = partition.log.log_start_offset
                partition.delete_records(start + int(dice * (partition.high_watermark - start)))

        self.both.do(delete)

    def transact(self) -> None:
        """A batch of a transaction, or its end, by the broker itself."""
        index, now_ms = self._dice.randrange(self.both.partitions), self.both.fast.world.clock.now_ms()
        producer_id = self._open.pop(index, None)
        if producer_id is None:
            producer_id = self._open[index] = self._dice.randrange(100, 200)
            record = Record(0, now_ms, None, b"v")
            batch = build_batch([record], producer_id=producer_id, producer_epoch=0, is_transactional=True)
        else:
            marker = EndTxnMarker(self._dice.random() < 0.5, 0)
            batch = build_end_txn_marker(marker, producer_id=producer_id, producer_epoch=0, timestamp=now_ms)

        def append(side: Side) -> None:
            partition = side.services.replicas.find(TOPIC, index)
            if partition is not None:
                with contextlib.suppress(ApiError):  # it is full, or has too few replicas: as on the other side
                    partition.append_own(batch, now_ms)

        self.both.do(append)

    def end_transaction(self) -> None:
        """The markers of a producer's transaction, of either version."""
        dice, producer_id = self._dice, self._dice.choice(TRANSACTIONAL)
        marker, now_ms = EndTxnMarker(dice.random() < 0.5, 0), self.both.fast.world.clock.now_ms()
        bump = dice.randrange(2)  # from transaction version 2 on a marker has the epoch of the next transaction
        for index in self._some_partitions():
            epoch, sequence = self._sequences[producer_id, index]
            self._sequences[producer_id, index] = Sequence(epoch + bump, 0 if bump else sequence)

            def append(side: Side, index: int = index, epoch: int = epoch) -> None:
                partition = side.services.replicas.find(TOPIC, index)
                if partition is not None:
                    with contextlib.suppress(ApiError):  # as on the other side
                        partition.append_marker(marker, producer_id, epoch + bump, 1 + bump, now_ms)

            self.both.do(append)

    def hang_up(self) -> None:
        self.both.hang_up()
        self.both.each(lambda side: side.reconnect())
        self._consumer = NEW_SESSION

    def _log(self, index: int) -> Log:
        return self._logs[self.both.fast][index]

    def _ends(self) -> list[int]:
        return [self._log(index).log_end_offset for index in range(self.both.partitions)]


def _configure(side: Side, config: TopicConfig) -> None:
    for partition in side.services.replicas.of_topic(TOPIC):
        partition.configure(config)
