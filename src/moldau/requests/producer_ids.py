"""Producer ids handed out from a block that this broker owns, so that most InitProducerId requests touch no store."""

from collections.abc import Awaitable, Callable


class ProducerIds:
    """Unique producer ids."""

    def __init__(self, next_block: Callable[[], Awaitable[range]]) -> None:
        self._next_block = next_block
        self._block: range = range(0)

    async def next(self) -> int:
        """An id that no other producer of this cluster has or had."""
        while not self._block:
            block = await self._next_block()
            self._block = self._block or block  # another request may have fetched one meanwhile
        producer_id, self._block = self._block[0], self._block[1:]
        return producer_id
