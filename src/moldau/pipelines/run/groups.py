"""The position of each query as the offsets of a consumer group, so that every Kafka tool shows its lag.

The law: a run never fails for it and never waits for it. Positions are sent by a thread of its own, the newest of each
query, and a group that cannot be written (someone is a member of it; the cluster does not answer) is reported once.
"""

import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from moldau.pipelines.file.spec import PipelineSpec, SinkSpec, SourceSpec
from moldau.pipelines.run.graph import sources_of
from moldau.pipelines.run.progress import Offsets
from moldau.pipelines.topics import Cluster, cluster_of, when_ready

if TYPE_CHECKING:
    from confluent_kafka import Consumer
    from confluent_kafka.admin import AdminClient

REQUEST_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Reader:
    """The topics that a source reads, and their cluster."""

    cluster: Cluster
    topics: tuple[str, ...]
    pattern: str | None

    def reads(self, topic: str) -> bool:
        return topic in self.topics or (self.pattern is not None and re.fullmatch(self.pattern, topic) is not None)


def readers(pipeline: PipelineSpec, sources: Iterable[SourceSpec]) -> list[Reader]:
    return [
        Reader(
            cluster_of(pipeline, source.options),
            tuple(source.options.get("topic") or ()),
            source.options.get("pattern"),
        )
        for source in sources
        if source.kind == "topic" and source.options.get("as") != "table"
    ]


def readers_of_sink(pipeline: PipelineSpec, sink: SinkSpec) -> list[Reader]:
    return readers(pipeline, sources_of(pipeline, sink))


class Groups:
    """Committer of positions. `queries`: the readers of each query, whose name the group has. `say` gets a line for the
    user; `metadata` go with each position, and say whose it is."""

    def __init__(self, queries: Mapping[str, Sequence[Reader]], say: Callable[[str], None], metadata: str = "") -> None:
        self._queries = queries
        self._say = say
        self._metadata = metadata
        self._consumers: dict[tuple[Cluster, str], Consumer] = {}
        self._complained: set[str] = set()
        self._news = threading.Condition()
        self._pending: dict[str, Offsets] = {}
        self._sending = False
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="consumer groups", daemon=True)
        self._thread.start()

    def commit(self, query: str, positions: Offsets) -> None:
        """Commit a position soon; a newer one of the same query takes its place."""
        with self._news:
            self._pending[query] = positions
            self._news.notify_all()

    def wait(self, timeout_s: float) -> bool:
        """Wait until all positions are sent or refused; False if it took too long."""
        with self._news:
            return self._news.wait_for(lambda: not (self._pending or self._sending), timeout_s)

    def close(self, timeout_s: float = 2 * REQUEST_TIMEOUT_S) -> None:
        """Close after pending positions have been sent."""
        with self._news:
            self._closing = True
            self._news.notify_all()
        self._thread.join(timeout_s)
        if not self._thread.is_alive():
            for consumer in self._consumers.values():
                consumer.close()

    def _work(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: self._pending or self._closing)
                if not self._pending:
                    return
                query = next(iter(self._pending))
                positions = self._pending.pop(query)
                self._sending = True
            self._send(query, positions)
            with self._news:
                self._sending = False
                self._news.notify_all()

    def _send(self, query: str, positions: Offsets) -> None:
        by_cluster, unclear = _by_cluster(self._queries.get(query, ()), positions)
        if unclear:
            self._complain(query, f"{', '.join(unclear)} could be of either of two clusters")
        for cluster, known in by_cluster.items():
            try:
                refusal = self._commit_refusal(cluster, query, known)
            except Exception as error:  # a thread that died would stop all groups without a word
                refusal = str(error)
            if refusal:
                self._complain(query, refusal)

    def _commit_refusal(self, cluster: Cluster, group: str, positions: Offsets) -> str | None:
        """The reason in words why positions could not be committed; None if they were."""
        from confluent_kafka import KafkaException

        try:
            when_ready(lambda: self._write(cluster, group, positions))
        except KafkaException as error:
            return str(error.args[0].str())
        return None

    def _write(self, cluster: Cluster, group: str, positions: Offsets) -> None:
        """Commit a group's offsets; raises KafkaException if any is refused.

        A consumer does it, though librdkafka's admin client could as well: that one ends the whole process now and then
        (`Assertion eonce->refcnt > 0`, confluentinc/librdkafka#4605) when the coordinator's connection is lost.
        """
        from confluent_kafka import KafkaException, TopicPartition

        consumer = self._consumers.get((cluster, group))
        if consumer is None:
            consumer = self._consumers[cluster, group] = _consumer(cluster, group)
        partitions = [
            TopicPartition(topic, partition, offset, self._metadata)
            for topic, found in positions.items()
            for partition, offset in found.items()
        ]
        for each in consumer.commit(offsets=partitions, asynchronous=False) or ():
            if each.error is not None:
                raise KafkaException(each.error)

    def _complain(self, group: str, why: str) -> None:
        if group not in self._complained:
            self._complained.add(group)
            self._say(f"the offsets of group {group!r} cannot be written: {why}; the run goes on without")


def _by_cluster(reading: Sequence[Reader], positions: Offsets) -> tuple[dict[Cluster, Offsets], list[str]]:
    """The offsets of each cluster, and the topics whose cluster Spark does not name: the name is read from two
    clusters."""
    found: dict[Cluster, Offsets] = {}
    unclear = []
    for topic, partitions in positions.items():
        clusters = {reader.cluster for reader in reading if reader.reads(topic)}
        if len(clusters) == 1:
            found.setdefault(clusters.pop(), {})[topic] = partitions
        elif clusters:
            unclear.append(topic)
    return found, unclear


def _consumer(cluster: Cluster, group: str) -> "Consumer":
    """A consumer that only commits: it is no member of the group. It waits for a coordinator as long as a session may
    last."""
    from confluent_kafka import Consumer

    wait_ms = int(REQUEST_TIMEOUT_S * 1000)
    times = {"session.timeout.ms": wait_ms, "heartbeat.interval.ms": wait_ms // 3}
    return Consumer({**cluster.settings(), **times, "group.id": group, "enable.auto.commit": False})


def _admin(cluster: Cluster) -> "AdminClient":
    from confluent_kafka.admin import AdminClient

    return AdminClient(cluster.settings())


def delete(cluster: Cluster, groups: Sequence[str]) -> dict[str, str]:
    """The groups that could not be deleted, each with the reason. A group that is not there counts as deleted."""
    from confluent_kafka import KafkaError, KafkaException

    refused: dict[str, str] = {}
    admin = _admin(cluster)  # kept until the answers are there: they never come to a client that is gone

    def delete_one(group: str) -> None:
        [deleted] = admin.delete_consumer_groups([group], request_timeout=REQUEST_TIMEOUT_S).values()
        deleted.result()

    for group in groups:
        try:
            when_ready(partial(delete_one, group))
        except KafkaException as error:
            if error.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
                refused[group] = error.args[0].str()
    return refused
