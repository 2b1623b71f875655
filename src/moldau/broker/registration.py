"""A broker's place in the cluster: its registration, which lives as long as its session with the metadata store.

Law: what the loss of the session means happens within the callback that reports it, before anybody is answered: who
is not registered leads nothing. Then a new session is begun, for as long as it takes, the image is read anew, and only
after the broker is registered again does it take up what the image says.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from moldau.cluster import znodes
from moldau.cluster.image import BrokerInfo
from moldau.cluster.metadata import Metadata
from moldau.cluster.store import MetadataStore, NoNode, SessionLost, SessionState, StoreError, StoreUnavailable
from moldau.core.ids import TopicPartition
from moldau.protocol.errors import ApiError, ErrorCode

log = logging.getLogger(__name__)

RETRY_S_FIRST = 0.05
RETRY_S_MAX = 2.0


class BrokerStartError(Exception):
    """The broker cannot start; the message says what to do about it."""


class Registration:
    """Says that the broker is alive, and what it says besides."""

    def __init__(
        self,
        metadata: Metadata,
        store: MetadataStore,
        info: BrokerInfo,
        *,
        patience_s: float,
        on_connection: Callable[[bool], None],
        on_lost: Callable[[], None],
        on_registered: Callable[[], None],
        on_failed: Callable[[str], None],
    ) -> None:
        """`patience_s` is how long another registration of our number may take to go. `on_registered` is called
        after each registration but the first, `on_failed` if there cannot be another one."""
        self._metadata = metadata
        self._store = store
        self._info = info
        self._patience_s = patience_s
        self._on_connection = on_connection
        self._on_lost = on_lost
        self._on_registered = on_registered
        self._on_failed = on_failed
        self.is_connected = True
        """Whether the session with the metadata store is known to live: without it nobody changes an ISR."""
        self._is_registered = False
        self._outcome_is_unknown = False
        self._is_lost = False
        self._comeback: asyncio.Task[None] | None = None
        self._one_at_a_time = asyncio.Lock()
        self._end_listening = store.on_session(self._session_changed)

    @property
    def info(self) -> BrokerInfo:
        """Data with which the broker is registered."""
        return self._info

    async def wait_until_free(self) -> bool:
        """Wait until an earlier registration of our number is gone: others count on it until then. Whether there was
        one."""
        if await self._is_free():
            return False
        await self._repeat(self._is_free)
        return True

    async def register(self) -> None:
        """Register the broker. Raises BrokerStartError if another broker has the number and keeps it."""
        await self._repeat(self._try_to_register)

    async def _repeat(self, attempt: Callable[[], Awaitable[bool]]) -> None:
        """Try each time our node changes, until it works."""
        loop, changed = asyncio.get_running_loop(), asyncio.Event()
        deadline = loop.time() + self._patience_s
        end_watch = self._store.watch(znodes.broker_path(self._info.id), lambda _: changed.set())
        try:
            while not await attempt():
                await asyncio.wait_for(changed.wait(), deadline - loop.time())
                changed.clear()
        except TimeoutError:
            raise BrokerStartError(f"broker {self._info.id} is running already{await self._where()}") from None
        finally:
            end_watch()

    async def mark_offline(self, partitions: Iterable[TopicPartition]) -> None:
        """Say that these have no usable log here."""
        offline = {topic: set(indexes) for topic, indexes in self._info.offline.items()}
        for topic, index in partitions:
            offline.setdefault(topic, set()).add(index)
        await self._update(offline={topic: tuple(sorted(indexes)) for topic, indexes in offline.items()})

    async def mark_online(self, partitions: Iterable[TopicPartition]) -> None:
        """Say that these can be used here again."""
        offline = {topic: set(indexes) for topic, indexes in self._info.offline.items()}
        for topic, index in partitions:
            offline.get(topic, set()).discard(index)
        await self._update(offline={topic: tuple(sorted(indexes)) for topic, indexes in offline.items() if indexes})

    async def mark_shutting_down(self) -> None:
        """Say that this broker is about to go; returns when it is written, or cannot be."""
        await self._update(shutting_down=True)

    def close(self) -> None:
        """Listen to the session no more."""
        self._end_listening()
        if self._comeback is not None:
            self._comeback.cancel()

    # Registering

    async def _is_free(self) -> bool:
        return await self._registered() is None

    async def _try_to_register(self) -> bool:
        async with self._one_at_a_time:
            await self._undo_unknown_try()
            try:
                self._outcome_is_unknown = await self._registered() is None
                self._info = await self._metadata.register_broker(self._info)
            except ApiError as error:
                self._outcome_is_unknown = False
                if error.code != ErrorCode.DUPLICATE_BROKER_REGISTRATION:
                    raise
                log.warning("a broker %d is registered already; waiting for it to go", self._info.id)
                return False
            self._outcome_is_unknown = False
            self._is_registered = True
            return True

    async def _undo_unknown_try(self) -> None:
        """A try that the store did not answer may have happened. What is at our address, where nothing was, is ours."""
        there = await self._registered() if self._outcome_is_unknown else None
        if there is not None and there.endpoints == self._info.endpoints:
            await self._store.delete(znodes.broker_path(self._info.id))

    async def _registered(self) -> BrokerInfo | None:
        node = await self._store.get(znodes.broker_path(self._info.id))
        return None if node is None else znodes.parse_broker(self._info.id, node.data, node.created)

    async def _where(self) -> str:
        there = await self._registered()
        return f" at {there.endpoints[0].host}:{there.endpoints[0].port}" if there and there.endpoints else ""

    async def _update(self, **news: object) -> None:
        async with self._one_at_a_time:
            self._info = self._info._replace(**news)  # type: ignore[arg-type]  # the fields of BrokerInfo
            delay_s = RETRY_S_FIRST
            while self._is_registered:
                try:
                    await self._metadata.update_registration(self._info)
                except StoreUnavailable:
                    await asyncio.sleep(delay_s)
                    delay_s = min(2 * delay_s, RETRY_S_MAX)
                except (SessionLost, NoNode):
                    return  # the next registration says it
                else:
                    return

    # The session

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            self._lost()
        elif state is SessionState.SUSPENDED:
            self._connection(False)
        elif not self._is_lost:
            self._connection(True)

    def _connection(self, connected: bool) -> None:
        self.is_connected = connected
        self._on_connection(connected)

    def _lost(self) -> None:
        self._connection(False)
        self._is_registered = False
        if self._is_lost:
            return
        self._is_lost = True
        log.error("the session with the metadata store is lost: this broker leads nothing until it has a new one")
        self._on_lost()
        self._comeback = asyncio.get_running_loop().create_task(self._return())

    async def _return(self) -> None:
        delay_s = RETRY_S_FIRST
        while True:
            try:
                await self._store.reconnect()
                await self._metadata.reload()
                await self.register()
                break
            except BrokerStartError as error:
                self._on_failed(str(error))
                return
            except (StoreError, ApiError) as error:
                log.warning("no new session with the metadata store yet: %s %s", type(error).__name__, error)
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, RETRY_S_MAX)
        self._is_lost = False
        log.info("registered again as broker %d", self._info.id)
        self._connection(True)
        self._on_registered()
