"""Counters: what went in and out, what was synced, who joined and left the in-sync replicas, how busy the loop is.

Law: a counter never goes back while the broker runs. Those of a log end with it, so what they have grown by is added up
here at each scrape. What records and bytes a leader took is told by how far its log has grown since, so that an append
need not count them. Of a topic that was deleted, or that another broker leads since, the time behind the last scrape is
missing.
"""

import time
from typing import NamedTuple
from weakref import ref

from moldau.broker.group_commit import sync_counts
from moldau.broker.metrics.exposition import Family, counter, gauge, label_text
from moldau.broker.metrics.observed import Observed
from moldau.core.ids import TopicPartition
from moldau.log.log import Log
from moldau.log.position import Position
from moldau.log.traffic import Traffic
from moldau.protocol.codec import Steps
from moldau.replication.partition import Partition
from moldau.replication.replica import Replica

TOPICS = "kafka_server_brokertopicmetrics_"
MANAGER = "kafka_server_replicamanager_"
NAMES = (*Traffic.__slots__, "records_in", "bytes_in")
FAMILIES = (
    ("messagesin_total", ("records_in",), "Records that were appended by their leader."),
    ("bytesin_total", ("bytes_in",), "Bytes that were appended by their leader."),
    ("bytesout_total", ("bytes_out",), "Bytes that were read for consumers."),
    ("totalproducerequests_total", ("appends", "lane_appends", "failed_appends"), "Batches that came to a partition."),
    ("failedproducerequests_total", ("failed_appends",), "Batches that were refused."),
    ("totalfetchrequests_total", ("reads", "failed_reads"), "Reads of a partition that brought consumers records."),
    ("failedfetchrequests_total", ("failed_reads",), "Reads of a partition that failed unexpectedly."),
)
"""Name, the counts that are in it, and what it is."""
OURS = (
    ("moldau_fast_path_appends_total", "lane_appends", "Batches that went the short way into their partition."),
    ("moldau_slow_path_appends_total", "appends", "Batches that went the long way into their partition."),
)
IDLE_SPAN_S_MIN = 1.0
"""Two scrapes closer than this share one figure of the loop."""


class _Seen(NamedTuple):
    """A log as the last scrape found it. It is referred to weakly: its files close with the last who refers to it."""

    log: ref[Log]
    counted: tuple[int, ...]
    led_in: int | None
    """The leader epoch; None: it was followed."""
    end_offset: int
    position: Position


class TrafficMemory:
    """Counts of all logs up to the last scrape."""

    def __init__(self) -> None:
        self._seen: dict[TopicPartition, _Seen] = {}
        self._of_topic: dict[str, list[int]] = {}
        self._of_all = [0] * len(NAMES)
        self._looked_at = (time.monotonic(), time.thread_time())
        self._idle_share = 1.0

    def families(self, observed: Observed) -> Steps[list[Family]]:
        """All counters."""
        yield from self._add_up(observed)
        families: list[Family] = []
        for row in FAMILIES:
            family = yield from self._family(*row)
            families.append(family)
        for name, count, description in OURS:
            families.append(counter(name, description))
            families[-1].add(self._of_all[NAMES.index(count)])
        return [*families, *_group_commit(observed), *_isr(observed), *self._idle()]

    def _add_up(self, observed: Observed) -> Steps[None]:
        seen: dict[TopicPartition, _Seen] = {}
        for replica in observed.parts.replicas:
            topic_partition = replica.topic_partition
            known = self._seen.get(topic_partition)
            if known is not None and known.log() is not replica.log:
                known = None
            now = seen[topic_partition] = _look_at(replica)
            before = (0,) * len(now.counted) if known is None else known.counted
            grown = [number - was for number, was in zip(now.counted, before, strict=True)]
            grown += _appended(replica, known)
            if any(grown):
                of_topic = self._of_topic.setdefault(topic_partition.topic, [0] * len(NAMES))
                for place, number in enumerate(grown):
                    of_topic[place] += number
                    self._of_all[place] += number
            yield
        self._seen = seen
        for topic in self._of_topic.keys() - observed.parts.metadata.image.topics.keys():
            del self._of_topic[topic]

    def _family(self, name: str, counts: tuple[str, ...], description: str) -> Steps[Family]:
        """The sum of the broker without a label, and a sample for each topic, as Kafka has it: a topic at each step."""
        places = [NAMES.index(each) for each in counts]
        family = counter(f"{TOPICS}{name}", description)
        family.add(sum(self._of_all[place] for place in places))
        for topic, numbers in list(self._of_topic.items()):
            family.add(sum(numbers[place] for place in places), label_text(topic=topic))
            yield
        return family

    def _idle(self) -> list[Family]:
        """Idle share of the loop's thread since the scrape before: one thread is Kafka's network and request threads
        together. Time in which it waits for a disk counts as idle."""
        wall, busy = time.monotonic(), time.thread_time()
        wall_before, busy_before = self._looked_at
        if wall - wall_before >= IDLE_SPAN_S_MIN:
            self._idle_share = max(0.0, 1.0 - (busy - busy_before) / (wall - wall_before))
            self._looked_at = (wall, busy)
        description = "Share of time, 0 to 1, in which the event loop had nothing to do."
        families = [
            gauge("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", description),
            gauge("kafka_network_socketserver_networkprocessoravgidle_percent", description),
            gauge("moldau_loop_busy_ratio", "Share of time, 0 to 1, in which the event loop computed."),
        ]
        for family in families[:2]:
            family.add(round(self._idle_share, 4))
        families[2].add(round(1.0 - self._idle_share, 4))
        return families


def _look_at(replica: Replica) -> _Seen:
    log = replica.log
    led_in = replica.leader_epoch if isinstance(replica, Partition) else None
    return _Seen(ref(log), log.traffic.numbers(), led_in, log.log_end_offset, Position.end_of(log))


def _appended(replica: Replica, known: _Seen | None) -> tuple[int, int]:
    """Records and bytes that this broker has appended as the leader, since the last scrape or since it leads. Between
    two epochs that follow each other nobody else has led."""
    if not isinstance(replica, Partition):
        return 0, 0
    log = replica.log
    if known is None or known.led_in is None or replica.leader_epoch - known.led_in > 1:
        return log.log_end_offset - replica.epoch_start_offset, replica.epoch_start_position.bytes_behind(log)
    return max(0, log.log_end_offset - known.end_offset), known.position.bytes_behind(log)


def _group_commit(observed: Observed) -> list[Family]:
    counts = sync_counts(observed.parts.durability.committer)
    rounds = counter("moldau_group_commit_rounds_total", "Syncs of a log that writes waited for.")
    rounds.add(counts.syncs)
    waits = counter("moldau_group_commit_waits_total", "Writes that waited for such a sync.")
    waits.add(counts.waits)
    return [rounds, waits]


def _isr(observed: Observed) -> list[Family]:
    isr, unclean = observed.isr_changes, observed.controller.unclean_elections
    rows = (
        (f"{MANAGER}isrshrinks_total", isr.shrinks, "Replicas lost from the ISR of led partitions."),
        (f"{MANAGER}isrexpands_total", isr.expansions, "Replicas that came into the ISR of led partitions."),
        (f"{MANAGER}failedisrupdates_total", isr.failures, "Changes of an ISR that the metadata store refused."),
        ("kafka_controller_controllerstats_uncleanleaderelections_total", unclean, "Leaders that were not in sync."),
    )
    families: list[Family] = []
    for name, value, description in rows:
        families.append(counter(name, description))
        families[-1].add(value)
    return families
