"""Transactions in a simulated cluster under random failures: what a reader of committed records sees, and that all end.

Real: the log's and the leaders' side, Produce with verification, WriteTxnMarkers, Fetch. The coordinator is the test:
it knows which transaction is open, answers verifications late, sends markers until they are taken, and some again.
"""

import gc
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from moldau.core.ids import TopicPartition
from moldau.protocol import codec
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from moldau.protocol.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from moldau.protocol.schema import Message
from moldau.records.batch import Record, build_batch, iter_records, split_batches
from moldau.requests.transaction_verification import TransactionOperation, VerifiedTransaction
from tests.replication.simulation import TOPIC, TOPIC_ID, Cluster, Node
from tests.replication.test_model import (
    FETCH_VERSION,
    PRODUCE_VERSION,
    RETRIABLE,
    Checks,
    calm,
    is_level,
    is_whole,
    trouble,
)
from tests.replication.test_model import settle as settle_whole

SEEDS = int(os.environ.get("MODEL_SEEDS", "8"))
TROUBLE_S = 20.0
MARKERS_VERSION = 2
READ_COMMITTED = 1
TRANSACTION_VERSION = 2


class Coordinator:
    """The open epoch of each transactional id; asked by brokers."""

    def __init__(self) -> None:
        self.open: dict[str, int] = {}
        self.cluster: Cluster

    async def verify(
        self, transaction: VerifiedTransaction, partitions: Sequence[TopicPartition], _: TransactionOperation
    ) -> Mapping[TopicPartition, ErrorCode]:
        cluster = self.cluster
        await cluster.sleep(cluster.delay())
        is_open = self.open.get(transaction.transactional_id) == transaction.producer_epoch
        await cluster.sleep(cluster.delay())
        code = ErrorCode.NONE if is_open else ErrorCode.INVALID_PRODUCER_EPOCH
        return dict.fromkeys(partitions, code)


class Transactor:
    """Runs one transaction after the other in one partition; some end while a batch is on its way."""

    def __init__(self, cluster: Cluster, coordinator: Coordinator, producer_id: int, index: int) -> None:
        self._cluster = cluster
        self._coordinator = coordinator
        self._random = Random(cluster.random.random())
        self.producer_id = producer_id
        self.index = index
        self.name = f"tx-{producer_id}"
        self.epoch = 0
        self.is_stopped = self.is_idle = False
        self.committed: list[bytes] = []
        self.marked = 0
        self._number = 0
        self._attempt = 0
        self._begin()

    def _ask(self, key: int, version: int, message: Message, then: Callable[[Any], None], again: float) -> None:
        """Send to the leader, or now and then to another; `then` gets the answer, or None when it took too long."""
        cluster = self._cluster
        self._attempt += 1
        attempt = self._attempt
        leader = cluster.store.image.topics[TOPIC].partitions[self.index].leader
        node = cluster.nodes[leader if leader > 0 and self._random.random() > 0.1 else self._random.choice((1, 2, 3))]
        body = codec.encode(message, version)

        def told(answer: Any) -> None:
            if attempt == self._attempt:
                self._attempt += 1
                then(answer)

        def answered(answer: Any) -> None:
            cluster.loop.call_later(cluster.delay(), told, answer)

        cluster.loop.call_later(cluster.delay(), lambda: node.serve(key, version, body, answered))
        cluster.loop.call_later(again, told, None)

    # One transaction

    def _begin(self) -> None:
        if self.is_stopped:
            self.is_idle = True
            return
        self._coordinator.open[self.name] = self.epoch
        self._sequence = 0
        self._values: list[bytes] = []
        self._left = self._random.randint(1, 4)
        self._next_batch()

    def _next_batch(self) -> None:
        if not self._left:
            self._end(committed=self._random.random() < 0.6)
            return
        self._left -= 1
        self._number += 1
        self._value = b"%d:%d" % (self.producer_id, self._number)
        record = Record(0, self._cluster.clock.now_ms(), None, self._value)
        self._batch = build_batch(
            [record],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self._sequence,
            is_transactional=True,
        )
        self._send()
        if self._random.random() < 0.1:
            self._attempt += 1  # whatever is answered: nobody listens any more
            self._cluster.loop.call_later(self._random.uniform(0, 0.01), lambda: self._end(committed=False))

    def _send(self) -> None:
        data = [PartitionProduceData(index=self.index, records=self._batch)]
        topic = TopicProduceData(topic_id=TOPIC_ID, partition_data=data)
        request = ProduceRequest(transactional_id=self.name, acks=-1, timeout_ms=2000, topic_data=[topic])
        self._ask(0, PRODUCE_VERSION, request, self._sent, 3)

    def _sent(self, answer: Any) -> None:
        code = None if answer is None else answer.responses[0].partition_responses[0].error_code
        if code == ErrorCode.NONE:
            self._values.append(self._value)
            self._sequence += 1
            self._next_batch()
        elif code is None or code in RETRIABLE:
            self._cluster.loop.call_later(self._random.uniform(0, 0.1), self._send)
        else:
            raise AssertionError(f"{self.name} at epoch {self.epoch}: {ErrorCode(code).name}")

    # Its end

    def _end(self, *, committed: bool) -> None:
        del self._coordinator.open[self.name]
        if committed:
            self.committed += self._values
        self.epoch += 1
        self._mark(self._marker(committed, self.epoch))

    def _marker(self, committed: bool, epoch: int) -> WriteTxnMarkersRequest:
        topic = WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[self.index])
        return WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=self.producer_id,
                    producer_epoch=epoch,
                    transaction_result=committed,
                    topics=[topic],
                    coordinator_epoch=0,
                    transaction_version=TRANSACTION_VERSION,
                )
            ]
        )

    def _mark(self, marker: WriteTxnMarkersRequest) -> None:
        def told(answer: Any) -> None:
            code = None if answer is None else answer.markers[0].topics[0].partitions[0].error_code
            if code != ErrorCode.NONE:
                assert code is None or code in RETRIABLE, ErrorCode(code).name
                self._cluster.loop.call_later(self._random.uniform(0, 0.1), lambda: self._mark(marker))
                return
            self.marked += 1
            if self._random.random() < 0.3:
                self._mark_again(marker)
            self._begin()

        self._ask(27, MARKERS_VERSION, marker, told, 3)

    def _mark_again(self, marker: WriteTxnMarkersRequest) -> None:
        """The same marker comes late, perhaps in the middle of the next transaction, and must do nothing to it."""
        cluster = self._cluster
        leader = max(1, cluster.store.image.topics[TOPIC].partitions[self.index].leader)
        body = codec.encode(marker, MARKERS_VERSION)
        serve = cluster.nodes[leader].serve
        delay = self._random.uniform(0, 0.3)
        cluster.loop.call_later(delay, lambda: serve(27, MARKERS_VERSION, body, lambda _: None))


class CommittedReader:
    """Reads on as `read_committed` from any replica, as clients do: aborted records are left out by what it is told."""

    def __init__(self, cluster: Cluster, index: int) -> None:
        self._cluster = cluster
        self._random = Random(cluster.random.random())
        self.index = index
        self.position = 0
        self.seen: list[bytes] = []
        cluster.loop.call_later(0.01, self._fetch)

    def _fetch(self) -> None:
        cluster = self._cluster
        cluster.loop.call_later(self._random.uniform(0.01, 0.2), self._fetch)
        node = cluster.nodes[self._random.choice((1, 2, 3))]
        asked = FetchPartition(partition=self.index, fetch_offset=self.position, partition_max_bytes=2000)
        topic = FetchTopic(topic_id=TOPIC_ID, partitions=[asked])
        request = FetchRequest(max_bytes=2000, isolation_level=READ_COMMITTED, topics=[topic])
        position = self.position
        node.serve(1, FETCH_VERSION, codec.encode(request, FETCH_VERSION), lambda found: self._take(found, position))

    def _take(self, answer: FetchResponse, position: int) -> None:
        (result,) = answer.responses[0].partitions
        if result.error_code or not result.records or position != self.position:
            return
        coming = sorted(result.aborted_transactions or [], key=lambda each: each.first_offset)
        aborting: set[int] = set()
        for header, data in split_batches(result.records.read(), partial_end=True):  # type: ignore[union-attr]
            while coming and coming[0].first_offset <= header.last_offset:
                aborting.add(coming.pop(0).producer_id)
            if header.is_control:
                aborting.discard(header.producer_id)
            elif header.producer_id not in aborting:
                self.seen += [each.value or b"" for each in iter_records(data) if each.offset >= self.position]
            self.position = max(self.position, header.next_offset)


@pytest.fixture(autouse=True)
def _no_garbage_of_others() -> None:
    gc.collect()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_happens_a_committed_transaction_is_read_once_and_an_aborted_one_never(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = int(os.environ.get("MODEL_SEED", seed))
    print(f"MODEL_SEED={seed}")  # noqa: T201  # a run that fails can be repeated
    coordinator = Coordinator()
    start = Node.start

    def start_with_a_coordinator(node: Node) -> None:
        start(node)
        node.services = replace(node.services, verifier=coordinator)

    monkeypatch.setattr(Node, "start", start_with_a_coordinator)
    cluster = coordinator.cluster = Cluster(seed, 2, monkeypatch)
    checks = Checks(cluster)
    transactors = [Transactor(cluster, coordinator, 100 + number, number % 2) for number in range(4)]
    readers = [CommittedReader(cluster, index) for index in cluster.partitions]
    cluster.troubled = True
    while cluster.loop.time() < TROUBLE_S:
        cluster.loop.run_until(cluster.loop.time() + cluster.random.uniform(0, 0.6))
        trouble(cluster)
    calm(cluster)
    for each in transactors:
        each.is_stopped = True
    settle_whole(cluster, checks, lambda: all(each.is_idle for each in transactors) and is_whole(cluster))
    settle_whole(cluster, checks, lambda: is_level(cluster))
    for index in cluster.partitions:  # nothing hangs: the last stable offset has come to the high watermark everywhere
        copies = [node.services.replicas.replica(TOPIC, index) for node in cluster.nodes.values()]
        assert {each.last_stable_offset == each.high_watermark for each in copies if each is not None} == {True}
    settle_whole(cluster, checks, lambda: all(each.position == checks.committed[each.index] for each in readers))
    for each in transactors:
        assert each.marked > 3
        own = [value for value in readers[each.index].seen if value.startswith(b"%d:" % each.producer_id)]
        assert own == each.committed, f"{each.name}: torn, lost, double, or seen though aborted"
