"""A transactional copier by hand, in either transaction version, as a process that can be killed and stopped.

    python -m tests.faults.transactions.copier NAME INCARNATION VERSION SEED PARTITIONS BOOTSTRAP

It begins where its group's committed offsets are, and puts the new ones into each transaction. Its transactional id is
its NAME: a second process of the name fences the first. It says on standard output what happens to it, and ends when it
is fenced.

Of version 1 it is careful in one thing more. An EndTxn that was not answered may arrive while the next transaction is
open, and end that one; a TxnOffsetCommit may put old offsets into it: no broker can tell, as the epoch is the same
(KIP-890). So it ends itself instead of asking again, and its next process has an epoch of its own.
"""

import random
import sys
import time
from collections import defaultdict
from collections.abc import Sequence

from moldau.core.ids import TopicPartition
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k00_produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from moldau.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from moldau.protocol.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from moldau.protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from moldau.protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from moldau.protocol.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from moldau.protocol.messages.k26_end_txn import EndTxnRequest, EndTxnResponse
from moldau.protocol.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from moldau.records.batch import Record, build_batch, iter_records, split_batches
from moldau.records.compression import Codec
from tests.faults.transactions.records import INPUT, Copy, read_input, target_of
from tests.faults.transactions.wire import GROUP, TRANSACTION, Refused, Unanswered, Wire, sent_bytes

TRANSACTION_TIMEOUT_MS = 6_000
ACKS_ALL = -1
WRITE_TIMEOUT_MS = 3_000
READ_COMMITTED = 1
FETCH_VERSION, OFFSET_FETCH_VERSION = 11, 7
IDLE_S = 0.05
DOOMED, EMPTY, IS_SLOW = 0.12, 0.03, 0.1
"""Chances: that a transaction is aborted, that it is aborted with nothing in it (version 2), that it takes its time."""
SLOW_S_MAX = 1.0
FETCH_BYTES = (300, 3_000, 30_000)
BATCH_RECORDS_MAX = 100
FENCED = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    }
)
FENCED_EXIT, UNSURE_EXIT = 3, 4


class Versions:
    """Versions of requests that a client of this transaction version may use."""

    def __init__(self, transaction_version: int, chance: random.Random) -> None:
        self.bumps_epochs = transaction_version == 2
        self.produce = 12 if self.bumps_epochs else chance.choice((9, 10, 11))
        self.offset_commit = 5 if self.bumps_epochs else chance.choice((3, 4))
        self.end = 5 if self.bumps_epochs else chance.choice((3, 4))
        self.add = chance.choice((2, 3))
        self.init = 5 if self.bumps_epochs else 4


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class Copier:
    """Reads its partitions of the input, and copies what it read in one transaction after another."""

    def __init__(
        self, name: str, incarnation: str, version: int, seed: int, partitions: Sequence[int], at: str
    ) -> None:
        self._name = name
        self._incarnation = incarnation
        self._partitions = partitions
        self._chance = random.Random(f"{seed} {name} {incarnation}")
        self._versions = Versions(version, self._chance)
        self._wire = Wire(at.split(","), f"v{version}-{name}", self._chance)
        self._producer_id, self._epoch = -1, -1
        self._sequences: dict[TopicPartition, int] = defaultdict(int)
        self._positions: dict[int, int] = {}
        self._number = 0
        self._begun = 0.0

    def run(self) -> int:
        """Copy for ever; returns the exit code when it is fenced, or does not know what became of a transaction."""
        try:
            say("init")
            self._wire.patiently(self._init)
            say(f"ready {self._producer_id} {self._epoch}")
            self._positions = self._wire.patiently(self._committed)
            while True:
                self._copy_some()
        except Refused as error:
            in_transaction_s = time.monotonic() - self._begun if self._begun else 0.0
            say(f"{'fenced' if error.code in FENCED else 'refused'} {in_transaction_s:.1f} {error}")
            return FENCED_EXIT
        except Unanswered:
            say("unsure")
            return UNSURE_EXIT

    def _copy_some(self) -> None:
        source = self._chance.choice(self._partitions)
        if self._versions.bumps_epochs and self._chance.random() < EMPTY:
            self._end(committed=False)
            return
        read = {
            each: found
            for each in self._chance.sample(self._partitions, len(self._partitions))
            if (each == source or self._chance.random() < 0.5)
            and (found := self._wire.patiently(lambda: self._read(each)))  # noqa: B023  # called at once
        }
        if not read:
            time.sleep(IDLE_S)
            return
        is_doomed = self._chance.random() < DOOMED
        self._number += 1
        self._begun = time.monotonic()
        self._write(self._copies(read, is_doomed))
        offsets = {each: found[-1][0] + 1 for each, found in read.items()}
        if self._chance.random() < IS_SLOW:
            time.sleep(self._chance.uniform(0, SLOW_S_MAX))
        if not is_doomed or self._chance.random() < 0.5:
            self._add_offsets(offsets)
        self._end(committed=not is_doomed)
        self._begun = 0.0
        if not is_doomed:
            self._positions |= offsets
            say(f"committed {self._number} {sum(map(len, read.values()))}")

    def _copies(self, read: dict[int, list[tuple[int, bytes]]], is_doomed: bool) -> dict[TopicPartition, list[bytes]]:
        by_target: dict[TopicPartition, list[tuple[int, int]]] = defaultdict(list)
        for source, found in read.items():
            by_target[target_of(source)] += [read_input(value) for _, value in found]
        name = f"{self._name}.{self._incarnation}.{self._number}"
        return {
            target: [
                Copy(source, number, name, at, len(copied), is_doomed).encoded()
                for at, (source, number) in enumerate(copied)
            ]
            for target, copied in by_target.items()
        }

    # --- requests

    def _init(self) -> None:
        request = InitProducerIdRequest(transactional_id=self._name, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS)
        try:
            answer = self._wire.ask_coordinator(
                TRANSACTION, self._name, self._versions.init, request, InitProducerIdResponse
            )
        except Unanswered:
            say("init unanswered")
            raise
        _check(answer.error_code, "InitProducerId")
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
        self._sequences.clear()

    def _committed(self) -> dict[int, int]:
        topic = OffsetFetchRequestTopic(name=INPUT, partition_indexes=list(self._partitions))
        request = OffsetFetchRequest(group_id=self._name, topics=[topic], require_stable=True)
        answer = self._wire.ask_coordinator(GROUP, self._name, OFFSET_FETCH_VERSION, request, OffsetFetchResponse)
        _check(answer.error_code, "OffsetFetch")
        found = {}
        for each in answer.topics[0].partitions:
            _check(each.error_code, f"OffsetFetch of {each.partition_index}")
            found[each.partition_index] = max(0, each.committed_offset)
        return found

    def _read(self, source: int) -> list[tuple[int, bytes]]:
        part = FetchPartition(
            partition=source,
            fetch_offset=self._positions[source],
            partition_max_bytes=self._chance.choice(FETCH_BYTES),
        )
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            isolation_level=READ_COMMITTED,
            topics=[FetchTopic(topic=INPUT, partitions=[part])],
        )
        answer = self._wire.ask_leader(TopicPartition(INPUT, source), FETCH_VERSION, request, FetchResponse)
        (result,) = answer.responses[0].partitions
        _check(result.error_code, f"Fetch of {source} at {self._positions[source]}")
        return [
            (record.offset, record.value or b"")
            for _, batch in split_batches(sent_bytes(result.records), partial_end=True)
            for record in iter_records(batch)
            if record.offset >= self._positions[source]
        ]

    def _write(self, copies: dict[TopicPartition, list[bytes]]) -> None:
        if not self._versions.bumps_epochs:
            self._wire.patiently(lambda: self._add_partitions(list(copies)))
        for target, values in copies.items():
            first = 0
            while first < len(values):
                some = values[first : first + self._chance.randint(1, BATCH_RECORDS_MAX)]
                batch = self._batch(target, some)
                self._wire.patiently(lambda: self._produce(target, batch))  # noqa: B023  # called at once
                self._sequences[target] += len(some)
                first += len(some)

    def _batch(self, target: TopicPartition, values: Sequence[bytes]) -> bytes:
        now_ms = time.time_ns() // 1_000_000
        return build_batch(
            [Record(at, now_ms, None, value) for at, value in enumerate(values)],
            codec=self._chance.choice((Codec.NONE, Codec.NONE, Codec.LZ4)),
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=self._sequences[target],
            is_transactional=True,
        )

    def _add_partitions(self, partitions: Sequence[TopicPartition]) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._name,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=partitions[0].topic, partitions=[each.partition for each in partitions])
            ],
        )
        answer = self._wire.ask_coordinator(
            TRANSACTION, self._name, self._versions.add, request, AddPartitionsToTxnResponse
        )
        for topic in answer.results_by_topic_v3_and_below:
            for each in topic.results_by_partition:
                _check(each.partition_error_code, "AddPartitionsToTxn")

    def _produce(self, target: TopicPartition, batch: bytes) -> None:
        data = [PartitionProduceData(index=target.partition, records=batch)]
        request = ProduceRequest(
            transactional_id=self._name,
            acks=ACKS_ALL,
            timeout_ms=WRITE_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=target.topic, partition_data=data)],
        )
        answer = self._wire.ask_leader(target, self._versions.produce, request, ProduceResponse)
        (result,) = answer.responses[0].partition_responses
        _check(result.error_code, f"Produce to {target}, epoch {self._epoch}, sequence {self._sequences[target]}")

    def _add_offsets(self, offsets: dict[int, int]) -> None:
        if not self._versions.bumps_epochs:
            self._wire.patiently(self._add_group)
        self._wire.patiently(lambda: self._commit_offsets(offsets), again_if_unanswered=self._versions.bumps_epochs)

    def _add_group(self) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=self._name,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            group_id=self._name,
        )
        answer = self._wire.ask_coordinator(
            TRANSACTION, self._name, self._versions.add, request, AddOffsetsToTxnResponse
        )
        _check(answer.error_code, "AddOffsetsToTxn")

    def _commit_offsets(self, offsets: dict[int, int]) -> None:
        parts = [
            TxnOffsetCommitRequestPartition(partition_index=each, committed_offset=offset, committed_metadata="")
            for each, offset in offsets.items()
        ]
        request = TxnOffsetCommitRequest(
            transactional_id=self._name,
            group_id=self._name,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            topics=[TxnOffsetCommitRequestTopic(name=INPUT, partitions=parts)],
        )
        answer = self._wire.ask_coordinator(
            GROUP, self._name, self._versions.offset_commit, request, TxnOffsetCommitResponse
        )
        for each in answer.topics[0].partitions:
            _check(each.error_code, f"TxnOffsetCommit, epoch {self._epoch}")

    def _end(self, *, committed: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self._name,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=committed,
        )

        def ask() -> EndTxnResponse:
            answer = self._wire.ask_coordinator(TRANSACTION, self._name, self._versions.end, request, EndTxnResponse)
            _check(answer.error_code, f"EndTxn, epoch {self._epoch}, committed {committed}")
            return answer

        answer = self._wire.patiently(ask, again_if_unanswered=self._versions.bumps_epochs)
        if self._versions.bumps_epochs:
            self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
            self._sequences.clear()


def _check(code: int, what: str) -> None:
    if code:
        raise Refused(code, what)


def main() -> int:
    name, incarnation, version, seed, partitions, bootstrap = sys.argv[1:]
    return Copier(name, incarnation, int(version), int(seed), [*map(int, partitions.split(","))], bootstrap).run()


if __name__ == "__main__":
    sys.exit(main())
