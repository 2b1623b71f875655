"""`moldau.aio.Admin`: topics, their settings, and the offsets of groups, for asyncio.

async with Admin("localhost:9092") as admin:
    await admin.create_topic("visits", partitions=3, exist_ok=True)
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, Self

from moldau.client import admin as threads
from moldau.client.admin import Broker, Lag, Partition, TopicInfo
from moldau.client.one_thread import OneThread
from moldau.client.settings import Bootstrap


class Admin:
    """Creates, describes, alters and deletes. The calls are those of `moldau.Admin`, awaited."""

    def __init__(self, bootstrap: Bootstrap | None = None, *, properties: Mapping[str, Any] | None = None) -> None:
        self._admin = threads.Admin(bootstrap, properties=properties)
        self._thread = OneThread("moldau-aio-admin")

    async def topics(self, internal: bool = False) -> list[str]:
        """Names of all topics."""
        return await self._thread.run(lambda: self._admin.topics(internal))

    async def brokers(self) -> list[Broker]:
        """The brokers that are alive."""
        return await self._thread.run(self._admin.brokers)

    async def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        replication_factor: int | None = None,
        config: Mapping[str, Any] | None = None,
        exist_ok: bool = False,
    ) -> bool:
        """Create a topic."""
        return await self._thread.run(
            lambda: self._admin.create_topic(name, partitions, replication_factor, config, exist_ok)
        )

    async def delete_topic(self, name: str, missing_ok: bool = False) -> bool:
        """Delete a topic and all its records."""
        return await self._thread.run(lambda: self._admin.delete_topic(name, missing_ok))

    async def describe_topic(self, name: str) -> TopicInfo:
        """The topic, its partitions and where they are."""
        return await self._thread.run(lambda: self._admin.describe_topic(name))

    async def grow_topic(self, name: str, partitions: int) -> None:
        """Give a topic this many partitions in all."""
        await self._thread.run(lambda: self._admin.grow_topic(name, partitions))

    async def topic_config(self, name: str) -> dict[str, str]:
        """Settings of a topic, also those that are defaults."""
        return await self._thread.run(lambda: self._admin.topic_config(name))

    async def alter_topic_config(self, name: str, config: Mapping[str, Any]) -> None:
        """Give settings these values."""
        await self._thread.run(lambda: self._admin.alter_topic_config(name, config))

    async def delete_records(self, topic: str, before: Mapping[int, int]) -> None:
        """Delete the records before an offset, by partition."""
        await self._thread.run(lambda: self._admin.delete_records(topic, before))

    async def offsets(
        self, topic: str, at: Literal["earliest", "latest"] | datetime | float = "latest"
    ) -> dict[int, int]:
        """Offsets by partition."""
        return await self._thread.run(lambda: self._admin.offsets(topic, at))

    async def groups(self) -> list[str]:
        """Names of all consumer groups."""
        return await self._thread.run(self._admin.groups)

    async def group_offsets(self, group_id: str) -> dict[Partition, int]:
        """Committed offsets of a group."""
        return await self._thread.run(lambda: self._admin.group_offsets(group_id))

    async def group_lag(self, group_id: str) -> list[Lag]:
        """Progress of a group in all partitions of the topics that it has offsets of."""
        return await self._thread.run(lambda: self._admin.group_lag(group_id))

    async def set_group_offsets(self, group_id: str, offsets: Mapping[Partition, int]) -> None:
        """Commit these offsets for a group that has no members."""
        await self._thread.run(lambda: self._admin.set_group_offsets(group_id, offsets))

    async def reset_group(
        self, group_id: str, topic: str, to: Literal["earliest", "latest"] | datetime | float = "earliest"
    ) -> dict[int, int]:
        """Let a group without members begin at another place of a topic."""
        return await self._thread.run(lambda: self._admin.reset_group(group_id, topic, to))

    async def delete_group(self, group_id: str) -> None:
        """Delete a group without members, and its offsets."""
        await self._thread.run(lambda: self._admin.delete_group(group_id))

    async def close(self) -> None:
        """End."""
        self._thread.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
