"""Kafka clusters of pipelines: settings for either client, and questions that are asked before Spark starts.

Properties of clients are written in Java's names, as in every Kafka guide. Spark's connector takes them as they are;
librdkafka, which asks here, gets them in its own names, and only those that it shares with Java's clients.
"""

import logging
import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic  # type: ignore[attr-defined]  # its stubs hide NewTopic

from moldau.core.internal_topics import INTERNAL_TOPICS
from moldau.pipelines.file.problems import Place, Problem
from moldau.pipelines.file.spec import PipelineSpec

REACH_TIMEOUT_S = 5.0
REQUEST_TIMEOUT_S = 10.0
RETRY_S = 0.1
DEFAULT_PORT = 9092

T = TypeVar("T")
Offsets = dict[str, dict[int, int]]
"""Offset by topic and partition."""

EARLIEST, LATEST = -2, -1
"""Spark's and Kafka's numbers for the earliest and the latest offset."""


class ClusterError(Exception):
    """Error: the cluster does not answer, or not as needed; the message is one line."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster. `client`: properties in Java's names, as pairs, so that clusters can be compared and be keys."""

    bootstrap: str
    client: tuple[tuple[str, str], ...] = ()

    def settings(self) -> dict[str, Any]:
        """Settings for librdkafka."""
        return {"bootstrap.servers": self.bootstrap, "logger": _silent(), **librdkafka(dict(self.client))}

    def spark_options(self) -> dict[str, str]:
        """Options for Spark's connector."""
        return {"kafka.bootstrap.servers": self.bootstrap} | {f"kafka.{name}": value for name, value in self.client}

    def topics(self) -> dict[str, list[int]]:
        """All topics that are not Kafka's own, with the numbers of their partitions."""
        with self._admin() as admin:
            found = admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics
        return {name: sorted(topic.partitions) for name, topic in found.items() if name not in INTERNAL_TOPICS}

    def create(self, topic: str, partitions: int, replicas: int, configs: Mapping[str, str]) -> bool:
        """Create a topic; False if it was there. -1 leaves the broker's default."""
        with self._admin() as admin:
            wanted = NewTopic(topic, partitions, replicas, config=dict(configs))
            [made] = admin.create_topics([wanted], request_timeout=REQUEST_TIMEOUT_S).values()
            try:
                made.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
                return False
            _wait_until_known(admin, topic)
        return True

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """The id of each topic that is there: a topic that was deleted and made anew has another one."""
        if not topics:
            return {}
        with self._admin() as admin:
            found = admin.describe_topics(TopicCollection(list(topics)), request_timeout=REQUEST_TIMEOUT_S)
            return {topic: str(told) for topic, each in found.items() if (told := _topic_id(each)) is not None}

    def metadata_of_group(self, group: str, partitions: Mapping[str, Iterable[int]]) -> set[str]:
        """The metadata that were committed with the offsets of a group."""
        if not partitions:
            return set()
        with self.consumer(group) as consumer:
            found = when_ready(lambda: consumer.committed(_all(partitions), timeout=REQUEST_TIMEOUT_S))
        return {each.metadata for each in found if each.metadata}

    def config(self, topic: str, name: str) -> str:
        """The value of a topic's property; empty if the topic is not there."""
        with self._admin() as admin:
            asked = ConfigResource(ConfigResource.Type.TOPIC, topic)
            [found] = admin.describe_configs([asked], request_timeout=REQUEST_TIMEOUT_S).values()
            try:
                return str(found.result()[name].value or "")
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
                return ""

    def offsets_of_group(self, group: str, partitions: Mapping[str, Iterable[int]]) -> Offsets:
        """The committed offsets of the group; partitions without one are left out."""
        with self.consumer(group) as consumer:
            found = _offsets(when_ready(lambda: consumer.committed(_all(partitions), timeout=REQUEST_TIMEOUT_S)))
        kept = {
            topic: {number: offset for number, offset in offsets.items() if offset >= 0}
            for topic, offsets in found.items()
        }
        return {topic: offsets for topic, offsets in kept.items() if offsets}

    def offsets_at(self, timestamp_ms: int, partitions: Mapping[str, Iterable[int]]) -> Offsets:
        """The offset of the first record of that time or later in each partition; the end where there is none."""
        with self.consumer() as consumer:
            found = _offsets(consumer.offsets_for_times(_all(partitions, timestamp_ms), timeout=REQUEST_TIMEOUT_S))
            return {
                topic: {
                    number: offset if offset >= 0 else _end(consumer, topic, number)
                    for number, offset in offsets.items()
                }
                for topic, offsets in found.items()
            }

    def ends(self, partitions: Mapping[str, Iterable[int]]) -> Offsets:
        """The next offset of each partition."""
        with self.consumer() as consumer:
            return {
                topic: {number: _end(consumer, topic, number) for number in numbers}
                for topic, numbers in partitions.items()
            }

    def bounds(self, partitions: Mapping[str, Iterable[int]]) -> tuple[Offsets, Offsets]:
        """The first offset of each partition, and the next one: of a transaction that is open, its first."""
        begins: Offsets = {}
        ends: Offsets = {}
        with self.consumer() as consumer:
            for place in _all(partitions):
                low, high = consumer.get_watermark_offsets(place, timeout=REQUEST_TIMEOUT_S)
                begins.setdefault(place.topic, {})[place.partition] = int(low)
                ends.setdefault(place.topic, {})[place.partition] = int(high)
        return begins, ends

    @contextmanager
    def _admin(self) -> Iterator[AdminClient]:
        """An admin client, kept until all has been asked: one that is given up answers nothing more."""
        self._knock()
        with asking(self):
            yield AdminClient(self.settings())

    @contextmanager
    def consumer(self, group: str = "moldau-look-up") -> Iterator[Consumer]:
        self._knock()
        with asking(self):
            consumer = Consumer({**self.settings(), "group.id": group, "enable.auto.commit": False})
            try:
                yield consumer
            finally:
                consumer.close()

    def _knock(self) -> None:
        """Connect to the brokers first: librdkafka alone would try for a long time without a word."""
        reasons = []
        for address in self.bootstrap.split(","):
            try:
                socket.create_connection(_host_and_port(address.strip()), REACH_TIMEOUT_S).close()
                return
            except OSError as error:
                reasons.append(error.strerror or str(error))
        raise ClusterError(f"no broker answers at {self.bootstrap} ({reasons[-1]})")


def _topic_id(described: Any) -> Any:
    """The id of a described topic; None if it is not there, or the cluster is too old for ids."""
    try:
        return described.result().topic_id
    except KafkaException as error:
        if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise
        return None


def cluster_of(pipeline: PipelineSpec, options: Mapping[str, Any] | None = None) -> Cluster:
    """The pipeline's cluster, or the one that the options of a source or a sink name.

    Another cluster gets none of the pipeline's client properties: they may hold a password.
    """
    own = options or {}
    bootstrap = own.get("bootstrap") or pipeline.bootstrap
    shared = pipeline.client if bootstrap == pipeline.bootstrap else {}
    return Cluster(bootstrap, tuple(sorted({**shared, **(own.get("client") or {})}.items())))


def client_problems(owner: str, options: Mapping[str, Any], pipeline: PipelineSpec, place: Place) -> Iterator[Problem]:
    """Properties that Spark sets itself or librdkafka cannot take, so that a run would end at its start."""
    cluster = cluster_of(pipeline, options)
    for name, _ in cluster.client:
        if name in _SPARKS_OWN:
            yield Problem(place, f"{owner}: the client property {name!r} cannot be set", _SPARKS_OWN[name])
    try:
        cluster.settings()
    except ClusterError as error:
        yield Problem(place, f"{owner}: {error}")


# --- properties of clients ---

_SPARKS_OWN = {
    "auto.offset.reset": "a source has `starting` for it",
    "enable.auto.commit": "Spark keeps the position itself",
    "interceptor.classes": "Spark does not take them",
    "key.deserializer": "a source has `format` for it",
    "key.serializer": "a sink has `format` for it",
    "value.deserializer": "a source has `format` for it",
    "value.serializer": "a sink has `format` for it",
}

_SAME_IN_BOTH = frozenset(
    {
        "client.dns.lookup",
        "client.id",
        "client.rack",
        "connections.max.idle.ms",
        "metadata.max.age.ms",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "request.timeout.ms",
        "retry.backoff.ms",
        "sasl.kerberos.service.name",
        "sasl.mechanism",
        "security.protocol",
        "ssl.cipher.suites",
        "ssl.key.password",
    }
)
_OTHER_NAME = {
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.truststore.certificates": "ssl.ca.pem",
}
_JAAS = re.compile(r"\.(?:Plain|Scram)LoginModule\s+\w+\s+(.*?);?\s*$", re.DOTALL)
_JAAS_FIELD = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|(\S+))""")


def librdkafka(properties: Mapping[str, str]) -> dict[str, str]:
    """Java's properties in librdkafka's names: those of the connection, which every kind of client takes."""
    made = {name: value for name, value in properties.items() if name in _SAME_IN_BOTH}
    made |= {_OTHER_NAME[name]: value for name, value in properties.items() if name in _OTHER_NAME}
    if "ssl.endpoint.identification.algorithm" in properties:
        made["ssl.endpoint.identification.algorithm"] = properties["ssl.endpoint.identification.algorithm"] or "none"
    return made | _login(properties) | _trusted(properties) | _own_key(properties)


def _login(properties: Mapping[str, str]) -> dict[str, str]:
    """The user and password, which Java's clients have in one text."""
    if "sasl.jaas.config" not in properties:
        return {}
    module = _JAAS.search(properties["sasl.jaas.config"])
    if module is None:
        raise ClusterError("of 'sasl.jaas.config' only PlainLoginModule and ScramLoginModule can be used")
    fields = {name: re.sub(r"\\(.)", r"\1", a) or b or c for name, a, b, c in _JAAS_FIELD.findall(module[1])}
    return {f"sasl.{name}": fields[name] for name in ("username", "password") if name in fields}


def _trusted(properties: Mapping[str, str]) -> dict[str, str]:
    if "ssl.truststore.location" not in properties:
        return {}
    if properties.get("ssl.truststore.type", "JKS").upper() != "PEM":
        raise ClusterError("'ssl.truststore.location' must be a PEM file, with 'ssl.truststore.type: PEM'")
    return {"ssl.ca.location": properties["ssl.truststore.location"]}


def _own_key(properties: Mapping[str, str]) -> dict[str, str]:
    if "ssl.keystore.location" not in properties:
        return {}
    location = properties["ssl.keystore.location"]
    kind = properties.get("ssl.keystore.type", "JKS").upper()
    if kind == "PEM":
        return {"ssl.certificate.location": location, "ssl.key.location": location}
    if kind != "PKCS12":
        raise ClusterError("'ssl.keystore.location' must be a PEM or PKCS12 file, and 'ssl.keystore.type' say so")
    password = properties.get("ssl.keystore.password")
    return {"ssl.keystore.location": location} | ({"ssl.keystore.password": password} if password else {})


# --- asking ---

_COORDINATOR_NOT_READY = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)


@contextmanager
def asking(cluster: Cluster) -> Iterator[None]:
    """Turn refusals of Kafka inside the block into one line."""
    try:
        yield
    except KafkaException as error:
        words = error.args[0].str().removeprefix("Broker: ").removeprefix("Local: ")
        raise ClusterError(f"the cluster at {cluster.bootstrap} says: {words}") from error


def _wait_until_known(admin: AdminClient, topic: str) -> None:
    """Wait until every broker has heard of the topic: the controller answers before, and a reader that came now would
    not find it."""
    deadline = time.monotonic() + REQUEST_TIMEOUT_S
    while topic not in admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics:
        if time.monotonic() > deadline:
            raise ClusterError(f"topic {topic!r} was made, but the brokers do not know it yet")
        time.sleep(RETRY_S)


def when_ready(ask: Callable[[], T]) -> T:
    """The answer of `ask`, tried again while a group's new coordinator still loads its state: librdkafka does not wait
    for it."""
    deadline = time.monotonic() + REQUEST_TIMEOUT_S
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in _COORDINATOR_NOT_READY or time.monotonic() > deadline:
                raise
            time.sleep(RETRY_S)


def _all(partitions: Mapping[str, Iterable[int]], offset: int = 0) -> list[TopicPartition]:
    return [TopicPartition(topic, number, offset) for topic, numbers in partitions.items() for number in numbers]


def _offsets(found: Iterable[TopicPartition]) -> Offsets:
    offsets: Offsets = {}
    for item in found:
        if item.error:
            raise KafkaException(item.error)
        offsets.setdefault(item.topic, {})[item.partition] = item.offset
    return offsets


def _end(consumer: Consumer, topic: str, partition: int) -> int:
    _, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=REQUEST_TIMEOUT_S)
    return int(high)


def _host_and_port(address: str) -> tuple[str, int]:
    place = address.rpartition("://")[2]
    host, _, port = place.rpartition(":")
    if not port.isdigit() or place.endswith("]"):
        return place.strip("[]"), DEFAULT_PORT
    return host.strip("[]"), int(port)


def _silent() -> logging.Logger:
    """A logger without output, for librdkafka: errors that matter come back as such."""
    logger = logging.getLogger("moldau.librdkafka")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger
