"""The way from data directories to the metadata store that they belong with, and to this broker's number there.

Law: nothing is written anywhere before it is proved that the store is the one these directories were used with.
"""

import asyncio
import logging
import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import NamedTuple

from moldau.broker.adoption import check_store, keep_cluster_id, recorded_identity
from moldau.broker.metadata_refresh import MetadataRefresh
from moldau.broker.store_choice import (
    StorePlace,
    choose_store,
    lock_siblings,
    looks_for_siblings,
    open_store,
    remember,
)
from moldau.cluster import znodes
from moldau.cluster.metadata import Metadata
from moldau.cluster.store import MetadataStore
from moldau.core.broker_config import BrokerConfig
from moldau.core.clock import Clock
from moldau.core.files import DirectoryLock, Files
from moldau.core.ids import BrokerId
from moldau.log.data_directory import DataDirectory
from moldau.log.manager import LogManager

log = logging.getLogger(__name__)

SIBLINGS_START_S_MAX = 30.0
SIBLINGS_LOOK_AGAIN_S = 0.01


class OpenedStore(NamedTuple):
    """A store whose tree is read, and what this broker is there."""

    store: MetadataStore
    metadata: Metadata
    broker_id: BrokerId
    adopts: bool
    """The store is new, or another one, and was told to take the directories as they are."""


class StoreOpening:
    """Opens the store for directories that are locked."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        config: BrokerConfig,
        clock: Clock,
        files: Files,
        logs: LogManager,
        *,
        may_adopt: bool,
    ) -> None:
        self._loop = loop
        self._config = config
        self._clock = clock
        self._files = files
        self._logs = logs
        self._may_adopt = may_adopt

    async def open(self, to_release: AsyncExitStack) -> OpenedStore:
        """The store; what is opened is closed with `to_release`. Raises StoreError and DirectoryError."""
        siblings = await self._turn_among_siblings()
        try:
            return await self._open(to_release)
        finally:
            if siblings is not None:
                siblings.release()

    async def _open(self, to_release: AsyncExitStack) -> OpenedStore:
        place = choose_store(self._config, self._files)
        identity = recorded_identity(self._directories)
        if place.zookeeper is None and not self._files.exists(place.path):
            self._check_store(place, None)  # before there is a file
        store = open_store(place, self._config, self._files)
        to_release.push_async_callback(store.close)
        known = await store.get(znodes.CLUSTER_ID)
        is_another = self._check_store(place, known.data if known is not None else None)
        is_new = await keep_cluster_id(store, identity, znodes.id_text(os.urandom(16)))
        metadata = await self._read(store, to_release)
        broker_id = await self._choose_broker_id(identity, metadata)
        known = await store.get(znodes.CLUSTER_ID)
        store_id = znodes.parse_store_id(known.data) if known is not None else None
        self._logs.claim(broker_id, metadata.image.cluster_id, store_id)
        if place.is_joined:
            remember(self._config, self._files, place)
        return OpenedStore(store, metadata, broker_id, is_new or is_another)

    @property
    def _directories(self) -> Sequence[DataDirectory]:
        return self._logs.directories

    async def _read(self, store: MetadataStore, to_release: AsyncExitStack) -> Metadata:
        async def catch_up() -> None:
            await metadata.catch_up()

        refresh = MetadataRefresh(self._loop, catch_up)
        metadata = Metadata(store, self._clock, os.urandom, refresh.stale)
        to_release.push_async_callback(refresh.close)
        await metadata.load()
        return metadata

    def _check_store(self, place: StorePlace, cluster: bytes | None) -> bool:
        where = f"ZooKeeper at {place.zookeeper}" if place.zookeeper is not None else place.path
        return check_store(self._directories, where, cluster, adopt=self._may_adopt)

    async def _turn_among_siblings(self) -> DirectoryLock | None:
        """New brokers side by side start one after the other, so that the second finds what the first has made."""
        deadline = self._loop.time() + SIBLINGS_START_S_MAX
        while looks_for_siblings(self._config, self._files) and self._loop.time() < deadline:
            try:
                lock = lock_siblings(self._config, self._files)
            except OSError as error:
                log.warning(
                    "another user may have made what new brokers take turns by (%s): not waiting for any", error
                )
                return None
            if lock is not None:
                return lock
            await asyncio.sleep(SIBLINGS_LOOK_AGAIN_S)
        return None

    async def _choose_broker_id(self, identity: dict[str, str], metadata: Metadata) -> BrokerId:
        """The configured one, else the one this directory had before, else a new one."""
        recorded = identity.get("broker.id") or identity.get("node.id")
        if self._config.broker_id >= 0:
            return BrokerId(self._config.broker_id)
        if recorded is not None:
            return BrokerId(int(recorded))
        return BrokerId(await metadata.generate_broker_id(self._config.int("reserved.broker.max.id")))
