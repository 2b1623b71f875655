"""Gauges of the partitions that this broker has. What is true of a partition as a whole is told by its leader, what is
true of a copy by everybody who has one: a sum over all brokers counts each once."""

from moldau.broker.metrics.exposition import Family, gauge
from moldau.broker.metrics.observed import Observed
from moldau.protocol.codec import Steps
from moldau.replication.partition import Partition
from moldau.replication.replica import Replica

MANAGER = "kafka_server_replicamanager_"


class _Logs:
    """Families of copies."""

    def __init__(self) -> None:
        self.size = gauge("kafka_log_log_size", "Bytes of a log.")
        self.start = gauge("kafka_log_log_logstartoffset", "First offset of a log.")
        self.end = gauge("kafka_log_log_logendoffset", "Offset of the next record of a log.")
        self.segments = gauge("kafka_log_log_numlogsegments", "Segments of a log.")
        self.offline = 0

    def add(self, replica: Replica, labels: str) -> None:
        log = replica.log
        self.offline += log.failure is not None
        self.size.add(log.size_bytes, labels)
        self.start.add(log.log_start_offset, labels)
        self.end.add(log.log_end_offset, labels)
        self.segments.add(len(log.segments), labels)

    def families(self) -> list[Family]:
        return [self.size, self.start, self.end, self.segments]


class _Led:
    """Families of partitions that are led here: by Kafka's names and by those of kafka_exporter."""

    def __init__(self) -> None:
        here, topic = "kafka_cluster_partition_", "kafka_topic_partition_"
        self.under_replicated = gauge(f"{here}underreplicated", "1: not all replicas are in sync.")
        self.in_sync = gauge(f"{here}insyncreplicascount", "Replicas in sync.")
        self.replicas = gauge(f"{here}replicascount", "Replicas.")
        self.under_min_isr = gauge(f"{here}underminisr", "1: fewer in sync than min.insync.replicas; acks=all fails.")
        self.at_min_isr = gauge(f"{here}atminisr", "1: just min.insync.replicas are in sync.")
        self.stable_lag = gauge(f"{here}laststableoffsetlag", "Offsets that an open transaction holds back.")
        self.current_offset = gauge(f"{topic}current_offset", "High watermark: the next offset for consumers.")
        self.oldest_offset = gauge(f"{topic}oldest_offset", "First offset.")
        self.leader = gauge(f"{topic}leader", "Broker that leads a partition; -1: none does.")
        self.is_preferred = gauge(f"{topic}leader_is_preferred", "1: the preferred replica leads.")
        self.exporter_replicas = gauge(f"{topic}replicas", "Replicas.")
        self.exporter_in_sync = gauge(f"{topic}in_sync_replica", "Replicas in sync.")
        self.exporter_under = gauge(f"{topic}under_replicated_partition", "1: not all replicas are in sync.")
        self.blocked = gauge("moldau_last_stable_offset_blocked", "Offsets held back, by the producer that does it.")
        self.count = self.count_under = self.count_under_min = self.count_at_min = 0

    def add(self, partition: Partition, labels: str) -> None:
        in_sync, replicas = len(partition.in_sync_replicas), len(partition.replicas)
        is_under = int(in_sync < replicas)
        is_under_min = int(partition.is_under_min_isr)
        is_at_min = int(in_sync == min(partition.log.config.min_insync_replicas, replicas))
        self.count += 1
        self.count_under += is_under
        self.count_under_min += is_under_min
        self.count_at_min += is_at_min
        self.under_replicated.add(is_under, labels)
        self.in_sync.add(in_sync, labels)
        self.replicas.add(replicas, labels)
        self.under_min_isr.add(is_under_min, labels)
        self.at_min_isr.add(is_at_min, labels)
        stable_lag = partition.high_watermark - partition.last_stable_offset
        self.stable_lag.add(stable_lag, labels)
        if stable_lag:
            producer = partition.log.producers.first_open_producer()
            self.blocked.add(stable_lag, f'{labels[:-1]},producer_id="{-1 if producer is None else producer}"}}')
        self.current_offset.add(partition.high_watermark, labels)
        self.oldest_offset.add(partition.log.log_start_offset, labels)
        self.leader.add(partition.broker_id, labels)
        self.is_preferred.add(int(partition.broker_id == partition.replicas[0]), labels)
        self.exporter_replicas.add(replicas, labels)
        self.exporter_in_sync.add(in_sync, labels)
        self.exporter_under.add(is_under, labels)

    def families(self) -> list[Family]:
        return [each for each in vars(self).values() if isinstance(each, Family)]


def partition_families(observed: Observed) -> Steps[list[Family]]:
    """Families of partitions, and their numbers."""
    replicas = observed.parts.replicas
    logs, led = _Logs(), _Led()
    count = 0
    for partition in replicas.led():
        labels = labels_of(partition)
        logs.add(partition, labels)
        led.add(partition, labels)
        count += 1
        yield
    for followed in replicas.followed():
        logs.add(followed, labels_of(followed))
        count += 1
        yield
    directories = sum(directory.failure is not None for directory in observed.parts.logs.directories)
    numbers = (
        (f"{MANAGER}partitioncount", count, "Partitions that this broker has a copy of."),
        (f"{MANAGER}leadercount", led.count, "Partitions that this broker leads."),
        (f"{MANAGER}underreplicatedpartitions", led.count_under, "Led partitions that lack an in-sync replica."),
        (f"{MANAGER}underminisrpartitioncount", led.count_under_min, "Led partitions that refuse acks=all."),
        (f"{MANAGER}atminisrpartitioncount", led.count_at_min, "Led partitions with just min.insync.replicas."),
        (f"{MANAGER}offlinereplicacount", logs.offline + _lost(observed), "Copies that cannot be used."),
        ("kafka_log_logmanager_offlinelogdirectorycount", directories, "Data directories that failed."),
    )
    families = [*logs.families(), *led.families()]
    for name, value, description in numbers:
        families.append(gauge(name, description))
        families[-1].add(value)
    return families


def _lost(observed: Observed) -> int:
    """Number of copies that went with a data directory, and are led or followed no more."""
    me = observed.parts.metadata.image.brokers.get(observed.parts.broker_id)
    if me is None:
        return 0
    replica = observed.parts.replicas.replica
    return sum(replica(topic, index) is None for topic, indexes in me.offline.items() for index in indexes)


def labels_of(replica: Replica) -> str:
    """Labels of a partition: topic names need no escape."""
    topic, partition = replica.topic_partition
    return f'{{topic="{topic}",partition="{partition}"}}'
