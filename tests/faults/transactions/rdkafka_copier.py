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
from collections.abc import Callable, Mapping, Sequence
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
Read = dict[int, list[tuple[int, bytes]]]
"""Offsets and values that were read, by partition."""
READ_S = 0.2
RECORDS_MAX = 300


class FatalError(Exception):
    """Error after which the producer is of no use."""


class AbortableError(Exception):
    """Error after which the transaction must be aborted."""


class RdkafkaCopier:
    """Reads, copies and commits; which partitions is up to those who are made from it."""

    topic: str

    def __init__(
        self, name: str, incarnation: str, seed: int, group: str, bootstrap: str, reading: Mapping[str, Any]
    ) -> None:
        self._name = name
        self._incarnation = incarnation
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
                "group.id": group,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 50,
                **reading,
            }
        )
        self._number = 0

    def run(self) -> int:
        """Copy until the producer is of no use; returns the exit code."""
        try:
            say("init")
            self._do(self._producer.init_transactions, CALL_S)
            say("ready")
            self._begin_reading()
            while True:
                self._copy_some()
        except FatalError as error:
            say(f"fenced - {error}")
            return FENCED_EXIT

    def _begin_reading(self) -> None:
        raise NotImplementedError

    def _group_metadata(self) -> Any:
        return self._consumer.consumer_group_metadata()

    def _copy_some(self) -> None:
        read: Read = defaultdict(list)
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
        try:
            self._transaction(read, is_doomed=is_doomed)
        except AbortableError:
            self._abort()
            for each, found in read.items():
                self._do(self._consumer.seek, TopicPartition(self.topic, each, found[0][0]))
            return
        say(f"committed {self._number} {sum(map(len, read.values()))}")

    def _transaction(self, read: Read, *, is_doomed: bool) -> None:
        self._do(self._producer.begin_transaction)
        self._write(read, is_doomed=is_doomed)
        if is_doomed and self._chance.random() < 0.5:
            raise AbortableError
        offsets = [TopicPartition(self.topic, each, found[-1][0] + 1) for each, found in read.items()]
        self._do(self._producer.send_offsets_to_transaction, offsets, self._group_metadata(), CALL_S)
        if is_doomed:
            raise AbortableError
        self._do(self._producer.commit_transaction, CALL_S)

    def _write(self, read: Read, *, is_doomed: bool) -> None:
        name = f"{self._name}.{self._incarnation}.{self._number}"
        by_target: dict[Any, list[tuple[int, int]]] = defaultdict(list)
        for source, number in (read_input(value) for found in read.values() for _, value in found):
            by_target[target_of(source)].append((source, number))
        for target, copied in by_target.items():
            for at, (source, number) in enumerate(copied):
                value = Copy(source, number, name, at, len(copied), is_doomed).encoded()
                self._do(self._producer.produce, target.topic, value, None, target.partition)

    def _abort(self) -> None:
        try:
            self._do(self._producer.abort_transaction, CALL_S)
        except AbortableError as error:
            raise FatalError(str(error)) from error

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
                if error.fatal() or error.code() in (KafkaError._STATE, KafkaError._FATAL):
                    raise FatalError(str(error)) from raised
                if error.txn_requires_abort():
                    raise AbortableError(str(error)) from raised
                say(f"again {getattr(call, '__name__', '')} {error}")
                time.sleep(READ_S)
            finally:
                faulthandler.cancel_dump_traceback_later()


class RdkafkaOwner(RdkafkaCopier):
    """Has partitions of the input for itself."""

    topic = INPUT

    def __init__(self, name: str, incarnation: str, seed: int, partitions: Sequence[int], bootstrap: str) -> None:
        super().__init__(name, incarnation, seed, name, bootstrap, {"auto.offset.reset": "error"})
        self._partitions = partitions

    def _begin_reading(self) -> None:
        asked = [TopicPartition(INPUT, each) for each in self._partitions]
        found = self._do(self._consumer.committed, asked, CALL_S)
        for each in found:
            if each.error is not None:
                raise FatalError(f"committed offset of {each.partition}: {each.error}")
            each.offset = max(0, each.offset)
        self._consumer.assign(found)


def main() -> int:
    name, incarnation, _, seed, partitions, bootstrap = sys.argv[1:]
    return RdkafkaOwner(name, incarnation, int(seed), [*map(int, partitions.split(","))], bootstrap).run()


if __name__ == "__main__":
    sys.exit(main())
