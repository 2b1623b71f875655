"""A data directory that Apache Kafka wrote becomes ours: its cluster id, its broker id, its topics.

Only while the metadata store is new. Later a partition without a topic is a leftover of a deletion, not a find.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable

from moldau.cluster import znodes
from moldau.cluster.metadata import Metadata
from moldau.cluster.store import MetadataStore, ensure_path
from moldau.log.data_directory import DataDirectory
from moldau.log.log import Log

log = logging.getLogger(__name__)


def recorded_identity(directories: Iterable[DataDirectory]) -> dict[str, str]:
    """What `meta.properties` says, of the first directory that has one."""
    return next((known for directory in directories if (known := directory.meta_properties())), {})


async def keep_cluster_id(store: MetadataStore, identity: dict[str, str]) -> bool:
    """Give a new store the cluster id that the directory has; whether the store is new."""
    if await store.get(znodes.CLUSTER_ID) is not None:
        return False
    if "cluster.id" in identity:
        await ensure_path(store, "/cluster")
        await store.create(znodes.CLUSTER_ID, znodes.cluster_id_json(identity["cluster.id"]))
    return True


async def adopt_topics(metadata: Metadata, logs: Iterable[Log], broker_id: int) -> None:
    """Make topics of the partitions found on disk, with the ids that are written there."""
    found: dict[str, dict[int, Log]] = defaultdict(dict)
    for each in logs:
        found[each.topic_partition.topic][each.topic_partition.partition] = each
    for topic, partitions in found.items():
        count = max(partitions) + 1
        topic_id = next((each.topic_id for each in partitions.values() if each.topic_id), None)
        image = await metadata.create_topic(topic, [[broker_id]] * count, topic_id=topic_id)
        for index, each in partitions.items():
            # Ours is a new leader: its epoch is past every epoch in the log, or divergence could not be told (KIP-101).
            epoch = each.leader_epochs.latest + 1
            await metadata.update_partition(topic, index, image.partitions[index]._replace(leader_epoch=epoch))
        log.info("topic %s with %d partitions was found on disk", topic, count)
