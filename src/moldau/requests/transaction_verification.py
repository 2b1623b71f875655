"""Way of Produce and TxnOffsetCommit to the coordinator of a transaction: `context.services.verifier` (KIP-890).

Before the first batch of a transaction goes into a partition its coordinator is asked whether the partition is in the
transaction, or, by newer clients, to put it in. What is asked follows from the version of the client's request.
"""

from collections.abc import Awaitable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from moldau.coordinators.promise import Promise
from moldau.core.ids import TopicPartition
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k24_add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse


class VerifiedTransaction(NamedTuple):
    """The transaction that a request says it is part of."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class TransactionOperation(Enum):
    """Question to the coordinator: VERIFY_OLD answers in codes that clients before TRANSACTION_ABORTABLE know."""

    VERIFY_OLD = "verify, with old errors"
    VERIFY = "verify"
    ADD = "add"

    @property
    def bumps_epoch(self) -> bool:
        """Whether the client speaks transaction version 2."""
        return self is TransactionOperation.ADD


class TransactionVerifier(Protocol):
    """Asks the coordinator of a transactional id, wherever it is."""

    def verify(
        self,
        transaction: VerifiedTransaction,
        partitions: Sequence[TopicPartition],
        operation: TransactionOperation,
    ) -> Awaitable[Mapping[TopicPartition, ErrorCode]]:
        """The code of each partition, NONE for those that are in the transaction.

        INVALID_PRODUCER_EPOCH stands for PRODUCER_FENCED. CONCURRENT_TRANSACTIONS, usual right after a commit, is told
        only when more tries have not helped. Nobody to ask: COORDINATOR_NOT_AVAILABLE; no answer: NETWORK_EXCEPTION.
        """
        ...


class PartitionAdder(Protocol):
    """The transaction coordinator of this broker, for those who ask it without a socket."""

    def add_partitions(
        self, request: AddPartitionsToTxnRequest
    ) -> AddPartitionsToTxnResponse | Promise[AddPartitionsToTxnResponse]:
        """The answer to AddPartitionsToTxn 4+, as another broker would get it."""
        ...


class NoVerifier:
    """Verifier for services without transactions: nobody coordinates any."""

    async def verify(
        self,
        _transaction: VerifiedTransaction,
        partitions: Sequence[TopicPartition],
        _operation: TransactionOperation,
    ) -> Mapping[TopicPartition, ErrorCode]:
        return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
