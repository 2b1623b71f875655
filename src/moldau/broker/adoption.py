"""A data directory and a metadata store: whether they belong together, and what becomes of one without the other.

A directory that Apache Kafka wrote becomes ours: its cluster id, its broker id, its topics with their configuration.
And no producer id that Kafka gave away is given away again. Only while the metadata store is new: later a partition
without a topic is a leftover of a deletion, not a find.

A directory that was used with one store is not used with another. A store that is new, or has another cluster's id, or
was made anew under the same id, is a typing mistake or a loss; its word that a topic is gone proves nothing. With
`--adopt` a person says that the old one is lost: then topics nobody knows are made anew from what is on disk, and
whatever else does not fit is left alone.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping

from moldau.broker.kraft import KraftMetadata
from moldau.cluster import znodes
from moldau.cluster.metadata import Metadata
from moldau.cluster.store import MetadataStore, NodeExists, ensure_path
from moldau.core.broker_config import validate_dynamic
from moldau.core.config import ConfigError
from moldau.core.files import Files
from moldau.core.internal_topics import INTERNAL_TOPICS
from moldau.core.topic_config import validate_overrides
from moldau.log.data_directory import META_PROPERTIES_FILE, DataDirectory, DirectoryError
from moldau.log.log import Log
from moldau.log.manager import LogManager
from moldau.protocol.errors import ApiError

log = logging.getLogger(__name__)


def recorded_identity(directories: Iterable[DataDirectory]) -> dict[str, str]:
    """Properties in the `meta.properties` of the first directory that has one; DirectoryError if another one
    contradicts."""
    found: dict[str, str] = {}
    where = ""
    for directory in directories:
        known = directory.meta_properties() if directory.failure is None else {}
        for name in ("broker.id", "node.id"):
            if not known.get(name, "0").isdecimal():
                raise DirectoryError(f"{directory.path}: {META_PROPERTIES_FILE} has the {name} {known[name]!r}")
        for name in ("cluster.id", "broker.id", "node.id"):
            if name in known and known[name] != found.get(name, known[name]):
                raise DirectoryError(f"{where} belongs to {name} {found[name]}, and {directory.path} to {known[name]}")
        found, where = (known, directory.path) if known and not found else (found, where)
    return found


def check_store(directories: Iterable[DataDirectory], place: str, cluster: bytes | None, *, adopt: bool) -> bool:
    """Whether the store, whose node of the cluster id is `cluster`, is another than the directories were used with.

    Raises DirectoryError for another cluster's, and unless `adopt` for any other. `place` says where the store is.
    """
    cluster_id = znodes.parse_cluster_id(cluster) if cluster is not None else None
    store_id = znodes.parse_store_id(cluster) if cluster is not None else None
    is_another = False
    for directory in directories:
        if directory.failure is not None:
            continue
        known, used_with = directory.meta_properties().get("cluster.id"), directory.store_id()
        if None not in (known, cluster_id) and known != cluster_id:
            raise DirectoryError(
                f"{directory.path} belongs to cluster {known}, and {place} has the metadata of cluster {cluster_id}: "
                "check log.dirs, metadata.store.path and zookeeper.connect"
            )
        if used_with is not None and used_with != store_id:
            is_another = True
            if not adopt:
                what = "a new metadata store" if cluster is None else "another metadata store than it was used with"
                raise DirectoryError(
                    f"{directory.path} belongs to cluster {known}, and {place} is {what}: check metadata.store.path "
                    "and zookeeper.connect; if the store is lost, start once with --adopt to make the topics anew "
                    "from what is on disk"
                )
    return is_another


async def keep_cluster_id(store: MetadataStore, identity: dict[str, str], store_id: str) -> bool:
    """Give a new store the cluster id that the directory has; whether the store is new."""
    if await store.get(znodes.CLUSTER_ID) is not None:
        return False
    if "cluster.id" in identity:
        await ensure_path(store, "/cluster")
        try:
            await store.create(znodes.CLUSTER_ID, znodes.cluster_id_json(identity["cluster.id"], store_id))
        except NodeExists:
            return False  # another broker was quicker
    return True


async def adopt(metadata: Metadata, logs: LogManager, files: Files, broker_id: int) -> None:
    """Take over topics, configurations and producer ids."""
    found = [KraftMetadata.read(files, directory.path) for directory in logs.directories]
    known = next((each for each in found if each is not None), None)
    for topic, partitions in _by_topic(logs).items():
        if topic in metadata.image.topics:
            continue  # another broker of a lost store was quicker
        try:
            await _adopt_topic(metadata, topic, partitions, _topic_configs(topic, known), broker_id)
        except ApiError as error:
            log.warning("topic %s is not made from what is on disk, which is left alone: %s", topic, error.message)
            for each in partitions.values():
                logs.leave_alone(each.topic_partition)
    for entity in ("", str(broker_id)) if known is not None else ():
        configs = known.broker_configs(entity) if known is not None else {}
        await metadata.set_broker_configs(entity, dict(_acceptable(configs, _check_broker_config(entity))))
    in_use = max((each.producer_id for log in logs for each in log.producers), default=-1)
    await metadata.skip_producer_ids(broker_id, max(in_use + 1, known.next_producer_id if known is not None else 0))


def _by_topic(logs: Iterable[Log]) -> dict[str, dict[int, Log]]:
    found: dict[str, dict[int, Log]] = defaultdict(dict)
    for each in logs:
        found[each.topic_partition.topic][each.topic_partition.partition] = each
    return found


async def _adopt_topic(
    metadata: Metadata, topic: str, partitions: dict[int, Log], configs: dict[str, str], broker_id: int
) -> None:
    count = max(partitions) + 1
    topic_id = next((each.topic_id for each in partitions.values() if each.topic_id), None)
    image = await metadata.create_topic(topic, [[broker_id]] * count, configs, topic_id)
    for index, each in partitions.items():
        # Ours is a new leader: its epoch is past every epoch in the log, or divergence could not be told (KIP-101).
        epoch = each.leader_epochs.latest + 1
        await metadata.update_partition(topic, index, image.partitions[index]._replace(leader_epoch=epoch))
    log.info("topic %s with %d partitions was found on disk", topic, count)


def _topic_configs(topic: str, known: KraftMetadata | None) -> dict[str, str]:
    if known is not None:
        return dict(_acceptable(known.topic_configs(topic), validate_overrides))
    if topic in INTERNAL_TOPICS:
        return {"cleanup.policy": "compact"}
    log.warning("nobody knows how long topic %s is to be kept: it has retention.ms=-1 until you change it", topic)
    return {"retention.ms": "-1"}


def _acceptable(configs: Mapping[str, str], check: Callable[[Mapping[str, str]], None]) -> Iterator[tuple[str, str]]:
    for name, value in configs.items():
        try:
            check({name: value})
        except ConfigError as error:
            log.warning("a setting of Kafka's is not taken over: %s", error)
        else:
            yield name, value


def _check_broker_config(entity: str) -> Callable[[Mapping[str, str]], None]:
    return lambda configs: validate_dynamic(configs, for_one_broker=bool(entity))
