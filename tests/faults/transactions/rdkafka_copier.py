"""A copier that is a program with librdkafka, which speaks transaction version 1; a process as `copier` is one.

    python -m tests.faults.transactions.rdkafka_copier NAME INCARNATION VERSION SEED PARTITIONS BOOTSTRAP

A call that comes to no end ends the process, as whoever runs such a program must see to: librdkafka 2.16 remembers the
coordinator of a group while it drops the broker, which restarts, from its metadata. `send_offsets_to_transaction` then
waits for a connection that nobody opens, whatever its timeout is (librdkafka issues 5511 and 5456).
"""

import faulthandler
import random
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.faults.transactions.copier import (
    DOOMED,
    FENCED_EXIT,
    TRANSACTION_TIMEOUT_MS,
    say,
)
from tests.faults.transactions.records import INPUT, Copy, read_input, target_of
from tests.faults.workload import IMPATIENT, RETRIED

CALL_S = 10.0
HANGS_S = 15.0
READ_S = 0.2
RECORDS_MAX = 300


class FatalError(Exception):
    """Error after which the producer is of no use."""


class AbortableError(Exception):
    """Error after which the transaction must be aborted."""


class RdkafkaCopier:
    """The loop of KIP-447, with partitions of its own."""

    def __init__(self, name: str, incarnation: str, seed: int, partitions: Sequence[int], bootstrap: str) -> None:
        self._name = name
        self._incarnation = incarnation
        self._partitions = partitions
        self._chance = random.Random(f"{seed} {name} {incarnation}")
        base: dict[str, Any] = {"bootstrap.servers": bootstrap, "client.id": f"v1-{name}", **IMPATIENT}
        self._producer = Producer(
            {
                **base,
                "transactional.id": name,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "linger.ms": 2,
                "retry.backoff.ms": 50,
                "retry.backoff.max.ms": 300,
            }
        )
        self._consumer = Consumer(
            {
                **base,
                "group.id": name,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 50,
            }
        )
        self._number = 0
        self._positions: dict[int, int] = {}

    def run(self) -> int:
        """Copy until the producer is of no use; returns the exit code."""
        try:
            say("init")
            self._do(self._producer.init_transactions, CALL_S)
            say("ready")
            asked = [TopicPartition(INPUT, each) for each in self._partitions]
            found = self._do(self._consumer.committed, asked, CALL_S)
            self._positions = {each.partition: self._position(each) for each in found}
            self._go_to_positions()
            while True:
                self._copy_some()
        except FatalError as error:
            say(f"fenced - {error}")
            return FENCED_EXIT

    def _position(self, committed: TopicPartition) -> int:
        if committed.error is not None:
            raise FatalError(f"committed offset of {committed.partition}: {committed.error}")
        return max(0, committed.offset)

    def _go_to_positions(self) -> None:
        self._consumer.assign([TopicPartition(INPUT, each, at) for each, at in self._positions.items()])

    def _copy_some(self) -> None:
        read: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
        for message in self._consumer.consume(self._chance.randint(1, RECORDS_MAX), READ_S):
            partition, offset, error = message.partition(), message.offset(), message.error()
            if error is None and partition is not None and offset is not None:
                read[partition].append((offset, message.value() or b""))
            elif error is not None and error.code() not in RETRIED:
                say(f"refused - {partition}@{offset}: {error}")
        if not read:
            return
        self._number += 1
        is_doomed = self._chance.random() < DOOMED
        offsets = {source: found[-1][0] + 1 for source, found in read.items()}
        try:
            self._transaction(read, offsets, is_doomed=is_doomed)
        except AbortableError:
            self._abort()
            return
        self._positions |= offsets
        say(f"committed {self._number} {sum(map(len, read.values()))}")

    def _transaction(
        self, read: dict[int, list[tuple[int, bytes]]], offsets: dict[int, int], *, is_doomed: bool
    ) -> None:
        self._do(self._producer.begin_transaction)
        self._write(read, is_doomed=is_doomed)
        if is_doomed and self._chance.random() < 0.5:
            raise AbortableError
        positions = [TopicPartition(INPUT, each, at) for each, at in offsets.items()]
        self._do(
            self._producer.send_offsets_to_transaction, positions, self._consumer.consumer_group_metadata(), CALL_S
        )
        if is_doomed:
            raise AbortableError
        self._do(self._producer.commit_transaction, CALL_S)

    def _write(self, read: dict[int, list[tuple[int, bytes]]], *, is_doomed: bool) -> None:
        name = f"{self._name}.{self._incarnation}.{self._number}"
        by_target: dict[Any, list[tuple[int, int]]] = defaultdict(list)
        for source, found in read.items():
            by_target[target_of(source)] += [read_input(value) for _, value in found]
        for target, copied in by_target.items():
            for at, (source, number) in enumerate(copied):
                value = Copy(source, number, name, at, len(copied), is_doomed).encoded()
                self._do(self._producer.produce, target.topic, value, None, target.partition)

    def _abort(self) -> None:
        try:
            self._do(self._producer.abort_transaction, CALL_S)
        except AbortableError as error:
            raise FatalError(str(error)) from error
        self._go_to_positions()

    def _do(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Call until the result is known."""
        while True:
            faulthandler.dump_traceback_later(HANGS_S, exit=True)
            try:
                return call(*arguments)
            except BufferError:
                self._producer.poll(READ_S)
            except KafkaException as raised:
                error: KafkaError = raised.args[0]
                if error.fatal() or error.code() == KafkaError._STATE:
                    raise FatalError(str(error)) from raised
                if error.txn_requires_abort():
                    raise AbortableError(str(error)) from raised
                say(f"again {getattr(call, '__name__', '')} {error}")
                time.sleep(READ_S)
            finally:
                faulthandler.cancel_dump_traceback_later()


def main() -> int:
    name, incarnation, _, seed, partitions, bootstrap = sys.argv[1:]
    return RdkafkaCopier(name, incarnation, int(seed), [*map(int, partitions.split(","))], bootstrap).run()


if __name__ == "__main__":
    sys.exit(main())
