"""A leader over a log in memory, with a store that does what the test says."""

from collections.abc import Sequence
from dataclasses import replace

from moldau.core.clock import ManualClock
from moldau.log.log import AppendResult, Log
from moldau.protocol.errors import ErrorCode
from moldau.records.batch import Record, build_batch
from moldau.replication.partition import Partition
from tests.log.helpers import CONFIG, NOW_MS, memory_log

US = 1
PRODUCE_VERSION = 11


class Store:
    """Takes proposals down; the test decides what becomes of them."""

    def __init__(self) -> None:
        self.proposals: list[tuple[int, ...]] = []
        self.absent: set[int] = set()

    def propose(self, partition: Partition, isr: tuple[int, ...]) -> None:
        assert partition.pending_isr == isr
        self.proposals.append(isr)

    def may_join(self, replica_id: int, broker_epoch: int, partition: Partition) -> bool:
        return partition.is_led and replica_id not in self.absent and broker_epoch >= 0

    def take(self, partition: Partition) -> None:
        """The last proposal happens."""
        partition.update(self.proposals[-1], partition.replicas, partition.partition_epoch + 1)


class Answer:
    """A write that waits for its commit."""

    def __init__(self) -> None:
        self.codes: list[ErrorCode] = []

    def committed(self, _: Partition, error: ErrorCode) -> None:
        self.codes.append(error)


class Leader:
    """Broker 1 leads, 2 and 3 follow."""

    def __init__(
        self,
        isr: Sequence[int] = (1, 2, 3),
        replicas: Sequence[int] = (1, 2, 3),
        *,
        log: Log | None = None,
        min_isr: int = 1,
        high_watermark: int = 0,
        leader_epoch: int = 5,
    ) -> None:
        self.clock = ManualClock()
        self.store = Store()
        self.log = log or memory_log(replace(CONFIG, min_insync_replicas=min_isr))
        self.partition = Partition(
            b"t" * 16,
            self.log,
            leader_epoch,
            isr,
            broker_id=US,
            replicas=replicas,
            partition_epoch=7,
            high_watermark=high_watermark,
            isr_changes=self.store,
            clock=self.clock,
        )

    def append(self, count: int = 1, acks: int = -1, sequence: int = -1) -> AppendResult:
        records = [Record(number, NOW_MS, None, b"v") for number in range(count)]
        producer_id, epoch = (9, 0) if sequence >= 0 else (-1, -1)
        data = build_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        return self.partition.append(data, PRODUCE_VERSION, acks, NOW_MS)

    def fetched(self, replica_id: int, offset: int, *, broker_epoch: int = 1) -> None:
        self.partition.replica_fetched(replica_id, broker_epoch, offset, 0, self.clock.monotonic_ms())

    def answer_at(self, offset: int) -> Answer:
        answer = Answer()
        self.partition.wait_for_commit(offset, answer)
        return answer
