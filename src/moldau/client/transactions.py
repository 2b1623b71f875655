"""Transactions of a producer: begun, committed and aborted in the order that librdkafka wants, and tried again where it
says that this helps."""

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka import Producer as KafkaProducer

from moldau.client.errors import ClientError
from moldau.client.settings import REQUEST_TIMEOUT_S, failure

PATIENCE_S = 60.0
"""Seconds for which a step is tried again that may succeed later, as `max.block.ms` says in Java."""


class Transactional:
    """The steps of transactions of one producer."""

    def __init__(self, kafka: KafkaProducer, transactional_id: str | None) -> None:
        self._kafka = kafka
        self._id = transactional_id
        self._is_ready = False
        self._is_open = False

    def begin(self) -> None:
        if self._id is None:
            raise ClientError("transactions need a name: Producer(..., transactional_id='...')")
        if self._is_open:
            raise ClientError(f"a transaction of {self._id!r} is open already")
        if not self._is_ready:
            self._step(lambda: self._kafka.init_transactions(REQUEST_TIMEOUT_S))
            self._is_ready = True
        self._step(self._kafka.begin_transaction)
        self._is_open = True

    def send_offsets(self, places: list[TopicPartition], group: Any) -> None:
        self._step(lambda: self._kafka.send_offsets_to_transaction(places, group, REQUEST_TIMEOUT_S))

    def commit(self) -> None:
        self._step(lambda: self._kafka.commit_transaction(REQUEST_TIMEOUT_S))
        self._is_open = False

    def abort(self) -> None:
        """Abort the transaction that is open, if there is one. After a fatal error there is nothing to abort: the
        cluster does it, when the next producer of this name begins."""
        if not self._is_open:
            return
        self._is_open = False
        try:
            self._step(lambda: self._kafka.abort_transaction(REQUEST_TIMEOUT_S))
        except ClientError as error:
            if not error.is_fatal:
                raise

    def _step(self, step: Callable[[], None]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return step()
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise failure(error, f"transaction of {self._id!r}") from error
