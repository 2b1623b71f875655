"""The cluster as its controller sees it.

Law: what is one number for the whole cluster is told by the broker that controls it, so that a sum over all brokers is
true; the others tell 0, or nothing.
"""

import time
from typing import Final

from moldau.broker.metrics.exposition import Family, gauge, label_text
from moldau.broker.metrics.observed import Observed
from moldau.cluster.image import NO_LEADER, ClusterImage
from moldau.protocol.codec import Steps

CONTROLLER = "kafka_controller_kafkacontroller_"
RAFT = "kafka_server_raftmetrics_"
SPAN_S_MIN: Final = 0.001


class _Counts:
    """Numbers of a walk over all partitions."""

    def __init__(self) -> None:
        self.partitions = 0
        self.offline = 0
        self.not_preferred = 0


class ClusterMemory:
    """Changes of the metadata up to the last scrape."""

    def __init__(self) -> None:
        self._before = (time.monotonic(), 0, 0)

    def families(self, observed: Observed) -> Steps[list[Family]]:
        """Families of the controller, of the cluster's topics and brokers, and of the metadata."""
        families = yield from _cluster_families(observed)
        controller, taken = observed.controller, observed.parts.metadata.images_taken
        now = (time.monotonic(), controller.changes_written, taken)
        span_s = max(now[0] - self._before[0], SPAN_S_MIN)
        written_rate, taken_rate = ((now[place] - self._before[place]) / span_s for place in (1, 2))
        self._before = now
        commit_ms = 1000 * controller.writing_s / controller.writes if controller.writes else 0.0
        description = "Changes of the metadata that this broker has taken in since it started."
        return [
            *families,
            _one(f"{RAFT}log_end_offset", taken, description),
            _one(f"{RAFT}high_watermark", taken, description),
            _one(f"{RAFT}append_records_rate", round(written_rate, 3), "Changes a second that this controller wrote."),
            _one(f"{RAFT}fetch_records_rate", round(taken_rate, 3), "Changes a second that this broker took in."),
            _one(f"{RAFT}commit_latency_avg", round(commit_ms, 3), "Milliseconds of a write of this controller."),
        ]


def _cluster_families(observed: Observed) -> Steps[list[Family]]:
    image = observed.parts.metadata.image
    is_controller = image.controller_id == observed.parts.broker_id
    families = [*_metadata(image, is_controller)]
    if is_controller:
        counts = _Counts()
        families += yield from _topics(image, counts)
        families += _brokers(image)
        families += _controller(image, counts)
    else:
        families += _controller(ClusterImage(), _Counts())
    families.append(gauge(f"{CONTROLLER}activecontrollercount", "1 on the broker that controls the cluster."))
    families[-1].add(int(is_controller))
    return families


def _topics(image: ClusterImage, counts: _Counts) -> Steps[list[Family]]:
    partitions = gauge("kafka_topic_partitions", "Partitions of a topic.")
    leader = gauge("kafka_topic_partition_leader", "Broker that leads a partition; -1: none does.")
    for topic in image.topics.values():
        counts.partitions += len(topic.partitions)
        partitions.add(len(topic.partitions), label_text(topic=topic.name))
        for index, state in enumerate(topic.partitions):
            if state.leader == NO_LEADER:
                counts.offline += 1
                leader.add(NO_LEADER, label_text(topic=topic.name, partition=index))
            elif state.replicas and state.leader != state.replicas[0]:
                counts.not_preferred += 1
        yield
    return [partitions, leader]


def _brokers(image: ClusterImage) -> list[Family]:
    count = gauge("kafka_brokers", "Brokers that are alive.")
    count.add(len(image.brokers))
    info = gauge("kafka_broker_info", "A broker that is alive, with its address.")
    for broker in image.brokers.values():
        for endpoint in broker.endpoints[:1]:
            info.add(1, label_text(id=broker.id, address=f"{endpoint.host}:{endpoint.port}"))
    return [count, info]


def _controller(image: ClusterImage, counts: _Counts) -> list[Family]:
    leaving = sum(broker.shutting_down for broker in image.brokers.values())
    numbers = (
        ("globaltopiccount", len(image.topics), "Topics of the cluster."),
        ("globalpartitioncount", counts.partitions, "Partitions of the cluster."),
        ("offlinepartitionscount", counts.offline, "Partitions without a leader."),
        ("preferredreplicaimbalancecount", counts.not_preferred, "Partitions whose preferred replica does not lead."),
        ("activebrokercount", len(image.brokers) - leaving, "Brokers that are alive and stay."),
        ("fencedbrokercount", leaving, "Brokers that lead nothing any more, as they are shutting down."),
    )
    return [_one(f"{CONTROLLER}{name}", value, description) for name, value, description in numbers]


def _metadata(image: ClusterImage, is_controller: bool) -> list[Family]:
    """Families that boards of a KRaft quorum ask for, said of the controller that the metadata store has chosen."""
    state = gauge(f"{RAFT}current_state", "1 for what this broker is: leader (the controller) or follower.")
    state.add(1, label_text(current_state="leader" if is_controller else "follower"))
    return [
        _one(f"{RAFT}current_leader", image.controller_id, "Broker that controls the cluster; -1: none."),
        _one(f"{RAFT}current_vote", image.controller_id, "Broker that this one takes for the controller."),
        _one(f"{RAFT}current_epoch", image.controller_epoch, "Epoch of the controller."),
        state,
    ]


def _one(name: str, value: float, description: str) -> Family:
    family = gauge(name, description)
    family.add(value)
    return family
