"""Asks transaction coordinators whether partitions are in a transaction, or to put them in (KIP-890).

Each coordinator's broker is asked one request at a time. What comes up meanwhile waits, and goes together in the next
(`peer_lines`).

Of one transactional id only the newest epoch waits. An older one is told INVALID_PRODUCER_EPOCH: it is fenced. Of two
producer ids the later question waits, and who asked before is to ask again.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import partial

from moldau.broker.peer_lines import PeerLine, PeerLines
from moldau.coordinators.key_partition import partition_of
from moldau.coordinators.promise import Promise
from moldau.core.ids import TopicPartition
from moldau.core.internal_topics import TRANSACTIONS_TOPIC
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from moldau.requests.parts import Parts
from moldau.requests.transaction_verification import PartitionAdder, TransactionOperation, VerifiedTransaction

log = logging.getLogger(__name__)

VERSION = 5
TRANSACTIONS_MAX = 1000
"""Transactions in one request at most; the others wait for the next."""

Codes = Mapping[TopicPartition, ErrorCode]


class CoordinatorVerifier:
    """Implements `requests.transaction_verification.TransactionVerifier`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, parts: Parts) -> None:
        self._loop = loop
        self._parts = parts
        self._nodes = PeerLines(parts, lambda: _Node(loop, parts))
        self.local: PartitionAdder | None = None
        """Coordinator of this broker; without it the broker asks itself as it asks others."""

    async def verify(
        self, transaction: VerifiedTransaction, partitions: Sequence[TopicPartition], operation: TransactionOperation
    ) -> Codes:
        config = self._parts.config
        backoff_s = config.int("add.partitions.to.txn.retry.backoff.ms") / 1000
        longest_ms = min(config.int("add.partitions.to.txn.retry.backoff.max.ms"), config.int("request.timeout.ms"))
        deadline = self._loop.time() + longest_ms / 1000
        while True:
            codes = await self._ask(transaction, partitions, is_adding=operation.bumps_epoch)
            is_worth_a_try = operation.bumps_epoch and ErrorCode.CONCURRENT_TRANSACTIONS in codes.values()
            if not is_worth_a_try or self._loop.time() + backoff_s > deadline:
                return {each: _as_clients_see_it(code, operation) for each, code in codes.items()}
            await asyncio.sleep(backoff_s)

    async def _ask(
        self, transaction: VerifiedTransaction, partitions: Sequence[TopicPartition], *, is_adding: bool
    ) -> Codes:
        try:
            node = self._node_of(transaction.transactional_id)
        except ApiError as error:
            return dict.fromkeys(partitions, error.code)
        if node is None:
            return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return await node.ask(transaction, partitions, is_adding=is_adding)

    def _node_of(self, transactional_id: str) -> "_Node | None":
        """The broker that coordinates an id now; None if nobody does. Raises ApiError for one that nobody can have."""
        topic = self._parts.metadata.image.topics.get(TRANSACTIONS_TOPIC)
        if topic is None:
            return None
        leader = topic.partitions[partition_of(transactional_id, len(topic.partitions))].leader
        node = self._nodes.find(leader)
        if node is not None:
            node.local = self.local if leader == self._parts.broker_id else None
        return node

    def close(self) -> None:
        """Ask nobody any more; whoever waits is told NETWORK_EXCEPTION."""
        self._nodes.close()


def _as_clients_see_it(code: ErrorCode, operation: TransactionOperation) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH  # what a producer of Produce and TxnOffsetCommit expects
    if code is ErrorCode.TRANSACTION_ABORTABLE and operation is TransactionOperation.VERIFY_OLD:
        return ErrorCode.INVALID_TXN_STATE
    return code


def _fences(newer: VerifiedTransaction, older: VerifiedTransaction) -> bool:
    """Whether one producer shows another to be a zombie. Epochs of different ids say nothing: after the last epoch of
    an id comes epoch 0 of the next, and only the coordinator knows which is which."""
    return newer.producer_id == older.producer_id and newer.producer_epoch > older.producer_epoch


class _Question:
    """One transactional id's part of a request, and those who wait for the answer, each for some of the partitions."""

    __slots__ = ("is_adding", "transaction", "waiting")

    def __init__(self, transaction: VerifiedTransaction, *, is_adding: bool) -> None:
        self.transaction = transaction
        self.is_adding = is_adding
        self.waiting: list[tuple[asyncio.Future[Codes], Sequence[TopicPartition]]] = []

    def encoded(self) -> AddPartitionsToTxnTransaction:
        by_topic: dict[str, list[int]] = {}
        for each in dict.fromkeys(each for _, partitions in self.waiting for each in partitions):
            by_topic.setdefault(each.topic, []).append(each.partition)
        return AddPartitionsToTxnTransaction(
            transactional_id=self.transaction.transactional_id,
            producer_id=self.transaction.producer_id,
            producer_epoch=self.transaction.producer_epoch,
            verify_only=not self.is_adding,
            topics=[AddPartitionsToTxnTopic(name=name, partitions=found) for name, found in by_topic.items()],
        )

    def tell(self, codes: Codes, otherwise: ErrorCode) -> None:
        for future, partitions in self.waiting:
            if not future.done():
                future.set_result({each: codes.get(each, otherwise) for each in partitions})


class _Node(PeerLine):
    """One coordinator's broker: what waits for it, and the request under way."""

    def __init__(self, loop: asyncio.AbstractEventLoop, parts: Parts) -> None:
        super().__init__(loop, parts, "transactions")
        self._pending: dict[str, _Question] = {}
        self._is_asking = False
        self.local: PartitionAdder | None = None

    def ask(
        self, transaction: VerifiedTransaction, partitions: Sequence[TopicPartition], *, is_adding: bool
    ) -> "asyncio.Future[Codes]":
        future: asyncio.Future[Codes] = self._loop.create_future()
        question = self._pending.get(transaction.transactional_id)
        if question is not None and _fences(question.transaction, transaction):
            future.set_result(dict.fromkeys(partitions, ErrorCode.INVALID_PRODUCER_EPOCH))
            return future
        if question is None or question.transaction != transaction or question.is_adding != is_adding:
            if question is not None:
                is_newer = _fences(transaction, question.transaction)
                question.tell({}, ErrorCode.INVALID_PRODUCER_EPOCH if is_newer else ErrorCode.NETWORK_EXCEPTION)
            question = self._pending[transaction.transactional_id] = _Question(transaction, is_adding=is_adding)
        question.waiting.append((future, partitions))
        if not self._is_asking:
            self._is_asking = True
            self._loop.call_soon(self._send)
        return future

    def _send(self) -> None:
        """Send what waits: all of this turn of the loop, and all that came while the request before was under way."""
        ids = list(self._pending)[:TRANSACTIONS_MAX]
        questions = [self._pending.pop(each) for each in ids]
        if not questions:
            self._is_asking = False
            return
        request = AddPartitionsToTxnRequest(transactions=[each.encoded() for each in questions])
        if self.local is not None:
            self._ask_here(self.local, request, questions)
        else:
            answered = partial(self._answered, questions)
            self._request(request, VERSION, AddPartitionsToTxnResponse, answered)

    def _ask_here(
        self, local: PartitionAdder, request: AddPartitionsToTxnRequest, questions: Sequence[_Question]
    ) -> None:
        answer = local.add_partitions(request)
        if isinstance(answer, Promise):
            answer.then(partial(self._answered, questions))
        else:
            self._answered(questions, answer)

    def _answered(self, questions: Sequence[_Question], response: AddPartitionsToTxnResponse | None) -> None:
        otherwise = ErrorCode.NETWORK_EXCEPTION
        results: dict[str, Codes] = {}
        if response is not None and response.error_code:
            otherwise = _of_the_whole(response.error_code)
        elif response is not None:
            results = {each.transactional_id: _codes(each) for each in response.results_by_transaction}
        for question in questions:
            question.tell(results.get(question.transaction.transactional_id, {}), otherwise)
        self._loop.call_soon(self._send)

    def close(self) -> None:
        super().close()
        pending, self._pending = self._pending, {}
        for question in pending.values():
            question.tell({}, ErrorCode.NETWORK_EXCEPTION)


def _of_the_whole(code: int) -> ErrorCode:
    """The code of each partition where a request is refused as a whole."""
    if code == ErrorCode.UNSUPPORTED_VERSION:
        return ErrorCode.NONE  # a coordinator from before KIP-890 cannot be asked
    if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        log.error("this broker may not ask the transaction coordinator: CLUSTER_ACTION is missing")
        return ErrorCode.INVALID_TXN_STATE
    return ErrorCode(code)


def _codes(result: AddPartitionsToTxnResult) -> Codes:
    return {
        TopicPartition(topic.name, each.partition_index): ErrorCode(each.partition_error_code)
        for topic in result.topic_results
        for each in topic.results_by_partition
    }
