"""The transaction coordinator of a broker: the coordinator of `__transaction_state`, whose shards are transactions."""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from moldau.broker.coordinator import Coordinator
from moldau.broker.marker_sender import MarkerSender
from moldau.coordinators.key_partition import partition_of
from moldau.coordinators.promise import Promise
from moldau.coordinators.timers import Timers
from moldau.coordinators.transactions.transaction_topic import transaction_topic_settings
from moldau.core.internal_topics import TRANSACTIONS_TOPIC
from moldau.protocol.errors import ApiError
from moldau.protocol.messages.k24_add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from moldau.requests.parts import Parts

if TYPE_CHECKING:  # imported when the first shard is made: a broker without transactions starts sooner
    from moldau.coordinators.transactions.shard import TransactionShard

log = logging.getLogger(__name__)


class TransactionCoordinator(Coordinator["TransactionShard"]):
    """Implements `requests.transactions_access.TransactionsAccess`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, parts: Parts, transaction_version: Callable[[], int]) -> None:
        """`transaction_version`: the level of the cluster's feature of this name."""
        self._transaction_version = transaction_version
        self._filling: asyncio.Task[None] | None = None
        self.markers = MarkerSender(loop, parts, self._coordinator_epoch)
        super().__init__(loop, parts, TRANSACTIONS_TOPIC, transaction_topic_settings, self._transaction_shard)

    def add_partitions(
        self, request: AddPartitionsToTxnRequest
    ) -> AddPartitionsToTxnResponse | Promise[AddPartitionsToTxnResponse]:
        """The answer to AddPartitionsToTxn 4+ of this broker itself."""
        from moldau.requests.transaction_partitions import add_partitions  # see above

        return add_partitions(self, self._parts.metadata.image, request)

    def close(self) -> None:
        super().close()
        self.markers.close()
        if self._filling is not None:
            self._filling.cancel()

    def _transaction_shard(self, timers: Timers) -> "TransactionShard":
        from moldau.coordinators.transactions.shard import TransactionShard  # see above
        from moldau.coordinators.transactions.transaction import Numbering
        from moldau.coordinators.transactions.world import World

        parts = self._parts
        return TransactionShard(
            World(
                parts.clock,
                timers,
                lambda: parts.config,
                self._transaction_version,
                Numbering(self._new_producer_id),
                self.markers,
            )
        )

    def _coordinator_epoch(self, transactional_id: str) -> int:
        """The epoch in which this broker leads the id's partition: markers of an earlier one are refused."""
        topic = self._parts.metadata.image.topics[TRANSACTIONS_TOPIC]
        index = partition_of(transactional_id, len(topic.partitions))
        return self._parts.replicas.get(TRANSACTIONS_TOPIC, index).leader_epoch

    def _new_producer_id(self) -> int:
        """A producer id for a decision, which cannot wait: where there is none, more are fetched meanwhile."""
        try:
            return self._parts.producer_ids.take()
        except ApiError:
            if self._filling is None:
                self._filling = self._loop.create_task(self._fill())
            raise

    async def _fill(self) -> None:
        try:
            await self._parts.producer_ids.ready()
        except ApiError as error:
            log.warning("no block of producer ids: %s", error)
        finally:
            self._filling = None
