"""Producer ids handed out from a block that this broker owns, so that most InitProducerId requests touch no store."""

from collections.abc import Awaitable, Callable

from moldau.protocol.errors import ApiError, ErrorCode


class ProducerIds:
    """Unique producer ids."""

    def __init__(self, next_block: Callable[[], Awaitable[range]]) -> None:
        self._next_block = next_block
        self._block: range = range(0)

    async def next(self) -> int:
        """An id that no other producer of this cluster has or had."""
        await self.ready()
        return self.take()

    async def ready(self) -> None:
        """Return when there is an id to `take`; raises ApiError if the store cannot be reached."""
        while not self._block:
            block = await self._next_block()
            self._block = self._block or block  # another request may have fetched one meanwhile

    def take(self) -> int:
        """An id, at once; raises COORDINATOR_LOAD_IN_PROGRESS, as Kafka does, if there is none at hand."""
        if not self._block:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "there is no producer id at hand")
        producer_id, self._block = self._block[0], self._block[1:]
        return producer_id
